"""Log lines in nsqd's format, and as JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from twisted.logger import FileLogObserver, Logger, LogLevel

from nsqtw.daemon.logs import log_format, log_line, start_up_failure
from nsqtw.options.broker import Options
from nsqtw.options.types import LEVELS

TIME = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


class Lines(io.StringIO):
    """What was written, a call for each line."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)


@pytest.fixture
def lines(output: Lines) -> list[str]:
    return output.written


@pytest.fixture
def output() -> Lines:
    return Lines()


@pytest.fixture
def logger(output: Lines) -> Callable[..., Logger]:
    def make(namespace: str = "nsqtw.net.tcp", **options: Any) -> Logger:
        return Logger(namespace, observer=FileLogObserver(output, log_format(Options(**options))))

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


@pytest.mark.parametrize("log_format_name", ["text", "json"])
def test_the_level_can_change_at_any_time(output: Lines, lines: list[str], log_format_name: str) -> None:
    options = Options(log_level=LEVELS["error"], log_format=log_format_name)
    log = Logger("nsqtw.x", observer=FileLogObserver(output, log_format(options)))
    log.info("not this")
    options.log_level = LEVELS["info"]
    log.info("but this")
    assert len(lines) == 1
    assert "but this" in lines[0]


def test_twisted_says_nothing_of_itself_but_warnings(logger: Callable[..., Logger], lines: list[str]) -> None:
    log = logger("twisted.internet.tcp")
    log.info("Starting factory")
    log.warn("something is odd")
    assert [line.rpartition(": ")[2] for line in lines] == ["something is odd\n"]


def test_a_peer_cannot_write_lines_of_its_own(logger: Callable[..., Logger], lines: list[str]) -> None:
    logger().info("bad protocol magic '{magic}'", magic="\n\x1b[1m\0\x9b\u202e\ud800")
    assert len(lines) == 1
    assert lines[0].endswith(" INFO: bad protocol magic '\\n\\x1b[1m\\x00\\x9b\\u202e\\ud800'\n")


def test_an_unexpected_failure_keeps_its_traceback(logger: Callable[..., Logger], lines: list[str]) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        logger().failure("while serving")
    assert " FATAL: while serving\n    Traceback" in lines[0]
    assert "KeyError: 'gone'" in lines[0]


def test_a_peers_text_in_a_traceback_is_no_event(logger: Callable[..., Logger], lines: list[str]) -> None:
    try:
        raise ValueError("host\n2026/11/28 00:00:00 INFO: forged\x1b[2J\u202e")
    except ValueError:
        logger().failure("while {what}", what="a\nb")
    first, *others = "".join(lines).removesuffix("\n").split("\n")
    assert first.endswith(" FATAL: while a\\nb")
    assert all(line.startswith("    ") for line in others)
    assert others[-1] == "    2026/11/28 00:00:00 INFO: forged\\x1b[2J\\u202e"


# -- JSON


def test_json_has_time_level_and_text_and_then_the_fields(logger: Callable[..., Logger], lines: list[str]) -> None:
    logger(log_format="json", log_prefix="not in it").info("TCP: new client({client})", client="1.2.3.4:5")
    assert lines[0].endswith("}\n")
    said = json.loads(lines[0])
    assert list(said) == ["time", "level", "text", "client"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", said.pop("time"))
    assert said == {"level": "info", "text": "TCP: new client(1.2.3.4:5)", "client": "1.2.3.4:5"}


def test_json_keeps_numbers_and_shows_anything_else_as_text(logger: Callable[..., Logger], lines: list[str]) -> None:
    fields = {"count": 3, "error": ValueError("full"), "flags": ("a",), "identify": {"msg_timeout": 5}}
    logger(log_format="json").error("it is {error}", **fields)
    said = json.loads(lines[0])
    assert said["text"] == "it is full"
    assert [said[name] for name in fields] == [3, "full", ["a"], {"msg_timeout": 5}]


def test_json_calls_levels_as_the_option_does(logger: Callable[..., Logger], lines: list[str]) -> None:
    log = logger(log_format="json", log_level=LEVELS["debug"])
    for level in LogLevel.iterconstants():
        log.emit(level, "x")
    assert [json.loads(line)["level"] for line in lines] == list(LEVELS)


def test_no_field_takes_the_place_of_what_is_always_there(logger: Callable[..., Logger], lines: list[str]) -> None:
    logger(log_format="json").info("x", time="y", text="z")
    said = json.loads(lines[0])
    assert said["time"] != "y"
    assert said["text"] == "x"


def test_json_is_one_line_of_ascii_whatever_a_peer_sends(logger: Callable[..., Logger], lines: list[str]) -> None:
    magic = "\n\x1b[1m\0\x9b\u2028\u4e2d"
    logger(log_format="json").info("bad protocol magic '{magic}'", magic=magic)
    assert lines[0].isascii()
    assert lines[0].rstrip("\n").isprintable()
    assert json.loads(lines[0])["magic"] == magic


def test_json_has_the_traceback_of_an_unexpected_failure(logger: Callable[..., Logger], lines: list[str]) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        logger(log_format="json").failure("while serving")
    assert len(lines) == 1
    said = json.loads(lines[0])
    assert (said["level"], said["text"], said["error"]) == ("fatal", "while serving", "KeyError: 'gone'")
    assert said["traceback"].startswith("Traceback")


def test_of_twisted_json_keeps_the_text_alone(logger: Callable[..., Logger], lines: list[str]) -> None:
    log = logger("twisted.internet.tcp", log_format="json")
    log.info("Starting factory")
    log.warn("{what} is odd", what="something")
    (said,) = map(json.loads, lines)
    assert said.pop("time")
    assert said == {"level": "warn", "text": "something is odd"}


def test_why_there_is_no_broker_is_said_in_the_format_that_was_asked_for() -> None:
    text = start_up_failure("no\nplace", 1_800_000_000.000125, Options(log_prefix="[b] ", log_level=LEVELS["fatal"]))
    assert re.fullmatch(r"\[nsqd\] 2027/01/1\d \d\d:\d\d:00\.000125 FATAL: no\\nplace\n", text)
    said = json.loads(start_up_failure("no place", 1_800_000_000.000125, Options(log_format="json")))
    expected = {"time": "2027-01-15T08:00:00.000125+00:00", "level": "fatal", "text": "no place", "error": "no place"}
    assert said == expected
