"""Log lines in nsqd's format."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from twisted.logger import Logger, LogLevel

from nsqtw.net.log import LineLog, log_line
from nsqtw.option_values import LEVELS
from nsqtw.options import Options

TIME = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def logger(lines: list[str]) -> Callable[..., Logger]:
    def make(namespace: str = "nsqtw.net.tcp", **options: object) -> Logger:
        return Logger(namespace, observer=LineLog(lines.append, Options(**options)))

    return make


def test_a_line_has_prefix_local_time_with_microseconds_and_level() -> None:
    line = log_line("[nsqd] ", 1_800_000_000.000125, "INFO", "ID: 617")
    assert re.fullmatch(r"\[nsqd\] 2027/01/1\d \d\d:\d\d:00\.000125 INFO: ID: 617\n", line)


def test_events_are_lines_with_nsqds_words_for_levels(logger: Callable[..., Logger], lines: list[str]) -> None:
    log = logger(log_level=LEVELS["debug"], log_prefix="[b] ")
    for level in LogLevel.iterconstants():
        log.emit(level, "TCP: listening on {address}", address="127.0.0.1:4150")
    words = ("DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
    assert len(lines) == len(words)
    for line, word in zip(lines, words, strict=True):
        assert re.fullmatch(rf"\[b\] {TIME} {word}: TCP: listening on 127\.0\.0\.1:4150\n", line)


@pytest.mark.parametrize(("level", "count"), [("debug", 5), ("info", 4), ("warn", 3), ("error", 2), ("fatal", 1)])
def test_what_is_below_the_level_is_left_out(
    logger: Callable[..., Logger], lines: list[str], level: str, count: int
) -> None:
    log = logger(log_level=LEVELS[level])
    for each in LogLevel.iterconstants():
        log.emit(each, "x")
    assert len(lines) == count


def test_the_level_can_change_at_any_time(lines: list[str]) -> None:
    options = Options(log_level=LEVELS["error"])
    log = Logger("nsqtw.x", observer=LineLog(lines.append, options))
    log.info("not this")
    options.log_level = LEVELS["info"]
    log.info("but this")
    assert [line.rpartition(": ")[2] for line in lines] == ["but this\n"]


def test_twisted_says_nothing_of_itself_but_warnings(logger: Callable[..., Logger], lines: list[str]) -> None:
    log = logger("twisted.internet.tcp")
    log.info("Starting factory")
    log.warn("something is odd")
    assert [line.rpartition(": ")[2] for line in lines] == ["something is odd\n"]


def test_a_peer_cannot_write_lines_of_its_own(logger: Callable[..., Logger], lines: list[str]) -> None:
    logger().info("bad protocol magic '{magic}'", magic="\n\x1b[1m\0")
    assert len(lines) == 1
    assert lines[0].endswith(" INFO: bad protocol magic '\\n\\x1b[1m\\x00'\n")


def test_an_unexpected_failure_keeps_its_traceback(logger: Callable[..., Logger], lines: list[str]) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        logger().failure("while serving")
    assert " FATAL: while serving\nTraceback" in lines[0]
    assert "KeyError: 'gone'" in lines[0]
