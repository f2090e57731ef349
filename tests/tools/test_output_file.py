"""Output files of nsq_to_file, and those that a killed process left."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from nsqtw.tools import output_file
from nsqtw.tools.output_file import FileRules, OutputFile, recover
from tests.tools.test_file_names import NOON, names


def in_one(directory: Path, **options: Any) -> FileRules:
    """Rules without a directory for work."""
    return FileRules(output_dir=str(directory), work_dir=str(directory), **options)


def in_two(directory: Path, **options: Any) -> FileRules:
    """Rules with a directory for work."""
    return FileRules(output_dir=str(directory / "out"), work_dir=str(directory / "work"), **options)


def opened(rules: FileRules, pattern: str = "<TOPIC>.<HOST><REV>.<DATETIME>.log", revision: int = 0) -> OutputFile:
    made = names(pattern=pattern, has_revisions=rules.needs_revisions, is_gzip=rules.gzip_level > 0)
    return OutputFile(rules, made, made.at(NOON), revision, NOON)


def contents(directory: Path) -> dict[str, bytes]:
    """The files below a directory."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_a_plain_file_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        file = opened(in_one(tmp_path))
        file.write(b"line\n")
        assert file.close() == str(tmp_path / "t.h.07.log")
    assert contents(tmp_path) == {"t.h.07.log": b"line\nline\n"}


def test_a_line_that_was_cut_off_is_ended(tmp_path: Path) -> None:
    (tmp_path / "t.h.07.log").write_bytes(b"one\ntw")
    file = opened(in_one(tmp_path))
    file.write(b"two\n")
    file.close()
    assert contents(tmp_path) == {"t.h.07.log": b"one\ntw\ntwo\n"}
    assert file.size == 11


def test_data_is_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(output_file, "write_all", lambda fd, data: sizes.append(len(data)))
    file = opened(in_one(tmp_path))
    for _ in range(1000):
        file.write(b"x" * 100)
    assert sizes == [65600]
    file.sync()
    assert sizes == [65600, 34400]
    file.close()


def test_gzip_files_are_readable_to_the_last_sync(tmp_path: Path) -> None:
    rules = in_one(tmp_path, gzip_level=6)
    file = opened(rules)
    file.write(b"one\n")
    file.sync()
    file.sync()
    path = tmp_path / "t.h-000000.07.log.gz"
    assert gzip.decompress(path.read_bytes()) == b"one\n"
    file.write(b"two\n")
    file.close()
    assert gzip.decompress(path.read_bytes()) == b"one\ntwo\n"
    assert opened(rules).close() == str(tmp_path / "t.h-000001.07.log.gz")
    empty = (tmp_path / "t.h-000001.07.log.gz").read_bytes()
    assert (gzip.decompress(empty), len(empty)) == (b"", 23)


def test_rotation(tmp_path: Path) -> None:
    file = opened(in_one(tmp_path, rotate_size=9, rotate_interval=60.0))
    file.write(b"123456789")
    assert not file.needs_rotation(NOON)
    assert file.needs_rotation(NOON, 1)
    assert not file.needs_rotation(NOON + 60)
    assert file.needs_rotation(NOON + 61)
    file.write(b"0")
    assert file.needs_rotation(NOON)
    file.close()
    file = opened(in_one(tmp_path))
    assert not file.needs_rotation(NOON + 1)
    assert file.needs_rotation(NOON + 3600)
    assert file.needs_rotation(NOON + 3600), "also when it is asked twice in a second"
    file.close()


def test_only_files_that_are_too_large_are_not_continued(tmp_path: Path) -> None:
    (tmp_path / "t.h-000000.07.log").write_bytes(b"1234567890\n")
    (tmp_path / "t.h-000001.07.log").write_bytes(b"12345678\n")
    file = opened(in_one(tmp_path, rotate_size=9))
    assert (file.revision, file.size) == (1, 9)
    file.close()


def test_two_processes_do_not_share_a_file_with_a_revision(tmp_path: Path) -> None:
    """A lock of another descriptor counts as that of another process."""
    first, second = opened(in_two(tmp_path)), opened(in_two(tmp_path))
    first.write(b"1\n")
    second.write(b"2\n")
    first.close()
    second.close()
    assert contents(tmp_path) == {"out/t.h-000000.07.log": b"1\n", "out/t.h-000001.07.log": b"2\n"}


def test_directories_of_a_name(tmp_path: Path) -> None:
    old = os.umask(0o002)
    try:
        opened(in_two(tmp_path), "<TOPIC>/<DATETIME>/x<REV>").close()
    finally:
        os.umask(old)
    assert [*contents(tmp_path)] == ["out/t/07/x-000000"]
    for name in ("work/t/07", "work", "out/t", "out"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o770
    assert (tmp_path / "out/t/07/x-000000").stat().st_mode & 0o777 == 0o640


def test_a_file_is_moved_without_replacing_another(tmp_path: Path) -> None:
    file = opened(in_two(tmp_path))
    file.write(b"mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/t.h-000000.07.log").write_bytes(b"another")
    assert file.close() == str(tmp_path / "out/t.h-000001.07.log")
    assert contents(tmp_path) == {"out/t.h-000000.07.log": b"another", "out/t.h-000001.07.log": b"mine"}
    assert opened(in_two(tmp_path)).revision == 2


def test_one_directory_with_two_names_is_no_work_dir(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert not FileRules(output_dir=str(tmp_path), work_dir=f"{tmp_path}/").has_work_dir
    assert not FileRules(output_dir=str(tmp_path), work_dir=str(tmp_path / "link")).has_work_dir


def recovered(rules: FileRules, pattern: str = "<TOPIC>.<HOST><REV>.<DATETIME>.log") -> list[str]:
    """Move what a killed process left. Returns the new paths, relative to the output directory."""
    targets: list[str] = []
    failures: list[str] = []
    made = names(pattern=pattern, has_revisions=True, is_gzip=rules.gzip_level > 0)
    recover(rules, made, lambda path, target: targets.append(target), lambda path, error: failures.append(str(error)))
    assert failures == []
    return [os.path.relpath(target, rules.output_dir) for target in targets]


def test_files_of_a_killed_process_are_moved(tmp_path: Path) -> None:
    rules = in_two(tmp_path)
    running = opened(rules)
    running.write(b"running\n")
    work, out = tmp_path / "work", tmp_path / "out"
    for name in ("t.h-000001.06.log", "t.h-000002.07.log", "u.h-000001.07.log", "t.h.07.log"):
        (work / name).write_bytes(name.encode())
    (work / "t.h-000003.07.log").touch()
    out.mkdir()
    (out / "t.h-000001.06.log").write_bytes(b"another")
    assert recovered(rules) == ["t.h-000002.06.log", "t.h-000002.07.log"]
    assert contents(out) == {
        "t.h-000001.06.log": b"another",
        "t.h-000002.06.log": b"t.h-000001.06.log",
        "t.h-000002.07.log": b"t.h-000002.07.log",
    }
    assert sorted(contents(work)) == ["t.h-000000.07.log", "t.h.07.log", "u.h-000001.07.log"]
    assert recovered(rules) == []
    assert running.close() == str(out / "t.h-000000.07.log")


def test_a_kill_in_the_middle_of_a_move(tmp_path: Path) -> None:
    rules = in_two(tmp_path)
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    (work / "t.h-000000.07.log").write_bytes(b"x")
    (out / "t.h-000000.07.log").hardlink_to(work / "t.h-000000.07.log")
    assert recovered(rules) == ["t.h-000000.07.log"]
    assert contents(tmp_path) == {"out/t.h-000000.07.log": b"x"}


def test_files_in_directories_are_moved_but_not_those_of_the_output(tmp_path: Path) -> None:
    rules = FileRules(output_dir=str(tmp_path / "07"), work_dir=str(tmp_path))
    for name in ("07/t-000000", "06/t-000000"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    assert recovered(rules, "<DATETIME>/<TOPIC><REV>") == ["06/t-000000"]
    assert contents(tmp_path) == {"07/t-000000": b"07/t-000000", "07/06/t-000000": b"06/t-000000"}


def test_without_a_work_dir_nothing_is_moved(tmp_path: Path) -> None:
    (tmp_path / "t.h-000000.07.log").write_bytes(b"x")
    assert recovered(in_one(tmp_path, rotate_size=10)) == []


def test_others_cannot_read_a_file_nor_choose_it_by_a_link(tmp_path: Path) -> None:
    opened(in_one(tmp_path)).close()
    assert (tmp_path / "t.h.07.log").stat().st_mode & 0o137 == 0
    (tmp_path / "t.h.07.log").unlink()
    (tmp_path / "t.h.07.log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        opened(in_one(tmp_path))
    assert not (tmp_path / "precious").exists()
