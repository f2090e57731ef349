"""The parts of ``contrib/demo`` that decide whether it tells the truth."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from contrib.demo import records, transform
from contrib.demo.errors import DemoError
from contrib.demo.feed import Feed
from contrib.demo.ledger import Ledger, LedgerWriter
from contrib.demo.report import LEGEND, Kind, Outcome, kinds_table, table, verdict

DPKG_STATUS = """\
Package: bash
Status: install ok installed
Installed-Size: 7164
Architecture: amd64
Version: 5.2.15
Depends: base-files (>= 2.1.12), debianutils | other (<< 3)
Description: GNU Bourne Again SHell
 A longer text.

Package: base-files
Status: install ok installed
Architecture: all
Version: 12.4

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
Depends: base-files
"""

GIT_LOG = (
    "\x1e1111\x1f2026-01-02T03:04:05+01:00\x1fFirst: a\tstart\x1f\n\n3\t0\tREADME.md\n-\t-\tlogo.png\n"
    "\x1e2222\x1f2026-01-03T03:04:05+01:00\x1fNothing changed\x1f\n"
)


def objects(rows: DataFrame) -> dict[str, dict[str, object]]:
    return {row.id: json.loads(row.value) for row in rows.collect()}


def test_what_was_lost_and_what_came_twice() -> None:
    outcome = Outcome.of("c", "x", published={"a", "b", "c"}, arrived={"a", "b", "z"}, deliveries=5)
    expected = Outcome("c", "x", published=3, delivered=2, repeats=2, lost=1, unknown=1)
    assert expected == outcome
    assert not outcome.good
    assert verdict([outcome]) == "NOT GOOD: 1 lost, 1 that nobody published"


def test_repeats_are_good_and_nothing_at_all_is_not() -> None:
    repeated = Outcome.of("c", "x", {"a"}, {"a"}, deliveries=3)
    assert repeated.good
    assert verdict([repeated]) == "lost = 0"
    assert not Outcome.of("c", "x", set(), set(), deliveries=0).good


def test_the_table() -> None:
    expected = "reader  program  in  out  repeats  lost\nc       x         1    1        2     0"
    assert expected == table([Outcome.of("c", "x", {"a"}, {"a"}, deliveries=3)])


def test_what_sql_has_counted() -> None:
    kinds = [Kind("package", messages=12, records=10), Kind("change", messages=1, records=1)]
    assert kinds_table(kinds) == "kind     records  messages\npackage       10        12\nchange         1         1"
    published = {str(number) for number in range(11)}
    right = Outcome.of_kinds("sql", "etl", published, kinds)
    assert (right.delivered, right.repeats, right.lost, right.good) == (11, 2, 0, True)
    assert Outcome.of_kinds("sql", "etl", published | {"x"}, kinds).lost == 1
    assert Outcome.of_kinds("sql", "etl", published - {"0"}, kinds).unknown == 1


def test_a_ledger_takes_in_whole_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    with LedgerWriter(path) as writer:
        writer.record(["a", "line\nbreak"])
    with path.open("a") as file:
        file.write('"b')
    ledger.poll()
    assert (2, {"a", "line\nbreak"}) == (ledger.deliveries, ledger.distinct)
    with path.open("a") as file:
        file.write('"\n"a"\n')
    ledger.poll()
    assert (4, {"a", "b", "line\nbreak"}) == (ledger.deliveries, ledger.distinct)
    ledger.close()


def test_the_feed_holds_the_last_part_back_until_the_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = tmp_path / "killed"
    passed: list[str] = []
    held_after: list[int] = []

    def sleep(_seconds: float) -> None:
        held_after.append(len(passed))
        killed.touch()

    pace = Feed(rows=8, seconds=1e-9, killed=str(killed)).pacer(sleep)
    for number in range(8):
        passed.append(pace(str(number)))  # noqa: PERF401  # counted meanwhile
    assert [str(number) for number in range(8)] == passed
    assert held_after == [6]


def test_no_records_at_all(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="no records here"):
        records.of_this_machine(tmp_path, tmp_path, dpkg_status=tmp_path / "status")


def test_packages_alone(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(DPKG_STATUS)
    found = records.of_this_machine(tmp_path, tmp_path, dpkg_status=status)
    assert records.Records(dpkg_status=status) == found
    assert f"the packages in {status}" == found.names()


@pytest.mark.parametrize("kind", ["missing", "empty", "folder"])
def test_a_file_that_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    if kind == "empty":
        path.touch()
    if kind == "folder":
        path.mkdir()
    with pytest.raises(DemoError, match=str(path)):
        records.from_file(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [(b"a,b\n1,2\n", 1), (b'{"a": 1}\nplain\n', 2), (b'[\n {"a": 1}\n]\n', 1), (b"\x1f\x8b\x08\xff\x00", 1)],
)
def test_a_file_that_is_no_json_lines_is_one_line(tmp_path: Path, text: bytes, line: int) -> None:
    path = tmp_path / "events"
    path.write_bytes(text)
    with pytest.raises(DemoError) as caught:
        records.from_file(path)
    assert str(caught.value).startswith(f"line {line} of {path} is no JSON; give a file with a JSON value in each line")
    assert "\n" not in str(caught.value)


def test_the_legend_explains_each_number() -> None:
    headings = table([Outcome.of("c", "x", {"a"}, {"a"}, deliveries=1)]).splitlines()[0].split()
    assert headings[2:] == [line.split()[0] for line in LEGEND.splitlines() if not line.startswith(" ")]


def test_packages_and_their_dependencies(spark: SparkSession, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(DPKG_STATUS)
    found = objects(transform.messages(spark, records.Records(dpkg_status=status)))
    assert {
        "package:bash:amd64",
        "package:base-files:all",
        "dependency:bash:amd64:0",
        "dependency:bash:amd64:1",
    } == set(found)
    bash = found["package:bash:amd64"]
    assert (
        bash["version"],
        bash["kilobytes"],
        bash["description"],
    ) == ("5.2.15", 7164, "GNU Bourne Again SHell")
    assert found["package:base-files:all"]["needed_by"] == 1
    expected = {
        "id": "dependency:bash:amd64:1",
        "package": "bash:amd64",
        "needs": "debianutils",
        "has_alternatives": True,
    }
    assert expected == found["dependency:bash:amd64:1"]
    assert found["dependency:bash:amd64:0"]["version"] == ">= 2.1.12"


def test_commits_and_what_they_changed(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(GIT_LOG)
    found = objects(transform.messages(spark, records.Records(git_log=log)))
    assert {"commit:1111", "commit:2222", "change:1111:README.md", "change:1111:logo.png"} == set(found)
    first = found["commit:1111"]
    assert (first["subject"], first["files"], first["added"]) == ("First: a\tstart", 2, 3)
    assert "files" not in found["commit:2222"]
    assert "added" not in found["change:1111:logo.png"]


def test_lines_of_the_users(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text('{"a": [1]}\n\nplain\n{"broken\n')
    found = list(objects(transform.messages(spark, records.Records(events=path))).values())
    assert [one["event"] for one in found if "event" in one] == [{"a": [1]}]
    assert [one["text"] for one in found if "text" in one] == ["plain", '{"broken']
    assert len({one["id"] for one in found}) == 3
