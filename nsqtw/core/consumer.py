"""
A channel's side of one subscribed client: its credit (RDY) and its messages in flight.

Theory of operation. Each consumer has one table of messages in flight (`core.in_flight`). First deliveries of one
consumer within a sixteenth of a second share one Delivery. Where latencies are measured they share one only if they
were published together, and a run of FINs is counted by it. The table is searched only at `due_at`, a lower bound for
the earliest deadline: for a consumer that finishes in time that is about once per message timeout.

A message never times out early: a shared deadline counts from the end of its sixteenth of a second.

Performance: called once per span.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqtw.core.client import Client
from nsqtw.core.in_flight import Delivery, InFlight
from nsqtw.core.segment import SEGMENT_BYTES, Segment
from nsqtw.core.timers import Timer, TimerQueue

TICKS_PER_SECOND = 16

OnTimeout = Callable[["Consumer", list[tuple[bytes, Delivery]], float], None]


class Consumer(Timer):
    """
    One subscriber of a channel.

    `deliver` takes frames to write to the client, `disconnect` ends its connection. `msg_timeout` is in
    seconds; `touch_timeout` is what TOUCH grants, which a client may change after its deliveries'
    timeout is fixed (repeated IDENTIFY).
    """

    __slots__ = (
        "_delivery",
        "_tick",
        "_timers",
        "allowance",
        "client",
        "deliver",
        "deliver_with_headers",
        "disconnect",
        "in_flight",
        "is_blocked",
        "msg_timeout",
        "on_pause",
        "on_removed",
        "on_timeout",
        "ready_count",
        "region_local",
        "sample_rate",
        "touch_timeout",
        "turn_bytes",
        "zone_local",
    )

    def __init__(
        self,
        client: Client,
        timers: TimerQueue,
        deliver: Callable[[bytes], None],
        disconnect: Callable[[], None],
        msg_timeout: float,
    ) -> None:
        super().__init__()
        self.client = client
        self.on_timeout: OnTimeout | None = None
        """Called with the messages whose timeout has passed."""
        self.deliver = deliver
        self.deliver_with_headers: Callable[[bytes, Sequence[bytes]], None] | None = None
        """
        Takes frames, and the encoded headers of each, of messages some of which have headers. None: the client gets no
        headers, and `deliver` takes all frames.
        """
        self.disconnect = disconnect
        self.msg_timeout = self.touch_timeout = msg_timeout
        self.sample_rate = 0
        self.ready_count = 0
        self.is_blocked = False
        """The transport has enough to write: counts as RDY 0."""
        self.zone_local = False
        self.region_local = False
        self.on_pause: Callable[[bool], None] | None = None
        """Told when the channel or its topic is paused (True) or goes on."""
        self.on_removed: Callable[[], None] | None = None
        """Told when messages that it did not answer have left `in_flight`: after a timeout, an empty or a seek."""
        self.turn_bytes = SEGMENT_BYTES
        """Bytes that it may be given in a turn; one message more than fits."""
        self.allowance = 0
        """Bytes it may still be given in this turn."""
        self.in_flight = client.in_flight = InFlight()
        self._timers = timers
        self._delivery: Delivery | None = None
        self._tick = -1

    @property
    def room(self) -> int:
        """How many messages the consumer may be given now."""
        return 0 if self.is_blocked else self.ready_count - self.in_flight.count

    def shared_delivery(self, now: float, timestamp_ns: int) -> Delivery:
        """The Delivery for first deliveries made now."""
        tick = int(now * TICKS_PER_SECOND)
        if tick != self._tick or self._delivery is None or self._delivery.timestamp_ns != timestamp_ns:
            self._tick = tick
            self._delivery = Delivery((tick + 1) / TICKS_PER_SECOND + self.msg_timeout, now, timestamp_ns)
        self._timers.schedule(self._delivery.deadline, self)
        return self._delivery

    def single_delivery(
        self, now: float, timestamp_ns: int, sequence: int, attempts: int, segment: Segment | None
    ) -> Delivery:
        """The Delivery for one message's redelivery."""
        delivery = Delivery(now + self.msg_timeout, now, timestamp_ns, sequence, attempts, segment)
        self._timers.schedule(delivery.deadline, self)
        return delivery

    def touch(self, message_id: bytes, now: float, max_msg_timeout: float) -> bool:
        """
        Restart the timeout of a message, up to `max_msg_timeout` after its delivery. Returns whether it is in flight
        here.
        """
        old = self.in_flight.get(message_id)
        if old is None:
            return False
        deadline = min(now + self.touch_timeout, old.delivered_at + max_msg_timeout)
        touched = Delivery(deadline, old.delivered_at, old.timestamp_ns, old.sequence, old.attempts, old.segment)
        self.in_flight.replace(message_id, touched)
        self._timers.schedule(deadline, self)
        return True

    def leave(self, *, must_wait: bool) -> None:
        """
        The connection is closed: drop the references to it. `must_wait`: messages in flight still have to time out.
        """
        self.deliver, self.disconnect = _deliver_nothing, _do_nothing
        self.deliver_with_headers = None
        if not must_wait:
            self._timers.cancel(self)

    def on_timer(self, now: float) -> float | None:
        """Give back to the channel what has timed out."""
        deliveries = self.in_flight.take_timed_out(now)
        if deliveries and self.on_timeout is not None:
            self.on_timeout(self, deliveries, now)
        return self.in_flight.next_deadline


def _deliver_nothing(frames: bytes) -> None:
    """`Consumer.deliver` without a connection."""


def _do_nothing() -> None:
    """`Consumer.disconnect` without a connection."""
