"""
A channel: consumers that share one position in a topic's log.

Theory of operation. `core.delivery` gives messages to consumers. FIN, REQ and TOUCH look an id up in the table of the
consumer that sent them (`core.in_flight`); if the id is absent, the tables of all consumers are searched for the error
to answer: not in flight, or owned by another client.

The table of a consumer that has left stays in `former_consumers` until everything in it has timed out: NSQ does not
requeue on disconnect. With the option `requeue_on_disconnect` its messages are requeued at once.

Performance: called once per run of FINs.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from nsqtw.core.channel_base import Below, ChannelBase, ChannelOwner
from nsqtw.core.channel_policy import ChannelPolicies
from nsqtw.core.checkpoint import CursorState
from nsqtw.core.consumer import Consumer
from nsqtw.core.delivery import ChannelDelivery
from nsqtw.core.for_others import ForOthers
from nsqtw.core.in_flight import FIRST, Delivery, delivered_sequence
from nsqtw.core.place import Place
from nsqtw.core.policy.letter import REQUEUED, TIMED_OUT
from nsqtw.core.segment import Segment, sequence_of
from nsqtw.core.unread import UnreadMessages
from nsqtw.errors import BackendError, ChannelFull, Exiting
from nsqtw.options.resolution import NOTHING_GIVEN

NOT_IN_FLIGHT = "ID not in flight"
NOT_OWNED = "client does not own message"
_NOTHING_BELOW: Final = Below(0, 0, 0, 0)


class Moved(NamedTuple):
    """The change of a channel's unfinished messages by a seek, its depth after it, and what its bounds drop then."""

    skipped: int
    """Unfinished messages that are not delivered."""
    replayed: int
    """Finished messages that are delivered again."""
    depth: int
    max_drops: int = 0
    """At most so many messages are dropped because of a bound, before consumers take any."""


class Channel(ChannelBase):
    """One channel of `topic`, created by it. `given_policy` are the settings that were saved."""

    def __init__(self, topic: ChannelOwner, name: str, given_policy: Mapping[str, Any] = NOTHING_GIVEN) -> None:
        super().__init__(topic, name, given_policy)
        self._delivery = ChannelDelivery()
        self._others: ForOthers | None = None
        """The messages for other channels, while they are looked for since the last seek."""
        self.policies.follow()

    def serve(self, now: float) -> bool:
        """See `ChannelDelivery.serve`."""
        return self._delivery.serve(self, now)

    @property
    def policies(self) -> ChannelPolicies:
        """What changes its policy, and knows what a change would do."""
        return ChannelPolicies(self, partial(self._delivery.requeue_all, self))

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
        `requeue_on_disconnect`; not when it is the broker that ends all connections, which is no failure of a consumer.
        """
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        must_wait = False
        if not self.exiting:
            if self.ephemeral and not self.consumers:
                self.topic.delete_channel(self.name)
            elif consumer.in_flight and self._requeues_left:
                must_wait = self._delivery.requeue_left(self, consumer)
            elif consumer.in_flight:
                self.former_consumers.append(consumer)
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
            found = [sequence_of(message_id) for message_id, delivery in zip(ids, got, strict=True) if delivery]
            self.ordered.end_each(found)
        failed: list[tuple[bytes, str]] = []
        if None in got:
            failed = [(bad, self._why_not(bad)) for bad, delivery in zip(ids, got, strict=True) if delivery is None]
        if self.position.has_rows or self.latencies is not None:
            self._record_finished([(item, len([*same])) for item, same in groupby(got) if item is not None], now)
        self._count_finished(consumer, len(got) - len(failed))
        return failed

    def finish_next(self, consumer: Consumer, count: int, now: float) -> None:
        """FIN for the first `count` ids of `consumer.in_flight.next_ids`."""
        if self.ordered is not None:
            for sequences in consumer.in_flight.next_runs(count):
                self.ordered.end_run(sequences)
        deliveries = consumer.in_flight.finish_next(count)
        if self.position.has_rows or self.latencies is not None:
            self._record_finished(deliveries, now)
        self._count_finished(consumer, count)

    def requeue(self, consumer: Consumer, message_id: bytes, delay: float, now: float, detail: str = "") -> str | None:
        """REQ, `delay` in seconds. `detail`: what the client says about it. Returns why it failed, or None."""
        (delivery,) = consumer.in_flight.take((message_id,))
        if delivery is None:
            return self._why_not(message_id)
        due = now + delay
        if delay <= 0:
            self._delivery.deliver_again(self, [(message_id, delivery)], now, REQUEUED, detail)
        elif not self.undelivered.take_failed(message_id, delivery, REQUEUED, due, detail):
            self.position.defer(message_id, delivery, due)
            self.topic.context.timers.schedule(due, self)
            self.keep_within_bounds(now)
        self.requeue_count += 1
        consumer.client.requeue_count += 1
        self.wake()
        return None

    def withhold(self, consumer: Consumer, ids: list[bytes]) -> None:
        """
        Take messages back from a consumer of a durable channel, as if they had not been delivered. They are delivered
        to nobody until `give_back`; a restart gives them back.
        """
        if self.withheld is None:
            self.withheld = {}
        found: list[int] = []
        for message_id, delivery in zip(ids, consumer.in_flight.take(ids), strict=True):
            if delivery is not None:
                sequence = delivered_sequence(message_id, delivery)
                self.position.take_out(sequence, delivery.attempts - 1, Place.WITHHELD)
                found.append(sequence)
                if self.cursor is not None and 0 < self.undelivered.max_attempts < delivery.attempts:
                    self.cursor.interrupt([sequence])  # as before its delivery, which was one more than allowed
        self.withheld.update(dict.fromkeys(found))
        if self.ordered is not None:
            self.ordered.end_each(found)
        self.wake()

    def give_back(self) -> None:
        """Deliver next what was withheld, in the order of the log."""
        withheld, self.withheld = self.withheld, None
        if withheld and self.cursor is not None:
            self.cursor.take_back(sorted(withheld))
            self.keep_within_bounds(0.0)
            self.mark_touched()
            self.wake()

    def touch(self, consumer: Consumer, message_id: bytes, now: float) -> str | None:
        """TOUCH. Returns why it failed, or None."""
        is_here = consumer.touch(message_id, now, self.topic.context.options.max_msg_timeout)
        return None if is_here else self._why_not(message_id)

    def on_timeout(self, consumer: Consumer, deliveries: list[tuple[bytes, Delivery]], now: float) -> None:
        """Messages a consumer, perhaps a former one, has had for too long. They are out of its table."""
        self._delivery.deliver_again(self, deliveries, now, TIMED_OUT)
        self.timeout_count += len(deliveries)
        if consumer.on_removed is not None:
            consumer.on_removed()
        if not consumer.in_flight and consumer in self.former_consumers:
            self.former_consumers.remove(consumer)
        self.mark_touched()
        self.wake()

    def release(self, segments: list[Segment], now: float) -> None:
        """The topic released these."""
        due = self.position.release(segments, now)
        if due is not None:
            self.topic.context.timers.schedule(due, self)

    def cancel(self, sequence: int, now: float) -> bool:
        """
        Remove a deferred message that was never delivered and is not due. Returns whether there was one. BackendError.
        """
        return self.position.cancel(sequence, now)

    def on_timer(self, now: float) -> float | None:
        """Deferred messages have become ready, or reading failed a while ago."""
        next_due = self.position.on_timer(now)
        self.wake()
        return next_due

    def restore(self, state: CursorState) -> None:
        """Become what was saved, before any consumer comes. BackendError."""
        self.paused, self.is_saved = state.paused, True
        if self.cursor is not None:
            self.undelivered.restore(self.cursor.restore(state))

    def await_deferred(self, now: float) -> None:
        """After a restore: look at the deferred messages when the first one is due, and go on with what was counted."""
        self.topic.context.timers.schedule(now, self)
        start, stop = (0, 0) if self.cursor is None else self.cursor.uncounted
        if start < stop:
            self._look_on(ForOthers(self.topic, self.name, start), counts_joined=False)
        if self.bounds is not None:
            self.bounds.restored()

    # -- administration

    def seek(
        self, sequence: int, others: ForOthers | None = None, *, skips_all: bool = False, now: float = 0.0
    ) -> Moved:
        """
        Move a durable channel to `sequence`, which is between the oldest message kept and `released`.

        `others` is what `look_from` returned. Without it the log is looked through; if it is long, the depth includes
        some messages for other channels until that is done.

        All messages from there on are delivered as if for the first time, and none of them is in flight any more. What
        is unfinished before `sequence` is finished by a move forwards, or with `skips_all`, and else stays as it is.
        BackendError, and nothing is changed.
        """
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        others = others or self._look_for_others(sequence, skips_all=skips_all)
        moved = self.preview_seek(sequence, others, skips_all=skips_all, now=now)
        skips = skips_all or self._is_forwards(sequence)
        self.policies.ungroup()
        self.cursor.seek(sequence, self._count_unread(sequence, others), others.end, skips=skips)
        self._others, others.unread = None, None
        if others.end < self.topic.released:
            self._look_on(others, counts_joined=True)
        for consumer in self.consumers + self.former_consumers:
            consumer.in_flight.forget(0 if skips else sequence)
            if consumer.on_removed is not None:
                consumer.on_removed()
        self._forget_held(0 if skips else sequence)
        self.former_consumers = [consumer for consumer in self.former_consumers if consumer.in_flight]
        if self.bounds is not None:
            self.bounds.look_soon()
        self.joined_total -= moved.replayed
        self.mark_touched()
        self.wake()
        return moved

    def preview_seek(
        self, sequence: int, others: ForOthers | None = None, *, skips_all: bool = False, now: float = 0.0
    ) -> Moved:
        """Return what `seek` would do. Nothing is changed. BackendError."""
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        others = others or self._look_for_others(sequence, skips_all=skips_all)
        unread = self._count_unread(sequence, others)
        below = self.count_below(sequence)
        kept, skipped = below, 0
        if skips_all or self._is_forwards(sequence):
            passed = 0 if others.unread is None else others.unread.count()
            skipped = self.unfinished_count if sequence >= self.topic.released else below.total + passed
            kept = _NOTHING_BELOW
        replayed = max(0, unread + kept.total + skipped - self.unfinished_count)
        max_drops = self.policies.max_drops(sequence, unread, kept, now)
        return Moved(skipped, replayed, unread + kept.ready + kept.held, max_drops)

    def look_from(self, sequence: int, before: ForOthers | None, *, skips_all: bool) -> ForOthers:
        """
        Return what must be known of the log for a move to `sequence`: perhaps what was returned `before`. It is
        complete when `ForOthers.look` returns True.
        """
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        skips = skips_all or self._is_forwards(sequence)
        skips_unread = skips and self.cursor.next < sequence < self.topic.released
        if before is not None and before.start <= sequence and not skips_unread:
            return before
        if before is not None and before.unread is not None and before.start == sequence:
            return before
        unread = None
        if skips_unread:
            unread = UnreadMessages(self.topic, self.topic.reader, self.name, self.cursor, sequence)
        return ForOthers(self.topic, self.name, sequence, unread)

    def pause(self) -> None:
        """Deliver nothing until `unpause`."""
        self._set_paused(True)

    def unpause(self) -> None:
        self._set_paused(False)
        self.wake()

    def empty(self) -> None:
        """Drop all messages: waiting, deferred and in flight."""
        for consumer in self.consumers + self.former_consumers:
            consumer.in_flight.forget()
            if consumer.on_removed is not None:
                consumer.on_removed()
        self.former_consumers.clear()
        self._others = None
        self._forget_held()
        self.position.empty()
        self.mark_touched()
        self.wake()

    def exit(self) -> None:
        """The channel is being deleted: disconnect its consumers, and wait for no timeout any more."""
        self.exiting = True
        self.topic.context.timers.cancel(self)
        if self.rate_limit is not None:
            self.rate_limit.close()
        if self.bounds is not None:
            self.policies.bind(None)
        self.position.detach()
        self.undelivered.detach()
        for consumer in self.former_consumers:
            consumer.leave(must_wait=False)
        for consumer in list(self.consumers):
            consumer.disconnect()

    def first_deliveries(self) -> list[int]:
        """Return the sequences in flight that have no pending row."""
        together = [consumer.in_flight.first_deliveries() for consumer in self.consumers + self.former_consumers]
        return [*chain.from_iterable(together)]

    def interrupted(self) -> list[int]:
        """
        Return the sequences of messages with pending rows that have used up the deliveries which the policy allows, and
        whose last one has not failed.
        """
        max_attempts = self.undelivered.max_attempts
        if not max_attempts or self.cursor is None:
            return []
        together = [
            consumer.in_flight.redeliveries(max_attempts) for consumer in self.consumers + self.former_consumers
        ]
        return [*self.cursor.interrupted, *chain.from_iterable(together)]

    def finished_below(self) -> int:
        """A sequence under which a durable channel has nothing unfinished."""
        assert self.cursor is not None, "an ephemeral channel keeps nothing back"
        return min([self.cursor.lowest_unfinished, *self.first_deliveries()])

    # -- inside

    def _is_forwards(self, sequence: int) -> bool:
        """
        Return whether a place is beyond the first message that the channel has not read. A higher sequence is not
        enough: a gap, emptied messages or a hole may be before that message. BackendError.
        """
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        reader = self.topic.reader
        return reader.has_messages(max(self.cursor.next, reader.kept_from), sequence)

    @property
    def _requeues_left(self) -> bool:
        """Whether what a consumer has in flight that leaves is requeued at once."""
        context = self.topic.context
        return context.options.requeue_on_disconnect and not context.stopping

    def _forget_held(self, start: int = 0) -> None:
        """The channel has forgotten its messages from the sequence `start` on."""
        self.undelivered.forget(start)
        if self.withheld is not None:
            self.withheld = {sequence: None for sequence in self.withheld if sequence < start}

    def _look_for_others(self, sequence: int, *, skips_all: bool) -> ForOthers:
        """
        Look for messages for other channels, as far as a turn has time for that, and for all that a move skips.
        BackendError.
        """
        others = self.look_from(sequence, None, skips_all=skips_all)
        while not others.look() and others.unread is not None and not others.unread.look():
            pass
        return others

    def _count_unread(self, sequence: int, others: ForOthers) -> int:
        """Return how many messages it gets from a place on, as far as they are known. BackendError."""
        released = self.topic.released
        return self.topic.reader.count(sequence, released) - others.count(sequence, released)

    def _look_on(self, others: ForOthers, *, counts_joined: bool) -> None:
        """Look through the rest of the log in the next turns. `counts_joined`: `joined_total` knows of the replay."""
        self._others = others
        others.look_on(partial(self._count_others, others, counts_joined))

    def _count_others(self, others: ForOthers, counts_joined: bool, error: Exception | None) -> None:
        """The rest of the log was looked through, or that failed: then messages are counted when they are passed."""
        if isinstance(error, BackendError):
            self.topic.read_failed(error)
        elif self._others is others and self.cursor is not None:
            self._others = None
            found = self.cursor.count_others(others)
            self.joined_total += found if counts_joined else 0
            if self.bounds is not None:
                self.bounds.look_soon()

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
        self.mark_touched()
        self.wake()

    def _why_not(self, message_id: bytes) -> str:
        owned = any(message_id in consumer.in_flight for consumer in self.consumers + self.former_consumers)
        return NOT_OWNED if owned else NOT_IN_FLIGHT

    def tell_paused(self) -> None:
        """Its pause or that of its topic has changed: tell the consumers that want to know."""
        for consumer in self.consumers:
            if consumer.on_pause is not None:
                consumer.on_pause(self.paused or self.topic.paused)

    def _set_paused(self, paused: bool) -> None:
        self.paused = paused
        self.tell_paused()
        self.mark_touched()
        if not self.ephemeral:
            self.topic.change_names(at_once=True)
