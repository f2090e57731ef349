"""Publishers' ids that are too old are removed, a portion with each save."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import blake2b

import pytest

from nsqtw.backends.positions import publisher_ids
from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, PublisherId, TopicState

WINDOW_MS = 1000


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_ids, "_SWEPT_ROWS", 10)


def made(first: int, count: int, published_ms: int) -> list[PublisherId]:
    return [
        PublisherId(blake2b(b"%d" % number, digest_size=16).digest(), published_ms, number)
        for number in range(first, first + count)
    ]


def save(positions: Positions, now_ms: int, ids: Sequence[PublisherId] = (), *topics: str) -> None:
    of_topics = [
        TopicState(name, publisher_ids=[*ids], dedupe_window_ms=0 if name == "off" else WINDOW_MS)
        for name in topics or ("t",)
    ]
    positions.save(Checkpoint(topics=of_topics, pending_ms=now_ms))


def count(path: str) -> int:
    connection = sqlite3.connect(path)
    (rows,) = connection.execute("SELECT count(*) FROM dedupe").fetchone()
    connection.close()
    return rows


def test_a_portion_is_removed_with_each_save(positions: Positions, path: str) -> None:
    save(positions, 0, made(0, 100, 0))
    for _ in range(20):
        save(positions, WINDOW_MS)
    assert count(path) == 100
    counts = []
    for _ in range(12):
        save(positions, WINDOW_MS + 1)
        counts.append(count(path))
    assert counts[0] >= 80
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_the_table_stays_small_while_ids_come_and_go(positions: Positions, path: str) -> None:
    """Ten saves make a window of 500 ids: of old ones at most half as many are left."""
    for number in range(60):
        save(positions, number * 100, made(number * 50, 50, number * 100))
        assert count(path) <= 50 * 10 * 3 // 2
    assert count(path) >= 500


def test_each_topic_has_its_window(positions: Positions, path: str) -> None:
    save(positions, 0, made(0, 5, 0), "a", "off", "z")
    for _ in range(5):
        save(positions, 10, [], "a", "off", "z")
    assert count(path) == 10


def test_ids_of_a_deleted_topic_are_removed_and_found_by_no_other(positions: Positions, path: str) -> None:
    ids = made(0, 50, 0)
    save(positions, 0, ids)
    positions.save(Checkpoint(deleted_topics=["t"]))
    assert count(path) > 0
    positions.close(False)
    again = Positions(path)
    again.load()
    for _ in range(20):
        save(again, 0, [], "new")
        assert again.publisher_ids("new", [one.hash for one in ids]) == []
    assert count(path) == 0
    again.close(False)


def test_the_window_of_a_topic_is_not_known_before_it_is_saved(positions: Positions, path: str) -> None:
    save(positions, 0, made(0, 5, 0), "t")
    positions.close(False)
    again = Positions(path)
    again.load()
    for _ in range(5):
        save(again, 10 * WINDOW_MS, [], "a")
    assert count(path) == 5
    again.close(False)


def test_values_that_nsqtw_never_wrote(positions: Positions, path: str) -> None:
    ids = made(0, 3, 0)
    save(positions, 0, ids)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE dedupe SET sequence = -1 WHERE hash = ?", (ids[0].hash,))
    connection.execute("UPDATE dedupe SET published_ms = 'never' WHERE hash = ?", (ids[1].hash,))
    connection.commit()
    connection.close()
    assert positions.publisher_ids("t", [one.hash for one in ids]) == [ids[2]]
