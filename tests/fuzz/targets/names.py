"""`nsqd.dat`: read, made into topics by a start, and written again."""

from __future__ import annotations

from random import Random
from typing import Any

from nsqtw.errors import MetadataError
from nsqtw.nsqd import nsqd_dat
from tests.core.harness import BrokerHarness
from tests.fuzz.meter import Broken
from tests.fuzz.oddities import NAMES, json_text, json_value, mostly, respelled
from tests.fuzz.target import Bound, Target
from tests.fuzz.targets.directory import directory


class Names(Target):
    name = "names"
    kind = "contents of nsqd.dat"
    examples = 2000
    tokens = tuple(b'"%s":' % key for key in (b"topics", b"channels", b"name", b"paused", b"version")) + (
        *(b"null", b"true", b"{", b"[", b"}", b"]", b'"t"', b'"t#ephemeral"', b"\\u0000", b"\\ud800", b"NaN", b"1e999"),
    )
    steps = Bound(20_000, 400)
    memory = Bound(2 << 20, 300)

    def make(self, chance: Random) -> bytes:
        topics = [_named(chance, "channels") for _ in range(chance.randrange(4))]
        listed = topics or (None if chance.random() < 0.5 else [])
        document: list[tuple[str, Any]] = [(respelled(chance, "topics"), listed)]
        if chance.random() < 0.5:
            document.append((respelled(chance, "version"), "1.3.0" if chance.random() < 0.8 else json_value(chance)))
        return json_text(chance, document if chance.random() < 0.95 else json_value(chance))

    def run(self, data: bytes) -> str:
        harness = BrokerHarness()
        with directory() as path:
            file = str(path / nsqd_dat.METADATA_FILE)
            (path / nsqd_dat.METADATA_FILE).write_bytes(data)
            try:
                named = nsqd_dat.read(file, harness.log) or []
            except MetadataError as refused:
                if "\n" in str(refused) and b"\n" not in data:
                    raise Broken(f"more than one line: {refused}") from refused
                return "refused with one line"
            harness.crash(named=named)
            written = harness.broker.metadata_sync.names()
            nsqd_dat.write(file, written)
            read = nsqd_dat.read(file, harness.log)
        if sorted(topic.name for topic in read or ()) != sorted(topic.name for topic in written):
            raise Broken(f"wrote {written}, read {read}")
        return "started, topics found" if named else "started, no topics"


def _named(chance: Random, of: str = "") -> Any:
    """A topic with its channels, or one channel."""
    if chance.random() < 0.05:
        return json_value(chance)
    name = b'"%s"' % mostly(chance, (b"t", b"u", b"t", b"c", b"d"), NAMES, 0.1)
    pairs: list[tuple[str, Any]] = [(respelled(chance, "name"), name if chance.random() < 0.95 else json_value(chance))]
    if chance.random() < 0.8:
        paused = chance.choice((True, False)) if chance.random() < 0.9 else json_value(chance)
        pairs.append((respelled(chance, "paused"), paused))
    if of:
        channels = [_named(chance) for _ in range(chance.randrange(3))]
        pairs.append((respelled(chance, of), channels or None))
    return pairs
