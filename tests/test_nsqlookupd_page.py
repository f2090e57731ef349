"""Everything docs/reference/nsqlookupd.md tells people to type does what it says, with an nsqlookupd as they run it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.lookupd.events import NAMES
from nsqtw.lookupd.v1 import MAX_BODY_BYTES, MAX_LINE_BYTES
from nsqtw.lookupd.watchers import KEEP_ALIVE_SECONDS, MAX_WAITING
from nsqtw.options.command_line import read_command_line
from nsqtw.options.lookupd import NSQLOOKUPD, NSQLOOKUPD_READER
from tests.lookupd.nsqd import FakeNsqd
from tests.process import LookupdProcess

PAGE = (Path(__file__).parent.parent / "docs/reference/nsqlookupd.md").read_text("utf-8")
HTTP = "http://127.0.0.1:4161"
OF_NSQD = {"--lookupd-tls", "--lookupd-secret-file", "--lookupd-tcp-address"}


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for word, text in found if word == language]


def commands(program: str) -> Iterator[list[str]]:
    """The words of each command line of the page that runs this program, in order."""
    for line in "".join(blocks("")).splitlines():
        words = shlex.split(line) if line.startswith(program) else [""]
        if words[0] == program:
            yield words[1:]


@pytest.fixture
def lookupd(tmp_path: Path) -> Iterator[LookupdProcess]:
    process = LookupdProcess(tmp_path)
    process.start()
    yield process
    process.close()
    process.assert_no_traceback()


def test_every_request_is_answered(lookupd: LookupdProcess) -> None:
    done = 0
    for *flags, url in commands("curl"):
        if flags == ["-N"]:
            continue
        assert flags in ([], ["-X", "POST"])
        target = url.removeprefix(HTTP)
        answer = lookupd.http("POST" if flags else "GET", target)
        assert answer.status == 200, (target, answer)
        done += 1
    assert done >= 7


def test_the_event_of_the_page_is_one(lookupd: LookupdProcess) -> None:
    (shown,) = (text for text in blocks("") if text.startswith("event: "))
    data = json.loads(shown.splitlines()[2].removeprefix("data: "))
    with FakeNsqd(lookupd.tcp_port) as nsqd:
        nsqd.register("orders")
        (producer,) = lookupd.ask("/lookup?topic=orders")["producers"]
    assert list(data["producer"]) == list(producer)
    assert list(data) == ["id", "topic", "channel", "producer"]


def test_every_event_is_described() -> None:
    (table,) = re.findall(r"^\| event \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    first_cells = "".join(line.split("|")[1] for line in table.strip().splitlines()[2:])
    assert sorted(re.findall(r"`(\w+)`", first_cells)) == sorted(NAMES.values())


def test_the_command_lines_can_be_read() -> None:
    assert [NSQLOOKUPD_READER.read_command_line(words).unread for words in commands("nsqlookupd")] == [()] * 3
    assert [read_command_line(words).unread for words in commands("nsqd")] == [()]


def test_the_config_file_has_keys_of_ours() -> None:
    (text,) = blocks("toml")
    assert set(tomllib.loads(text)) <= set(NSQLOOKUPD.by_key)


def test_the_page_names_no_flag_that_there_is_not() -> None:
    known = {f"--{flag}" for flag in [*NSQLOOKUPD.by_flag, *NSQLOOKUPD_READER.other_flags]}
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) - known - OF_NSQD == set()


def test_the_numbers_of_the_page() -> None:
    assert f"{MAX_LINE_BYTES} bytes" in PAGE
    assert f"{MAX_BODY_BYTES:,} bytes" in PAGE
    assert f"when {MAX_WAITING} changes" in PAGE
    assert f"for {KEEP_ALIVE_SECONDS:.0f} seconds" in PAGE
