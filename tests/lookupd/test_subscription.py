"""What watchers are told: all there is, then every change in order, and never more than they can hold."""

from __future__ import annotations

from nsqtw.lookupd.changes import (
    Change,
    ChannelCreated,
    ChannelDeleted,
    ProducerAdded,
    ProducerBack,
    ProducerRemoved,
    ProducerSilent,
    Registered,
    StateComplete,
    StateFollows,
    Tombstoned,
    TombstoneEnded,
    TopicCreated,
    TopicDeleted,
    Unregistered,
)
from nsqtw.lookupd.subscription import Subscription
from tests.lookupd.picture import Picture
from tests.lookupd.world import World, producer

ONE, TWO = producer(1, "a"), producer(2, "b")


def test_every_change_is_told_as_it_happens() -> None:
    world = World()
    told: list[Change] = []
    end = world.registrations.subscribe(told.append)

    def news() -> list[Change]:
        heard = told.copy()
        told.clear()
        return heard

    nsqd = world.nsqd("t/c", name="a")
    created = [TopicCreated("t"), ChannelCreated("t", "c")]
    assert news() == [ProducerAdded(ONE), *created, Registered("t", "c", ONE), Registered("t", None, ONE)]
    world.registrations.register(nsqd, "t", "c")
    world.registrations.create_channel("t", "c")
    assert news() == []
    world.registrations.tombstone("t", "a:4151", world.now)
    assert news() == [Tombstoned("t", ONE)]
    world.wait(45)
    assert news() == [TombstoneEnded("t", ONE)]
    world.wait(300)
    world.wait(300)
    assert news() == [ProducerSilent(ONE)]
    world.registrations.touch(nsqd, world.now)
    world.registrations.touch(nsqd, world.now)
    assert news() == [ProducerBack(ONE)]
    world.registrations.unregister(nsqd, "t", "c")
    world.registrations.delete_channel("t", "c")
    assert news() == [Unregistered("t", "c", ONE), ChannelDeleted("t", "c")]
    world.registrations.delete_topic("t")
    world.registrations.gone(nsqd)
    assert news() == [TopicDeleted("t"), ProducerRemoved(ONE)]
    end()
    world.nsqd("t")
    assert news() == []


def test_a_tombstone_that_was_lifted_or_renewed_does_not_end_twice() -> None:
    world = World()
    nsqd = world.nsqd("t", "u", name="a")
    world.registrations.tombstone("*", "a:4151", world.now)
    world.wait(10)
    world.registrations.tombstone("t", "a:4151", world.now)
    world.registrations.unregister(nsqd, "u")
    told: list[Change] = []
    world.registrations.subscribe(told.append)
    world.wait(35)
    assert told == []
    world.wait(10)
    assert told == [TombstoneEnded("t", ONE)]


def test_a_late_watcher_is_told_everything_first() -> None:
    world = World()
    world.nsqd("t/c", name="a")
    woken: list[None] = []
    watch = Subscription(world.registrations, lambda: woken.append(None))
    topic = [TopicCreated("t"), Registered("t", None, ONE), ChannelCreated("t", "c"), Registered("t", "c", ONE)]
    assert watch.take(100, world.now) == [StateFollows(), ProducerAdded(ONE), *topic, StateComplete()]
    assert watch.take(100, world.now) == []
    assert woken == []
    world.identify("b")
    world.registrations.gone(2)
    assert woken == [None]
    assert watch.take(1, world.now) == [ProducerAdded(TWO)]
    assert watch.take(1, world.now) == [ProducerRemoved(TWO)]
    watch.close()
    world.identify("c")
    assert woken == [None]


def test_what_happens_while_everything_is_told_is_in_its_place() -> None:
    world = World()
    for topic in "tuv":
        world.registrations.create_topic(topic)
    watch, picture = Subscription(world.registrations, lambda: None), Picture()
    for told in watch.take(2, world.now):
        picture.apply(told)
    nsqd = world.nsqd("t", "v", name="a")
    world.registrations.delete_topic("u")
    world.registrations.unregister(nsqd, "t")
    while not picture.is_complete:
        for told in watch.take(1, world.now):
            picture.apply(told)
    assert picture.topics == {"t": set(), "v": {nsqd}}


def test_a_tombstone_that_ends_during_the_walk_is_not_told_after_its_end() -> None:
    world = World()
    world.nsqd("t", name="a")
    watch, picture = Subscription(world.registrations, lambda: None), Picture()
    assert watch.take(1, world.now) == [StateFollows()]
    world.registrations.tombstone("t", "a:4151", world.now)
    world.wait(45)
    while told := watch.take(1, world.now):
        for one in told:
            picture.apply(one)
    assert picture.is_complete
    assert picture.tombstones == set()


def test_a_watcher_of_one_topic_is_told_of_that_and_who_has_it() -> None:
    world = World()
    one, other = world.nsqd("t/c", name="a"), world.nsqd("u", name="b")
    watch = Subscription(world.registrations, lambda: None, "t")
    assert StateComplete() in watch.take(100, world.now)
    world.wait(301)
    assert watch.take(100, world.now) == [ProducerSilent(ONE)]
    world.registrations.create_channel("u", "d")
    world.registrations.gone(one)
    assert watch.take(100, world.now) == [ProducerRemoved(ONE)]
    world.registrations.register(other, "t")
    assert watch.take(100, world.now) == [Registered("t", None, TWO), ProducerSilent(TWO)]
    world.registrations.delete_topic("*")
    world.registrations.gone(other)
    assert watch.take(100, world.now) == [ChannelDeleted("t", "c"), TopicDeleted("t")]


def test_a_late_watcher_of_one_topic_is_told_who_is_silent_and_tombstoned() -> None:
    world = World()
    world.nsqd("t", name="a")
    world.wait(301)
    world.registrations.tombstone("t", "a:4151", world.now)
    watch = Subscription(world.registrations, lambda: None, "t")
    state = [TopicCreated("t"), Registered("t", None, ONE), ProducerSilent(ONE), Tombstoned("t", ONE)]
    assert watch.take(100, world.now) == [StateFollows(), *state, StateComplete()]


def test_a_watcher_of_an_unknown_topic_hears_of_its_birth() -> None:
    world = World()
    watch = Subscription(world.registrations, lambda: None, "t")
    assert watch.take(100, world.now) == [StateFollows(), StateComplete()]
    world.nsqd("t", name="a")
    assert watch.take(100, world.now) == [TopicCreated("t"), Registered("t", None, ONE)]


def test_who_does_not_keep_up_is_told_everything_again() -> None:
    world = World()
    world.registrations.create_topic("t")
    woken: list[None] = []
    watch = Subscription(world.registrations, lambda: woken.append(None), limit=3)
    watch.take(100, world.now)
    watch.take(100, world.now)
    for name in "uvwxyz":
        world.registrations.create_topic(name)
    world.registrations.delete_topic("t")
    assert woken == [None]
    state = [TopicCreated(name) for name in "uvwxyz"]
    assert watch.take(100, world.now) == [StateFollows(), *state, StateComplete()]
    assert watch.take(100, world.now) == []
