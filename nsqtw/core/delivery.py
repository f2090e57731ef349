"""
Delivery of a channel's messages to its consumers, and of those whose delivery failed once more.

Theory of operation. `serve` divides what the position has among all ready consumers. With several of them each gets at
most its share, ceil(available / ready), and the first one rotates; those in the broker's own zone, or else region, come
first. In one turn a consumer is given at most its `turn_bytes` (or one larger message), which bounds its output.

A failed delivery is one that timed out, was requeued, or was in flight to a consumer that disconnected. The message is
delivered again, at once or after a delay, or becomes a dead letter.

Performance: called once per span.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from random import randrange

from nsqtw.core.channel_base import ChannelBase
from nsqtw.core.consumer import Consumer
from nsqtw.core.cursor import RETRY_READ_SECONDS
from nsqtw.core.in_flight import Delivery
from nsqtw.core.policy.gathered import Gathered
from nsqtw.core.policy.letter import DISCONNECTED
from nsqtw.core.segment import Segment, timestamp_ns_of
from nsqtw.errors import BackendError

SAMPLE_RANGE = 100
READ_COST = 8 * 1024
"""
Bytes that a read of the medium for one message takes from a consumer's allowance in a turn: messages that become due
can be anywhere in the log, and a read takes a millisecond or two.
"""

MAX_VAIN_TURNS = 100
"""Turns in which a channel may have messages for a consumer, give it none, and stay as it is."""
_VAIN_SECONDS = 1.0


class ChannelDelivery:
    """The delivery of the messages of one channel, which each method is given: it refers to this object."""

    def __init__(self) -> None:
        self._turn = 0
        """Times that there were several ready consumers."""
        self._vain_turns = 0
        self._vain_state = (0, 0)
        """How many of the last turns that delivered nothing found the same state, and which."""

    def serve(self, channel: ChannelBase, now: float) -> bool:  # noqa: C901  # a call is a cost of each turn
        """
        Deliver messages to the ready consumers. Returns whether there are more for a consumer that has used up its
        allowance of this turn.
        """
        if channel.paused or channel.exiting or (channel.has_dead_letters and channel.undelivered.is_full):
            return False
        if channel.ordered is not None:
            channel.ordered.begin_turn()
        rate = channel.rate_limit
        ready = self._ready(channel)
        caught_up = channel.topic.caught_up
        caught_up.pop(channel, None)
        for consumer in ready:
            consumer.allowance = consumer.turn_bytes
        try:
            available = channel.position.available
            while ready and available > 0:
                share = -(-available // len(ready))
                if rate is not None:
                    tokens = min(available, rate.available(now))
                    if not tokens:
                        rate.wait(now)
                        return False
                    share, ready = max(1, tokens // len(ready)), ready[:tokens]
                delivered = 0
                for consumer in ready:
                    delivered += self._give(channel, consumer, min(share, consumer.room), now)
                available = channel.position.available
                if not delivered:
                    break
                ready = [consumer for consumer in ready if consumer.allowance > 0 and consumer.room > 0]
        except BackendError as error:
            channel.topic.read_failed(error)
            channel.topic.context.timers.schedule(now + RETRY_READ_SECONDS, channel)
            return False
        # A consumer that has used up its allowance is not in `ready` any more, but waits for messages as the others do.
        wanting = bool(ready) or any(consumer.room > 0 for consumer in channel.consumers)
        if available > 0:
            if not wanting or channel.position.is_being_saved:
                return False
            if delivered or not self._is_in_vain(channel, available, now):
                return True
        if wanting:
            caught_up[channel] = None
        return False

    def _is_in_vain(self, channel: ChannelBase, available: int, now: float) -> bool:
        """Return whether this turn and many before it delivered nothing and changed nothing."""
        if channel.ordered is not None and not channel.ordered.is_grouped:
            return False  # that goes on from turn to turn
        state = (available, 0 if channel.cursor is None else channel.cursor.next)
        if state != self._vain_state:
            self._vain_turns, self._vain_state = 0, state
        self._vain_turns += 1
        if self._vain_turns < MAX_VAIN_TURNS:
            return False
        if self._vain_turns == MAX_VAIN_TURNS:
            text = "CHANNEL({channel}): messages that are counted as ready cannot be delivered: {count}"
            context, topic = channel.topic.context, channel.topic.name
            context.log("error", text, topic=topic, channel=channel.name, count=available)
        channel.schedule(now + _VAIN_SECONDS)
        return True

    def _ready(self, channel: ChannelBase) -> list[Consumer]:
        ready = [consumer for consumer in channel.consumers if consumer.room > 0]
        if len(ready) > 1:
            self._turn += 1
            start = self._turn % len(ready)
            ready = ready[start:] + ready[:start]
            ready.sort(key=lambda consumer: (not consumer.zone_local, not consumer.region_local))
        return ready

    def _give(self, channel: ChannelBase, consumer: Consumer, count: int, now: float) -> int:
        """Deliver up to `count` messages to one consumer; how many it were."""
        remaining, on_disk = count, channel.position.backend_depth
        try:
            while remaining > 0 and consumer.allowance > 0:
                redelivered = self._redeliver(channel, consumer, now)
                if redelivered is not None:
                    remaining -= redelivered
                    continue
                span = channel.position.next_span(now)
                if span is None:
                    break
                segment, start, stop = span
                if segment.headers is not None or channel.topic.message_ttl_ns:
                    cost, stop = channel.undelivered.pass_expired(segment, start, stop, now)
                    if cost:
                        consumer.allowance -= cost
                        continue
                stop = segment.fit(start, min(stop, start + remaining), consumer.allowance)
                channel.position.advance(stop - start)
                remaining -= stop - start
                self._deliver(channel, consumer, segment, start, stop, now)
        finally:
            self._count(channel, consumer, count - remaining, on_disk)
        return count - remaining

    def _deliver(
        self, channel: ChannelBase, consumer: Consumer, segment: Segment, start: int, stop: int, now: float
    ) -> None:
        if consumer.sample_rate:
            for index in range(start, stop):
                if randrange(SAMPLE_RANGE) <= consumer.sample_rate:
                    self._hand_over(channel, consumer, segment, index, index + 1, now)
                elif channel.ordered is not None:
                    channel.ordered.end(segment.sequence_at(index))
        else:
            self._hand_over(channel, consumer, segment, start, stop, now)

    def _hand_over(
        self, channel: ChannelBase, consumer: Consumer, segment: Segment, start: int, stop: int, now: float
    ) -> None:
        together = ((0, start, stop),) if channel.latencies is None else segment.published_together(start, stop)
        for timestamp_ns, first, end in together:
            delivery = consumer.shared_delivery(now, timestamp_ns)
            if channel.ephemeral:
                delivery = Delivery(delivery.deadline, now, timestamp_ns, segment=segment)
            if channel.ordered is not None and isinstance(segment, Gathered):
                consumer.in_flight.add_gathered(segment.ids[first:end], segment.sequences[first:end], delivery)
            else:
                consumer.in_flight.add(segment.number_at(first), end - first, delivery)
        frames = segment.slice(start, stop)
        consumer.allowance -= len(frames)
        consumer.client.message_count += stop - start
        if segment.headers is None or consumer.deliver_with_headers is None:
            consumer.deliver(frames)
        else:
            consumer.deliver_with_headers(frames, segment.headers[start:stop])

    def _redeliver(self, channel: ChannelBase, consumer: Consumer, now: float) -> int | None:
        """
        Deliver the requeued message whose turn has come. Returns how many messages that were: None without one, 0 when
        it expired or is a dead letter now. A sampled-out one is finished, and counts.
        """
        reads = channel.topic.log.reads
        redelivery = channel.position.next_redelivery()
        consumer.allowance -= (channel.topic.log.reads - reads) * READ_COST
        if redelivery is None:
            return None
        cost = channel.undelivered.take_redelivery(redelivery, now)
        if cost:
            consumer.allowance -= cost
            return 0
        if consumer.sample_rate and randrange(SAMPLE_RANGE) > consumer.sample_rate:
            channel.position.finish(redelivery.sequence)
            return 1
        channel.position.redelivered(redelivery)
        attempts = redelivery.attempts + 1
        frame = redelivery.segment.redelivery_frame(redelivery.at, attempts)
        segment = redelivery.segment if channel.ephemeral else None
        timestamp_ns = timestamp_ns_of(frame) if channel.latencies is not None else 0
        delivery = consumer.single_delivery(now, timestamp_ns, redelivery.sequence, attempts, segment)
        consumer.in_flight.add(redelivery.segment.number_at(redelivery.at), 1, delivery)
        consumer.allowance -= len(frame)
        consumer.client.message_count += 1
        if redelivery.segment.headers is None or consumer.deliver_with_headers is None:
            consumer.deliver(frame)
        else:
            consumer.deliver_with_headers(frame, (redelivery.segment.headers[redelivery.at],))
        return 1

    def _count(self, channel: ChannelBase, consumer: Consumer, count: int, on_disk: int) -> None:
        """
        Messages that went to a consumer, by how near it is; before sampling, and not those that nsqd would have read
        from disk, which is what `backend_depth` fell by since it was `on_disk`. It falls
        without them, too, when some are lost or wait again.
        """
        if channel.rate_limit is not None:
            channel.rate_limit.spend(count)
        if on_disk:
            count = max(0, count - on_disk + channel.position.backend_depth)
        if consumer.zone_local:
            channel.zone_local_msg_count += count
        elif consumer.region_local:
            channel.region_local_msg_count += count
        else:
            channel.global_msg_count += count

    # -- failed deliveries

    def deliver_again(
        self,
        channel: ChannelBase,
        deliveries: Iterable[tuple[bytes, Delivery]],
        now: float,
        reason: str,
        detail: str = "",
    ) -> None:
        """
        These deliveries failed: the messages are delivered again, at once or after the delay of the policy, or become
        dead letters. `detail` is what the client said about it.
        """
        position, delays, take_failed = (
            channel.position,
            channel.requeue_delay,
            channel.undelivered.take_failed,
        )
        first_due = inf
        for message_id, delivery in deliveries:
            due = now if delays is None else delays.due(delivery.attempts, now)
            if take_failed(message_id, delivery, reason, due, detail):
                continue
            if due > now:
                position.defer(message_id, delivery, due)
                first_due = min(first_due, due)
            else:
                position.requeue(message_id, delivery)
        if first_due < inf:
            channel.topic.context.timers.schedule(first_due, channel)
        channel.keep_within_bounds(now)

    def requeue_left(self, channel: ChannelBase, consumer: Consumer) -> bool:
        """Requeue what a consumer that leaves has in flight. Returns whether that is done later."""
        if channel.requeue_delay is None:
            self.requeue_all(channel, consumer, 0.0)
            return False
        channel.former_consumers.append(consumer)
        channel.requeue_delay.take(consumer)
        return True

    def requeue_all(self, channel: ChannelBase, consumer: Consumer, now: float) -> None:
        """Requeue what a consumer that has left has in flight."""
        if channel.exiting:
            return
        channel.requeue_count += len(consumer.in_flight)
        self.deliver_again(channel, consumer.in_flight.items(), now, DISCONNECTED)
        consumer.in_flight.forget()
        if consumer in channel.former_consumers:
            channel.former_consumers.remove(consumer)
            consumer.leave(must_wait=False)
        channel.mark_touched()
        channel.wake()
