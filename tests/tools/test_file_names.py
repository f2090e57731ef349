"""Names of the files of nsq_to_file."""

from __future__ import annotations

import os
import time

import pytest

from nsqtw.tools.file_names import FileNames, formatted_time, host_identifier
from nsqtw.tools.program import ToolError

NOON = time.mktime((2026, 11, 21, 7, 5, 9, 0, 0, -1))
PATTERN = "<TOPIC>.<HOST><REV>.<DATETIME>.log"


def names(topic: str = "t", pattern: str = PATTERN, datetime_pattern: str = "%H", **options: bool) -> FileNames:
    chosen = {"has_revisions": False, "is_gzip": False, **options}
    return FileNames.of_topic(topic, pattern=pattern, datetime_pattern=datetime_pattern, host="h", **chosen)


def test_times() -> None:
    assert formatted_time("%Y-%m-%d_%H:%M:%S %y %p %I %%", NOON) == "2026-11-21_07:05:09 26 AM 07 %"
    assert formatted_time("%a %A %b %B", NOON) == "Sat Saturday Nov November"
    assert formatted_time("%j%Q%", NOON) == "%j%Q%", "other letters stay"
    assert formatted_time("15 Jan 2006 MST", NOON) == "15 Jan 2006 MST", "Go's reference time is no pattern here"


def test_hosts() -> None:
    assert host_identifier("", "a.b.c") == "a"
    assert host_identifier("<SHORT_HOST>-<HOSTNAME>-x", "a.b.c") == "a-a.b.c-x"


def test_placeholders() -> None:
    plain = names()
    assert plain.with_revision(plain.at(NOON), 3) == "t.h.07.log"
    numbered = names(has_revisions=True, is_gzip=True)
    assert numbered.with_revision(numbered.at(NOON), 3) == "t.h-000003.07.log.gz"
    assert numbered.with_revision(numbered.at(NOON), 1_234_567) == "t.h-1234567.07.log.gz"
    assert names(pattern="<TOPIC>.<PID>.gz", is_gzip=True).at(NOON) == f"t.{os.getpid()}.gz"
    assert names(pattern="<TOPIC>/<TOPIC>.log").at(NOON) == "t/t.log"
    assert names("x#ephemeral", "<TOPIC>.log").at(NOON) == "x#ephemeral.log"


@pytest.mark.parametrize("options", [{"has_revisions": True}, {"has_revisions": True, "is_gzip": True}])
def test_a_pattern_needs_a_place_for_revisions(options: dict[str, bool]) -> None:
    with pytest.raises(
        ToolError, match=r"^missing <REV> in --filename-format when gzip, rotation, or work dir enabled$"
    ):
        names("t", "<TOPIC>.log", "%H", **options)


@pytest.mark.parametrize(
    ("topic", "pattern", "name"),
    [
        ("..", "<TOPIC>/x", "%2E%2E/x"),
        (".", "<TOPIC>/x", "%2E/x"),
        (".", ".<TOPIC>/x", ".%2E/x"),
        (".", "<TOPIC><TOPIC>/x", "%2E%2E/x"),
        ("..", "a/<TOPIC>", "a/%2E%2E"),
        ("..", "<TOPIC><REV>/x", "%2E%2E/x"),
        ("..", "<TOPIC>.log", "...log"),
        ("a..b", "<TOPIC>/x", "a..b/x"),
        ("...", "<TOPIC>/x", ".../x"),
        ("a", "../<TOPIC>", "../a"),
    ],
)
def test_a_topic_cannot_leave_the_directory(topic: str, pattern: str, name: str) -> None:
    made = names(topic, pattern)
    assert made.with_revision(made.at(NOON), 0) == name


def test_an_empty_time_lets_no_topic_out() -> None:
    assert names("..", "<DATETIME><TOPIC>/x", "").at(NOON) == "%2E%2E/x"
    assert names("..", "<DATETIME><TOPIC>/x", "%Y/").at(NOON) == "2026/%2E%2E/x"


@pytest.mark.parametrize(
    ("name", "is_of_topic"),
    [
        ("t.h-000000.07.log", True),
        ("t.h-1234567.23.log", True),
        ("t.h.07.log", False),
        ("t.h-00000.07.log", False),
        ("t.h-000000.7.log", False),
        ("t.h-000000.07.log.gz", False),
        ("u.h-000000.07.log", False),
        ("t.other-000000.07.log", False),
        ("tXh-000000.07.log", False),
    ],
)
def test_the_files_of_a_topic_are_told_by_their_names(name: str, is_of_topic: bool) -> None:
    assert bool(names(has_revisions=True).expression.fullmatch(name)) == is_of_topic


@pytest.mark.parametrize("datetime_pattern", ["%B %b %m %A %a %d", "%H %I %M %S %Y %y %p", "%Y/%m %Z %z %% %Q"])
def test_names_of_every_time_are_recognized(datetime_pattern: str) -> None:
    made = names("t", "<PID>/<DATETIME>.<TOPIC><REV>", datetime_pattern, has_revisions=True, is_gzip=True)
    for now in range(0, 2_000_000_000, 12_345_678):
        assert made.expression.fullmatch(made.with_revision(made.at(now), 7))


def test_a_name_with_a_higher_revision() -> None:
    assert names(has_revisions=True).renumbered("t.h-000009.07.log", 1) == "t.h-000010.07.log"
    twice = names(pattern="<REV>/<TOPIC><REV>", has_revisions=True)
    assert twice.renumbered("-000001/t-000001", 2) == "-000003/t-000003"
