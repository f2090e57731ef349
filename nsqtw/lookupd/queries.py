"""
Queries of the registrations: lookups, nodes, everything. They change nothing.

Queries over all registrations return one piece at a time, so that the caller can serve others in between; a piece is at
most one producer, one key, or one topic. Each piece shows the state at its time, and names added meanwhile may be
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from nsqtw.lookupd.changes import (
    Change,
    ChannelCreated,
    ProducerAdded,
    ProducerSilent,
    Registered,
    Tombstoned,
    TopicCreated,
)
from nsqtw.lookupd.model import Lookup, Node, Peer, Producer, Topic

ANY = "*"
"""In the place of a topic: all topics."""
TOPICS_AT_ONCE = 500
"""In one step of a query over all of them: 0.3 ms."""


class RegistrationQueries:
    """The state of one nsqlookupd. `Registrations` extends it with changes."""

    def __init__(self, inactive_after_ns: int, tombstone_ns: int) -> None:
        self.registration_count = 0
        """Keys times connections. Registrations of a snapshot are not counted."""
        self.channel_count = 0
        self._inactive_after_ns = inactive_after_ns
        self._tombstone_ns = tombstone_ns
        self._peers: dict[int, Peer] = {}
        self._topics: dict[str, Topic] = {}

    @property
    def topic_count(self) -> int:
        """Topics that are known, also those of which only channels are."""
        return len(self._topics)

    @property
    def producer_count(self) -> int:
        """Connections that identified, and the producers that a snapshot brought."""
        return len(self._peers)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return list(self.walk_names())

    def walk_names(self) -> Iterator[str]:
        """The same, one at a time."""
        for name in list(self._topics):
            topic_entry = self._topics.get(name)
            if topic_entry is not None and topic_entry.has_key:
                yield name

    def channels(self, topic: str) -> list[str]:
        """The names of the topic's channels, none for an unknown one. ANY: of all topics, as often as there are any."""
        return [channel for topic_entry in self._named(topic) for channel in topic_entry.channels]

    def lookup(self, topic: str, now: int) -> Lookup | None:
        """
        Return the channels and the producers of a topic, without silent and tombstoned ones. ANY: all topics as one.
        None: there is no such topic.
        """
        if not self.is_topic(topic):
            return None
        channels: list[str] = []
        producers: dict[int, Producer] = {}
        for part in self.walk_lookup(topic, now):
            channels += part.channels
            producers.update((producer.peer_id, producer) for producer in part.producers)
        return Lookup(channels, list(producers.values()))

    def walk_lookup(self, topic: str, now: int) -> Iterator[Lookup]:
        """The same in steps, each for some of the topics."""
        names = list(self._topics) if topic == ANY else [topic]
        for start in range(0, len(names), TOPICS_AT_ONCE):
            channels: list[str] = []
            producers: dict[int, Producer] = {}
            for name in names[start : start + TOPICS_AT_ONCE]:
                topic_entry = self._topics.get(name)
                if topic_entry is None:
                    continue
                channels += topic_entry.channels
                for peer_id in topic_entry.members:
                    peer = self._peers[peer_id]
                    shown = peer.replaced_by or peer
                    if self._is_active(shown, now) and not self._is_hidden(peer.topics[name], now):
                        producers[shown.producer.peer_id] = shown.producer
            yield Lookup(channels, list(producers.values()))

    def is_topic(self, topic: str) -> bool:
        """Return whether there is such a topic, or for ANY one at all."""
        return any(topic_entry.has_key for topic_entry in self._named(topic))

    def nodes(self, now: int) -> list[Node]:
        """Return all producers that are not silent."""
        return list(self.walk_nodes(now))

    def walk_nodes(self, now: int) -> Iterator[Node]:
        """The same, one at a time."""
        for peer_id in list(self._peers):
            peer = self._peers.get(peer_id)
            if peer is None or peer.replaced_by is not None or not self._is_active(peer, now):
                continue
            topics = peer.topics if peer.replaces is None else {**peer.replaces.topics, **peer.topics}
            hidden = [at is not None and self._is_hidden(at, now) for at in topics.values()]
            yield Node(peer.producer, hidden, list(topics), not peer.is_connected)

    def debug(self) -> dict[str, list[dict[str, Any]]]:
        """The whole mapping as /debug shows it, without keys that have no producers."""
        return dict(self.walk_debug())

    def walk_debug(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """The same, one key at a time."""
        names = sorted(self._topics, key=lambda name: f"{name}:")
        for name in names:
            channels = self._topics[name].channels if name in self._topics else {}
            for channel in sorted(channels):
                members = channels.get(channel)
                if members:
                    yield f"channel:{name}:{channel}", [self._peers[peer_id].described() for peer_id in members]
        if self._peers:
            yield "client::", [peer.described() for peer in self._peers.values()]
        for name in names:
            topic_entry = self._topics.get(name)
            if topic_entry is not None and topic_entry.members:
                peers = [self._peers[peer_id] for peer_id in topic_entry.members]
                yield f"topic:{name}:", [peer.described(peer.topics[name]) for peer in peers]

    def state(self, clock: Callable[[], int], topic: str | None = None) -> Iterator[list[Change]]:
        """
        The changes that make what is known now out of nothing, of all topics or of one. A step is one producer or one
        topic, and is to be told before any change that comes after it. `clock` returns the time at which a step is
        made: a tombstone may end between two steps, and a watcher is told once that it ended.
        """
        if topic is None:
            for peer in list(self._peers.values()):
                if peer.producer.peer_id in self._peers:
                    silent: list[Change] = [ProducerSilent(peer.producer)] if peer.is_silent else []
                    yield [ProducerAdded(peer.producer), *silent]
        for name in list(self._topics) if topic is None else [topic]:
            topic_entry = self._topics.get(name)
            if topic_entry is not None:
                yield self._state_of(topic_entry, clock())

    def walk_producers(self) -> Iterator[tuple[Producer, int]]:
        """Iterate over all producers, also silent ones, and when each was last heard from."""
        for peer in list(self._peers.values()):
            yield peer.producer, peer.last_update

    def walk_topics(self) -> Iterator[tuple[Topic, dict[int, int]]]:
        """Iterate over all topics, each with the tombstone times of its members."""
        for topic_entry in list(self._topics.values()):
            marks = [(peer_id, self._peers[peer_id].topics[topic_entry.name]) for peer_id in topic_entry.members]
            yield topic_entry, {peer_id: at for peer_id, at in marks if at is not None}

    def _state_of(self, topic_entry: Topic, now: int) -> list[Change]:
        name = topic_entry.name
        changes: list[Change] = [TopicCreated(name)] if topic_entry.has_key else []
        for peer_id in topic_entry.members:
            peer = self._peers[peer_id]
            changes.append(Registered(name, None, peer.producer))
            if peer.is_silent:
                changes.append(ProducerSilent(peer.producer))
            if self._is_hidden(peer.topics[name], now):
                changes.append(Tombstoned(name, peer.producer))
        for channel, members in topic_entry.channels.items():
            changes.append(ChannelCreated(name, channel))
            changes += [Registered(name, channel, self._peers[peer_id].producer) for peer_id in members]
        return changes

    def _named(self, topic: str) -> list[Topic]:
        if topic == ANY:
            return list(self._topics.values())
        topic_entry = self._topics.get(topic)
        return [] if topic_entry is None else [topic_entry]

    def _is_active(self, peer: Peer, now: int) -> bool:
        return now - peer.last_update <= self._inactive_after_ns

    def _is_hidden(self, tombstoned_at: int | None, now: int) -> bool:
        return tombstoned_at is not None and now - tombstoned_at < self._tombstone_ns
