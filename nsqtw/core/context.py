"""
The context of a broker: what topics, channels and cursors share.

The context is passed down and knows nothing of what is above it. `Broker` extends it, by way of `TopicOwner`, so that
`broker.timers` and `context.timers` are the same attribute of the same object.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable

from nsqtw.core.damage import DamageLedger
from nsqtw.core.histogram import COMMIT_BOUNDS, Histogram
from nsqtw.core.latency import Measure
from nsqtw.core.pending_clock import PendingClock
from nsqtw.core.positions import IPositions
from nsqtw.core.quotas import Quotas
from nsqtw.core.sequences import SequenceAllocator
from nsqtw.core.timers import TimerQueue
from nsqtw.core.wall_clock import WallClock
from nsqtw.errors import Draining, Exiting, Suspended
from nsqtw.interfaces import OperatorLog, Waiter
from nsqtw.options.broker import Options


class Context:
    """
    Options, clocks, timers and storage of one broker. `measure` is None when no latencies are measured; `page_rows`: a
    channel keeps about as many of its deferred messages in memory, or up to twice as many.
    """

    def __init__(
        self,
        options: Options,
        log: OperatorLog,
        positions: IPositions,
        damage: DamageLedger,
        measure: Measure | None,
        page_rows: int,
    ) -> None:
        self.options = options
        self.node_id: int = options.node_id
        self.log = log
        self.measure = measure
        self.page_rows = page_rows
        self.positions = positions
        self.damage = damage
        self.sequences = SequenceAllocator(positions)
        self.quotas = Quotas(options)
        self.timers = TimerQueue(lambda: log("critical", "NSQ: something that was due failed"))
        self.pending_clock = PendingClock()
        self.stopping = False
        """Whether the broker stops, and ends all connections: no delivery fails because of that."""
        self.is_taking_publishes = True
        """Whether publishes are taken; not while the broker drains or stops."""
        self.is_suspended = False
        """Whether publishes are refused and nothing is delivered, because another broker may own the data."""
        self.is_draining = False
        """Whether a drain has begun; it stays so when the drained broker stops."""
        self.drain_listeners: dict[int, Callable[[], None]] = {}
        """Connections that are told of the beginning of a drain, by a number of their own."""
        self.wall_offset_ns = 0
        """Wall clock minus the monotonic clock; the server keeps it right with `follow_wall`."""
        self.publish_ack = Histogram(COMMIT_BOUNDS)
        """Seconds from the end of the turn that read a publish to its answer."""
        self.fsync = Histogram(COMMIT_BOUNDS)
        """Seconds of each commit that ended on stable storage."""
        self.protocol_errors: dict[str, int] = {}
        """Commands that were refused, by the code of the error."""
        self._wall = WallClock()

    def timestamp_ns(self, now: float) -> int:
        """Return the wall clock at `now`."""
        return int(now * 1e9) + self.wall_offset_ns

    def age_ns(self, timestamp_ns: int, now: float) -> int:
        """Return the age of a message with this timestamp, which jumps of the wall clock do not change."""
        return self._wall.age_ns(timestamp_ns, now, self.wall_offset_ns)

    def follow_wall(self, offset_ns: int, now: float) -> None:
        """The wall clock is `offset_ns` ahead of the clock of `now`. Checkpoints record it (`pending_clock`)."""
        self.wall_offset_ns = offset_ns
        jump_ms = self._wall.record(offset_ns, now)
        if jump_ms:
            text = "NSQ: the wall clock jumped by {seconds} s - what waits here goes by another clock"
            self.log("warn", text, seconds=round(jump_ms / 1000, 3))

    def begin_drain(self) -> None:
        """Refuse publishes and new topics from now on, and go on with all else."""
        self.is_taking_publishes = False
        self.is_draining = True
        for told in list(self.drain_listeners.values()):
            told()

    def suspend(self, suspended: bool) -> None:
        """Refuse publishes and deliver nothing, or serve again."""
        self.is_suspended = suspended
        self.is_taking_publishes = not (suspended or self.is_draining or self.stopping)

    def begin_stop(self) -> None:
        """Refuse publishes, and all that takes long."""
        self.stopping = True
        self.is_taking_publishes = False

    def refusal(self) -> Exiting:
        """Return why publishes are not taken."""
        if self.stopping or self.is_taking_publishes:
            return Exiting()
        return Suspended() if self.is_suspended else Draining()

    def answer(self, waiters: list[Waiter], error: Exception | None) -> None:
        """Call all `waiters`, even if one of them raises."""
        for waiter in waiters:
            try:
                waiter(error)
            except Exception:
                self.log("critical", "NSQ: answering a publisher failed")
