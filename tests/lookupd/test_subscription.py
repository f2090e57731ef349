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
from tests.lookupd.harness import LookupdHarness, producer
from tests.lookupd.picture import Picture

ONE, TWO = producer(1, "a"), producer(2, "b")


def test_every_change_is_told_as_it_happens() -> None:
    harness = LookupdHarness()
    told: list[Change] = []
    end = harness.registrations.subscribe(told.append)

    def news() -> list[Change]:
        heard = told.copy()
        told.clear()
        return heard

    nsqd = harness.nsqd("t/c", name="a")
    created = [TopicCreated("t"), ChannelCreated("t", "c")]
    assert news() == [ProducerAdded(ONE), *created, Registered("t", "c", ONE), Registered("t", None, ONE)]
    harness.registrations.register(nsqd, "t", "c")
    harness.registrations.create_channel("t", "c")
    assert news() == []
    harness.registrations.tombstone("t", "a:4151", harness.now)
    assert news() == [Tombstoned("t", ONE)]
    harness.wait(45)
    assert news() == [TombstoneEnded("t", ONE)]
    harness.wait(300)
    harness.wait(300)
    assert news() == [ProducerSilent(ONE)]
    harness.registrations.touch(nsqd, harness.now)
    harness.registrations.touch(nsqd, harness.now)
    assert news() == [ProducerBack(ONE)]
    harness.registrations.unregister(nsqd, "t", "c")
    harness.registrations.delete_channel("t", "c")
    assert news() == [Unregistered("t", "c", ONE), ChannelDeleted("t", "c")]
    harness.registrations.delete_topic("t")
    harness.registrations.remove_peer(nsqd)
    assert news() == [TopicDeleted("t"), ProducerRemoved(ONE)]
    end()
    harness.nsqd("t")
    assert news() == []


def test_a_tombstone_that_was_lifted_or_renewed_does_not_end_twice() -> None:
    harness = LookupdHarness()
    nsqd = harness.nsqd("t", "u", name="a")
    harness.registrations.tombstone("*", "a:4151", harness.now)
    harness.wait(10)
    harness.registrations.tombstone("t", "a:4151", harness.now)
    harness.registrations.unregister(nsqd, "u")
    told: list[Change] = []
    harness.registrations.subscribe(told.append)
    harness.wait(35)
    assert told == []
    harness.wait(10)
    assert told == [TombstoneEnded("t", ONE)]


def test_a_late_watcher_is_told_everything_first() -> None:
    harness = LookupdHarness()
    harness.nsqd("t/c", name="a")
    woken: list[None] = []
    watch = Subscription(harness.registrations, lambda: woken.append(None))
    topic = [TopicCreated("t"), Registered("t", None, ONE), ChannelCreated("t", "c"), Registered("t", "c", ONE)]
    assert watch.take(100, harness.now) == [StateFollows(), ProducerAdded(ONE), *topic, StateComplete()]
    assert watch.take(100, harness.now) == []
    assert woken == []
    harness.identify("b")
    harness.registrations.remove_peer(2)
    assert woken == [None]
    assert watch.take(1, harness.now) == [ProducerAdded(TWO)]
    assert watch.take(1, harness.now) == [ProducerRemoved(TWO)]
    watch.close()
    harness.identify("c")
    assert woken == [None]


def test_what_happens_while_everything_is_told_is_in_its_place() -> None:
    harness = LookupdHarness()
    for topic in "tuv":
        harness.registrations.create_topic(topic)
    watch, picture = Subscription(harness.registrations, lambda: None), Picture()
    for told in watch.take(2, harness.now):
        picture.apply(told)
    nsqd = harness.nsqd("t", "v", name="a")
    harness.registrations.delete_topic("u")
    harness.registrations.unregister(nsqd, "t")
    while not picture.is_complete:
        for told in watch.take(1, harness.now):
            picture.apply(told)
    assert picture.topics == {"t": set(), "v": {nsqd}}


def test_a_tombstone_that_ends_during_the_walk_is_not_told_after_its_end() -> None:
    harness = LookupdHarness()
    harness.nsqd("t", name="a")
    watch, picture = Subscription(harness.registrations, lambda: None), Picture()
    assert watch.take(1, harness.now) == [StateFollows()]
    harness.registrations.tombstone("t", "a:4151", harness.now)
    harness.wait(45)
    while told := watch.take(1, harness.now):
        for one in told:
            picture.apply(one)
    assert picture.is_complete
    assert picture.tombstones == set()


def test_a_watcher_of_one_topic_is_told_of_that_and_who_has_it() -> None:
    harness = LookupdHarness()
    one, other = harness.nsqd("t/c", name="a"), harness.nsqd("u", name="b")
    watch = Subscription(harness.registrations, lambda: None, "t")
    assert StateComplete() in watch.take(100, harness.now)
    harness.wait(301)
    assert watch.take(100, harness.now) == [ProducerSilent(ONE)]
    harness.registrations.create_channel("u", "d")
    harness.registrations.remove_peer(one)
    assert watch.take(100, harness.now) == [ProducerRemoved(ONE)]
    harness.registrations.register(other, "t")
    assert watch.take(100, harness.now) == [Registered("t", None, TWO), ProducerSilent(TWO)]
    harness.registrations.delete_topic("*")
    harness.registrations.remove_peer(other)
    assert watch.take(100, harness.now) == [ChannelDeleted("t", "c"), TopicDeleted("t")]


def test_a_late_watcher_of_one_topic_is_told_who_is_silent_and_tombstoned() -> None:
    harness = LookupdHarness()
    harness.nsqd("t", name="a")
    harness.wait(301)
    harness.registrations.tombstone("t", "a:4151", harness.now)
    watch = Subscription(harness.registrations, lambda: None, "t")
    state = [TopicCreated("t"), Registered("t", None, ONE), ProducerSilent(ONE), Tombstoned("t", ONE)]
    assert watch.take(100, harness.now) == [StateFollows(), *state, StateComplete()]


def test_a_watcher_of_an_unknown_topic_hears_of_its_birth() -> None:
    harness = LookupdHarness()
    watch = Subscription(harness.registrations, lambda: None, "t")
    assert watch.take(100, harness.now) == [StateFollows(), StateComplete()]
    harness.nsqd("t", name="a")
    assert watch.take(100, harness.now) == [TopicCreated("t"), Registered("t", None, ONE)]


def test_who_does_not_keep_up_is_told_everything_again() -> None:
    harness = LookupdHarness()
    harness.registrations.create_topic("t")
    woken: list[None] = []
    watch = Subscription(harness.registrations, lambda: woken.append(None), limit=3)
    watch.take(100, harness.now)
    watch.take(100, harness.now)
    for name in "uvwxyz":
        harness.registrations.create_topic(name)
    harness.registrations.delete_topic("t")
    assert woken == [None]
    state = [TopicCreated(name) for name in "uvwxyz"]
    assert watch.take(100, harness.now) == [StateFollows(), *state, StateComplete()]
    assert watch.take(100, harness.now) == []
