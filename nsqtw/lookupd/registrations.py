"""
The registrations: the topics and channels of each nsqd.

Theory of operation. NSQ describes a mapping of keys to producers; it is indexed from both sides.

    _topics   name -> the topic's own key, the keys of its channels, and the producers registered under each
    _peers    number of a connection -> its producer, when it was last heard from, its topics and their tombstones

An nsqd that is registered for a channel is registered for its topic too, so the registrations of a connection are found
through its topics. A key stays when its last producer leaves; only `delete_*`, and UNREGISTER of an ephemeral name,
remove keys. Whether an nsqd is silent, or a tombstone has expired, is computed from `now` at each query; `pass_time`
only tells the watchers, and drops what was loaded from a snapshot and not confirmed.

Registrations from a snapshot belong to a peer without a connection. When an nsqd with the same address identifies,
lookups show the new connection in its place, also for the old registrations until the nsqd has registered all its
topics again, which it has at its first PING: so a restart of nsqlookupd causes no gap. No other two connections are
taken for one nsqd.

Times are Unix time in nanoseconds, as /debug shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from nsqtw.errors import CapReached
from nsqtw.lookupd.changes import (
    Change,
    ChannelCreated,
    ChannelDeleted,
    ProducerAdded,
    ProducerBack,
    ProducerRemoved,
    ProducerSilent,
    Registered,
    Tombstoned,
    TombstoneEnded,
    TopicCreated,
    TopicDeleted,
    Unregistered,
    Watcher,
)
from nsqtw.lookupd.members import add, discard, holds, no_members
from nsqtw.lookupd.model import CLIENT, NEVER_TOMBSTONED, Key, Lookup, Node, Peer, Producer, RegistrationQuotas, Topic
from nsqtw.lookupd.queries import ANY, RegistrationQueries
from nsqtw.names import is_ephemeral

__all__ = ["ANY", "NEVER_TOMBSTONED", "Key", "Lookup", "Node", "RegistrationQuotas", "Registrations"]


class Registrations(RegistrationQueries):
    """
    The registrations of one nsqlookupd. `inactive_after_ns`: how long after its last sign of life a producer is shown;
    `tombstone_ns`: how long a tombstone hides a producer.
    """

    def __init__(self, inactive_after_ns: int, tombstone_ns: int, quotas: RegistrationQuotas) -> None:
        super().__init__(inactive_after_ns, tombstone_ns)
        self.quotas = quotas
        self._stale: dict[tuple[str, int], Peer] = {}
        self._tombstones: list[tuple[int, int, str]] = []  # a heap: when it ends, whose, for which topic
        self._watchers: dict[str | None, list[Watcher]] = {}  # by the topic they watch; None: all

    # -- what producers say

    def identify(self, producer: Producer, now: int) -> None:
        """A connection says which nsqd it is, once."""
        assert producer.peer_id not in self._peers, "a connection identifies once"
        peer = self._peers[producer.peer_id] = Peer(producer, now)
        if peer.is_connected:
            peer.replaces = self._stale.pop((producer.broadcast_address, producer.tcp_port), None)
            if peer.replaces is not None:
                peer.replaces.replaced_by = peer
        else:
            self._stale[producer.broadcast_address, producer.tcp_port] = peer
        self._tell(ProducerAdded, producer)

    def touch(self, peer_id: int, now: int) -> None:
        """A PING; before IDENTIFY it means nothing. From here on, what the nsqd has not registered it does not have."""
        peer = self._peers.get(peer_id)
        if peer is None:
            return
        peer.last_update = now
        if peer.is_silent:
            peer.is_silent = False
            self._tell(ProducerBack, peer.producer)
        if peer.replaces is not None:
            self.remove_peer(peer.replaces.producer.peer_id)

    def register(self, peer_id: int, topic: str, channel: str | None = None) -> list[Key]:
        """
        The nsqd has this topic, and this channel of it unless `channel` is None or "". Returns the keys it was not
        registered under before. CapReached: then nothing has changed.
        """
        peer = self._peers[peer_id]
        topic_entry = self._topics.get(topic)
        added = []
        if channel:
            members = topic_entry.channels.get(channel) if topic_entry is not None else None
            if members is None or not holds(members, peer_id):
                added.append(Key("channel", topic, channel))
        if topic not in peer.topics:
            added.append(Key("topic", topic))
        if not added:
            return added
        self._check_room(peer, len(added))
        keys = self._made(topic, channel or None)
        for key in added:
            if key.channel:
                add(keys.channels[key.channel], peer_id)
            else:
                add(keys.members, peer_id)
                peer.topics[keys.name] = None
            self._tell(Registered, keys.name, key.channel or None, peer.producer)
        if peer.is_silent:  # a watcher of one topic may not know it
            self._tell(ProducerSilent, peer.producer)
        self._count(peer, len(added))
        return added

    def unregister(self, peer_id: int, topic: str, channel: str | None = None) -> list[Key]:
        """
        The nsqd does not have this channel any more; without one: not the topic and none of its channels. What is
        named, ephemeral and without producers now, is not known any more. Returns the keys it was registered under.
        """
        peer = self._peers[peer_id]
        topic_entry = self._topics.get(topic)
        if topic_entry is None:
            return []
        removed = []
        for registered in filter(None, (peer.replaces, peer)):
            removed = (
                self._leave_channel(registered, topic_entry, channel)
                if channel
                else self._leave_topic(registered, topic_entry)
            )
        if channel and is_ephemeral(channel) and not topic_entry.channels.get(channel, True):
            self._drop_channel(topic_entry, channel)
        if not channel and is_ephemeral(topic) and topic_entry.has_key and not topic_entry.members:
            self._drop_topic_key(topic_entry)
        self._forget_if_empty(topic_entry)
        return removed

    def remove_peer(self, peer_id: int) -> list[Key]:
        """
        The connection ended; before IDENTIFY it means nothing. Keys stay. Returns those it was registered under.
        """
        peer = self._peers.pop(peer_id, None)
        if peer is None:
            return []
        removed = [CLIENT]
        for topic in list(peer.topics):
            removed += self._remove_from(peer, self._topics[topic])
        self._tell(ProducerRemoved, peer.producer)
        if peer.replaces is not None:
            self.remove_peer(peer.replaces.producer.peer_id)
        if peer.replaced_by is not None:
            peer.replaced_by.replaces = None
        elif not peer.is_connected:
            del self._stale[peer.producer.broadcast_address, peer.producer.tcp_port]
        return removed

    def adopt(self, topic: Topic, tombstones: dict[int, int]) -> None:
        """
        Load a topic from a snapshot, with the tombstone times of its members, after these have identified and before
        any other client does.
        """
        assert topic.name not in self._topics, "a topic is adopted once"
        self._topics[topic.name] = topic
        self.channel_count += len(topic.channels)
        for peer_id in topic.members:
            at = self._peers[peer_id].topics[topic.name] = tombstones.get(peer_id)
            if at is not None:
                heappush(self._tombstones, (at + self._tombstone_ns, peer_id, topic.name))
            self._count(self._peers[peer_id], 1)
        for members in topic.channels.values():
            for peer_id in members:
                self._count(self._peers[peer_id], 1)

    # -- what administrators say

    def create_topic(self, topic: str) -> None:
        """The topic is known from now on. CapReached."""
        self._made(topic, None)

    def create_channel(self, topic: str, channel: str) -> None:
        """The channel and its topic are known from now on. CapReached: then neither is."""
        self._made(topic, channel)

    def delete_topic(self, topic: str) -> list[Key]:
        """
        Remove the topic with its channels, or all topics for ANY, and all registrations for them. Returns the removed
        keys.
        """
        deleted = []
        for topic_entry in self._named(topic):
            for channel in list(topic_entry.channels):
                deleted.append(Key("channel", topic_entry.name, channel))
                self._drop_channel(topic_entry, channel)
            if topic_entry.has_key:
                deleted.append(Key("topic", topic_entry.name))
                self._drop_topic_key(topic_entry)
            self._forget_if_empty(topic_entry)
        return deleted

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove the channel and all registrations for it. Returns whether it was known."""
        topic_entry = self._topics.get(topic)
        if topic_entry is None or channel not in topic_entry.channels:
            return False
        self._drop_channel(topic_entry, channel)
        self._forget_if_empty(topic_entry)
        return True

    def tombstone(self, topic: str, node: str, now: int) -> None:
        """
        Hide the producers named `node` (`Producer.nodes`) from lookups of the topic. ANY: of each topic they have now,
        where nsqlookupd takes one by chance.
        """
        for topic_entry in self._named(topic):
            for peer_id in topic_entry.members:
                peer = self._peers[peer_id]
                if node in (peer.replaced_by or peer).producer.nodes:
                    peer.topics[topic_entry.name] = now
                    heappush(self._tombstones, (now + self._tombstone_ns, peer_id, topic_entry.name))
                    self._tell(Tombstoned, topic_entry.name, peer.producer)

    # -- time and watchers

    def pass_time(self, now: int) -> None:
        """Tell the watchers which producers became silent and which tombstones ended. Called about once a second."""
        while self._tombstones and self._tombstones[0][0] <= now:
            ends_at, peer_id, topic = heappop(self._tombstones)
            peer = self._peers.get(peer_id)
            if peer is not None and peer.topics.get(topic) == ends_at - self._tombstone_ns:
                self._tell(TombstoneEnded, topic, peer.producer)
        for peer in list(self._peers.values()):
            if peer.is_silent or self._is_active(peer, now):
                continue
            if peer.is_connected:
                peer.is_silent = True
                self._tell(ProducerSilent, peer.producer)
            else:
                self.remove_peer(peer.producer.peer_id)

    def subscribe(self, watcher: Watcher, topic: str | None = None) -> Callable[[], None]:
        """
        `watcher` is called with every change from now on, in order, in the middle of the change: it only notes it. With
        a topic: with those of the topic, and those of producers. Returns what ends that.
        """
        self._watchers.setdefault(topic, []).append(watcher)
        return lambda: self._unsubscribe(watcher, topic)

    def _unsubscribe(self, watcher: Watcher, topic: str | None) -> None:
        self._watchers[topic].remove(watcher)
        if not self._watchers[topic]:
            del self._watchers[topic]

    def _tell(self, kind: Callable[..., Change], *what: Any) -> None:
        """`what`: the topic comes first, if the change has one."""
        if not self._watchers:
            return
        change = kind(*what)
        if isinstance(what[0], str):
            watchers = [*self._watchers.get(None, ()), *self._watchers.get(what[0], ())]
        else:
            watchers = [watcher for some in self._watchers.values() for watcher in some]
        for watcher in watchers:
            watcher(change)

    # -- parts

    def _check_room(self, peer: Peer, count: int) -> None:
        for what, limit, present in (
            ("registrations of one producer", self.quotas.producer_registrations, peer.count),
            ("registrations", self.quotas.registrations, self.registration_count),
        ):
            if limit and present + count > limit:
                raise CapReached(what, limit)

    def _made(self, topic: str, channel: str | None) -> Topic:
        """The topic with its key, and the channel's if one is named."""
        topic_entry = self._topics.get(topic)
        is_new = channel is not None and (topic_entry is None or channel not in topic_entry.channels)
        if topic_entry is None and self.quotas.topics and len(self._topics) >= self.quotas.topics:
            raise CapReached("topics", self.quotas.topics)
        if is_new and self.quotas.channels and self.channel_count >= self.quotas.channels:
            raise CapReached("channels", self.quotas.channels)
        if topic_entry is None:
            topic_entry = self._topics[topic] = Topic(topic)
        if not topic_entry.has_key:
            topic_entry.has_key = True
            self._tell(TopicCreated, topic)
        if is_new:
            assert channel is not None
            topic_entry.channels[channel] = no_members()
            self.channel_count += 1
            self._tell(ChannelCreated, topic, channel)
        return topic_entry

    def _leave_channel(self, peer: Peer, topic_entry: Topic, channel: str) -> list[Key]:
        members = topic_entry.channels.get(channel)
        if members is None or not discard(members, peer.producer.peer_id):
            return []
        self._count(peer, -1)
        self._tell(Unregistered, topic_entry.name, channel, peer.producer)
        return [Key("channel", topic_entry.name, channel)]

    def _leave_topic(self, peer: Peer, topic_entry: Topic) -> list[Key]:
        removed = self._remove_from(peer, topic_entry)
        for key in removed:
            self._tell(Unregistered, key.topic, key.channel or None, peer.producer)
        return removed

    def _remove_from(self, peer: Peer, topic_entry: Topic) -> list[Key]:
        """Take it out of the topic and of all its channels, without a word."""
        peer_id = peer.producer.peer_id
        removed = [
            Key("channel", topic_entry.name, name)
            for name, them in topic_entry.channels.items()
            if discard(them, peer_id)
        ]
        if discard(topic_entry.members, peer_id):
            del peer.topics[topic_entry.name]
            removed.append(Key("topic", topic_entry.name))
        self._count(peer, -len(removed))
        return removed

    def _drop_channel(self, topic_entry: Topic, channel: str) -> None:
        for peer_id in topic_entry.channels.pop(channel):
            self._count(self._peers[peer_id], -1)
        self.channel_count -= 1
        self._tell(ChannelDeleted, topic_entry.name, channel)

    def _drop_topic_key(self, topic_entry: Topic) -> None:
        for peer_id in topic_entry.members:
            peer = self._peers[peer_id]
            del peer.topics[topic_entry.name]
            self._count(peer, -1)
        topic_entry.members = no_members()
        topic_entry.has_key = False
        self._tell(TopicDeleted, topic_entry.name)

    def _forget_if_empty(self, topic_entry: Topic) -> None:
        if not topic_entry.has_key and not topic_entry.channels:
            self._topics.pop(topic_entry.name, None)

    def _count(self, peer: Peer, change: int) -> None:
        peer.count += change
        if peer.is_connected:
            self.registration_count += change
