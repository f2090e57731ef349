"""Registrations with a clock, and nsqds that register."""

from __future__ import annotations

from nsqtw.lookupd import snapshot
from nsqtw.lookupd.model import Producer
from nsqtw.lookupd.registrations import RegistrationQuotas, Registrations

SECOND = 10**9
INACTIVE_AFTER = 300 * SECOND
TOMBSTONE = 45 * SECOND
START = 1_700_000_000 * SECOND


def producer(peer_id: int, name: str = "") -> Producer:
    """An nsqd on a machine of its own; the name says which, and is made from the number where none is given."""
    name = name or f"n{peer_id}"
    return Producer(peer_id, f"10.0.0.1:{40000 + peer_id}", f"{name}.host", name, 4150, 4151, "1.3.0")


class LookupdHarness:
    """One nsqlookupd. `now` moves by hand."""

    def __init__(self, **quotas: int) -> None:
        self.now = START
        self.registrations = Registrations(INACTIVE_AFTER, TOMBSTONE, RegistrationQuotas(**quotas))
        self._next_id = 1

    def identify(self, name: str = "") -> int:
        """A new connection of the nsqd of this name. Returns its number."""
        peer_id = self._next_id
        self._next_id += 1
        self.registrations.identify(producer(peer_id, name), self.now)
        return peer_id

    def nsqd(self, *registered: str, name: str = "") -> int:
        """A connection that registers these: `topic` or `topic/channel`."""
        peer_id = self.identify(name)
        for one in registered:
            topic, _, channel = one.partition("/")
            self.registrations.register(peer_id, topic, channel)
        return peer_id

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)
        self.registrations.pass_time(self.now)

    def snapshot(self) -> bytes:
        """Of now."""
        return snapshot.encode(self.registrations, self.now)

    def found(self, topic: str) -> list[str] | None:
        """The broadcast addresses that a lookup shows; None: no such topic."""
        lookup = self.registrations.lookup(topic, self.now)
        return None if lookup is None else sorted(one.broadcast_address for one in lookup.producers)

    def topics_of(self) -> dict[str, list[str]]:
        """What /nodes shows: broadcast address -> topics, a tombstoned one with a cross behind it."""
        return {
            node.producer.broadcast_address: [
                name + " +" * hidden for name, hidden in zip(node.topics, node.tombstones, strict=True)
            ]
            for node in self.registrations.nodes(self.now)
        }
