"""Brokers that break what a policy promises, each in one place: see `tests.crash.sabotage`."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from math import inf
from typing import Any

from attrs import evolve

from nsqtw.api import policies
from nsqtw.backends.disk import scan
from nsqtw.backends.positions.policy_rows import PolicyRows
from nsqtw.core.backlog import Backlog
from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.channel_base import ChannelBase
from nsqtw.core.checkpoint import CursorState, HeldRow
from nsqtw.core.consumer import Consumer
from nsqtw.core.cursor import Cursor
from nsqtw.core.delivery import ChannelDelivery
from nsqtw.core.in_flight import Delivery
from nsqtw.core.policy import dead_letters, undelivered
from nsqtw.core.policy.bounds import ChannelBounds, TopicBounds
from nsqtw.core.policy.choice import LogChoice
from nsqtw.core.policy.dead_letters import DeadLetters
from nsqtw.core.policy.deduplication import Deduplication
from nsqtw.core.policy.letter import DISCONNECTED, REDRIVES, TIMED_OUT
from nsqtw.core.policy.moves import Moves
from nsqtw.core.policy.order import OrderedPosition
from nsqtw.core.policy.priority import PriorityReader
from nsqtw.core.policy.rate_limit import RateLimit
from nsqtw.core.policy.requeue_delay import RequeueDelay
from nsqtw.core.policy.sizes import Sizes
from nsqtw.core.segment import Segment, Span, sequence_of
from nsqtw.core.topic import Topic
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer
from nsqtw.interfaces import Assigned, Waiter
from nsqtw.message_headers import HIGH, NORMAL
from nsqtw.names import dead_letter_name
from nsqtw.options.settings import ChannelPolicy
from nsqtw.protocols.v3.session import V3Session
from nsqtw.runtime.pump import Pump
from tests.crash.sabotage import change_cuts

_EVERY = 5
_TOO_SOON = 20
"""Messages are dropped when they are so many times younger than they may be."""


def forget_headers() -> None:
    """What is read from the disk has no headers."""
    read = scan.segment_of  # type: ignore[attr-defined]

    def wrong(*arguments: Any, **options: Any) -> Any:
        segment = read(*arguments, **options)
        if segment is not None:
            segment.headers = None
        return segment

    scan.segment_of = wrong  # type: ignore[attr-defined]


def lose_letters() -> None:
    """Dead letters leave their channel, and reach no other."""

    def wrong(self: DeadLetters, now: float) -> None:
        self._part = self._batch
        self._stored(None)

    DeadLetters._store = wrong


def keep_letters() -> None:
    """After a crash a dead letter is in its channel, too."""
    Moves.finish = lambda self, positions: None


def deliver_too_often() -> None:
    """A message that failed as often as its channel allows is delivered once more."""
    follow = DeadLetters.follow

    def wrong(self: DeadLetters, policy: ChannelPolicy) -> None:
        follow(self, policy)
        self.max_attempts += bool(self.max_attempts)

    DeadLetters.follow = wrong


def forget_held() -> None:
    """After a crash messages that were held are ready."""
    restore = Cursor.restore

    def wrong(self: Cursor, state: CursorState) -> list[HeldRow]:
        for row in restore(self, state):
            self.requeue(b"", Delivery(0.0, 0.0, 0, row.sequence, row.attempts))
        return []

    Cursor.restore = wrong


def blame_restarts() -> None:
    """A message on its last delivery has failed when the broker dies."""
    undelivered.MAX_INTERRUPTIONS = 0


def deliver_forever() -> None:
    """A message that kills the broker each time comes back each time."""
    undelivered.MAX_INTERRUPTIONS = sys.maxsize


def blame_stops() -> None:
    """A consumer has failed whose connection the broker ends when it stops."""
    Channel._requeues_left = property(lambda self: self.topic.context.options.requeue_on_disconnect)  # type: ignore[assignment]


def finish_others() -> None:
    """A redrive finishes what it does not put back."""

    def wrong(self: Channel, consumer: Consumer, ids: list[bytes]) -> None:
        self.finish(consumer, ids, 0.0)

    Channel.withhold = wrong


def redrive_to_all() -> None:
    """What is put back goes to all channels."""
    _put_to_all(lambda headers: any(REDRIVES.encode() in encoded for encoded in headers or ()))


def deliver_expired() -> None:
    """Nothing expires."""
    undelivered.is_expired = lambda *arguments: False  # type: ignore[attr-defined]
    undelivered.leading_run = lambda segment, start, stop, *rest: (stop, False)  # type: ignore[attr-defined]


def store_refused() -> None:
    """A publish that is refused because of a bound is stored."""
    admit = TopicBounds.admit

    def wrong(*arguments: Any, **options: Any) -> Waiter | None:
        return admit(*arguments, **options) or (lambda error: None)

    TopicBounds.admit = wrong


def drop_too_many() -> None:
    """A channel that drops something drops a message more than it must."""
    excess = ChannelBounds._excess

    def wrong(self: ChannelBounds) -> tuple[int, int]:
        over, size = excess(self)
        return over + 1, size

    ChannelBounds._excess = wrong


def forget_sizes() -> None:
    """Messages that wait have no bytes."""
    ChannelBounds._bytes = lambda self, sizes, stop: 0


def forget_requeued_sizes() -> None:
    """Messages that wait for another delivery have no bytes."""
    all_bytes = ChannelBounds._bytes

    def wrong(self: ChannelBounds, sizes: Sizes, stop: int) -> int:
        return all_bytes(self, sizes, stop) - round(self._cursor.row_count * sizes.message_size)

    ChannelBounds._bytes = wrong


def keep_old() -> None:
    """Messages that are too old are delivered."""
    ChannelBounds._drop_old = lambda self, now: True


def drop_young() -> None:
    """Messages are dropped long before they are too old."""
    follow = ChannelBounds.follow
    ChannelBounds.follow = lambda self, policy: follow(self, evolve(policy, max_age=policy.max_age / _TOO_SOON))


def forget_rate() -> None:
    """A channel with a rate delivers as much as it can."""
    RateLimit.spend = lambda self, count: None


def requeue_at_once() -> None:
    """A failed message is delivered again at once."""
    RequeueDelay.due = lambda self, attempts, now: now


def forget_growth() -> None:
    """The delay of a failed message is that of the first failure, however often it has failed."""
    due = RequeueDelay.due
    RequeueDelay.due = lambda self, attempts, now: due(self, 1, now)


def forget_longest_delay() -> None:
    """The delay of a failed message grows without an end."""

    def wrong(self: RequeueDelay, attempts: int, now: float) -> float:
        self.longest = inf
        return due(self, attempts, now)

    due = RequeueDelay.due
    RequeueDelay.due = wrong


def forget_variation() -> None:
    """What failed together comes back together."""
    _vary(lambda share: 0.5)


def vary_too_much() -> None:
    """A delay is varied by more than a half, in either direction."""
    _vary(lambda share: 2.0 if share < 0.5 else -1.0)


def forget_saved_timeouts() -> None:
    """After a crash what has timed out is delivered again at once."""
    _forget_saved_delay(TIMED_OUT)


def forget_saved_disconnects() -> None:
    """After a crash what a consumer had in flight that is gone is delivered again at once."""
    _forget_saved_delay(DISCONNECTED)


def time_out_at_once() -> None:
    """What times out is delivered again at once."""
    _forget_delay(TIMED_OUT)


def disconnect_at_once() -> None:
    """What a consumer that is gone had in flight is delivered again at once."""
    _forget_delay(DISCONNECTED)


def drop_expired() -> None:
    """Expired messages are finished, and do not become dead letters."""
    follow = DeadLetters.follow

    def wrong(self: DeadLetters, policy: ChannelPolicy) -> None:
        follow(self, policy)
        self.takes_expired = False

    DeadLetters.follow = wrong


def rename_letters() -> None:
    """Dead letters go to the topic with the default name."""
    dead_letters.dead_letter_topic = lambda policy, topic: dead_letter_name(topic)  # type: ignore[attr-defined]


def publish_to_all() -> None:
    """What is published for one channel goes to all."""
    _put_to_all(lambda headers: True)


def release_to_all() -> None:
    """What a paused topic kept for one channel goes to all, and to its own one twice."""
    Backlog.directions = lambda self: []


def forget_policies() -> None:
    """What was set while a broker ran is not saved."""
    put = PolicyRows._put
    PolicyRows._put = lambda self, connection, key, text: put(self, connection, key, "")


def answer_policies_early() -> None:
    """What was set is answered before it is saved."""

    def wrong(broker: Broker, pump: Pump, request: HttpRequest, change: Callable[[], bool], done: Answer) -> Answer:
        change()
        pump.wake()
        return done

    policies.perform_change = wrong  # type: ignore[attr-defined]


def forget_ids() -> None:
    """The ids of publishers that were not saved are lost in a crash."""
    Deduplication.restore = lambda self, segments, now: None


def forget_directed_ids() -> None:
    """The same of those of messages for one channel."""
    restore = Deduplication.restore

    def wrong(self: Deduplication, segments: Iterable[Segment], now: float) -> None:
        restore(self, [segment for segment in segments if not segment.channel], now)

    Deduplication.restore = wrong


def deliver_together() -> None:
    """The messages of a key are delivered as others are."""
    OrderedPosition._divide = lambda self, span, room: LogChoice(span, span.stop, (None,) * span.segment.count)


def forget_window() -> None:
    """An ordered channel sets aside as much as there is."""
    OrderedPosition.window = property(lambda self: sys.maxsize, lambda self, window: None)  # type: ignore[assignment]


def widen_window_after_start() -> None:
    """What was set aside before a start does not count in the window."""
    take_requeued = OrderedPosition._take_requeued

    def wrong(self: OrderedPosition) -> bool:
        count = len(self._set_aside)
        is_taken = take_requeued(self)
        self.window += len(self._set_aside) - count
        return is_taken

    OrderedPosition._take_requeued = wrong


def starve_low() -> None:
    """Class low is delivered when nothing else waits."""
    next_span = PriorityReader.next_span

    def wrong(self: PriorityReader, now: float) -> Span | None:
        self._left = [sys.maxsize] * len(self._left)
        return next_span(self, now)

    PriorityReader.next_span = wrong


def miscount_classes() -> None:
    """After a crash no message waits of any class, it says."""

    def change(cursor: CursorState) -> None:
        if cursor.class_depths:
            cursor.class_depths = [0, 0, 0, cursor.class_depths[-1]]

    change_cuts(change)


def forget_classes() -> None:
    """All messages have the same priority."""
    PriorityReader._class_of = lambda self, encoded: NORMAL


def drop_in_order() -> None:
    """A bound drops the oldest messages, of whatever priority."""
    ChannelBounds._drop_by_priority = lambda self, count, now: _drop_next(self._cursor, count, now)


def _drop_next(cursor: Cursor, count: int, now: float) -> bool:
    found, depths = cursor.priorities, cursor.class_depths
    if cursor.drop_requeued(count):
        return True
    if found is None or depths is None or not any(depths):
        return bool(cursor.drop_deferred(count))
    found.next_span(now)
    waiting = [number for number, depth in enumerate(depths) if depth]
    cursor.drop_of_class(min(waiting, key=found.at.__getitem__), min(1, count), now)
    return True


def keep_old_of_classes() -> None:
    """The age of high messages counts, and no other one."""
    PriorityReader._lowest = lambda self: HIGH


def forget_positions() -> None:
    """After a crash the lower classes go on where the highest one was."""
    changes = Cursor.changes

    def wrong(self: Cursor, name: str, first_deliveries: list[int]) -> CursorState:
        state = changes(self, name, first_deliveries)
        if state.positions:
            state.positions = [max(state.positions)] * len(state.positions)
            state.next = max(state.positions)
        return state

    Cursor.changes = wrong


def forget_cancel() -> None:
    """A message whose cancellation was answered is delivered."""
    Cursor.cancel = lambda self, sequence, now: True


def confirm_unstored() -> None:
    """V3 confirms some messages that nobody has stored."""
    publish, publish_next, turns = V3Session._publish, V3Session._publish_next, count(1)

    def wrong(self: V3Session, frame: Any, now: float) -> None:
        if next(turns) % _EVERY:
            publish(self, frame, now)
        else:
            self._pending += 1
            self.published(frame.id, None)

    def wrong_next(self: V3Session, body: bytes, now: float) -> None:
        if next(turns) % _EVERY:
            publish_next(self, body, now)
        else:
            self._pending += 1
            self.published(self._reader.number, None)

    V3Session._publish, V3Session._publish_next = wrong, wrong_next


def _forget_delay(reason: str) -> None:
    """Messages that fail for this reason are delivered again without a delay."""
    deliver_again = ChannelDelivery.deliver_again

    def wrong(
        self: ChannelDelivery, channel: ChannelBase, deliveries: Any, now: float, why: str, detail: str = ""
    ) -> None:
        delays = channel.requeue_delay
        channel.requeue_delay = None if why == reason else delays
        deliver_again(self, channel, deliveries, now, why, detail)
        channel.requeue_delay = delays

    ChannelDelivery.deliver_again = wrong  # type: ignore[assignment]


def _forget_saved_delay(reason: str) -> None:
    """What fails for this reason is due at once after a crash."""
    deliver_again, failed = ChannelDelivery.deliver_again, set[int]()

    def wrong(
        self: ChannelDelivery, channel: ChannelBase, deliveries: Any, now: float, why: str, detail: str = ""
    ) -> None:
        of_cursor = [*deliveries]
        if why == reason:
            failed.update(sequence_of(message_id) for message_id, _ in of_cursor)
        deliver_again(self, channel, of_cursor, now, why, detail)

    def change(cursor: CursorState) -> None:
        cursor.pending = [row._replace(due_ms=1) if row.sequence in failed else row for row in cursor.pending]

    ChannelDelivery.deliver_again = wrong  # type: ignore[assignment]
    change_cuts(change)


def _vary(share: Callable[[float], float]) -> None:
    """Delays are varied by this function of what they should be varied by."""
    construct = RequeueDelay.__init__

    def wrong(self: RequeueDelay, *arguments: Any) -> None:
        construct(self, *arguments)
        self._random = lambda: share(random.random())

    RequeueDelay.__init__ = wrong  # type: ignore[assignment, method-assign]


def _put_to_all(is_for_all: Callable[[Sequence[bytes] | None], bool]) -> None:
    """All channels get the messages for one channel whose headers are like this."""
    put = Topic.put

    def wrong(
        self: Topic,
        bodies: Sequence[bytes],
        delay_ms: int,
        waiter: Waiter,
        headers: Sequence[bytes] | None = None,
        channel: str = "",
        assigned: Assigned | None = None,
    ) -> None:
        put(self, bodies, delay_ms, waiter, headers, "" if is_for_all(headers) else channel, assigned)

    Topic.put = wrong


SABOTAGES: dict[str, Callable[[], None]] = {
    sabotage.__name__: sabotage
    for sabotage in (
        forget_headers,
        lose_letters,
        keep_letters,
        deliver_too_often,
        forget_held,
        blame_restarts,
        deliver_forever,
        blame_stops,
        finish_others,
        redrive_to_all,
        deliver_expired,
        store_refused,
        drop_too_many,
        forget_sizes,
        forget_requeued_sizes,
        keep_old,
        drop_young,
        forget_rate,
        requeue_at_once,
        forget_growth,
        forget_longest_delay,
        forget_variation,
        vary_too_much,
        forget_saved_timeouts,
        forget_saved_disconnects,
        time_out_at_once,
        disconnect_at_once,
        drop_expired,
        rename_letters,
        publish_to_all,
        release_to_all,
        forget_policies,
        answer_policies_early,
        forget_ids,
        forget_directed_ids,
        deliver_together,
        forget_window,
        widen_window_after_start,
        forget_classes,
        starve_low,
        miscount_classes,
        drop_in_order,
        keep_old_of_classes,
        forget_positions,
        forget_cancel,
        confirm_unstored,
    )
}
