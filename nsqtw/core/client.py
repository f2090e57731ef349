"""Client of the broker, for its statistics."""

from __future__ import annotations

from collections.abc import Sized
from enum import IntEnum

from attrs import define, field

from nsqtw.core.publish_counts import PublishCounts


class ClientState(IntEnum):
    """The states of a client, with nsqd's numbers, which /stats shows."""

    INIT = 0
    SUBSCRIBED = 3
    CLOSING = 4
    """It wants nothing more to be delivered."""


@define(eq=False)
class Client:
    """
    One live connection of a client. The protocol fills in its identity; protocol and core count.

    Field names are those of /stats.
    """

    remote_address: str
    connect_ts: int
    """Unix seconds."""
    client_id: str = ""
    hostname: str = ""
    user_agent: str = ""
    version: str = "V2"
    state: ClientState = ClientState.INIT
    ready_count: int = 0
    message_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    sample_rate: int = 0
    topology_region: str = ""
    topology_zone: str = ""
    deflate: bool = False
    snappy: bool = False
    tls: bool = False
    tls_version: str = ""
    """`TLS1.3`; empty without TLS, as the next two."""
    tls_cipher_suite: str = ""
    common_name: str = ""
    """Common name of the client's certificate."""
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    published: PublishCounts = field(factory=PublishCounts)
    in_flight: Sized = ()
    """The messages in flight of its consumer; None before it subscribes."""

    @property
    def host(self) -> str:
        """The host of its address."""
        return self.remote_address.rpartition(":")[0].strip("[]")

    @property
    def pub_counts(self) -> dict[str, int]:
        """Messages published, by topic."""
        return self.published.by_topic()

    @property
    def in_flight_count(self) -> int:
        return len(self.in_flight)
