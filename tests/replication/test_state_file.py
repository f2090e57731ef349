"""The file that says which copy a data path has."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from attrs import evolve

from nsqtw.errors import NotACopy
from nsqtw.replication import state_file
from nsqtw.replication.state_file import STATE_FILE, StateFile, distrust, new_state, read_state, remove_state


def test_there_is_none(tmp_path: Path) -> None:
    """A data path that is no copy."""
    assert read_state(str(tmp_path)) is None


def test_what_is_recorded_is_read(tmp_path: Path) -> None:
    """Each record replaces the one before; the checkpoint stays until there is another one."""
    file = StateFile(str(tmp_path), new_state("set"))
    file.claimed(epoch=2, token="mine", lsn=5, checkpoint_lsn=0)
    file.record(epoch=2, token="mine", lsn=7, checkpoint_lsn=6)
    file.record(epoch=2, token="mine", lsn=8)
    assert read_state(str(tmp_path)) == file.state
    assert (file.state.epoch, file.state.lsn, file.state.checkpoint_lsn) == (2, 8, 6)
    file.forget_checkpoint()
    assert file.state.checkpoint_lsn == 0
    file.close(is_synced=True)
    state = read_state(str(tmp_path))
    assert state is not None
    assert (state.boot, state.lsn) == ("", 8)
    remove_state(str(tmp_path))
    assert read_state(str(tmp_path)) is None


@pytest.mark.parametrize("is_synced", [True, False])
def test_another_start_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_synced: bool) -> None:
    """What was not synced may be lost, and only a clean stop says that all was."""
    file = StateFile(str(tmp_path), new_state("set"))
    file.close(is_synced=is_synced)
    state = read_state(str(tmp_path))
    assert state is not None
    assert state.is_trusted
    monkeypatch.setattr(state_file, "this_boot", lambda: "another")
    assert state.is_trusted is is_synced


def test_a_running_broker_is_never_synced(tmp_path: Path) -> None:
    """A clean stop ends with the next start."""
    StateFile(str(tmp_path), new_state("set")).close(is_synced=True)
    state = read_state(str(tmp_path))
    assert state is not None
    StateFile(str(tmp_path), state)
    assert read_state(str(tmp_path)) == evolve(state, boot=state_file.this_boot())


def test_the_positions_are_those_of_one_claim(tmp_path: Path) -> None:
    """What another owner stores makes them old."""
    file = StateFile(str(tmp_path), new_state("set"))
    file.claimed(epoch=2, token="mine", lsn=7, checkpoint_lsn=6)
    file.record(epoch=3, token="theirs", lsn=8)
    assert file.state.checkpoint_lsn == 0


def test_what_something_else_has_changed_is_not_trusted(tmp_path: Path) -> None:
    """Such as a repair."""
    distrust(str(tmp_path))
    assert read_state(str(tmp_path)) is None
    StateFile(str(tmp_path), new_state("set")).close(is_synced=True)
    distrust(str(tmp_path))
    state = read_state(str(tmp_path))
    assert state is not None
    assert not state.is_trusted


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """In one line."""
    text = b'{"data_set": "set", "broker": "me", "more": 1}'
    (tmp_path / STATE_FILE).write_bytes(b"%08x %s" % (crc32(text), text))
    with pytest.raises(NotACopy, match="another version"):
        read_state(str(tmp_path))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """One line names the remedy."""
    StateFile(str(tmp_path), new_state("set"))
    path = tmp_path / STATE_FILE
    path.write_bytes(path.read_bytes().replace(b"set", b"sit"))
    with pytest.raises(NotACopy, match="damaged: --replicate-from=store"):
        read_state(str(tmp_path))
