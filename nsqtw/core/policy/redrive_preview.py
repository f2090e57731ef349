"""
Preview of a redrive: how many of the messages that it would read are of others, and would stay where they are.

The messages that are ready in the channel of the dead letters are looked at as `core.peek` does, some in each turn.
Messages that are published, delivered or finished meanwhile may be counted or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from nsqtw.core.channel import Channel
from nsqtw.core.policy.letter import is_letter_of
from nsqtw.core.timers import Timer
from nsqtw.errors import BackendError

_MESSAGES: Final = 1000
"""The number of messages that are examined in a turn, about."""
_READS: Final = 16
"""The number of reads from the medium in a turn, about."""
_MAX_ROWS: Final = 1_000_000


class RedrivePreview(Timer):
    """
    Counts the messages in `letters` that a redrive to `channel` would leave there. `answer` is called with the number
    of messages, and with that of others among them; or with a BackendError.
    """

    def __init__(
        self, channel: Channel, letters: Channel, now: float, answer: Callable[[int, int, BackendError | None], None]
    ) -> None:
        super().__init__()
        self._channel = channel
        self._letters = letters
        self._answer = answer
        self._count = self._own = 0
        self._headers = self._walk(now)
        channel.topic.context.timers.schedule(now, self)

    def on_timer(self, now: float) -> float | None:
        """Timer API: look at some messages."""
        log, topic, name = self._letters.topic.log, self._channel.topic.name, self._channel.name
        reads, looked = log.reads, 0
        try:
            for encoded in self._headers:
                looked += 1
                if encoded is not None:
                    self._count += 1
                    self._own += is_letter_of(encoded, topic, name)
                if looked >= _MESSAGES or log.reads - reads >= _READS:
                    return now
        except BackendError as error:
            self._answer(0, 0, error)
            return None
        self._answer(self._count, self._count - self._own, None)
        return None

    def _walk(self, now: float) -> Iterator[bytes | None]:
        """Iterate over the headers of the messages; None for what is none of them. BackendError."""
        cursor, topic, name = self._letters.cursor, self._letters.topic, self._letters.name
        assert cursor is not None, "an ephemeral channel has no redrive"
        in_flight = {*self._letters.sequences_in_flight()}
        for row in cursor.pending_rows(now, deferred=False, limit=_MAX_ROWS):
            record = None if row.sequence in in_flight else topic.log.find(row.sequence)
            yield None if record is None else record[0].headers_of(record[1])
        priorities, wall_ns = cursor.priorities, topic.context.timestamp_ns(now)
        for segment in topic.reader.segments(cursor.next, topic.released):
            yield None
            if segment.delay_ms and segment.timestamp_ns + segment.delay_ms * 10**6 > wall_ns:
                continue
            if segment.is_for(name) and (not segment.delay_ms or segment.first < cursor.replays):
                for index in range(segment.count):
                    waits = priorities is None or priorities.waits(segment, index)
                    yield segment.headers_of(index) if waits else None
