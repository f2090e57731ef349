"""The data path of a standby, and the positions of a takeover."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import Checkpoint, CursorState, TopicState
from nsqtw.replication import data_copy
from nsqtw.replication.data_copy import DataCopy, rebuild_positions
from nsqtw.replication.state_file import StateFile, new_state
from nsqtw.testing.contracts import make_segment, messages, read_all
from tests.replication.harness import disk_backend


def no_spans(topic: str) -> list[tuple[int, int]]:
    raise AssertionError(topic)


def test_a_topic_that_has_nothing_in_the_store_is_emptied(tmp_path: Path) -> None:
    """It was deleted and created again, or all of it is finished."""
    backend = disk_backend(str(tmp_path))
    backend.commit([(backend.queue("t"), [make_segment(5)])], False)
    copy = DataCopy(backend, StateFile(str(tmp_path), new_state("set")))
    copy.trim({"t": None}, no_spans)
    assert copy.topics == []
    assert read_all(backend.queue("t")) == []


def test_space_between_messages_that_are_kept_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message may be deferred for a year."""
    monkeypatch.setattr(data_copy, "_SPARSE_BYTES", 100_000)
    backend = disk_backend(str(tmp_path))
    queue = backend.queue("t")
    for first in range(0, 40_000, 1000):
        backend.commit([(queue, [make_segment(first, 1000, 200)])], False)
    copy = DataCopy(backend, StateFile(str(tmp_path), new_state("set")))
    before = queue.size
    for _ in range(50):
        copy.trim({"t": 0}, lambda topic: [(0, 1), (39_000, 40_000)])
    assert queue.size < before / 4
    kept = set(messages(read_all(queue)))
    assert {0, *range(39_000, 40_000)} <= kept


@pytest.mark.parametrize(("lowest", "expected"), [(None, (7, 5, 4)), (3, (7, 5, 4)), (1000, (1000, 1000, 1000))])
def test_positions_are_not_below_what_is_kept(
    tmp_path: Path, lowest: int | None, expected: tuple[int, int, int]
) -> None:
    """What is lower in the data path is finished, whatever the saved state of a topic that was created again says."""
    (tmp_path / "nsqd.dat").write_text("{}")
    saved = TopicState("t", end=7, released=5, cursors=[CursorState("c", next=4, positions=[4, 5, 6])])
    rebuild_positions(
        str(tmp_path), [Checkpoint(topics=[saved])], {"t": lowest}, 12, names_file="nsqd.dat", is_clean=True
    )
    loaded = Positions(str(tmp_path / "positions.db")).load()
    [topic] = loaded.topics
    [cursor] = topic.cursors
    assert (topic.end, topic.released, cursor.next) == expected
    assert min(cursor.positions) == expected[2]
    assert (loaded.next_block, loaded.clean_stop) == (12, True)
    assert not (tmp_path / "nsqd.dat").exists()


def test_a_topic_that_no_checkpoint_has_begins_with_what_is_kept(tmp_path: Path) -> None:
    """The data path may still have messages of a deleted topic of its name."""
    rebuild_positions(str(tmp_path), [], {"t": 50, "gone": None}, 12, names_file="nsqd.dat", is_clean=False)
    [topic] = Positions(str(tmp_path / "positions.db")).load().topics
    assert (topic.name, topic.released, topic.end) == ("t", 50, 50)


def test_a_log_that_ends_before_that_of_the_store_is_noticed(tmp_path: Path) -> None:
    """Its last file may be gone."""
    backend = disk_backend(str(tmp_path))
    backend.commit([(backend.queue("t"), [make_segment(5, 3)])], False)
    copy = DataCopy(backend, StateFile(str(tmp_path), new_state("set")))
    assert not copy.lacks({"t": 8, "unknown": 9})
    assert copy.lacks({"t": 9})
    copy.delete("t")
    assert copy.topics == []
