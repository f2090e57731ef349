"""
A channel: consumers that share one position in a topic's log.

Theory of operation. `serve` divides what the position has among all ready consumers. With several of them each gets at
most its share, ceil(available / ready), and the first one rotates; those in the broker's own zone, or else region, come
first. In one turn a consumer is given at most its `turn_bytes` (or one larger message), which bounds its output. FIN,
REQ and TOUCH look an id up in the table of the consumer that sent them (`core.in_flight`); if the id is absent, the
tables of all consumers are searched for the error to answer: not in flight, or owned by another client.

The table of a consumer that has left stays in `departed` until everything in it has timed out: NSQ does not requeue on
disconnect. With the option `requeue_on_disconnect` its messages are requeued at once.

Performance: called once per span and per run of FINs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from math import inf
from random import randrange
from typing import Any, NamedTuple

from nsqtw.core.consumer import Consumer
from nsqtw.core.context import Context
from nsqtw.core.cursor import RETRY_READ_SECONDS, Cursor
from nsqtw.core.ephemeral_queue import EphemeralQueue
from nsqtw.core.histogram import LATENCY_BOUNDS, Histogram
from nsqtw.core.in_flight import FIRST, Delivery
from nsqtw.core.latency import Latencies
from nsqtw.core.log import Log
from nsqtw.core.log_reader import LogReader
from nsqtw.core.pending import Pages
from nsqtw.core.policy.bounds import ChannelBounds, TopicBounds, bounds_of
from nsqtw.core.policy.dead_letters import LetterSource, misfit, uses_dead_letters
from nsqtw.core.policy.letter import DISCONNECTED, REQUEUED, TIMED_OUT
from nsqtw.core.policy.message_keys import message_keys
from nsqtw.core.policy.order import OrderedPosition
from nsqtw.core.policy.rate_limit import RateLimit
from nsqtw.core.policy.requeue_delay import RequeueDelay
from nsqtw.core.policy.undelivered import Undelivered
from nsqtw.core.position import Position
from nsqtw.core.segment import Segment, sequence_of, timestamp_ns_of
from nsqtw.core.timers import Timer
from nsqtw.errors import BackendError, ChannelFull, Exiting, InvalidPolicy
from nsqtw.names import is_ephemeral
from nsqtw.options.message_keys import read_key_place
from nsqtw.options.policies import NO_CHANNEL_POLICY, NOTHING_GIVEN, ChannelPolicy, not_used

NOT_IN_FLIGHT = "ID not in flight"
NOT_OWNED = "client does not own message"
EPHEMERAL_IS_BOUNDED = "an ephemeral channel has no max_depth, max_bytes or max_age: --mem-queue-size bounds it"
SAMPLE_RANGE = 100
READ_COST = 8 * 1024
"""
Bytes that a read of the medium for one message takes from a consumer's allowance in a turn: messages that become due
can be anywhere in the log, and a read takes a millisecond or two.
"""


class Moved(NamedTuple):
    """The change of a channel's unfinished messages by a seek, and its depth after it."""

    skipped: int
    replayed: int
    depth: int


class ChannelOwner(LetterSource):
    """A topic, as its channels see it. `to_serve` are the channels of the broker to serve at the end of the turn."""

    def __init__(self, context: Context, name: str, log: Log, to_serve: dict[Channel, None]) -> None:
        super().__init__(context, name, log)
        self.reader = LogReader(self)
        self.to_serve = to_serve
        self.latency_histogram = None if context.measure is None else Histogram(LATENCY_BOUNDS)
        """Seconds from publish to finish, of all channels there ever were; None when latencies are not measured."""
        self.hungry: dict[Channel, None] = {}
        """Channels that have ready consumers and nothing for them: a release wakes them."""
        self.bounds: TopicBounds | None = None
        """The bounds of its channels; None when none has any."""

    def delete_channel(self, name: str) -> None:
        """Remove a channel, everything in it, and its consumers."""
        raise NotImplementedError

    def change_names(self, *, at_once: bool = False) -> None:
        """The topic, or a durable channel of it, is new or gone, or its pause changed (see `MetadataSync.change`)."""
        raise NotImplementedError

    def is_hungry(self, channel: Channel) -> bool:
        return channel in self.hungry

    def set_hungry(self, channel: Channel, hungry: bool) -> None:
        if hungry:
            self.hungry[channel] = None
        else:
            self.hungry.pop(channel, None)


class Channel(Timer):
    """One channel of `topic`, created by it. `given_policy` are the settings that were saved."""

    def __init__(self, topic: ChannelOwner, name: str, given_policy: Mapping[str, Any] = NOTHING_GIVEN) -> None:
        super().__init__()
        self.topic = topic
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.paused = False
        self.exiting = False
        self.is_saved = self.ephemeral or topic.ephemeral
        """Whether the channel's creation is durable."""
        self.consumers: list[Consumer] = []
        self.departed: list[Consumer] = []
        self.cursor = None if self.ephemeral else Cursor(topic, _pages(topic, name), self._schedule, name)
        self.position: Position = self.cursor or EphemeralQueue(topic.mem_queue_size, self._room, name)
        self.ordered: OrderedPosition | None = None
        """The position, if the channel delivers in the order of keys."""
        self.joined_total = topic.released_total
        self.requeue_count = 0
        self.timeout_count = 0
        self.finish_count = 0
        """FINs of its consumers since the process started."""
        self.zone_local_msg_count = 0
        self.region_local_msg_count = 0
        self.global_msg_count = 0
        measure = topic.context.measure
        histogram = topic.latency_histogram
        self.policy = NO_CHANNEL_POLICY
        self.given_policy = dict(given_policy)
        """The settings that were made while a broker ran."""
        self.undelivered = Undelivered(topic, name, self.position, self.wake, ephemeral=self.ephemeral)
        self.latencies = None if measure is None or histogram is None else Latencies(measure, histogram)
        self.rate_limit: RateLimit | None = None
        self.requeue_delay: RequeueDelay | None = None
        self.bounds: ChannelBounds | None = None
        self._turn = 0
        self.follow_policy()

    # -- policies

    def set_policy(self, given: Mapping[str, Any]) -> None:
        """Replace the settings that were made while a broker ran. InvalidPolicy, and nothing is changed."""
        self.check_policy(given)
        self._set_policy(given)
        self._touch()

    def check_policy(self, given: Mapping[str, Any]) -> None:
        """Check settings as `set_policy` does, and change nothing. InvalidPolicy."""
        for name in ("ordered_by", "priority"):
            if self.ephemeral and given.get(name):
                raise InvalidPolicy(f"{name} is for durable channels, and {self.name} is ephemeral")
        topic = self.topic
        policy = topic.context.options.channel_policy_of(topic.name, self.name, given)
        problem = misfit(policy, topic.name) if uses_dead_letters(policy) else None
        if problem is not None:
            raise InvalidPolicy(problem)

    def follow_policy(self) -> None:
        """The options may say something else of this channel. What was set while a broker ran stays."""
        given, context, topic = self.given_policy, self.topic.context, self.topic.name
        try:
            self._set_policy(given)
        except InvalidPolicy as error:
            context.log("error", "CHANNEL({channel}): {error}", topic=topic, channel=self.name, error=not_used(error))
            self._set_policy({})
            self.given_policy = given
        for text in context.options.resolve_channel(topic, self.name).unused:
            context.log("error", "CHANNEL({channel}): {text}", topic=topic, channel=self.name, text=text)

    def _set_policy(self, given: Mapping[str, Any]) -> None:
        """Find the policy in force, and let the parts of the channel that carry it out know."""
        topic, before = self.topic, self.policy
        policy = topic.context.options.channel_policy_of(topic.name, self.name, given)
        bounds = bounds_of(policy)
        if self.ephemeral and bounds:
            if not bounds.keys().isdisjoint(given):
                raise InvalidPolicy(EPHEMERAL_IS_BOUNDED)
            bounds = {}
        self.policy, self.given_policy = policy, dict(given)
        self.undelivered.follow(policy)
        self._limit_rate(policy.max_rate)
        self._delay_requeues(policy.requeue_delay, policy.max_requeue_delay)
        if policy.ordered_by != before.ordered_by:
            self._set_order(policy.ordered_by)
        if policy.priority != before.priority and self.cursor is not None:
            self.cursor.set_priority(is_on=policy.priority)
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
            self.ordered = OrderedPosition(self.topic, self.cursor, keys, self._sequences_not_ready)
            self.position = self.ordered
        self.undelivered.set_position(self.position)
        self.wake()

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

    # -- what /stats shows

    @property
    def depth(self) -> int:
        """Ready messages: neither in flight nor deferred."""
        return self.position.depth

    @property
    def backend_depth(self) -> int:
        return self.position.backend_depth

    @property
    def deferred_count(self) -> int:
        return self.position.deferred_count

    @property
    def dropped_count(self) -> int:
        """Messages an ephemeral channel had no room for, or that a bound dropped, since the process started."""
        return self.position.dropped_count

    @property
    def dead_letter_count(self) -> int:
        """Messages that have left for the dead-letter topic since the process started."""
        dead_letters = self.undelivered.dead_letters
        return 0 if dead_letters is None else dead_letters.count

    @property
    def expired_count(self) -> int:
        """Messages that were not delivered because their time to live had ended, since the process started."""
        return self.undelivered.expired_count

    @property
    def leaving(self) -> list[int]:
        """The sequences of the messages on their way to the dead-letter topic: neither ready nor in flight."""
        dead_letters = self.undelivered.dead_letters
        return [] if dead_letters is None else dead_letters.sequences

    @property
    def in_flight_count(self) -> int:
        return sum(consumer.in_flight.count for consumer in self.consumers + self.departed)

    @property
    def message_count(self) -> int:
        """Messages the topic released to this channel since the process started."""
        return self.topic.released_total - self.joined_total

    @property
    def waiting_count(self) -> int:
        """Messages that are ready or deferred."""
        return self.depth + self.deferred_count

    @property
    def unfinished_count(self) -> int:
        """Messages that wait, are deferred, or in flight."""
        return self.depth + self.in_flight_count + self.deferred_count

    # -- consumers

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer. Exiting when the channel is being deleted; ChannelFull when it has max_channel_consumers."""
        if self.exiting:
            raise Exiting
        limit = self.topic.context.options.max_channel_consumers
        if limit and len(self.consumers) >= limit:
            raise ChannelFull
        consumer.on_timeout = self.on_timeout
        self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """
        The consumer's connection is closed. Its messages in flight wait for their timeout, or are requeued with
        `requeue_on_disconnect`.
        """
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        must_wait = False
        if not self.exiting:
            if self.ephemeral and not self.consumers:
                self.topic.delete_channel(self.name)
            elif consumer.in_flight and self.topic.context.options.requeue_on_disconnect:
                must_wait = self._requeue_left(consumer)
            elif consumer.in_flight:
                self.departed.append(consumer)
                must_wait = True
        consumer.leave(must_wait=must_wait)

    def set_ready(self, consumer: Consumer, count: int) -> None:
        """RDY: allow the consumer `count` messages in flight."""
        consumer.ready_count = consumer.client.ready_count = count
        self.wake()

    # -- what becomes of messages

    def finish(self, consumer: Consumer, ids: list[bytes], now: float) -> list[tuple[bytes, str]]:
        """FIN for a run of ids. Returns those that could not be finished, each with the reason."""
        got = consumer.in_flight.take(ids)
        if self.ordered is not None:
            for message_id, delivery in zip(ids, got, strict=True):
                if delivery is not None:
                    self.ordered.end(sequence_of(message_id))
        failed: list[tuple[bytes, str]] = []
        if None in got:
            failed = [(bad, self._why_not(bad)) for bad, delivery in zip(ids, got, strict=True) if delivery is None]
        if self.position.holds or self.latencies is not None:
            self._record_finished([(item, len([*same])) for item, same in groupby(got) if item is not None], now)
        self._count_finished(consumer, len(got) - len(failed))
        return failed

    def finish_next(self, consumer: Consumer, count: int, now: float) -> None:
        """FIN for the first `count` ids of `consumer.in_flight.next_ids`."""
        if self.ordered is not None:
            for first, run in consumer.in_flight.next_runs(count):
                self.ordered.end_run(first, run)
        deliveries = consumer.in_flight.finish_next(count)
        if self.position.holds or self.latencies is not None:
            self._record_finished(deliveries, now)
        self._count_finished(consumer, count)

    def requeue(self, consumer: Consumer, message_id: bytes, delay: float, now: float) -> str | None:
        """REQ, `delay` in seconds. Returns why it failed, or None."""
        (delivery,) = consumer.in_flight.take((message_id,))
        if delivery is None:
            return self._why_not(message_id)
        if self.undelivered.take_failed(message_id, delivery, REQUEUED):
            pass
        elif delay > 0:
            due = now + delay
            self.position.defer(message_id, delivery, due)
            self.topic.context.timers.schedule(due, self)
        else:
            self._deliver_again([(message_id, delivery)], now, REQUEUED)
        self.requeue_count += 1
        consumer.client.requeue_count += 1
        self.wake()
        return None

    def touch(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """TOUCH. Returns why it failed, or None."""
        is_here = consumer.touch(message_id, now, self.topic.context.options.max_msg_timeout)
        return None if is_here else self._why_not(message_id)

    def on_timeout(self, consumer: Consumer, deliveries: list[tuple[bytes, Delivery]], now: float) -> None:
        """Messages a consumer, perhaps a departed one, has had for too long. They are out of its table."""
        self._deliver_again(deliveries, now, TIMED_OUT)
        self.timeout_count += len(deliveries)
        if consumer.on_removed is not None:
            consumer.on_removed()
        if not consumer.in_flight and consumer in self.departed:
            self.departed.remove(consumer)
        self._touch()
        self.wake()

    def release(self, segments: list[Segment], now: float) -> None:
        """The topic released these."""
        due = self.position.release(segments, now)
        if due is not None:
            self.topic.context.timers.schedule(due, self)

    def cancel(self, sequence: int, now: float) -> bool:
        """
        Remove a deferred message that was never delivered and is not due. Returns whether there was one. BackendError.
        Between two checkpoints.
        """
        return self.position.cancel(sequence, now)

    def on_timer(self, now: float) -> float | None:
        """Deferred messages have become ready, or reading failed a while ago."""
        next_due = self.position.on_timer(now)
        self.wake()
        return next_due

    def await_deferred(self, now: float) -> None:
        """After a restore: look at the deferred messages when the first one is due."""
        self.topic.context.timers.schedule(now, self)

    # -- administration

    def seek(self, sequence: int) -> Moved:
        """
        Move a durable channel to `sequence`, which is between the oldest message kept and `released`.

        All messages from there on are delivered as if for the first time, and none of them is in flight any more. A
        move forwards finishes everything before `sequence`; a move backwards keeps what is unfinished before it.
        BackendError, and nothing is changed.
        """
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        self.ungroup()
        before, is_forwards = self.unfinished_count, sequence >= self.cursor.next
        self.cursor.seek(sequence, self.topic.reader.count(sequence, self.topic.released))
        for consumer in self.consumers + self.departed:
            consumer.in_flight.forget(0 if is_forwards else sequence)
            if consumer.on_removed is not None:
                consumer.on_removed()
        self.undelivered.forget(0 if is_forwards else sequence)
        self.departed = [consumer for consumer in self.departed if consumer.in_flight]
        if self.bounds is not None:
            self.bounds.look_soon()
        more = self.unfinished_count - before
        self.joined_total -= max(0, more)
        self._touch()
        self.wake()
        return Moved(max(0, -more), max(0, more), self.depth)

    def preview_seek(self, sequence: int) -> Moved:
        """Return what `seek` would do, between two checkpoints. Nothing is changed. BackendError."""
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        self.ungroup()
        depth, rest = self.topic.reader.count(sequence, self.topic.released), 0
        if sequence < self.cursor.next:
            ready, deferred = self.cursor.waiting_below(sequence)
            depth += ready
            rest = deferred + sum(one.in_flight.count_below(sequence) for one in self.consumers + self.departed)
        more = depth + rest - self.unfinished_count
        return Moved(max(0, -more), max(0, more), depth)

    def pause(self) -> None:
        """Deliver nothing until `unpause`."""
        self._set_paused(True)

    def unpause(self) -> None:
        self._set_paused(False)
        self.wake()

    def empty(self) -> None:
        """Drop all messages: waiting, deferred and in flight."""
        for consumer in self.consumers + self.departed:
            consumer.in_flight.forget()
            if consumer.on_removed is not None:
                consumer.on_removed()
        self.departed.clear()
        self.undelivered.forget()
        self.position.empty()
        self._touch()
        self.wake()

    def exit(self) -> None:
        """The channel is being deleted: disconnect its consumers, and wait for no timeout any more."""
        self.exiting = True
        self.topic.context.timers.cancel(self)
        if self.rate_limit is not None:
            self.rate_limit.close()
        if self.bounds is not None:
            self._bound(None)
        self.position.detach()
        self.undelivered.detach()
        for consumer in self.departed:
            consumer.leave(must_wait=False)
        for consumer in list(self.consumers):
            consumer.disconnect()

    def sequences_in_flight(self) -> Iterator[int]:
        """Return the sequences in flight."""
        for consumer in self.consumers + self.departed:
            for message_id, _ in consumer.in_flight.items():
                yield sequence_of(message_id)

    def _sequences_not_ready(self) -> Iterator[int]:
        """Return the sequences in flight, and those on their way to the dead-letter topic."""
        return chain(self.sequences_in_flight(), self.leaving)

    def first_deliveries(self) -> list[int]:
        """Return the sequences in flight that have no pending row."""
        together = [consumer.in_flight.first_deliveries() for consumer in self.consumers + self.departed]
        return [*chain.from_iterable(together)]

    def finished_below(self) -> int:
        """A sequence under which a durable channel has nothing unfinished."""
        assert self.cursor is not None, "an ephemeral channel keeps nothing back"
        return min([self.cursor.lowest_unfinished, *self.first_deliveries()])

    # -- delivery

    @property
    def is_to_be_served(self) -> bool:
        """Whether `serve` is called at the end of this turn."""
        return self in self.topic.to_serve

    def wake(self) -> None:
        """Something changed: serve at the end of this turn, if there is anything to be had."""
        if not self.topic.is_hungry(self) or self.position.available > 0:
            self.topic.to_serve[self] = None

    def serve(self, now: float) -> bool:
        """
        Deliver messages to the ready consumers. Returns whether there are more for a consumer that has used up its
        allowance of this turn.
        """
        if self.paused or self.exiting or (self.undelivered.dead_letters is not None and self.undelivered.is_full):
            return False
        rate = self.rate_limit
        if rate is not None and rate.available(now) < 1:
            rate.wait()
            return False
        ready = self._ready()
        self.topic.set_hungry(self, False)
        for consumer in ready:
            consumer.allowance = consumer.turn_bytes
        try:
            available = self.position.available
            while ready and available > 0:
                share = -(-available // len(ready))
                if rate is not None:
                    tokens = min(available, rate.available(now))
                    if not tokens:
                        rate.wait()
                        return False
                    share, ready = max(1, tokens // len(ready)), ready[:tokens]
                delivered = 0
                for consumer in ready:
                    delivered += self._give(consumer, min(share, consumer.room), now)
                available = self.position.available
                if not delivered:
                    break
                ready = [consumer for consumer in ready if consumer.allowance > 0 and consumer.room > 0]
        except BackendError as error:
            self.topic.read_failed(error)
            self.topic.context.timers.schedule(now + RETRY_READ_SECONDS, self)
            return False
        # Who has had enough for this turn is not in `ready` any more, and is as hungry as the others.
        wanting = bool(ready) or any(consumer.room > 0 for consumer in self.consumers)
        if available > 0:
            return wanting and not self.position.is_being_saved
        self.topic.set_hungry(self, wanting)
        return False

    def _ready(self) -> list[Consumer]:
        ready = [consumer for consumer in self.consumers if consumer.room > 0]
        if len(ready) > 1:
            self._turn += 1
            start = self._turn % len(ready)
            ready = ready[start:] + ready[:start]
            ready.sort(key=lambda consumer: (not consumer.zone_local, not consumer.region_local))
        return ready

    def _room(self) -> int:
        return 0 if self.paused else sum(max(0, consumer.room) for consumer in self.consumers)

    def _give(self, consumer: Consumer, count: int, now: float) -> int:
        """Deliver up to `count` messages to one consumer; how many it were."""
        remaining, on_disk = count, self.position.backend_depth
        try:
            while remaining > 0 and consumer.allowance > 0:
                redelivered = self._redeliver(consumer, now)
                if redelivered is not None:
                    remaining -= redelivered
                    continue
                span = self.position.next_span(now)
                if span is None:
                    break
                segment, start, stop = span
                if segment.headers is not None or self.topic.message_ttl_ns:
                    cost, stop = self.undelivered.pass_expired(segment, start, stop, now)
                    if cost:
                        consumer.allowance -= cost
                        continue
                stop = segment.fit(start, min(stop, start + remaining), consumer.allowance)
                self.position.advance(stop - start)
                remaining -= stop - start
                self._deliver(consumer, segment, start, stop, now)
        finally:
            self._count(consumer, count - remaining, on_disk)
        return count - remaining

    def _deliver(self, consumer: Consumer, segment: Segment, start: int, stop: int, now: float) -> None:
        if consumer.sample_rate:
            for index in range(start, stop):
                if randrange(SAMPLE_RANGE) <= consumer.sample_rate:
                    self._hand_over(consumer, segment, index, index + 1, now)
                elif self.ordered is not None:
                    self.ordered.end(segment.first + index)
        else:
            self._hand_over(consumer, segment, start, stop, now)

    def _hand_over(self, consumer: Consumer, segment: Segment, start: int, stop: int, now: float) -> None:
        together = ((0, start, stop),) if self.latencies is None else segment.published_together(start, stop)
        for timestamp_ns, first, end in together:
            delivery = consumer.shared_delivery(now, timestamp_ns)
            if self.ephemeral:
                delivery = Delivery(delivery.deadline, now, timestamp_ns, segment=segment)
            consumer.in_flight.add(segment.number_at(first), end - first, delivery)
        frames = segment.slice(start, stop)
        consumer.allowance -= len(frames)
        consumer.client.message_count += stop - start
        if segment.headers is None or consumer.deliver_with_headers is None:
            consumer.deliver(frames)
        else:
            consumer.deliver_with_headers(frames, segment.headers[start:stop])

    def _redeliver(self, consumer: Consumer, now: float) -> int | None:
        """
        Deliver the requeued message whose turn has come. Returns how many messages that were: None without one, 0 when
        it expired or is a dead letter now. A sampled-out one is finished, and counts.
        """
        reads = self.topic.log.reads
        redelivery = self.position.next_redelivery()
        consumer.allowance -= (self.topic.log.reads - reads) * READ_COST
        if redelivery is None:
            return None
        cost = self.undelivered.take_redelivery(redelivery, now)
        if cost:
            consumer.allowance -= cost
            return 0
        if consumer.sample_rate and randrange(SAMPLE_RANGE) > consumer.sample_rate:
            self.position.finish(redelivery.sequence)
            return 1
        self.position.redelivered(redelivery)
        attempts = redelivery.attempts + 1
        frame = redelivery.segment.redelivery_frame(redelivery.at, attempts)
        segment = redelivery.segment if self.ephemeral else None
        timestamp_ns = timestamp_ns_of(frame) if self.latencies is not None else 0
        delivery = consumer.single_delivery(now, timestamp_ns, redelivery.sequence, attempts, segment)
        consumer.in_flight.add(redelivery.segment.number_at(redelivery.at), 1, delivery)
        consumer.allowance -= len(frame)
        consumer.client.message_count += 1
        if redelivery.segment.headers is None or consumer.deliver_with_headers is None:
            consumer.deliver(frame)
        else:
            consumer.deliver_with_headers(frame, (redelivery.segment.headers[redelivery.at],))
        return 1

    def _count(self, consumer: Consumer, count: int, on_disk: int) -> None:
        """
        Messages that went to a consumer, by how near it is; before sampling, and not those that nsqd would have read
        from disk, which is what `backend_depth` fell by since it was `on_disk` (nsqd specification 2.10). It falls
        without them, too, when some are lost or wait again.
        """
        if self.rate_limit is not None:
            self.rate_limit.spend(count)
        if on_disk:
            count = max(0, count - on_disk + self.position.backend_depth)
        if consumer.zone_local:
            self.zone_local_msg_count += count
        elif consumer.region_local:
            self.region_local_msg_count += count
        else:
            self.global_msg_count += count

    def _deliver_again(self, deliveries: Iterable[tuple[bytes, Delivery]], now: float, reason: str) -> None:
        """
        These deliveries failed: the messages are delivered again, at once or after the delay of the policy, or become
        dead letters.
        """
        position, delays, take_failed = self.position, self.requeue_delay, self.undelivered.take_failed
        first_due = inf
        for message_id, delivery in deliveries:
            if take_failed(message_id, delivery, reason):
                continue
            due = now if delays is None else delays.due(delivery.attempts, now)
            if due > now:
                position.defer(message_id, delivery, due)
                first_due = min(first_due, due)
            else:
                position.requeue(message_id, delivery)
        if first_due < inf:
            self.topic.context.timers.schedule(first_due, self)

    def _requeue_left(self, consumer: Consumer) -> bool:
        """Requeue what a consumer that leaves has in flight. Returns whether that is done later."""
        if self.requeue_delay is None:
            self._requeue_all(consumer, 0.0)
            return False
        self.departed.append(consumer)
        self.requeue_delay.take(consumer)
        return True

    def _requeue_all(self, consumer: Consumer, now: float) -> None:
        """Requeue what a consumer that has left has in flight."""
        if self.exiting:
            return
        self.requeue_count += len(consumer.in_flight)
        self._deliver_again(consumer.in_flight.items(), now, DISCONNECTED)
        consumer.in_flight.forget()
        if consumer in self.departed:
            self.departed.remove(consumer)
            consumer.leave(must_wait=False)
        self._touch()
        self.wake()

    def _record_finished(self, deliveries: list[tuple[Delivery, int]], now: float) -> None:
        """Finish these deliveries, each of so many messages: remove pending rows, and record latencies."""
        for delivery, count in deliveries:
            if delivery.sequence != FIRST:
                self.position.finish(delivery.sequence)
            if self.latencies is not None:
                self.latencies.insert(self.topic.context.age_ns(delivery.timestamp_ns, now), count, now)

    def _count_finished(self, consumer: Consumer, count: int) -> None:
        self.finish_count += count
        consumer.client.finish_count += count
        self._touch()
        self.wake()

    def _why_not(self, message_id: bytes) -> str:
        owned = any(message_id in consumer.in_flight for consumer in self.consumers + self.departed)
        return NOT_OWNED if owned else NOT_IN_FLIGHT

    def tell_paused(self) -> None:
        """Its pause or that of its topic has changed: tell the consumers that want to know."""
        for consumer in self.consumers:
            if consumer.on_pause is not None:
                consumer.on_pause(self.paused or self.topic.paused)

    def _set_paused(self, paused: bool) -> None:
        self.paused = paused
        self.tell_paused()
        self._touch()
        if not self.ephemeral:
            self.topic.change_names(at_once=True)

    def _schedule(self, due: float) -> None:
        self.topic.context.timers.schedule(due, self)

    def _touch(self) -> None:
        if self.cursor is not None:
            self.cursor.touched = True
            self.topic.touch()


def _pages(topic: ChannelOwner, channel: str) -> Pages | None:
    """The stored rows of a durable channel. Those of an ephemeral topic are all in memory."""
    return None if topic.ephemeral else Pages(topic.context.positions, topic.name, channel)
