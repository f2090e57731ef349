"""The console script `nsqtw`: its words, its lines and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nsqtw.backends.disk.format import HEADER_BYTES
from nsqtw.backends.manifest import check_backend
from nsqtw.core import broker
from nsqtw.testing.contracts import make_segment
from nsqtw.tools.cli import run_nsqtw
from nsqtw.version import version_line
from tests.backends.data_path import DataPath, spoil


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["frob"], "argument COMMAND: invalid choice: 'frob'"),
        (["fsck"], "the following arguments are required: DATA_PATH"),
        (["fsck", "a", "--frob"], "unrecognized arguments: --frob"),
        (["fsck", "a", "--rep"], "unrecognized arguments: --rep"),
        (["fsck", "a", "b"], "unrecognized arguments: b"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_nsqtw(words)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(rf"nsqtw( fsck)?: {re.escape(why)}.* \(try nsqtw( fsck)? -h\)\n", said.err)


@pytest.mark.parametrize("words", [["-h"], ["fsck", "-h"], ["--version"]])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_nsqtw(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("nsqd v" if words == ["--version"] else "usage: nsqtw ")


def test_the_version_says_whether_the_hot_modules_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_nsqtw(["--version"])
    said = capsys.readouterr().out
    is_said = said.removeprefix(version_line()) == ", hot modules compiled\n"
    assert is_said or said == version_line() + "\n"
    assert is_said == broker.__file__.endswith(".so")


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
