"""What the commands for data paths do with the copy of a data set."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.backends.files import Files
from nsqtw.backends.positions.store import Positions
from nsqtw.errors import BackendError
from nsqtw.replication.set_aside import check_not_a_copy, set_aside
from nsqtw.replication.state_file import StateFile, new_state, read_state
from nsqtw.testing.contracts import make_segment
from nsqtw.tools.fsck import command
from tests.replication.harness import disk_backend, no_log


def copy_in(directory: Path) -> None:
    """Make a data path that is the copy of a data set, with one message."""
    backend = disk_backend(str(directory))
    backend.commit([(backend.queue("t"), [make_segment(5)])], False)
    backend.close()
    Positions(str(directory / "positions.db")).load()
    StateFile(str(directory), new_state("set")).close(is_synced=True)


def test_a_repair_has_the_next_start_copy_the_data_set_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the repair set aside the store has."""
    copy_in(tmp_path)
    [log] = (tmp_path / "t").glob("*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    command.run(str(tmp_path), must_repair=True)
    assert "copies it again" in capsys.readouterr().out
    state = read_state(str(tmp_path))
    assert state is not None
    assert not state.is_trusted


def test_a_broker_without_a_replica_store_refuses_a_copy(tmp_path: Path) -> None:
    """Its owner may be another broker. One line names the remedy."""
    check_not_a_copy(str(tmp_path))
    copy_in(tmp_path)
    with pytest.raises(BackendError, match="nsqtw replicate detach"):
        check_not_a_copy(str(tmp_path))


def test_what_belongs_to_the_file_system_stays(tmp_path: Path) -> None:
    """A data path may be the root of one."""
    (tmp_path / "lost+found").mkdir()
    assert set_aside(str(tmp_path), Files(), no_log) == ""
    copy_in(tmp_path)
    set_aside(str(tmp_path), Files(), no_log)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lost+found", "replaced.1"]


def test_what_is_set_aside_is_kept(tmp_path: Path) -> None:
    """Each time in a directory of its own; an empty data path leaves none."""
    assert set_aside(str(tmp_path), Files(), no_log) == ""
    for number in (1, 2):
        copy_in(tmp_path)
        assert set_aside(str(tmp_path), Files(), no_log) == str(tmp_path / f"replaced.{number}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["replaced.1", "replaced.2"]
    assert (tmp_path / "replaced.2" / "replica.state").exists()
    assert read_state(str(tmp_path)) is None
