"""The parts of NSQ's tools that need no process: destinations, status lines, the JSON filter, files."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from random import Random

import pytest

from nsqtw.tools.file_names import FileNames, formatted_time, host_identifier
from nsqtw.tools.host_pool import HostPool, make_pool
from nsqtw.tools.json_filter import JsonFilter, Verdict
from nsqtw.tools.output_file import FileRules, OutputFile, move_leftovers
from nsqtw.tools.program import ToolError
from nsqtw.tools.status import Status, warning

NOON = time.mktime((2026, 11, 21, 7, 5, 9, 0, 0, -1))


def picks(pool: object, count: int, now: float = 0.0) -> str:
    """Return the destinations of the next messages, a letter each."""
    return "".join(pool.pick(now) for _ in range(count))  # type: ignore[attr-defined]


def test_round_robin_begins_with_the_second() -> None:
    assert picks(make_pool("round-robin", "abc", Random(1)), 4) == "bcab"
    assert picks(make_pool("unknown", "ab", Random(1)), 2) == "ba"


def test_a_dead_host_is_tried_again_ever_later() -> None:
    pool = HostPool("ab", Random(1))
    assert picks(pool, 3) == "aba"
    pool.failed("b", 0.0)
    assert picks(pool, 3, 29.9) == "aaa"
    assert picks(pool, 2, 30.0) == "ba"
    assert picks(pool, 3, 89.0) == "aaa", "the next retry is 60 s after the first"
    assert picks(pool, 2, 90.0) == "ba"
    pool.succeeded("b", 0.1)
    assert picks(pool, 4, 91.0) in ("abab", "baba")


def test_when_all_are_dead_all_are_tried() -> None:
    pool = HostPool("ab", Random(1))
    pool.failed("a", 0.0)
    pool.failed("b", 0.0)
    assert picks(pool, 3, 1.0) == "aba"


def test_fast_hosts_are_preferred() -> None:
    pool = make_pool("epsilon-greedy", "ab", Random(1))
    for number in range(300):
        address = pool.pick(number * 0.1)
        pool.succeeded(address, 0.010 if address == "a" else 0.100)
    chosen = picks(pool, 300, 31.0)
    assert chosen.count("a") > 2 * chosen.count("b") > 0


def test_status_lines() -> None:
    lines: list[str] = []
    status = Status(100, ["x", "y"], lines.append)
    for number in range(101):
        status.add("x", (number + 1) / 1000)
    line = "finished 100 - 99th: 100.00ms - 95th: 96.00ms - avg: 50.50ms"
    assert lines == [f"[aggregate]: {line}", f"[x]: {line}"]
    Status(0, ["x"], lines.append).add("x", 1.0)
    assert warning(99).startswith("Warning: use more than 100 status values")
    assert warning(0) == warning(100) == ""


@pytest.mark.parametrize(
    ("options", "body", "verdict", "result"),
    [
        (JsonFilter(), b"no json", Verdict.PUBLISH, b"no json"),
        (JsonFilter("a"), b"no json", Verdict.DROP, b""),
        (JsonFilter("a"), b"[1]", Verdict.DROP, b""),
        (JsonFilter("a"), b"null", Verdict.DROP, b""),
        (JsonFilter("a"), b'{"b":1}', Verdict.DROP, b""),
        (JsonFilter("a", "1"), b'{"b":1}', Verdict.REQUEUE, b""),
        (JsonFilter("a", "1"), b'{"a":1.0}', Verdict.PUBLISH, b'{"a":1.0}'),
        (JsonFilter("a", "1.0"), b'{"a":"1"}', Verdict.DROP, b""),
        (JsonFilter("a", "true"), b'{"a":true}', Verdict.DROP, b""),
        (JsonFilter("a", "x"), b'{"a":"x", "b":2}', Verdict.PUBLISH, b'{"a":"x", "b":2}'),
        (JsonFilter(kept=("b", "a", "z")), b'{"a":"<&>","b":{"d":1,"c":[2.50]},"c":3}', Verdict.PUBLISH, None),
        (JsonFilter(kept=("z",)), b'{"a":1}', Verdict.PUBLISH, b"{}"),
        (JsonFilter(kept=("a",)), b'{"a":NaN}', Verdict.DROP, b""),
    ],
)
def test_the_json_filter(options: JsonFilter, body: bytes, verdict: Verdict, result: bytes | None) -> None:
    outcome = options.apply(body)
    wanted = rb'{"a":"\u003c\u0026\u003e","b":{"c":[2.5],"d":1}}' if result is None else result
    assert (outcome.verdict, outcome.body) == (verdict, wanted)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("12345678901234567890", "12345678901234567000"),
        ("1.50", "1.5"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("0.0000001", "1e-7"),
        ("0.000001", "0.000001"),
        ("-0.5", "-0.5"),
        ("-0", "-0"),
        ("1.25e-9", "1.25e-9"),
    ],
)
def test_numbers_are_written_as_go_does(number: str, text: str) -> None:
    outcome = JsonFilter(kept=("a",)).apply(f'{{"a":{number}}}'.encode())
    assert outcome.body.decode() == f'{{"a":{text}}}'


def test_times_in_file_names() -> None:
    assert formatted_time("%Y-%m-%d_%H:%M:%S %y %p %I %%", NOON) == "2026-11-21_07:05:09 26 AM 07 %"
    assert formatted_time("%j%Q 15 Jan", NOON) == "%j%Q 15 Jan"


def test_hosts_in_file_names() -> None:
    assert host_identifier("", "a.b.c") == "a"
    assert host_identifier("<SHORT_HOST>-<HOSTNAME>-x", "a.b.c") == "a-a.b.c-x"


def names(topic: str = "t", pattern: str = "<TOPIC>.<HOST><REV>.<DATETIME>.log", **options: bool) -> FileNames:
    chosen = {"has_revisions": False, "is_gzip": False, **options}
    return FileNames.of_topic(topic, pattern=pattern, datetime_pattern="%H", host="h", **chosen)


def test_names_of_files() -> None:
    plain = names()
    assert plain.with_revision(plain.at(NOON), 3) == "t.h.07.log"
    numbered = names(has_revisions=True, is_gzip=True)
    assert numbered.with_revision(numbered.at(NOON), 3) == "t.h-000003.07.log.gz"
    assert names(pattern="<TOPIC>.<PID>.gz", is_gzip=True).at(NOON) == f"t.{os.getpid()}.gz"
    with pytest.raises(ToolError, match="^missing <REV> in --filename-format when "):
        names(pattern="<TOPIC>.log", has_revisions=True)


def test_a_topic_cannot_leave_the_directory() -> None:
    assert names("..", "<TOPIC>/x").at(NOON) == "%2E%2E/x"
    assert names("a..b", "<TOPIC>/x").at(NOON) == "a..b/x"


def opened(rules: FileRules, **options: bool) -> OutputFile:
    numbered = names(has_revisions=rules.needs_revisions, is_gzip=bool(rules.gzip_level), **options)
    return OutputFile(rules, numbered, numbered.at(NOON), 0, NOON)


def test_a_plain_file_is_continued(tmp_path: Path) -> None:
    rules = FileRules(output_dir=str(tmp_path), work_dir=str(tmp_path))
    for _ in range(2):
        file = opened(rules)
        file.write(b"line\n")
        assert file.close() == str(tmp_path / "t.h.07.log")
    assert (tmp_path / "t.h.07.log").read_bytes() == b"line\nline\n"


def test_gzip_files_are_readable_to_the_last_sync(tmp_path: Path) -> None:
    rules = FileRules(output_dir=str(tmp_path), work_dir=str(tmp_path), gzip_level=6)
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
    assert gzip.decompress((tmp_path / "t.h-000001.07.log.gz").read_bytes()) == b""


def test_rotation(tmp_path: Path) -> None:
    file = opened(FileRules(output_dir=str(tmp_path), work_dir=str(tmp_path), rotate_size=9, rotate_interval=60.0))
    file.write(b"123456789")
    assert not file.needs_rotation(NOON)
    assert not file.needs_rotation(NOON + 60)
    assert file.needs_rotation(NOON + 61)
    file.write(b"0")
    assert file.needs_rotation(NOON)
    file.close()
    file = opened(FileRules(output_dir=str(tmp_path), work_dir=str(tmp_path)))
    assert file.needs_rotation(NOON + 3600)
    file.close()


def test_a_file_is_moved_without_replacing_another(tmp_path: Path) -> None:
    work, output = tmp_path / "work", tmp_path / "output"
    file = opened(FileRules(output_dir=str(output), work_dir=str(work)))
    file.write(b"mine")
    output.mkdir()
    (output / "t.h-000000.07.log").write_bytes(b"another")
    assert file.close() == str(output / "t.h-000001.07.log")
    assert [path.read_bytes() for path in sorted(output.iterdir())] == [b"another", b"mine"]
    assert [*work.iterdir()] == []


def test_files_of_a_killed_process_are_moved(tmp_path: Path) -> None:
    work, output = tmp_path / "work", tmp_path / "output"
    rules = FileRules(output_dir=str(output), work_dir=str(work))
    running = opened(rules)
    running.write(b"running")
    for name in ("t.h-000001.06.log", "t.h-000002.07.log", "u.h-000001.07.log", "t.h.07.log"):
        (work / name).write_bytes(name.encode())
    output.mkdir()
    (output / "t.h-000000.06.log").write_bytes(b"another")
    numbered = names(has_revisions=True)
    assert move_leftovers(rules, numbered) == [str(output / "t.h-000001.06.log"), str(output / "t.h-000000.07.log")]
    assert sorted(path.name for path in work.iterdir()) == ["t.h-000000.07.log", "t.h.07.log", "u.h-000001.07.log"]
    assert (output / "t.h-000000.07.log").read_bytes() == b"t.h-000002.07.log"
    assert running.close() == str(output / "t.h-000001.07.log")
