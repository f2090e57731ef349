"""
A channel as its parts see it: its messages, its consumers, their counts, and what carries out its policy.

`core.channel.Channel` is the channel. Its parts have one task each, and this class as their view of the channel:
`core.delivery`, `core.channel_policy`. What carries out a setting of the policy is None while it is not set.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from nsqtw.core.consumer import Consumer
from nsqtw.core.context import Context
from nsqtw.core.cursor import Cursor
from nsqtw.core.ephemeral_queue import EphemeralQueue
from nsqtw.core.histogram import LATENCY_BOUNDS, Histogram
from nsqtw.core.latency import Latencies
from nsqtw.core.log import Log
from nsqtw.core.log_reader import LogReader
from nsqtw.core.pending import Pages
from nsqtw.core.place import Place
from nsqtw.core.policy.bounds import ChannelBounds, DroppableMessages, TopicBounds
from nsqtw.core.policy.deduplication import Deduplication
from nsqtw.core.policy.order import OrderedPosition
from nsqtw.core.policy.rate_limit import RateLimit
from nsqtw.core.policy.requeue_delay import RequeueDelay
from nsqtw.core.policy.undelivered import Undelivered
from nsqtw.core.position import Position
from nsqtw.core.segment import sequence_of
from nsqtw.core.timers import Timer
from nsqtw.core.topic_log import TopicLog
from nsqtw.names import is_ephemeral
from nsqtw.options.resolution import (
    NO_CHANNEL_POLICY,
    NO_CHANNEL_RESOLUTION,
    NO_TOPIC_POLICY,
    NO_TOPIC_RESOLUTION,
    NOTHING_GIVEN,
)


class Awaited(NamedTuple):
    """The messages that a channel gets when a new topic starts."""

    ready: int = 0
    deferred: int = 0


class Below(NamedTuple):
    """Unfinished messages that a channel has read, before a place in the log: how many are in which state."""

    ready: int
    deferred: int
    held: int
    in_flight: int

    @property
    def total(self) -> int:
        return sum(self)


class ChannelOwner(TopicLog):
    """A topic, as its channels see it. `to_serve` are the channels of the broker to serve at the end of the turn."""

    def __init__(self, context: Context, name: str, log: Log, to_serve: dict[ChannelBase, None]) -> None:
        super().__init__(context, name, log)
        self.reader = LogReader(self)
        self.to_serve = to_serve
        self.latency_histogram = None if context.measure is None else Histogram(LATENCY_BOUNDS)
        """Seconds from publish to finish, of all channels there ever were; None when latencies are not measured."""
        self.caught_up: dict[ChannelBase, None] = {}
        """Channels whose ready consumers have got all that is released: the next release wakes them."""
        self.bounds: TopicBounds | None = None
        """The bounds of its channels; None when none has any."""
        self.policy, self.resolution = NO_TOPIC_POLICY, NO_TOPIC_RESOLUTION
        self.given_policy: dict[str, Any] = {}
        """The settings that were made while a broker ran."""
        self.deduplication: Deduplication | None = None
        self.shows_releases = False
        """
        Whether channels must see what is released to them: since the process started, messages were published for one
        of them only, or one had priorities.
        """

    def delete_channel(self, name: str) -> None:
        """Remove a channel, everything in it, and its consumers."""
        raise NotImplementedError

    def awaited_by(self, channel: str) -> Awaited:
        """Return the messages that a channel gets when the new topic starts; none of one that has started."""
        raise NotImplementedError

    def change_names(self, *, at_once: bool = False) -> None:
        """The topic, or a durable channel of it, is new or gone, or its pause changed (see `MetadataSync.change`)."""
        raise NotImplementedError


class ChannelBase(Timer):
    """The state of a channel of `topic`. `given_policy` are the settings that were saved."""

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
        self.former_consumers: list[Consumer] = []
        """Consumers that have disconnected, whose messages in flight still have to time out."""
        self.cursor = None if self.ephemeral else Cursor(topic, _pages(topic, name), self.schedule, name)
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
        self.policy, self.resolution = NO_CHANNEL_POLICY, NO_CHANNEL_RESOLUTION
        self.given_policy = dict(given_policy)
        """The settings that were made while a broker ran."""
        self.undelivered = Undelivered(
            topic, name, self.position, self._on_room, self.schedule, ephemeral=self.ephemeral
        )
        self.latencies = None if measure is None or histogram is None else Latencies(measure, histogram)
        self.rate_limit: RateLimit | None = None
        self.requeue_delay: RequeueDelay | None = None
        self.bounds: ChannelBounds | None = None
        self.withheld: dict[int, None] | None = None
        """
        The sequences of messages that a redrive has read and leaves here: they are delivered when it ends. None in a
        channel that never had one.
        """
        self.redrive_left: Callable[[], int] | None = None
        """Returns how many dead letters a redrive still has to look at; None in a channel that never had one."""
        self.has_dead_letters = False
        """Whether it may have to wait before it delivers, until dead letters have left."""

    # -- what /stats shows

    @property
    def depth(self) -> int:
        """Messages that are neither in flight nor deferred: the ready ones, and those that are held."""
        return self.position.depth + self.held_count

    def places(self) -> dict[Place, int]:
        """Return how many messages are in each place; a place that no part of the channel has is left out."""
        dead_letters, withheld = self.undelivered.dead_letters, self.withheld
        places = {**self.position.places(), Place.IN_FLIGHT: self.in_flight_count}
        if dead_letters is not None:
            places[Place.HELD] = dead_letters.held_count
        if withheld is not None:
            places[Place.WITHHELD] = len(withheld)
        return places

    @property
    def shown_depth(self) -> int:
        """The depth, and the messages that a new topic holds until it starts."""
        return self.depth + self.topic.awaited_by(self.name).ready if self.topic.is_promised else self.depth

    @property
    def shown_backend_depth(self) -> int:
        """How many of the shown ones nsqd would have on disk."""
        return self.backend_depth + self.topic.backend_depth if self.topic.is_promised else self.backend_depth

    @property
    def shown_deferred_count(self) -> int:
        """Deferred messages, also those that a new topic holds until it starts."""
        held = self.topic.awaited_by(self.name).deferred if self.topic.is_promised else 0
        return self.deferred_count + held

    @property
    def held_count(self) -> int:
        """
        Messages that are not delivered now: on their way to the dead-letter topic, or withheld until a redrive ends.
        """
        dead_letters, withheld = self.undelivered.dead_letters, self.withheld
        count = 0 if dead_letters is None else dead_letters.held_count
        return count if withheld is None else count + len(withheld)

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
    def class_depths(self) -> list[int] | None:
        """
        Messages of each class that wait and were never delivered; None in a channel without priorities, and while they
        are counted.
        """
        return None if self.cursor is None else self.cursor.class_depths

    @property
    def held(self) -> list[int]:
        """The sequences of the messages on their way to the dead-letter topic: neither ready nor in flight."""
        dead_letters = self.undelivered.dead_letters
        return [] if dead_letters is None else dead_letters.sequences

    @property
    def in_flight_count(self) -> int:
        return sum(consumer.in_flight.count for consumer in self.consumers + self.former_consumers)

    @property
    def message_count(self) -> int:
        """Messages the topic released to this channel since the process started."""
        return self.topic.released_total - self.joined_total

    @property
    def waiting_count(self) -> int:
        """Messages that are ready or deferred, without those that may turn out to be for other channels."""
        count = self.position.depth + self.deferred_count
        start, stop = (0, 0) if self.cursor is None else self.cursor.uncounted
        return max(0, count - (stop - start))

    @property
    def unfinished_count(self) -> int:
        """Messages that wait, are deferred, held, or in flight."""
        return self.depth + self.in_flight_count + self.deferred_count

    # -- for its parts

    @property
    def is_to_be_served(self) -> bool:
        """Whether `serve` is called at the end of this turn."""
        return self in self.topic.to_serve

    def wake(self) -> None:
        """Something changed: serve at the end of this turn, if there is a message to deliver."""
        topic = self.topic
        if self not in topic.caught_up or self.position.available > 0:
            topic.to_serve[self] = None

    def serve(self, now: float) -> bool:
        """See `ChannelDelivery.serve`."""
        raise NotImplementedError

    def _on_room(self) -> None:
        """Held messages have left, or are ready again."""
        self.keep_within_bounds(0.0)
        self.wake()

    def keep_within_bounds(self, now: float) -> None:
        """Messages that did not count for the bounds of the channel wait again. A `now` of 0 is any time before."""
        if self.bounds is not None:
            self.bounds.on_return(now)

    @property
    def set_aside(self) -> Collection[int]:
        """The sequences of the messages that are set aside, and of ready heads."""
        return () if self.ordered is None else self.ordered.set_aside

    @property
    def droppable(self) -> DroppableMessages:
        """See `BoundedChannel.droppable`."""
        assert self.cursor is not None, "an ephemeral channel has no bounds of a policy"
        return self.ordered or self.cursor

    def count_below(self, sequence: int) -> Below:
        """Return what a durable channel has of messages before `sequence` that it has read. BackendError."""
        assert self.cursor is not None, "an ephemeral channel has no place in the log"
        ready, deferred = self.cursor.waiting_below(sequence)
        return Below(
            ready + sum(one < sequence for one in self.set_aside),
            deferred,
            sum(one < sequence for one in chain(self.held, self.withheld or ())),
            sum(one.in_flight.count_below(sequence) for one in self.consumers + self.former_consumers),
        )

    def sequences_in_flight(self) -> Iterator[int]:
        for consumer in self.consumers + self.former_consumers:
            for message_id, _ in consumer.in_flight.items():  # noqa: PERF102  # no dict
                yield sequence_of(message_id)

    def sequences_not_ready(self) -> Iterator[int]:
        """Return the sequences in flight, and those on their way to the dead-letter topic."""
        return chain(self.sequences_in_flight(), self.held)

    def schedule(self, due: float) -> None:
        self.topic.context.timers.schedule(due, self)

    def mark_touched(self) -> None:
        """Something changed that the next checkpoint must contain."""
        if self.cursor is not None:
            self.cursor.touched = True
            self.topic.touch()

    def _room(self) -> int:
        return 0 if self.paused else sum(max(0, consumer.room) for consumer in self.consumers)


def _pages(topic: ChannelOwner, channel: str) -> Pages | None:
    """The stored rows of a durable channel. Those of an ephemeral topic are all in memory."""
    return None if topic.ephemeral else Pages(topic.context.positions, topic.name, channel)
