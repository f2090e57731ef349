"""
Publish buffer of a topic: the bodies of this turn, and the waiters for their result.

`seal` encodes the bodies as segments, one run of equal delays at a time, and gives each its position in the log.
Sequences are taken from the broker in blocks (`sequences`). Where a topic has a `Deduplication`, messages that repeat
others are left out before. Publishers that want the ids of their messages are told them by `seal`.

Performance: called once per publish command.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from nsqtw.core.context import Context
from nsqtw.core.packed_messages import PackedMessages
from nsqtw.core.policy.deduplication import Deduplication, Run
from nsqtw.core.segment import BODY_AT, SEGMENT_BYTES, SEQUENCE_BITS, Segment, cuts, encode, sizes_of
from nsqtw.core.sequences import BLOCK_SIZE
from nsqtw.interfaces import Assigned, Waiter


class PublishBuffer:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._runs: list[Run] = []
        """
        Delay in ms, the only channel that gets the messages ("": all), bodies, and encoded headers, None without any.
        Neighbours with one delay and one channel are in one run.
        """
        self._plain: list[bytes] | None = None
        """The bodies of the last run, if it has no delay, no channel and no headers."""
        self._earlier = 0
        """Messages in all runs but the last one."""
        self.waiters: list[Waiter] = []
        self._wanted_ids: list[tuple[int, int, Assigned]] = []
        """Ranges of the messages of this turn whose ids somebody wants."""
        self._next_sequence = self._block_end = 0

    def add_plain(self, bodies: Sequence[bytes], waiter: Waiter) -> None:
        """Take messages without a delay, a channel or headers."""
        self.waiters.append(waiter)
        plain = self._plain
        if plain is not None:
            plain.extend(bodies)
            return
        if self._runs:
            self._earlier += len(self._runs[-1][2])
        plain = self._plain = [*bodies]
        self._runs.append((0, "", plain, None))

    def add_packed(self, messages: PackedMessages, waiter: Waiter) -> None:
        """Take messages as `add_plain` does, which become objects when they are sealed."""
        self.waiters.append(waiter)
        if self._runs:
            self._earlier += len(self._runs[-1][2])
        self._runs.append((0, "", messages, None))
        self._plain = None

    def add(
        self,
        bodies: Sequence[bytes],
        delay_ms: int,
        waiter: Waiter,
        headers: Sequence[bytes] | None = None,
        channel: str = "",
    ) -> None:
        """Take messages. `headers`: the encoded headers of each; `channel`: the only channel that is to have them."""
        self.waiters.append(waiter)
        if self._runs:
            run_delay_ms, run_channel, run_bodies, run_headers = self._runs[-1]
            is_same = run_delay_ms == delay_ms and run_channel == channel
            if is_same and not isinstance(run_bodies, PackedMessages):
                if headers is None and run_headers is None:
                    run_bodies.extend(bodies)
                    return
                if headers is not None and run_headers is not None:
                    run_bodies.extend(bodies)
                    run_headers.extend(headers)
                    return
            self._earlier += len(run_bodies)
        run = delay_ms, channel, [*bodies], None if headers is None else [*headers]
        self._runs.append(run)
        self._plain = None if delay_ms or channel or headers is not None else run[2]

    def want_ids(self, count: int, assigned: Assigned) -> None:
        """Tell the ids of the next `count` messages when they are sealed."""
        start = self.count()
        self._wanted_ids.append((start, start + count, assigned))

    def count(self) -> int:
        """Return how many messages were taken in this turn."""
        return self._earlier + (len(self._runs[-1][2]) if self._runs else 0)

    def take_waiters(self) -> list[Waiter]:
        """Return the waiters of the last `seal`; the caller answers them."""
        waiters, self.waiters = self.waiters, []
        return waiters

    def seal(self, timestamp_ns: int, deduplication: Deduplication | None = None) -> list[Segment]:
        """
        Return the bodies of this turn as segments, without repeats. BackendError when no block of sequences can be
        reserved, or it cannot be found out what repeats what.
        """
        if deduplication is not None or self._wanted_ids:
            return self._seal_with_ids(timestamp_ns, deduplication)
        runs, self._runs, self._plain, self._earlier = self._runs, [], None, 0
        node_id = self._context.node_id
        segments: list[Segment] = []
        for delay_ms, channel, bodies, headers in runs:
            if headers is not None or channel:
                for chunk, of_chunk in _with_headers([*bodies], headers):
                    first = self._take_sequences(len(chunk))
                    segments.append(encode(chunk, first, node_id, timestamp_ns, delay_ms, None, of_chunk, channel))
            elif len(bodies) > 1:
                chunks: Iterable[list[bytes]]
                sizes: Collection[int]
                if isinstance(bodies, PackedMessages):
                    sizes = (bodies.size,)
                    chunks = bodies.lists(max(1, SEGMENT_BYTES // (BODY_AT + bodies.size)))
                else:
                    sizes = sizes_of(bodies)
                    chunks = cuts(bodies, sizes)
                for chunk in chunks:
                    first = self._take_sequences(len(chunk))
                    segments.append(encode(chunk, first, node_id, timestamp_ns, delay_ms, sizes))
            elif bodies:  # a publish that is alone in its turn
                segments.append(encode([*bodies], self._take_sequences(1), node_id, timestamp_ns, delay_ms))
        return segments

    def forget(self) -> None:
        """Drop the messages; their waiters still have to be answered."""
        self._runs, self._plain, self._earlier = [], None, 0
        self._wanted_ids = []

    def _seal_with_ids(self, timestamp_ns: int, deduplication: Deduplication | None) -> list[Segment]:
        """Leave out repeats, and tell ids."""
        runs, wanted_ids = self._runs, self._wanted_ids
        self.forget()
        places: Sequence[int] | None = None
        if deduplication is not None:
            runs, places = deduplication.sift(runs, timestamp_ns)
        self._runs = runs
        segments = self.seal(timestamp_ns)
        sequences = [*chain.from_iterable(range(segment.first, segment.end) for segment in segments)]
        if deduplication is not None:
            deduplication.sealed(sequences)
        node = self._context.node_id << SEQUENCE_BITS
        for start, stop, assigned in wanted_ids:
            wanted = range(start, stop) if places is None else places[start:stop]
            assigned([node | (sequences[place] if place >= 0 else ~place) for place in wanted])
        return segments

    def _take_sequences(self, count: int) -> int:
        if self._next_sequence + count > self._block_end:
            blocks = -(-count // BLOCK_SIZE)
            self._next_sequence = self._context.sequences.take(blocks) * BLOCK_SIZE
            self._block_end = self._next_sequence + blocks * BLOCK_SIZE
        first = self._next_sequence
        self._next_sequence += count
        return first


def _with_headers(bodies: list[bytes], headers: list[bytes] | None) -> Iterator[tuple[list[bytes], list[bytes] | None]]:
    """
    Yield bodies that make one segment with the headers of these messages, None where no message has any. Large headers
    divide bodies, too.
    """
    start = 0
    for chunk in cuts(bodies, sizes_of(bodies)) if bodies else ():
        if headers is None:
            yield chunk, None
            continue
        of_chunk = headers[start : start + len(chunk)]
        start += len(chunk)
        for begin, stop in _runs(of_chunk):
            of_run = of_chunk[begin:stop]
            yield chunk[begin:stop], of_run if any(of_run) else None


def _runs(headers: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the start and the stop of runs whose headers have at most SEGMENT_BYTES together."""
    if sum(map(len, headers)) <= SEGMENT_BYTES:
        yield 0, len(headers)
        return
    start = size = 0
    for index, encoded in enumerate(headers):
        size += len(encoded)
        if size > SEGMENT_BYTES and index > start:
            yield start, index
            start, size = index, len(encoded)
    yield start, len(headers)
