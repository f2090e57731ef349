"""
A channel's side of one subscribed client: its credit (RDY) and what it has in flight.

Theory of operation. In flight is one dict, id -> `Delivery`, for each consumer. First deliveries of one consumer
within a sixteenth of a second share one Delivery, so a span costs one `dict.update` and a run of FINs one `map` of
`dict.pop`. Where latencies are measured, they share one only if they were published together, and a run of FINs is
counted by it. The table is only looked through when `next_due` has come, a lower bound for the earliest deadline: a
consumer that finishes in time is looked at about once per message timeout.

A message is never early: a shared deadline counts from the end of its sixteenth of a second.

This module is hot, once per span.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from nsqtw.core.agenda import Agenda, Due
from nsqtw.core.client import Client
from nsqtw.core.segment import Segment, sequence_of

if TYPE_CHECKING:
    from nsqtw.core.channel import Channel

TICKS_PER_SECOND = 16
FIRST = -1
"""`Delivery.sequence` of a first delivery: the id tells it."""


class Delivery:
    """
    When messages in flight time out. `sequence` and `attempts` are filled in only for a redelivery, `timestamp_ns`,
    when they were published, only where latencies are measured.
    """

    __slots__ = ("attempts", "deadline", "delivered_at", "timestamp_ns", "segment", "sequence")

    def __init__(
        self,
        deadline: float,
        delivered_at: float,
        timestamp_ns: int,
        sequence: int = FIRST,
        attempts: int = 1,
        segment: Segment | None = None,
    ) -> None:
        self.deadline = deadline
        self.delivered_at = delivered_at
        self.timestamp_ns = timestamp_ns
        self.sequence = sequence
        self.attempts = attempts
        self.segment = segment
        """Where the message is, for channels that cannot find it in the log again."""


class Consumer(Due):
    """
    One subscriber of a channel.

    `deliver` takes frames to write to the client, `disconnect` ends its connection. `msg_timeout` is in
    seconds; `touch_timeout` is what TOUCH grants, which a client may change after its deliveries'
    timeout is fixed (nsqd specification 1.6, repeated IDENTIFY).
    """

    __slots__ = (
        "_agenda",
        "_delivery",
        "_tick",
        "allowance",
        "channel",
        "client",
        "deliver",
        "disconnect",
        "in_flight",
        "msg_timeout",
        "ready_count",
        "region_local",
        "sample_rate",
        "stalled",
        "touch_timeout",
        "zone_local",
    )

    def __init__(
        self,
        client: Client,
        agenda: Agenda,
        deliver: Callable[[bytes], None],
        disconnect: Callable[[], None],
        msg_timeout: float,
    ) -> None:
        super().__init__()
        self.client = client
        self.channel: Channel | None = None
        self.deliver = deliver
        self.disconnect = disconnect
        self.msg_timeout = self.touch_timeout = msg_timeout
        self.sample_rate = 0
        self.ready_count = 0
        self.stalled = False
        """The transport has enough to write: counts as RDY 0."""
        self.zone_local = False
        self.region_local = False
        self.allowance = 0
        """Bytes it may still be given in this turn."""
        self.in_flight: dict[bytes, Delivery] = {}
        client.in_flight = self.in_flight  # type: ignore[assignment]
        self._agenda = agenda
        self._delivery: Delivery | None = None
        self._tick = -1

    @property
    def room(self) -> int:
        """How many messages it may be given now."""
        return 0 if self.stalled else self.ready_count - len(self.in_flight)

    def shared_delivery(self, now: float, timestamp_ns: int) -> Delivery:
        """The Delivery for first deliveries made now."""
        tick = int(now * TICKS_PER_SECOND)
        if tick != self._tick or self._delivery is None or self._delivery.timestamp_ns != timestamp_ns:
            self._tick = tick
            self._delivery = Delivery((tick + 1) / TICKS_PER_SECOND + self.msg_timeout, now, timestamp_ns)
        self._agenda.at(self._delivery.deadline, self)
        return self._delivery

    def single_delivery(
        self, now: float, timestamp_ns: int, sequence: int, attempts: int, segment: Segment | None
    ) -> Delivery:
        """The Delivery for one message's redelivery."""
        delivery = Delivery(now + self.msg_timeout, now, timestamp_ns, sequence, attempts, segment)
        self._agenda.at(delivery.deadline, self)
        return delivery

    def touch(self, message_id: bytes, now: float, max_msg_timeout: float) -> None:
        """Give the message, which is in flight here, its timeout anew; never past `max_msg_timeout` after delivery."""
        old = self.in_flight[message_id]
        deadline = min(now + self.touch_timeout, old.delivered_at + max_msg_timeout)
        self.in_flight[message_id] = Delivery(
            deadline, old.delivered_at, old.timestamp_ns, old.sequence, old.attempts, old.segment
        )
        self._agenda.at(deadline, self)

    def fall_due(self, now: float) -> float | None:
        """Give back to the channel what has timed out."""
        late = [(message_id, delivery) for message_id, delivery in self.in_flight.items() if delivery.deadline <= now]
        for message_id, _ in late:
            del self.in_flight[message_id]
        if late and self.channel is not None:
            self.channel.timed_out(self, late, now)
        next_due = min((delivery.deadline for delivery in self.in_flight.values()), default=inf)
        return None if next_due == inf else next_due

    def forget(self, start: int = 0) -> None:
        """The channel was emptied, or moved: nothing from the sequence `start` on is in flight any more."""
        gone = [message_id for message_id in self.in_flight if sequence_of(message_id) >= start] if start else None
        if gone is None:
            self.in_flight.clear()
        else:
            for message_id in gone:
                del self.in_flight[message_id]
