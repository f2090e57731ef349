"""
The messages of a channel that are not delivered, or not any more: expired ones, and those that become dead letters.

Each message is looked at when its turn to be delivered has come, and when a delivery has failed. To pass messages takes
time, as to deliver them does. So the methods return a cost, which is subtracted from the allowance of the consumer that
was to get the messages.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqtw.core.checkpoint import HeldRow
from nsqtw.core.in_flight import Delivery
from nsqtw.core.policy.dead_letters import DeadLetters, HeldMessage
from nsqtw.core.policy.expiry import is_expired, leading_run
from nsqtw.core.policy.letter import EXPIRED, TOO_MANY_ATTEMPTS, is_letter
from nsqtw.core.position import Position, Redelivery
from nsqtw.core.segment import SEGMENT_BYTES, Segment
from nsqtw.core.topic_log import TopicLog
from nsqtw.options.refusals import uses_dead_letters
from nsqtw.options.settings import ChannelPolicy

RUN_COST = 8 * 1024
"""The bytes of a consumer's allowance in a turn that a run of expired messages uses."""
MESSAGE_COST = 256
"""The bytes of it that a message uses which is held, or was requeued."""
MAX_INTERRUPTIONS = 10
"""
Deliveries of a message beyond the last one that is allowed, at most, when the end of the process interrupted each of
them: it may be the message that ends the process.
"""


class Undelivered:
    """The undelivered messages of `channel` of `topic`. See `DeadLetters` for `on_room` and `schedule`."""

    def __init__(
        self,
        topic: TopicLog,
        channel: str,
        position: Position,
        on_room: Callable[[], None],
        schedule: Callable[[float], None],
        *,
        ephemeral: bool,
    ) -> None:
        self.expired_count = 0
        """Messages whose time to live had ended when their turn came, since the process started."""
        self.dead_letters: DeadLetters | None = None
        """The messages on their way to the dead-letter topic; None in a channel that never could have one."""
        self._topic = topic
        self._channel = channel
        self._position = position
        self._on_room = on_room
        self._schedule = schedule
        self._ephemeral = ephemeral

    def set_position(self, position: Position) -> None:
        """The channel has another position, with the same messages."""
        self._position = position
        if self.dead_letters is not None:
            self.dead_letters.set_position(position)

    def follow(self, policy: ChannelPolicy) -> None:
        """The policy of the channel has changed."""
        if self.dead_letters is None and uses_dead_letters(policy):
            self.dead_letters = self._new_dead_letters()
        if self.dead_letters is not None:
            self.dead_letters.follow(policy)

    def restore(self, held: Sequence[HeldRow]) -> None:
        """These were held when the process ended. The options may say since that there are no dead letters."""
        if held:
            self.dead_letters = self.dead_letters or self._new_dead_letters()
            self.dead_letters.restore(held)

    @property
    def max_attempts(self) -> int:
        """Deliveries after which a message becomes a dead letter; 0: any number."""
        return 0 if self.dead_letters is None else self.dead_letters.max_attempts

    @property
    def is_full(self) -> bool:
        """Whether so many messages are held that the channel is to deliver nothing until some have left."""
        return self.dead_letters is not None and self.dead_letters.room <= 0

    def take_failed(self, message_id: bytes, delivery: Delivery, reason: str, due: float, detail: str = "") -> bool:
        """
        Return whether a message whose delivery failed becomes a dead letter; one that cannot is delivered again when it
        is due. It is out of its consumer's table.
        """
        return self.dead_letters is not None and self.dead_letters.takes(message_id, delivery, reason, due, detail)

    def take_redelivery(self, redelivery: Redelivery, now: float) -> int:
        """Take a requeued message that has expired, or was delivered too often. Returns the cost, 0 for any other."""
        sequence, attempts, segment, index, is_interrupted = redelivery
        dead_letters, ttl_ns = self.dead_letters, self._topic.message_ttl_ns
        if (segment.headers is not None or ttl_ns) and is_expired(
            segment, index, ttl_ns, self._topic.context.timestamp_ns(now)
        ):
            self._expire(sequence, attempts, segment, index)
            return self._cost(MESSAGE_COST)
        if dead_letters is None or not dead_letters.max_attempts or attempts < dead_letters.max_attempts:
            return 0
        if is_interrupted and attempts < dead_letters.max_attempts + MAX_INTERRUPTIONS:
            return 0
        if is_letter(segment.headers_of(index)):
            return 0
        dead_letters.add(HeldMessage(sequence, attempts, TOO_MANY_ATTEMPTS, self._record(segment, index)))
        return self._cost(MESSAGE_COST)

    def pass_expired(self, segment: Segment, start: int, stop: int, now: float) -> tuple[int, int]:
        """
        Pass the run of expired messages at `start`. Returns the cost, 0 when there is no such run; and the end of the
        run: of expired messages, or of those that have not expired.
        """
        wall_ns = self._topic.context.timestamp_ns(now)
        stop, has_expired = leading_run(segment, start, stop, self._topic.message_ttl_ns, wall_ns)
        if not has_expired:
            return 0, stop
        dead_letters = self.dead_letters
        if dead_letters is None or not dead_letters.takes_expired:
            self._position.pass_next(stop - start)
            self.expired_count += stop - start
            return RUN_COST, stop
        stop = min(stop, start + max(1, dead_letters.room))
        self._position.advance(stop - start)
        for index in range(start, stop):
            self._expire(segment.sequence_at(index), 0, segment, index)
        return self._cost(RUN_COST + (stop - start) * MESSAGE_COST), stop

    def forget(self, start: int = 0) -> None:
        """The channel has forgotten its messages from the sequence `start` on."""
        if self.dead_letters is not None:
            self.dead_letters.forget(start)

    def detach(self) -> None:
        """The channel is being deleted."""
        self._on_room, self._schedule = _do_nothing, _schedule_nothing
        if self.dead_letters is not None:
            self.dead_letters.detach()

    def _new_dead_letters(self) -> DeadLetters:
        return DeadLetters(self._topic, self._channel, self._position, self._on_room, self._schedule)

    def _expire(self, sequence: int, attempts: int, segment: Segment, index: int) -> None:
        """Hold an expired message for the dead-letter topic, or finish it."""
        dead_letters = self.dead_letters
        self.expired_count += 1
        if dead_letters is not None and dead_letters.takes_expired and not is_letter(segment.headers_of(index)):
            dead_letters.add(HeldMessage(sequence, attempts, EXPIRED, self._record(segment, index)))
        else:
            self._position.finish(sequence)

    def _cost(self, cost: int) -> int:
        """Return a cost, or all that there is in a turn when no more messages are to be held."""
        return SEGMENT_BYTES if self.is_full else cost

    def _record(self, segment: Segment, index: int) -> tuple[Segment, int] | None:
        return (segment, index) if self._ephemeral else None


def _do_nothing() -> None:
    """Ignore the room: the object is detached."""


def _schedule_nothing(due: float) -> None:
    """Schedule nothing: the object is detached."""
