"""What damage is said to cost is what it costs: no more is missing afterwards, whatever was hit."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from nsqtw.backends.disk.backend import DiskBackend
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.interfaces import IBackend
from nsqtw.testing.contracts import make_segment, read_all
from tests.crash.damage import DAMAGES, StoredMessage, messages_in

SEEDS = 15
SEGMENTS = [make_segment(first, 3, size=20) for first in range(0, 300, 3)]


def opened(backend: str, directory: Path) -> IBackend:
    if backend == "disk":
        return DiskBackend(str(directory), 10_000, lambda *damage: None)
    return SqliteBackend(str(directory), lambda *damage: None)


def stored_messages(backend: str, directory: Path) -> frozenset[StoredMessage]:
    opening = opened(backend, directory)
    found = [messages_in(segment.frames) for segment in read_all(opening.queue("t"))]
    opening.close()
    return frozenset().union(*found)


@pytest.mark.parametrize("backend", [*DAMAGES])
def test_damage_costs_what_is_said_and_no_more(tmp_path: Path, backend: str) -> None:
    (tmp_path / "alive").mkdir()
    alive = opened(backend, tmp_path / "alive")
    queue = alive.queue("t")
    for segment in SEGMENTS:
        assert alive.commit([(queue, [segment])], False) == {}
    written = frozenset().union(*(messages_in(segment.frames) for segment in SEGMENTS))
    costs = []
    for seed in range(SEEDS):
        killed = tmp_path / str(seed)
        shutil.copytree(tmp_path / "alive", killed)
        destroyed = DAMAGES[backend](killed, random.Random(seed))
        # One flipped bit is put right, so less may be lost than was hit.
        assert written - destroyed <= stored_messages(backend, killed) <= written
        costs.append(len(destroyed))
    alive.close()
    assert 0 < sum(costs) / SEEDS < len(written)
