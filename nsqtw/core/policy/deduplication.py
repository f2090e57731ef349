"""
Deduplication: the publishers' ids of the messages of one topic (setting `dedupe_window`).

Theory of operation. A publisher that got no answer repeats its publish, with the same id in the header `id`. A repeat
within the window is answered as the first publish was, and not stored.

An id is looked for when its publish is sealed, not when it is taken: then every earlier publish to the topic is
either accepted or refused, because a topic has one commit on its way at most. A repeat in the same seal is in the same
commit as the first publish, and a commit succeeds or fails for all messages of a topic: both get the same answer. So no
publish ever waits for another one's result. Ids become known when the topic accepts the messages: a refused publish
leaves no id.

An id belongs to the audience of its message: the topic, or the one channel that gets it. The same id for another
channel, or for the topic, is another one: a message that is stored for one audience is no reason not to store one for
another.

An accepted id is in memory until the next checkpoint is saved (`_unsaved`, then `_saving`), and in positions.db from
then on. A checkpoint with the end of the topic's log has the ids of all messages up to this end, and a start reads the
messages beyond it (`core.recovery`): an id is known if and only if its message was stored. The broker's own messages
have ids that mean nothing here: dead letters, and those that a redrive puts back. Their reserved headers tell them.

Ids are kept as hashes of 16 bytes, keyed with the name of the channel if there is one. Times are milliseconds of the
pending clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from nsqtw.core.checkpoint import PublisherId
from nsqtw.core.context import Context
from nsqtw.core.packed_messages import PackedMessages
from nsqtw.core.segment import Segment
from nsqtw.message_headers import ID, RESERVED_PREFIX, decode_headers, header_bytes

HASH_BYTES = 16
_RESTORED_IN_MEMORY = 100_000

Run = tuple[int, str, list[bytes] | PackedMessages, list[bytes] | None]
"""See `PublishBuffer`."""

_ID_FIELD: Final = bytes((len(ID),)) + ID.encode()
"""The start of the header in an encoding."""
_ID: Final = ID.encode()
_RESERVED: Final = RESERVED_PREFIX.encode()


def hash_of(publisher_id: str, channel: str = "") -> bytes:
    """Return the hash under which an id is kept. `channel`: the only one that gets the message; "" for all."""
    return _hash_of(publisher_id.encode(), channel.encode())


def hash_in(headers: bytes, key: bytes = b"") -> bytes | None:
    """
    Return the hash of the id in the encoded headers of a message; None without one, and if the broker wrote them. `key`
    is the name of the only channel that gets the message.
    """
    if _ID_FIELD not in headers:
        return None
    publisher_id = header_bytes(headers, _ID)
    if publisher_id is None or (_RESERVED in headers and _are_brokers(headers)):
        return None
    return _hash_of(publisher_id, key)


def _hash_of(publisher_id: bytes, key: bytes) -> bytes:
    return blake2b(publisher_id, digest_size=HASH_BYTES, key=key).digest()


def _are_brokers(headers: bytes) -> bool:
    """Return whether the broker wrote these headers."""
    return any(name.startswith(RESERVED_PREFIX) for name in decode_headers(headers))


class Deduplication:
    """The ids of the topic `topic`, each known for `window` seconds."""

    def __init__(self, context: Context, topic: str, window: float) -> None:
        self._context = context
        self._topic = topic
        self.window_ms = 0
        self.set_window(window)
        self.repeat_count = 0
        """Messages that were not stored, since the process started."""
        self._sealed: dict[bytes, int] = {}  # hash -> place among the messages of the last seal
        self._sequences: Sequence[int] = ()
        self._sealed_ms = 0
        self._unsaved: dict[bytes, PublisherId] = {}
        self._saving: dict[bytes, PublisherId] = {}

    def set_window(self, window: float) -> None:
        """Change the window, also for the ids that are known."""
        self.window_ms = max(1, round(window * 1000))

    # -- publishing

    def sift(self, runs: list[Run], timestamp_ns: int) -> tuple[list[Run], list[int]]:
        """
        Return the runs without repeats, and the place of each message of the given runs: its index among the messages
        that are left, of a repeat that of the first message with its id; or ~sequence of a message that was stored
        before. BackendError when saved ids cannot be read, and then nothing is known of these messages.
        """
        now_ms = self._clock_ms(timestamp_ns)
        hashes = [_hashes_of(run) for run in runs]
        known = self._known({found for of_run in hashes for found in of_run or () if found is not None}, now_ms)
        self._sealed, self._sealed_ms = {}, now_ms
        sifted: list[Run] = []
        places: list[int] = []
        count = 0
        for run, of_run in zip(runs, hashes, strict=True):
            if of_run is None:
                sifted.append(run)
                places += range(count, count + len(run[2]))
                count += len(run[2])
                continue
            keep: list[int] = []
            for index, found in enumerate(of_run):
                if found is not None:
                    place = known.get(found)
                    if place is not None:
                        places.append(place)
                        continue
                    known[found] = self._sealed[found] = count
                keep.append(index)
                places.append(count)
                count += 1
            sifted.append(run if len(keep) == len(of_run) else _part_of(run, keep))
        self.repeat_count += len(places) - count
        return sifted, places

    def sealed(self, sequences: Sequence[int]) -> None:
        """These are the sequences of the messages that the last `sift` left."""
        self._sequences = sequences

    def accept(self) -> None:
        """The messages of the last seal are stored."""
        for found, place in self._sealed.items():
            self._unsaved[found] = PublisherId(found, self._sealed_ms, self._sequences[place])
        self._sealed = {}

    def sequence_of(self, publisher_id: str, now: float, channel: str = "") -> int | None:
        """
        Return the sequence of the message with this id, of one for `channel` only if that is given; None when it is not
        known. BackendError.
        """
        found = hash_of(publisher_id, channel)
        place = self._known({found}, self._context.pending_clock.ms_at(now)).get(found)
        return None if place is None else ~place

    # -- saving

    def unsaved(self) -> list[PublisherId]:
        """Return what the next checkpoint must contain."""
        self._saving, self._unsaved = self._unsaved, {}
        return list(self._saving.values())

    def end_checkpoint(self, *, failed: bool) -> None:
        """The result of the last `unsaved` is saved; or saving it `failed`."""
        if failed:
            self._unsaved = self._saving | self._unsaved
        self._saving = {}

    def restore(self, segments: Iterable[Segment], now: float) -> None:
        """
        Know the ids of stored messages that no checkpoint has. When they are very many, because positions.db was lost,
        they are saved at once. BackendError.
        """
        oldest_ms = self._context.pending_clock.ms_at(now) - self.window_ms
        for segment in segments:
            published_ms = self._clock_ms(segment.timestamp_ns)
            if segment.headers is None or published_ms < oldest_ms:
                continue
            key = segment.channel.encode()
            for index, headers in enumerate(segment.headers):
                found = hash_in(headers, key)
                if found is not None:
                    self._unsaved[found] = PublisherId(found, published_ms, segment.first + index)
        if len(self._unsaved) >= _RESTORED_IN_MEMORY:
            self._context.positions.put_publisher_ids(self._topic, list(self._unsaved.values()))
            self._unsaved = {}

    # -- inside

    def _known(self, hashes: set[bytes], now_ms: int) -> dict[bytes, int]:
        """Return ~sequence of those that are known and not too old."""
        oldest_ms = now_ms - self.window_ms
        in_memory = [row for found in hashes if (row := self._in_memory(found)) is not None]
        rest = hashes.difference([row.hash for row in in_memory])
        saved = self._context.positions.publisher_ids(self._topic, list(rest)) if rest else []
        return {row.hash: ~row.sequence for row in (*in_memory, *saved) if row.published_ms >= oldest_ms}

    def _in_memory(self, found: bytes) -> PublisherId | None:
        return self._unsaved.get(found) or self._saving.get(found)

    def _clock_ms(self, timestamp_ns: int) -> int:
        """Return the pending clock at this wall-clock time."""
        return self._context.pending_clock.ms_at((timestamp_ns - self._context.wall_offset_ns) / 1e9)


def _hashes_of(run: Run) -> list[bytes | None] | None:
    """Return the hash of each message's id; None for a run without headers."""
    _, channel, _, headers = run
    if headers is None:
        return None
    key = channel.encode()
    return [hash_in(of_message, key) for of_message in headers]


def _part_of(run: Run, keep: list[int]) -> Run:
    """Return the messages of a run with these indexes."""
    delay_ms, channel, bodies, headers = run
    listed = [*bodies]
    of_kept = None if headers is None else [headers[index] for index in keep]
    return delay_ms, channel, [listed[index] for index in keep], of_kept
