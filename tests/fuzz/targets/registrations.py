"""A snapshot of nsqlookupd's registrations: read, and written again. Damage behind a checksum that holds, above all."""

from __future__ import annotations

from random import Random
from typing import Any
from zlib import crc32

from nsqtw.errors import SnapshotError
from nsqtw.lookupd import snapshot
from nsqtw.lookupd.json_documents import debug_pieces, node_pieces
from tests.fuzz.meter import Broken
from tests.fuzz.oddities import NAMES, NUMBERS, json_text, json_value, mostly, plain_json
from tests.fuzz.target import Bound, Target, chance_of
from tests.lookupd.harness import LookupdHarness

_TEXTS = ("remote_address", "hostname", "broadcast_address", "version", "topology_zone", "topology_region")
_HEAD = b"NSQTW REGISTRATIONS 1\n"


class Snapshot(Target):
    name = "registrations"
    kind = "snapshots of the registrations of nsqlookupd"
    examples = 2000
    tokens = (
        *(b'"%s":' % key for key in (b"topic", b"members", b"channels", b"tombstones", b"has_key", b"producer")),
        *(b"[1]", b"[[1,2]]", b'{"c":[1]}', b"true", b"null", b"-1", b"\n", b"CRC 00000000\n", b"NSQTW REGISTRATIONS "),
    )
    steps = Bound(20_000, 400)
    memory = Bound(2 << 20, 300)

    def make(self, chance: Random) -> bytes:
        said = [[("saved_at", _number(chance))], *[_producer(chance) for _ in range(chance.randrange(4))]]
        said += [_topic(chance) for _ in range(chance.randrange(4))]
        lines = [json_text(chance, one) if chance.random() < 0.1 else plain_json(one) for one in said]
        return b"".join([_HEAD, *[line + b"\n" for line in lines]])

    def run(self, data: bytes) -> str:
        if chance_of(data).random() < 0.9:
            data += b"CRC %08x\n" % crc32(data)
        harness = LookupdHarness()
        try:
            snapshot.restore(harness.registrations, data, harness.now)
        except SnapshotError as refused:
            if harness.registrations.producer_count or harness.registrations.topic_count:
                raise Broken(f"refused, and taken in: {data!r}") from refused
            return "refused"
        self._look(harness)
        again = LookupdHarness()
        snapshot.restore(again.registrations, harness.snapshot(), harness.now)
        if _known(again) != _known(harness):
            raise Broken(f"restored {_known(harness)}, written and read {_known(again)}")
        return "restored"

    def _look(self, harness: LookupdHarness) -> None:
        """Whatever came of it can be shown, and ends."""
        for _ in [
            *node_pieces(harness.registrations.walk_nodes(harness.now)),
            *debug_pieces(harness.registrations.walk_debug()),
        ]:
            continue
        for topic in ("t", "*"):
            harness.registrations.lookup(topic, harness.now)
        nsqd = harness.nsqd("t/c", name="a")
        harness.registrations.touch(nsqd, harness.now)


def _known(harness: LookupdHarness) -> Any:
    debug = harness.registrations.debug()
    return harness.registrations.topics(), {key: len(entries) for key, entries in debug.items() if entries}


def _number(chance: Random) -> Any:
    return mostly(chance, (1, 2, 3, 1_700_000_000_000_000_000), NUMBERS, 0.02)


def _producer(chance: Random) -> Any:
    said: list[tuple[str, Any]] = [("producer", _number(chance)), ("silent_ns", _number(chance))]
    said += [(key, mostly(chance, ("a", "b", ""), [json_value(chance)], 0.01)) for key in _TEXTS]
    said += [("tcp_port", _number(chance)), ("http_port", _number(chance))]
    if chance.random() < 0.05:
        del said[chance.randrange(len(said))]
    return said


def _topic(chance: Random) -> Any:
    channels = [(_name(chance), _members(chance)) for _ in range(chance.randrange(1, 3))]
    return [
        ("topic", b'"%s"' % mostly(chance, (b"t", b"u", b"e#ephemeral"), NAMES, 0.03)),
        ("has_key", mostly(chance, (True, False), [json_value(chance)], 0.05)),
        ("members", _members(chance)),
        ("tombstones", [[_number(chance), _number(chance)] for _ in range(chance.randrange(2))]),
        ("channels", mostly(chance, (channels, {}), [json_value(chance)], 0.05)),
    ]


def _name(chance: Random) -> str:
    return str(mostly(chance, ("c", "d", "f#ephemeral"), ("*", "", "c d"), 0.03))


def _members(chance: Random) -> Any:
    members = [_number(chance) for _ in range(chance.randrange(3))]
    return members if chance.random() < 0.97 else json_value(chance)
