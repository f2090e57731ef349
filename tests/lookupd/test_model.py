"""
The registrations against nsqlookupd's mapping, spelled out, through random histories; with watchers that are told of
them now and then, and a restart from a snapshot whenever one is tried.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nsqtw.lookupd import snapshot
from nsqtw.lookupd.subscription import Subscription
from nsqtw.names import is_ephemeral
from tests.lookupd.harness import INACTIVE_AFTER, SECOND, TOMBSTONE, LookupdHarness
from tests.lookupd.picture import Picture

TOPICS = ("t", "u", "e#ephemeral")
CHANNELS = ("c", "d", "f#ephemeral")
NAMES = ("a", "b")
CLIENT = ("client", "", "")

Key = tuple[str, str, str]
Said = tuple[str, str]
Data = st.DataObject


@define
class Mapping:
    """Suite specification 1.4, read literally: key -> number of a connection -> when it was tombstoned there."""

    keys: dict[Key, dict[int, int | None]] = field(factory=lambda: {CLIENT: {}})
    names: dict[int, str] = field(factory=dict)
    last_update: dict[int, int] = field(factory=dict)

    def matching(self, category: str, topic: str, channel: str) -> list[Key]:
        return [key for key in self.keys if key[0] == category and topic in ("*", key[1]) and channel in ("*", key[2])]

    def register(self, peer_id: int, topic: str, channel: str) -> None:
        if channel:
            self.keys.setdefault(("channel", topic, channel), {}).setdefault(peer_id)
        self.keys.setdefault(("topic", topic, ""), {}).setdefault(peer_id)

    def unregister(self, peer_id: int, topic: str, channel: str) -> None:
        for key in [] if channel else self.matching("channel", topic, "*"):
            self.keys[key].pop(peer_id, None)
        key = ("channel", topic, channel) if channel else ("topic", topic, "")
        if key in self.keys:
            self.keys[key].pop(peer_id, None)
            if is_ephemeral(channel or topic) and not self.keys[key]:
                del self.keys[key]

    def remove_peer(self, peer_id: int) -> None:
        for members in self.keys.values():
            members.pop(peer_id, None)
        del self.names[peer_id]

    def is_active(self, peer_id: int, now: int) -> bool:
        return now - self.last_update[peer_id] <= INACTIVE_AFTER

    def is_hidden(self, tombstoned_at: int | None, now: int) -> bool:
        return tombstoned_at is not None and now - tombstoned_at < TOMBSTONE

    def found(self, topic: str, now: int) -> set[int] | None:
        keys = self.matching("topic", topic, "")
        members = [(peer_id, at) for key in keys for peer_id, at in self.keys[key].items()]
        shown = {one for one, at in members if self.is_active(one, now) and not self.is_hidden(at, now)}
        return shown if keys else None


class Histories(RuleBasedStateMachine):
    """`now` moves only in `wait`, by steps that matter to timeouts."""

    def __init__(self) -> None:
        super().__init__()
        self.core = LookupdHarness()
        self.model = Mapping()
        self.watches = [
            (Subscription(self.core.registrations, lambda: None, topic, limit=limit), topic, Picture())
            for topic, limit in ((None, 3), (None, 1000), ("t", 3), ("e#ephemeral", 1000))
        ]

    def peer(self, pick: int) -> int | None:
        """One of those that identified, if there are any."""
        known = list(self.model.names)
        return known[pick % len(known)] if known else None

    picks = st.integers(0, 5)
    topics = st.sampled_from(TOPICS)
    channels = st.sampled_from(("", *CHANNELS))

    @rule(name=st.sampled_from(NAMES))
    def identify(self, name: str) -> None:
        peer_id = self.core.identify(name)
        self.model.names[peer_id] = name
        self.model.last_update[peer_id] = self.core.now
        self.model.keys[CLIENT][peer_id] = None

    @rule(pick=picks)
    def ping(self, pick: int) -> None:
        peer_id = self.peer(pick)
        if peer_id is not None:
            self.core.registrations.touch(peer_id, self.core.now)
            self.model.last_update[peer_id] = self.core.now

    @rule(pick=picks, topic=topics, channel=channels)
    def register(self, pick: int, topic: str, channel: str) -> None:
        peer_id = self.peer(pick)
        if peer_id is not None:
            before = self.entries()
            self.model.register(peer_id, topic, channel)
            added = self.core.registrations.register(peer_id, topic, channel)
            assert {(*key, peer_id) for key in added} == self.entries() - before

    @rule(name=st.sampled_from(NAMES), topic=topics, channel=channels)
    def all_register(self, name: str, topic: str, channel: str) -> None:
        """Of what several have, more can go wrong."""
        self.identify(name)
        for peer_id in self.model.names:
            self.model.register(peer_id, topic, channel)
            self.core.registrations.register(peer_id, topic, channel)

    @rule(pick=picks, topic=topics, channel=channels)
    def unregister(self, pick: int, topic: str, channel: str) -> None:
        peer_id = self.peer(pick)
        if peer_id is not None:
            before = self.entries()
            self.model.unregister(peer_id, topic, channel)
            removed = self.core.registrations.unregister(peer_id, topic, channel)
            assert {(*key, peer_id) for key in removed} == before - self.entries()

    @rule(pick=picks)
    def disconnect(self, pick: int) -> None:
        peer_id = self.peer(pick)
        if peer_id is not None:
            before = self.entries()
            self.model.remove_peer(peer_id)
            removed = self.core.registrations.remove_peer(peer_id)
            assert {(*key, peer_id) for key in removed} == before - self.entries()

    @rule(topic=topics, channel=channels)
    def create(self, topic: str, channel: str) -> None:
        self.model.keys.setdefault(("topic", topic, ""), {})
        if channel:
            self.model.keys.setdefault(("channel", topic, channel), {})
            self.core.registrations.create_channel(topic, channel)
        else:
            self.core.registrations.create_topic(topic)

    @rule(topic=st.sampled_from((*TOPICS, "*")))
    def delete_topic(self, topic: str) -> None:
        keys = self.model.matching("channel", topic, "*") + self.model.matching("topic", topic, "")
        for key in keys:
            del self.model.keys[key]
        assert sorted(self.core.registrations.delete_topic(topic)) == sorted(keys)

    @rule(topic=topics, channel=st.sampled_from(CHANNELS))
    def delete_channel(self, topic: str, channel: str) -> None:
        known = self.model.keys.pop(("channel", topic, channel), None)
        assert self.core.registrations.delete_channel(topic, channel) == (known is not None)

    @rule(topic=st.sampled_from((*TOPICS, "*")), name=st.sampled_from(NAMES))
    def tombstone(self, topic: str, name: str) -> None:
        self.core.registrations.tombstone(topic, f"{name}:4151", self.core.now)
        for key in self.model.matching("topic", topic, ""):
            for peer_id in self.model.keys[key]:
                if self.model.names[peer_id] == name:
                    self.model.keys[key][peer_id] = self.core.now

    @rule(seconds=st.sampled_from((1, 44, 45, 150, 300)))
    def wait(self, seconds: int) -> None:
        self.core.wait(seconds)

    @rule(pick=picks, count=st.integers(1, 20))
    def tell(self, pick: int, count: int) -> None:
        watch, _, picture = self.watches[pick % len(self.watches)]
        for told in watch.take(count, self.core.now):
            picture.apply(told)

    @rule()
    def everything_is_told(self) -> None:
        for watch, topic, picture in self.watches:
            while told := watch.take(7, self.core.now):
                for one in told:
                    picture.apply(one)
            assert picture.is_complete
            self.check_picture(picture, topic)

    def check_picture(self, picture: Picture, topic: str | None) -> None:
        wanted = topic or "*"
        keys, now = self.model.keys, self.core.now
        topics = {key[1]: set(keys[key]) for key in self.model.matching("topic", wanted, "")}
        assert picture.topics == topics
        channels = self.model.matching("channel", wanted, "*")
        assert picture.channels == {key[1:]: set(keys[key]) for key in channels}
        assert picture.tombstones == {
            (name, one)
            for name in topics
            for one, at in keys["topic", name, ""].items()
            if self.model.is_hidden(at, now)
        }
        if topic is None:
            assert set(picture.producers) == set(self.model.names)
            assert picture.silent == {one for one in self.model.names if not self.model.is_active(one, now)}
        else:
            silent = {one for one in topics.get(topic, ()) if not self.model.is_active(one, now)}
            assert picture.silent & topics.get(topic, set()) == silent

    @rule(seconds=st.sampled_from((0, 44, 10_000)))
    def a_restart_knows_the_same(self, seconds: int) -> None:
        again = LookupdHarness()
        again.now = self.core.now + seconds * SECOND
        snapshot.restore(again.registrations, self.core.snapshot(), again.now)
        assert again.registrations.topics() == self.core.registrations.topics()
        assert again.registrations.channels("*") == self.core.registrations.channels("*")
        shown = [
            (key, one["broadcast_address"]) for key, entries in again.registrations.debug().items() for one in entries
        ]
        assert len(shown) == len(set(shown))
        assert set(shown) == {(":".join(key), self.model.names[peer_id]) for *key, peer_id in self.entries()}
        for topic in TOPICS if not seconds else ():
            found = self.model.found(topic, self.core.now) or set()
            assert {self.model.names[peer_id] for peer_id in found} <= set(again.found(topic) or ())

    def entries(self) -> set[tuple[Any, ...]]:
        """Every key of the model with every connection it has."""
        return {(*key, peer_id) for key, members in self.model.keys.items() for peer_id in members}

    @invariant()
    def answers_are_those_of_the_mapping(self) -> None:
        now, registrations = self.core.now, self.core.registrations
        for topic in (*TOPICS, "*"):
            found = registrations.lookup(topic, now)
            shown = None if found is None else {producer.peer_id for producer in found.producers}
            assert shown == self.model.found(topic, now)
            channels = sorted(key[2] for key in self.model.matching("channel", topic, "*"))
            assert sorted(registrations.channels(topic)) == channels
            assert found is None or sorted(found.channels) == channels
        assert sorted(registrations.topics()) == sorted(key[1] for key in self.model.matching("topic", "*", ""))

    @invariant()
    def nodes_are_those_of_the_mapping(self) -> None:
        now = self.core.now
        shown = {
            node.producer.peer_id: dict(zip(node.topics, node.tombstones, strict=True))
            for node in self.core.registrations.nodes(now)
        }
        assert shown == {
            peer_id: {
                key[1]: self.model.is_hidden(self.model.keys[key][peer_id], now)
                for key in self.model.matching("topic", "*", "")
                if peer_id in self.model.keys[key]
            }
            for peer_id in self.model.names
            if self.model.is_active(peer_id, now)
        }

    @invariant()
    def debug_is_the_mapping(self) -> None:
        shown = {
            (key, one["id"], one["last_update"], one["tombstoned_at"] if one["tombstoned"] else None)
            for key, entries in self.core.registrations.debug().items()
            for one in entries
        }
        assert shown == {
            (":".join(key), f"10.0.0.1:{40000 + peer_id}", self.model.last_update[peer_id], at)
            for key, members in self.model.keys.items()
            for peer_id, at in members.items()
        }

    @invariant()
    def counts_are_right(self) -> None:
        registrations = self.core.registrations
        assert registrations.registration_count == len(self.entries()) - len(self.model.names)
        assert registrations.channel_count == len(self.model.matching("channel", "*", "*"))
        assert registrations.producer_count == len(self.model.names)
        assert registrations.topic_count == len({key[1] for key in self.model.keys if key != CLIENT})


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


SAID = st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from(("", *CHANNELS))), max_size=4)


@given(st.lists(st.tuples(SAID, SAID), min_size=1, max_size=3), st.data())
def test_after_a_restart_nsqds_come_back_without_a_gap(nsqds: list[tuple[list[Said], list[Said]]], data: Data) -> None:
    """Each is found, once, for what it had before and has again; after its first PING for what it has."""
    before, harness = LookupdHarness(), LookupdHarness()
    for number, (had, _) in enumerate(nsqds):
        before.nsqd(*["/".join(one) for one in had], name=f"n{number}")
    snapshot.restore(harness.registrations, before.snapshot(), harness.now)
    left = [[("IDENTIFY", "", ""), *[("REGISTER", *one) for one in has], ("PING", "", "")] for _, has in nsqds]
    ids: dict[int, int] = {}
    while any(left):
        number = data.draw(st.sampled_from([number for number, commands in enumerate(left) if commands]))
        command, topic, channel = left[number].pop(0)
        if command == "IDENTIFY":
            ids[number] = harness.identify(f"n{number}")
        elif command == "REGISTER":
            harness.registrations.register(ids[number], topic, channel)
        else:
            harness.registrations.touch(ids[number], harness.now)
        nodes = harness.topics_of()
        assert len(nodes) == len(harness.registrations.nodes(harness.now)) == len(nsqds)
        for name, topics in nodes.items():
            had, has = ({one[0] for one in said} for said in nsqds[int(name[1:])])
            is_back = not left[int(name[1:])]
            assert (has if is_back else had & has) <= set(topics) <= (has if is_back else had | has)
            for topic in TOPICS:
                assert (harness.found(topic) or []).count(name) == (topic in topics)
    entries = [(key, one["broadcast_address"]) for key, them in harness.registrations.debug().items() for one in them]
    wanted = {(f"{'channel' if c else 'topic'}:{t}:{c}", f"n{n}") for n, (_, has) in enumerate(nsqds) for t, c in has}
    assert wanted <= set(entries)
    assert len(entries) == harness.registrations.registration_count + len(nsqds)
