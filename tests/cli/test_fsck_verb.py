"""`nsqtw fsck`: its lines and its exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES
from nsqtw.backends.manifest import check_backend
from nsqtw.cli.main import run_nsqtw
from nsqtw.daemon.data_path import lock_data_path
from nsqtw.testing.contracts import make_segment
from tests.backends.data_path import DataPath, spoil


def test_a_data_path_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_nsqtw(["fsck", str(tmp_path / "nowhere")]) == 2
    said = capsys.readouterr()
    assert said.err == f"nsqtw fsck: {tmp_path}/nowhere is no nsqtw data path: it is no directory\n"


def test_a_directory_of_somebody_else_is_no_data_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ((), ("photos",), ("messages.txt", "positions.db.txt")):
        for one in name:
            (tmp_path / one).touch()
        for words in ([], ["--repair"]):
            assert run_nsqtw(["fsck", str(tmp_path), *words]) == 2
            said = capsys.readouterr()
            assert said.err == f"nsqtw fsck: {tmp_path} is no nsqtw data path: no broker has stored anything there\n"
            assert said.out == ""


def test_a_data_path_without_messages_is_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_backend(str(tmp_path), "disk")
    for words in ([], ["--repair"]):
        assert run_nsqtw(["fsck", str(tmp_path), *words]) == 0
        assert capsys.readouterr().out == "0 topics, 0 log files, 0 good records, 0 messages, 0 bytes; 0 findings\n"


def test_a_data_path_that_a_broker_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_backend(str(tmp_path), "disk")
    lock = lock_data_path(str(tmp_path))
    assert run_nsqtw(["fsck", str(tmp_path)]) == 1
    os.close(lock)
    said = capsys.readouterr().err
    assert said.startswith(f"nsqtw fsck: failed to lock data-path: cannot flock directory {tmp_path} - ")
    assert said.endswith("(possibly in use by another instance of nsqd); stop it first\n")


def test_from_a_finding_to_a_clean_data_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = DataPath(tmp_path)
    logs.commit_each(make_segment(0), make_segment(1), make_segment(2))
    logs.close()
    spoil(logs.logs()[0], HEADER_BYTES + 50)
    assert run_nsqtw(["fsck", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ["damaged record", "no positions"]
    assert lines[-1].startswith("1 topic, 1 log file, 2 good records, 2 messages, ")
    assert lines[-1].endswith(" bytes; 2 findings")
    assert run_nsqtw(["fsck", "--repair", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == [f"set aside: {tmp_path}/damaged.d/1", "left:"]
    assert lines[4].startswith("no positions: ")
    assert lines[-1].endswith(" bytes; 2 findings, 1 left")


def test_a_repair_of_everything_has_an_exit_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_backend(str(tmp_path), "disk")
    (tmp_path / "nsqd.dat.1.tmp").touch()
    assert run_nsqtw(["fsck", str(tmp_path)]) == 1
    assert run_nsqtw(["fsck", str(tmp_path), "--repair"]) == 3
    assert run_nsqtw(["fsck", str(tmp_path), "--repair"]) == 0
    assert capsys.readouterr().out.endswith("; 0 findings\n")
