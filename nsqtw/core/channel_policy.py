"""
The policy of a channel: its settings, and the parts that are made or removed when they change.

`_carry_out` is the one place where a channel learns of its policy. `max_attempts` and dead letters are the matter of
`Undelivered`, which each channel has; an order, a rate limit, a requeue delay and bounds exist only while they are set.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from nsqtw.core.channel_base import Below, ChannelBase
from nsqtw.core.consumer import Consumer
from nsqtw.core.policy.bounds import TopicBounds, bounds_of
from nsqtw.core.policy.message_keys import message_keys
from nsqtw.core.policy.order import OrderedPosition
from nsqtw.core.policy.rate_limit import RateLimit
from nsqtw.core.policy.requeue_delay import RequeueDelay
from nsqtw.errors import InvalidPolicy
from nsqtw.options.broker import Options
from nsqtw.options.message_keys import read_key_place
from nsqtw.options.refusals import contradiction_of, dead_letter_topic, misfit
from nsqtw.options.resolution import Resolution, resolve_what_fits
from nsqtw.options.settings import DROP_OLDEST, ChannelPolicy
from nsqtw.options.texts import whole_nanoseconds

_MAX_READ_BYTES: Final = 4 * 1024 * 1024


def check_channel_policy(options: Options, topic: str, channel: str, given: Mapping[str, Any]) -> None:
    """Check settings for a channel, which need not exist. InvalidPolicy."""
    why = contradiction_of(topic, channel, options.channel_policy_of(topic, channel, given), given)
    if why is not None:
        raise InvalidPolicy(why)


class ChannelPolicies:
    """
    The policy of `channel`, which does not refer to this object: it goes when it is not used. `requeue_all` is called
    as `RequeueDelay` calls it.
    """

    def __init__(self, channel: ChannelBase, requeue_all: Callable[[Consumer, float], None]) -> None:
        self._channel = channel
        self._requeue_all = requeue_all

    def set(self, given: Mapping[str, Any]) -> None:
        """Replace the settings that were made while a broker ran. InvalidPolicy, and nothing is changed."""
        channel = self._channel
        topic = channel.topic
        check_channel_policy(topic.context.options, topic.name, channel.name, given)
        channel.given_policy = dict(given)
        self._carry_out(self._resolve(given))
        channel.mark_touched()

    def preview_drops(self, given: Mapping[str, Any], now: float) -> int | None:
        """
        Return about how many messages the bounds would drop at once with these settings; None when that is not known,
        because `max_bytes` is among them. BackendError.
        """
        channel = self._channel
        policy, topic, cursor = self._resolve(given).policy, channel.topic, channel.cursor
        if policy.overflow != DROP_OLDEST or cursor is None:
            return 0
        if policy.max_bytes and policy.max_bytes != channel.policy.max_bytes:
            return None
        count = max(0, channel.waiting_count - policy.max_depth) if policy.max_depth else 0
        if policy.max_age:
            stop = self._old_before(policy, now)
            count = max(count, topic.reader.count(cursor.next, stop) if cursor.next < stop else 0)
        return count

    def max_drops(self, sequence: int, unread: int, kept: Below, now: float) -> int:
        """
        Return how many messages, at most, its bounds drop at once when the channel is moved to `sequence`, has so many
        unread messages from there on, and keeps those before it that are `kept`. BackendError.
        """
        channel = self._channel
        policy, waiting = channel.policy, unread + kept.ready + kept.deferred
        if channel.bounds is None or policy.overflow != DROP_OLDEST or channel.cursor is None:
            return 0
        if policy.max_bytes and self._may_exceed(policy.max_bytes, sequence, unread, waiting):
            return waiting
        count = max(0, waiting - policy.max_depth) if policy.max_depth else 0
        if policy.max_age:
            stop = self._old_before(policy, now)
            old = min(unread, channel.topic.reader.count(sequence, stop)) if sequence < stop else 0
            count = max(count, old + channel.count_below(min(sequence, stop)).ready if kept.ready else old)
        return count

    def _old_before(self, policy: ChannelPolicy, now: float) -> int:
        """Return the sequence before which messages are older than `max_age`. BackendError."""
        topic = self._channel.topic
        oldest_ms = (topic.context.timestamp_ns(now) - whole_nanoseconds(policy.max_age)) // 10**6
        return min(topic.reader.position_at(oldest_ms), topic.released)

    def _may_exceed(self, max_bytes: int, sequence: int, unread: int, waiting: int) -> bool:
        """
        Return whether so many messages, of them `unread` from `sequence` on, may have more bytes than a bound allows.
        It is false only where they have less than half of them, as some of the log shows: messages before `sequence`
        are counted with the mean size, here and by the bound. BackendError.
        """
        channel = self._channel
        size = 0
        for segment in channel.topic.reader.segments(sequence, channel.topic.released):
            size += segment.size
            if 2 * size > max_bytes or size > _MAX_READ_BYTES:
                return True
        return bool(unread) and 2 * size * waiting > max_bytes * unread

    def follow(self) -> None:
        """The options may say something else of this channel. What was set while a broker ran stays."""
        channel = self._channel
        resolution = resolve_what_fits(self._resolve, channel.given_policy)
        if resolution == channel.resolution:
            return
        self._carry_out(resolution)
        context, topic = channel.topic.context, channel.topic.name
        for text in resolution.unused:
            context.log("error", "CHANNEL({channel}): {text}", topic=topic, channel=channel.name, text=text)
        self._report_misfit(resolution.policy)

    def _report_misfit(self, policy: ChannelPolicy) -> None:
        """Log that messages do not become dead letters, if a pattern gave the channel a policy that cannot be used."""
        channel = self._channel
        topic = channel.topic.name
        problem = misfit(policy, topic)
        if problem is None:
            return
        # A pattern for all topics matches the common dead-letter topic, too, which is as it should be.
        level = "info" if dead_letter_topic(policy, topic) == topic else "error"
        text = "CHANNEL({channel}): messages of topic {topic} do not become dead letters here - {problem}"
        channel.topic.context.log(level, text, topic=topic, channel=channel.name, problem=problem)

    def _resolve(self, given: Mapping[str, Any]) -> Resolution[ChannelPolicy]:
        channel = self._channel
        return channel.topic.context.options.resolve_channel(channel.topic.name, channel.name, given)

    def _carry_out(self, resolution: Resolution[ChannelPolicy]) -> None:
        """Let the parts of the channel that carry out its policy know it."""
        channel = self._channel
        before, policy = channel.policy, resolution.policy
        channel.resolution, channel.policy = resolution, policy
        bounds = {} if channel.ephemeral else bounds_of(policy)  # a pattern of the config file may match it
        channel.undelivered.follow(policy)
        self._limit_rate(policy.max_rate)
        channel.has_dead_letters = channel.undelivered.dead_letters is not None
        if policy.max_attempts != before.max_attempts:
            channel.mark_touched()  # a checkpoint has the messages in flight that have used it up
        self._delay_requeues(policy.requeue_delay, policy.max_requeue_delay)
        if policy.ordered_by != before.ordered_by:
            self._set_order(policy.ordered_by)
        if policy.priority != before.priority and channel.cursor is not None:
            channel.cursor.set_priority(is_on=policy.priority)
            channel.topic.shows_releases = True
            channel.wake()
        if channel.ordered is not None:
            channel.ordered.window = policy.order_window
        if bounds or channel.bounds is not None:
            self.bind(policy if bounds else None)

    def _set_order(self, ordered_by: str) -> None:
        """Deliver in the order of these keys from now on; "": without. An ephemeral channel has no order."""
        channel = self._channel
        if channel.cursor is None:
            return
        self.ungroup()
        channel.ordered, channel.position = None, channel.cursor
        if ordered_by:
            keys = message_keys(read_key_place(ordered_by))
            channel.ordered = OrderedPosition(
                channel.topic,
                channel.cursor,
                keys,
                channel.sequences_not_ready,
                lambda: channel.withheld or (),
            )
            channel.position = channel.ordered
        channel.undelivered.set_position(channel.position)
        channel.wake()

    def ungroup(self) -> None:
        """Let an ordered position find out anew what is unfinished: the cursor is changed without it."""
        channel = self._channel
        if channel.ordered is not None:
            channel.ordered.dissolve()

    def _limit_rate(self, rate: float) -> None:
        """`max_rate` may have changed."""
        channel = self._channel
        limit, timers = channel.rate_limit, channel.topic.context.timers
        if limit is None and rate:
            channel.rate_limit = RateLimit(rate, timers, channel.wake)
        elif limit is not None and rate != limit.rate:
            if rate:
                limit.rate = rate
            else:
                limit.close()
                channel.rate_limit = None
            channel.wake()

    def _delay_requeues(self, first: float, longest: float) -> None:
        """`requeue_delay` or `max_requeue_delay` may have changed."""
        channel = self._channel
        if not first:
            channel.requeue_delay = None
        elif channel.requeue_delay is None:
            channel.requeue_delay = RequeueDelay(first, longest, channel.topic.context.timers, self._requeue_all)
        else:
            channel.requeue_delay.first, channel.requeue_delay.longest = first, longest

    def bind(self, policy: ChannelPolicy | None) -> None:
        """The bounds of the backlog may have changed; None: there are none any more."""
        channel = self._channel
        topic = channel.topic
        if policy is None:
            channel.bounds = None
            if topic.bounds is not None and topic.bounds.remove(channel.name):
                topic.bounds = None
            return
        assert channel.cursor is not None, "an ephemeral channel has no bounds of a policy"
        if topic.bounds is None:
            topic.bounds = TopicBounds(topic, topic.reader.count)
        channel.bounds = topic.bounds.set(channel, channel.cursor, policy)
