"""What an nsqd said of itself when it identified (suite specification 1.2)."""

from __future__ import annotations

from functools import cached_property

from attrs import asdict, frozen

from nsqtw.gocompat.text import json_text


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
    def node(self) -> str:
        """What a tombstone names it by. An IPv6 address has no brackets here (suite specification 6, 9)."""
        return f"{self.broadcast_address}:{self.http_port}"

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
