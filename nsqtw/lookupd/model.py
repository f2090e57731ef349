"""
Producers, peers, topics and keys: the objects of the registrations, and of their answers.

There may be some 100,000 registrations, so none is an object: a producer that has a topic is a number in the topic's
members and a key in the peer's dict.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Any, NamedTuple

from attrs import asdict, define, field, frozen

from nsqtw.gocompat.text import json_text
from nsqtw.lookupd.members import no_members
from nsqtw.options.addresses import join_host_port


@frozen
class Producer:
    """One connection of an nsqd. What it registers, and when it was last heard of, is in the registrations."""

    peer_id: int
    """The connection's number, 0 or higher and never given twice; below 0: of a snapshot, without a connection."""
    remote_address: str
    """`ip:port` of the connection, which NSQ shows as the identity of the peer."""
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str = ""
    topology_region: str = ""

    @property
    def nodes(self) -> tuple[str, str]:
        """
        The names of the node in a tombstone request: with an IPv6 address in brackets, as nsqadmin sends it, and
        without them, as NSQ's nsqlookupd knows it.
        """
        joined = join_host_port(self.broadcast_address, self.http_port)
        return joined, joined.replace("[", "").replace("]", "")

    @cached_property
    def document(self) -> bytes:
        """
        The JSON object that /lookup shows, made once: it is in every answer about every topic that it has. One of a
        snapshot has a key more, `stale`.
        """
        fields = asdict(self)
        if fields.pop("peer_id") < 0:
            fields["stale"] = True
        return json_text(fields)


NEVER_TOMBSTONED = -6795364578871345152
"""The time of an absent tombstone in /debug: Go's zero time."""


class Key(NamedTuple):
    """A key of NSQ's mapping; `category` is client, topic or channel, what it has not is ""."""

    category: str
    topic: str = ""
    channel: str = ""


CLIENT = Key("client")


class Lookup(NamedTuple):
    channels: list[str]
    producers: list[Producer]


class Node(NamedTuple):
    """An nsqd as /nodes shows it. `topics` and `tombstones` are parallel."""

    producer: Producer
    tombstones: list[bool]
    topics: list[str]
    is_stale: bool
    """Loaded from a snapshot, and not heard from since."""


@frozen
class RegistrationQuotas:
    """Maximum numbers; 0: no limit. A snapshot is loaded completely, whatever they are."""

    topics: int = 0
    channels: int = 0
    """Of all topics."""
    registrations: int = 0
    """Of all connections. REGISTER of a channel counts twice: for the topic, too."""
    producer_registrations: int = 0
    """Of one connection."""


@define(eq=False)
class Peer:
    """A producer and what it registered."""

    producer: Producer
    last_update: int
    topics: dict[str, int | None] = field(factory=dict)
    """Name -> when it was tombstoned for this topic, if ever."""
    count: int = 0
    """The keys it is registered under."""
    is_silent: bool = False
    """The watchers were told that it is."""
    replaces: Peer | None = None
    """The peer from a snapshot that is this nsqd too, until the first PING."""
    replaced_by: Peer | None = None

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection; if not, it was loaded from a snapshot."""
        return self.producer.peer_id >= 0

    def described(self, tombstoned_at: int | None = None) -> dict[str, Any]:
        """Return its entry in /debug under one key."""
        producer = self.producer
        return {
            "broadcast_address": producer.broadcast_address,
            "hostname": producer.hostname,
            "http_port": producer.http_port,
            "id": producer.remote_address,
            "last_update": self.last_update,
            "tcp_port": producer.tcp_port,
            "tombstoned": tombstoned_at is not None,
            "tombstoned_at": NEVER_TOMBSTONED if tombstoned_at is None else tombstoned_at,
            "topology_region": producer.topology_region,
            "topology_zone": producer.topology_zone,
            "version": producer.version,
        }


@define(eq=False)
class Topic:
    """The keys of one topic, and the numbers of the producers registered under them."""

    name: str
    """The one string that all producers registered for the topic share."""
    has_key: bool = False
    """False: it has channels only. So is an ephemeral topic whose last producer unregistered."""
    members: array[int] = field(factory=no_members)
    channels: dict[str, array[int]] = field(factory=dict)
