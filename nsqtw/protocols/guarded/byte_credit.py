"""
Byte credit of a subscription: as long as fewer bytes than its limit are in flight, it is given messages.

Only consumers with a limit pay for this: each of their messages is looked at when it is delivered and when it is
answered. The sizes of what is in flight when the limit is set are those that the log has. Messages that left the table
of the consumer otherwise (timeouts, an emptied or moved channel) are found when the numbers differ.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Iterable

from nsqtw.core.consumer import Consumer
from nsqtw.core.in_flight import delivered_sequence
from nsqtw.core.log import Log
from nsqtw.core.segment import BODY_AT, ID_AT, SEGMENT_BYTES, SIZE_BYTES


class ByteCredit:
    """The bytes in flight of `consumer`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._sizes: dict[bytes, int] = {}
        self._total = 0
        self.limit = 0
        """0: without one."""

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more may be delivered; after this the consumer is given no more than is left in a turn."""
        if not self.limit:
            self._consumer.turn_bytes = SEGMENT_BYTES
            return False
        self._settle()
        self._consumer.turn_bytes = max(1, min(SEGMENT_BYTES, self.limit - self._total))
        return self._total >= self.limit

    def set_limit(self, limit: int, log: Log | None) -> None:
        """
        Set the limit. Messages that are in flight, and are in `log`, count. BackendError, and the limit is set: those
        that could not be read do not count.
        """
        was_limited, self.limit = bool(self.limit), limit
        if not limit:
            self._sizes.clear()
            self._total = 0
        elif not was_limited and log is not None:
            self._add_in_flight(log)

    def add(self, frames: bytes) -> None:
        """These are delivered."""
        offset, end = 0, len(frames)
        while offset < end:
            size = SIZE_BYTES + int.from_bytes(frames[offset : offset + SIZE_BYTES], "big")
            message_id = frames[offset + ID_AT : offset + BODY_AT]
            self._total += size - self._sizes.get(message_id, 0)
            self._sizes[message_id] = size
            offset += size

    def forget(self, ids: Iterable[bytes]) -> None:
        """These are answered."""
        for message_id in ids:
            self._total -= self._sizes.pop(message_id, 0)

    def _add_in_flight(self, log: Log) -> None:
        """Count what was delivered without a limit. BackendError."""
        for message_id, delivery in self._consumer.in_flight.items():
            sequence, segment = delivered_sequence(message_id, delivery), delivery.segment
            record = log.find(sequence) if segment is None else (segment, sequence - segment.first)
            if record is not None:
                offsets, index = record[0].offsets, record[1]
                size = self._sizes[message_id] = offsets[index + 1] - offsets[index]
                self._total += size

    def _settle(self) -> None:
        """Forget what is not in flight any more."""
        in_flight = self._consumer.in_flight
        if len(self._sizes) <= in_flight.count:
            return
        gone = [message_id for message_id in self._sizes if message_id not in in_flight]
        self.forget(gone)
