"""
The policy of a channel: its settings, and the parts that are made or removed when they change.

`_carry_out` is the one place where a channel learns of its policy. `max_attempts` and dead letters are the matter of
`Undelivered`, which each channel has; an order, a rate limit, a requeue delay and bounds exist only while they are set.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from nsqtw.core.channel_base import ChannelOwner
from nsqtw.core.delivery import DeliveringChannel
from nsqtw.core.policy.bounds import DroppableMessages, TopicBounds, bounds_of
from nsqtw.core.policy.message_keys import message_keys
from nsqtw.core.policy.order import OrderedPosition
from nsqtw.core.policy.rate_limit import RateLimit
from nsqtw.core.policy.requeue_delay import RequeueDelay
from nsqtw.errors import InvalidPolicy
from nsqtw.options.broker import Options
from nsqtw.options.message_keys import read_key_place
from nsqtw.options.policies import (
    DROP_OLDEST,
    NO_CHANNEL_RESOLUTION,
    NOTHING_GIVEN,
    ChannelPolicy,
    Resolution,
    contradiction_of,
    dead_letter_topic,
    misfit,
    resolve_what_fits,
)
from nsqtw.options.texts import whole_nanoseconds

_MAX_READ_BYTES: Final = 4 * 1024 * 1024


def check_channel_policy(options: Options, topic: str, channel: str, given: Mapping[str, Any]) -> None:
    """Check settings for a channel, which need not exist. InvalidPolicy."""
    why = contradiction_of(topic, channel, options.channel_policy_of(topic, channel, given), given)
    if why is not None:
        raise InvalidPolicy(why)


class Below(NamedTuple):
    """Unfinished messages that a channel has read, before a place in the log: how many are in which state."""

    ready: int
    deferred: int
    held: int
    in_flight: int

    @property
    def total(self) -> int:
        return sum(self)


class PolicyChannel(DeliveringChannel):
    def __init__(self, topic: ChannelOwner, name: str, given_policy: Mapping[str, Any] = NOTHING_GIVEN) -> None:
        super().__init__(topic, name, given_policy)
        self._resolution = NO_CHANNEL_RESOLUTION

    def set_policy(self, given: Mapping[str, Any]) -> None:
        """Replace the settings that were made while a broker ran. InvalidPolicy, and nothing is changed."""
        topic = self.topic
        check_channel_policy(topic.context.options, topic.name, self.name, given)
        self.given_policy = dict(given)
        self._carry_out(self._resolve(given))
        self._touch()

    def preview_drops(self, given: Mapping[str, Any], now: float) -> int | None:
        """
        Return about how many messages the bounds would drop at once with these settings; None when that is not known,
        because `max_bytes` is among them. BackendError.
        """
        policy, topic, cursor = self._resolve(given).policy, self.topic, self.cursor
        if policy.overflow != DROP_OLDEST or cursor is None:
            return 0
        if policy.max_bytes and policy.max_bytes != self.policy.max_bytes:
            return None
        count = max(0, self.waiting_count - policy.max_depth) if policy.max_depth else 0
        if policy.max_age:
            stop = self._old_before(policy, now)
            count = max(count, topic.reader.count(cursor.next, stop) if cursor.next < stop else 0)
        return count

    def max_drops(self, sequence: int, unread: int, kept: Below, now: float) -> int:
        """
        Return how many messages, at most, its bounds drop at once when the channel is moved to `sequence`, has so many
        unread messages from there on, and keeps those before it that are `kept`. BackendError.
        """
        policy, waiting = self.policy, unread + kept.ready + kept.deferred
        if self.bounds is None or policy.overflow != DROP_OLDEST or self.cursor is None:
            return 0
        if policy.max_bytes and self._may_exceed(policy.max_bytes, sequence, unread, waiting):
            return waiting
        count = max(0, waiting - policy.max_depth) if policy.max_depth else 0
        if policy.max_age:
            stop = self._old_before(policy, now)
            old = min(unread, self.topic.reader.count(sequence, stop)) if sequence < stop else 0
            count = max(count, old + self._count_below(min(sequence, stop)).ready if kept.ready else old)
        return count

    def _old_before(self, policy: ChannelPolicy, now: float) -> int:
        """Return the sequence before which messages are older than `max_age`. BackendError."""
        topic = self.topic
        oldest_ms = (topic.context.timestamp_ns(now) - whole_nanoseconds(policy.max_age)) // 10**6
        return min(topic.reader.position_at(oldest_ms), topic.released)

    def _may_exceed(self, max_bytes: int, sequence: int, unread: int, waiting: int) -> bool:
        """
        Return whether so many messages, of them `unread` from `sequence` on, may have more bytes than a bound allows.
        It is false only where they have less than half of them, as some of the log shows: messages before `sequence`
        are counted with the mean size, here and by the bound. BackendError.
        """
        size = 0
        for segment in self.topic.reader.segments(sequence, self.topic.released):
            size += segment.size
            if 2 * size > max_bytes or size > _MAX_READ_BYTES:
                return True
        return bool(unread) and 2 * size * waiting > max_bytes * unread

    def _count_below(self, sequence: int) -> Below:
        """Return what the channel has of messages before `sequence` that it has read. BackendError."""
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        ready, deferred = self.cursor.waiting_below(sequence)
        return Below(
            ready + sum(one < sequence for one in self.set_aside),
            deferred,
            sum(one < sequence for one in chain(self.held, self.withheld or ())),
            sum(one.in_flight.count_below(sequence) for one in self.consumers + self.former_consumers),
        )

    def follow_policy(self) -> None:
        """The options may say something else of this channel. What was set while a broker ran stays."""
        resolution = resolve_what_fits(self._resolve, self.given_policy)
        if resolution == self._resolution:
            return
        self._carry_out(resolution)
        context, topic = self.topic.context, self.topic.name
        for text in resolution.unused:
            context.log("error", "CHANNEL({channel}): {text}", topic=topic, channel=self.name, text=text)
        self._report_misfit(resolution.policy)

    def _report_misfit(self, policy: ChannelPolicy) -> None:
        """Log that messages do not become dead letters, if a pattern gave the channel a policy that cannot be used."""
        topic = self.topic.name
        problem = misfit(policy, topic)
        if problem is None:
            return
        # A pattern for all topics matches the common dead-letter topic, too, which is as it should be.
        level = "info" if dead_letter_topic(policy, topic) == topic else "error"
        text = "CHANNEL({channel}): messages of topic {topic} do not become dead letters here - {problem}"
        self.topic.context.log(level, text, topic=topic, channel=self.name, problem=problem)

    def _resolve(self, given: Mapping[str, Any]) -> Resolution[ChannelPolicy]:
        return self.topic.context.options.resolve_channel(self.topic.name, self.name, given)

    def _carry_out(self, resolution: Resolution[ChannelPolicy]) -> None:
        """Let the parts of the channel that carry out its policy know it."""
        before, policy = self.policy, resolution.policy
        self._resolution, self.policy = resolution, policy
        bounds = {} if self.ephemeral else bounds_of(policy)  # a pattern of the config file may match it
        self.undelivered.follow(policy)
        self._limit_rate(policy.max_rate)
        self.has_dead_letters = self.undelivered.dead_letters is not None
        if policy.max_attempts != before.max_attempts:
            self._touch()  # a checkpoint has the messages in flight that have used it up
        self._delay_requeues(policy.requeue_delay, policy.max_requeue_delay)
        if policy.ordered_by != before.ordered_by:
            self._set_order(policy.ordered_by)
        if policy.priority != before.priority and self.cursor is not None:
            self.cursor.set_priority(is_on=policy.priority)
            self.topic.shows_releases = True
            self.wake()
        if self.ordered is not None:
            self.ordered.window = policy.order_window
        if bounds or self.bounds is not None:
            self._bound(policy if bounds else None)

    def _set_order(self, ordered_by: str) -> None:
        """Deliver in the order of these keys from now on; "": without. An ephemeral channel has no order."""
        if self.cursor is None:
            return
        self.ungroup()
        self.ordered, self.position = None, self.cursor
        if ordered_by:
            keys = message_keys(read_key_place(ordered_by))
            self.ordered = OrderedPosition(
                self.topic, self.cursor, keys, self._sequences_not_ready, lambda: self.withheld or ()
            )
            self.position = self.ordered
        self.undelivered.set_position(self.position)
        self.wake()

    @property
    def set_aside(self) -> Collection[int]:
        """See `OrderedPosition.set_aside`."""
        return () if self.ordered is None else self.ordered.set_aside

    @property
    def droppable(self) -> DroppableMessages:
        """See `BoundedChannel.droppable`."""
        assert self.cursor is not None, "an ephemeral channel has no bounds of a policy"
        return self.ordered or self.cursor

    def ungroup(self) -> None:
        """Let an ordered position find out anew what is unfinished: the cursor is changed without it."""
        if self.ordered is not None:
            self.ordered.dissolve()

    def _limit_rate(self, rate: float) -> None:
        """`max_rate` may have changed."""
        limit, timers = self.rate_limit, self.topic.context.timers
        if limit is None and rate:
            self.rate_limit = RateLimit(rate, timers, self.wake)
        elif limit is not None and rate != limit.rate:
            if rate:
                limit.rate = rate
            else:
                limit.close()
                self.rate_limit = None
            self.wake()

    def _delay_requeues(self, first: float, longest: float) -> None:
        """`requeue_delay` or `max_requeue_delay` may have changed."""
        if not first:
            self.requeue_delay = None
        elif self.requeue_delay is None:
            self.requeue_delay = RequeueDelay(first, longest, self.topic.context.timers, self._requeue_all)
        else:
            self.requeue_delay.first, self.requeue_delay.longest = first, longest

    def _bound(self, policy: ChannelPolicy | None) -> None:
        """The bounds of the backlog may have changed; None: there are none any more."""
        topic = self.topic
        if policy is None:
            self.bounds = None
            if topic.bounds is not None and topic.bounds.remove(self.name):
                topic.bounds = None
            return
        assert self.cursor is not None, "an ephemeral channel has no bounds of a policy"
        if topic.bounds is None:
            topic.bounds = TopicBounds(topic, topic.reader.count)
        self.bounds = topic.bounds.set(self, self.cursor, policy)
