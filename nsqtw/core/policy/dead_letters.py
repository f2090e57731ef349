"""
Dead letters of one channel: messages that failed too often, or expired, on their way to the dead-letter topic.

Theory of operation. A message takes these steps, in batches, one at a time:

    held        it has a pending row, and is neither ready nor in flight
    saved       a checkpoint has the row, and that it is held
    stored      the dead-letter topic has committed the letter
    finished    the row is removed, in the same turn

If the process dies before *saved*, the checkpoint has the message in flight on its last delivery: it is delivered once
more. If the process dies before *stored*, the message is held again from the start on, with its reason. If it dies
later, the row may be in positions.db still, and the letter is in the log of its topic: beyond the end
that was saved of this topic, because the checkpoint that has the new end also has the row removed
(`Topic.saved_with`). `core.policy.moves` finds it there at the start, and removes the row before anything is
delivered. It needs a row for that, and so the row is saved first.

If a step fails, the messages are held and the step is tried again, RETRY_SECONDS later. A batch that a bound of the
dead-letter topic refuses is stored in parts: half of the messages at a time, down to one, and twice as many after each
part that was stored.

A dead letter that fails in the dead-letter topic is delivered again: it is not moved any further.
"""

# mypyc: compiled

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from nsqtw.core.checkpoint import HeldRow
from nsqtw.core.in_flight import Delivery, delivered_sequence
from nsqtw.core.place import Place
from nsqtw.core.policy.letter import EXPIRED, Letters, is_letter, letter_headers
from nsqtw.core.position import Position
from nsqtw.core.segment import BODY_AT, Segment
from nsqtw.core.timers import Timer
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError, Exiting, NsqtwError, Overflow
from nsqtw.options.refusals import dead_letter_topic, misfit, uses_dead_letters
from nsqtw.options.settings import DEAD_LETTER, ChannelPolicy

RETRY_SECONDS = 1.0
REPORT_SECONDS = 60.0
"""Time after which a failure that lasts is logged again."""
MAX_BATCH = 1000
"""The largest number of letters that are published together."""
MAX_BATCH_BYTES = 1024 * 1024
"""The largest size of the bodies of letters that are published together, about."""
MAX_HELD = 10_000
"""A channel with so many held messages looks for no more of them."""


class HeldMessage(NamedTuple):
    """
    A held message. `record` is its segment and its index there, in a channel that cannot find it in the log. `due` is
    when it is delivered again if it turns out to be a dead letter already. `detail` is what the client said about its
    failure.
    """

    sequence: int
    attempts: int
    reason: str
    record: tuple[Segment, int] | None
    due: float = 0.0
    detail: str = ""


class State(Enum):
    """The step of the batch."""

    IDLE = auto()
    SAVING = auto()
    SAVED = auto()
    STORING = auto()
    FAILED = auto()
    BACKING_OFF = auto()
    """The next batch begins RETRY_SECONDS after the last one failed."""


class DeadLetters(Timer):
    """
    The held messages of `channel`, whose messages are in `position`. `on_room` is called when messages have left,
    `schedule` with the time at which one is to be delivered again.
    """

    def __init__(
        self,
        topic: TopicLog,
        channel: str,
        position: Position,
        on_room: Callable[[], None],
        schedule: Callable[[float], None],
    ) -> None:
        super().__init__()
        self.count = 0
        """Messages that have left for the dead-letter topic since the process started."""
        self.max_attempts = 0
        """Deliveries after which a message leaves; 0: any number."""
        self.takes_expired = False
        """Whether expired messages leave; otherwise they are dropped."""
        self.is_used = False
        """Whether the policy makes dead letters."""
        self._topic = topic
        self._channel = channel
        self._position = position
        self._on_room = on_room
        self._schedule = schedule
        self._target = ""
        self._held: deque[HeldMessage] = deque()
        self._batch: list[HeldMessage] = []
        self._part: list[HeldMessage] = []
        """The first messages of the batch, which are being stored."""
        self._part_size = MAX_BATCH
        """The number of messages of the batch that are stored together."""
        self._letters: dict[int, tuple[bytes, bytes]] = {}
        """Bodies and headers of the batch by sequence."""
        self._state = State.IDLE
        self._now = 0.0
        self._reported = ""
        """The failure that was logged last."""
        self._report_at = 0.0
        """The time at which the failure is logged again."""

    def set_position(self, position: Position) -> None:
        """The channel has another position, with the same messages."""
        self._position = position

    def follow(self, policy: ChannelPolicy) -> None:
        """Apply a changed policy of the channel. Held messages that become no dead letters any more are ready again."""
        self._target = dead_letter_topic(policy, self._topic.name)
        # A pattern of the config file may match a topic that cannot have this one: nothing there becomes a dead letter.
        self.is_used = uses_dead_letters(policy) and misfit(policy, self._topic.name) is None
        self.max_attempts = policy.max_attempts if self.is_used else 0
        self.takes_expired = self.is_used and policy.expired == DEAD_LETTER
        self._give_back_others()

    @property
    def room(self) -> int:
        """How many messages may be added by a channel that looks for them."""
        return MAX_HELD - len(self._held)

    @property
    def held_count(self) -> int:
        """The number of held messages."""
        return len(self._batch) + len(self._held)

    @property
    def sequences(self) -> list[int]:
        """The sequences of all held messages."""
        return [message.sequence for message in (*self._batch, *self._held)]

    def takes(self, message_id: bytes, delivery: Delivery, reason: str, due: float, detail: str) -> bool:
        """
        Return whether a message that failed is a dead letter now; one that was before is delivered again when it is
        due. It is out of its consumer's table.
        """
        if not self.max_attempts or delivery.attempts < self.max_attempts:
            return False
        sequence = delivered_sequence(message_id, delivery)
        segment = delivery.segment
        record = None if segment is None else (segment, sequence - segment.first)
        self.add(HeldMessage(sequence, delivery.attempts, reason, record, due, detail))
        return True

    def add(self, message: HeldMessage) -> None:
        """Hold a message, and move it soon."""
        sequence, attempts, reason, _, due, detail = message
        due_ms = self._topic.context.pending_clock.due_ms(due) if due else 0
        row = HeldRow(sequence, attempts, reason, detail, due_ms)
        self._position.take_out(sequence, attempts, Place.HELD, row)
        self._hold([message])

    def restore(self, held: Iterable[HeldRow]) -> None:
        """Go on with messages that were held when the process ended, as far as they still become dead letters."""
        moment = self._topic.context.pending_clock.moment
        self._hold(
            [HeldMessage(row.sequence, row.attempts, row.reason, None, moment(row.due_ms), row.detail) for row in held]
        )
        self._give_back_others()

    def _hold(self, more: list[HeldMessage]) -> None:
        self._held.extend(more)
        if self._held and self._state is State.IDLE:
            self._topic.context.timers.schedule(0.0, self)

    def forget(self, start: int = 0) -> None:
        """The channel has forgotten its messages from the sequence `start` on."""
        self._held = deque(message for message in self._held if message.sequence < start)
        self._batch = [message for message in self._batch if message.sequence < start]
        self._part = [message for message in self._part if message.sequence < start]

    def detach(self) -> None:
        """The channel is being deleted."""
        self.forget()
        self._topic.context.timers.cancel(self)
        self._on_room, self._schedule = _do_nothing, _schedule_nothing

    def on_timer(self, now: float) -> float | None:
        """Timer API: take the next step."""
        self._now = now
        if self._state is State.FAILED:
            self._state = State.BACKING_OFF
            return now + RETRY_SECONDS
        if self._state is State.SAVED:
            self._store(now)
        elif self._state in (State.IDLE, State.BACKING_OFF):
            self._state = State.IDLE
            self._begin(now)
        return None

    # -- the steps

    def _begin(self, now: float) -> None:
        """Collect a batch, and have its rows saved."""
        size = 0
        try:
            while self._held and len(self._batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
                size += self._collect(self._held[0], now)
                self._held.popleft()
        except BackendError as error:
            self._fail(error)
            return
        if self._batch:
            self._state = State.SAVING
            self._topic.save(self._saved)

    def _collect(self, message: HeldMessage, now: float) -> int:
        """Add a message to the batch. Returns the size of its body. BackendError."""
        record = message.record or self._topic.log.find(message.sequence)
        if record is None:
            self._topic.lost(message.sequence)
            self._position.finish(message.sequence)
            return 0
        segment, index = record
        if is_letter(segment.headers_of(index)):
            self._give_back(message, now)
            return 0
        body = segment.slice(index, index + 1)[BODY_AT:]
        topic, channel = self._topic.name, self._channel
        headers = letter_headers(segment, index, topic, channel, message.attempts, message.reason, message.detail)
        self._letters[message.sequence] = body, headers
        self._batch.append(message)
        return len(body)

    def _saved(self, error: Exception | None) -> None:
        """Waiter API: the rows are saved, or that failed."""
        if error is not None:
            self._fail(error)
            return
        self._state = State.SAVED
        self._topic.context.timers.schedule(0.0, self)

    def _store(self, now: float) -> None:
        """Publish a part of the batch."""
        self._part = self._batch[: self._part_size]
        contents = [self._letters[message.sequence] for message in self._part]
        if not contents:
            self._end()
            return
        letters = Letters(self._target, self._channel, [body for body, _ in contents], [of for _, of in contents])
        self._state = State.STORING
        try:
            self._topic.put_dead_letters(letters, self._stored, now)
        except NsqtwError as error:
            self._fail(error)

    def _stored(self, error: Exception | None) -> None:
        """Waiter API: the part is stored, or that failed."""
        if isinstance(error, Overflow) and len(self._part) > 1:
            self._part_size = len(self._part) // 2
            self._store_next()
            return
        if error is not None:
            self._fail(error)
            return
        for message in self._part:
            self._position.finish(message.sequence)
        self.count += len(self._part)
        self._part_size = min(MAX_BATCH, 2 * self._part_size)
        self._batch = self._batch[len(self._part) :]
        if self._batch:
            self._store_next()
        else:
            self._reported = ""
            self._end()

    def _store_next(self) -> None:
        """Publish another part of the batch soon: its rows are saved."""
        self._state = State.SAVED
        self._topic.context.timers.schedule(0.0, self)

    def _end(self) -> None:
        self._batch, self._part = [], []
        self._letters.clear()
        self._state = State.IDLE
        if self._held:
            self._topic.context.timers.schedule(0.0, self)
        self._on_room()

    def _fail(self, error: Exception) -> None:
        self._held.extendleft(reversed(self._batch))
        self._batch, self._part = [], []
        self._letters.clear()
        self._state = State.FAILED
        self._topic.context.timers.schedule(0.0, self)
        self._give_back_others()
        if self._held and not isinstance(error, Exiting):
            self._report(str(error))

    def _report(self, reason: str) -> None:
        """Log why the messages are held, and again while that lasts."""
        if reason == self._reported and self._now < self._report_at:
            return
        self._reported, self._report_at = reason, self._now + REPORT_SECONDS
        self._topic.context.log(
            "error",
            "CHANNEL({channel}): dead letters of topic {topic} cannot go to topic {target}, {count} are held and will"
            " be tried again - {reason}",
            topic=self._topic.name,
            channel=self._channel,
            target=self._target,
            count=len(self._held),
            reason=reason,
        )

    def _give_back_others(self) -> None:
        """Give back messages that become no dead letters. Expired ones, which would be dropped then, stay."""
        others = [message for message in self._held if not self._is_for(message)]
        if others:
            self._held = deque(filter(self._is_for, self._held))
        for message in others:
            self._give_back(message)

    def _is_for(self, message: HeldMessage) -> bool:
        """Return whether a held message becomes a dead letter."""
        return self.is_used if message.reason == EXPIRED else self.max_attempts > 0

    def _give_back(self, message: HeldMessage, now: float = inf) -> None:
        """A message is ready again, or will be when it is due."""
        segment = None if message.record is None else message.record[0]
        delivery = Delivery(0.0, 0.0, 0, message.sequence, message.attempts, segment)
        if message.due > now:
            self._position.defer(b"", delivery, message.due)
            self._schedule(message.due)
        else:
            self._position.requeue(b"", delivery)
        self._on_room()


def _do_nothing() -> None:
    """Ignore the room: the object is detached."""


def _schedule_nothing(due: float) -> None:
    """Schedule nothing: the object is detached."""
