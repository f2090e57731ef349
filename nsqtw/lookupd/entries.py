"""
What the registrations are made of, and what they answer with.

There may be some 100,000 registrations, so none is an object: a producer that has a topic is a number in the topic's
members and a key in the peer's dict.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from attrs import define, field, frozen

from nsqtw.lookupd.members import no_members
from nsqtw.lookupd.producer import Producer

NEVER_TOMBSTONED = -6795364578871345152
"""What /debug shows for the time of a tombstone that there never was: Go's zero time."""


class Key(NamedTuple):
    """A key of NSQ's mapping; `category` is client, topic or channel, what it has not is ""."""

    category: str
    topic: str = ""
    channel: str = ""


CLIENT = Key("client")


class Lookup(NamedTuple):
    """What /lookup answers."""

    channels: list[str]
    producers: list[Producer]


class Node(NamedTuple):
    """An nsqd as /nodes shows it. `topics` and `tombstones` are parallel."""

    producer: Producer
    tombstones: list[bool]
    topics: list[str]
    is_stale: bool
    """From a snapshot, and not heard of since."""


@frozen
class RegistrationQuotas:
    """How much there may be; 0: any number. What a snapshot brings is taken in whatever they are."""

    topics: int = 0
    channels: int = 0
    """Of all topics."""
    registrations: int = 0
    """Of all connections. REGISTER of a channel makes two, of which one is the topic's."""
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
        """Whether there is a connection; if not, a snapshot brought it."""
        return self.producer.peer_id >= 0

    def described(self, tombstoned_at: int | None = None) -> dict[str, Any]:
        """As /debug shows it under one key (suite specification 1.5)."""
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
    """The keys that name one topic, and the numbers of those who are registered under them."""

    name: str
    """The one string that all who are registered for it share."""
    has_key: bool = False
    """False: it has channels only. So is an ephemeral topic whose last producer unregistered."""
    members: array[int] = field(factory=no_members)
    channels: dict[str, array[int]] = field(factory=dict)
