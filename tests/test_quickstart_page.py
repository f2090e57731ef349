"""The commands and programs of docs/start/quickstart.md, run against a broker."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.options.command_line import read_command_line
from tests.process import NsqdProcess, starting, wait_until

PAGE = (Path(__file__).parent.parent / "docs/start/quickstart.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [line for language, text in BLOCKS if not language for line in text.splitlines()]
TCP, HTTP = "127.0.0.1:4150", "127.0.0.1:4151"
WRITER, *READERS = PROGRAMS
CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A process that a script started in the background ignores SIGINT otherwise."""


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    with starting(tmp_path) as start:
        yield start()


def here(text: str, nsqd: NsqdProcess) -> str:
    """A command or program of the page, with this broker's ports."""
    return text.replace(TCP, f"127.0.0.1:{nsqd.tcp_port}").replace(HTTP, f"127.0.0.1:{nsqd.http_port}")


def run(text: str, nsqd: NsqdProcess, output: Path) -> subprocess.Popen[bytes]:
    """Start a program of the page, which Ctrl-C reaches as on a terminal; what it prints goes into a file."""
    with output.open("wb") as file:
        command = [sys.executable, "-W", "ignore", "-u", "-c", CTRL_C + here(text, nsqd)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)


def test_the_page_publishes_and_reads_with_two_clients() -> None:
    assert "create_writer" in WRITER
    assert [("ansq" in text, "import nsq\n" in text) for text in READERS] == [(True, False), (False, True)]
    assert "pip install ansq pynsq" in COMMANDS


@pytest.mark.parametrize("reader", READERS, ids=["ansq", "pynsq"])
def test_messages_of_the_writer_reach_the_reader_which_ctrl_c_ends(
    nsqd: NsqdProcess, tmp_path: Path, reader: str
) -> None:
    printed = tmp_path / "writer"
    assert run(WRITER, nsqd, printed).wait() == 0, printed.read_text()
    assert printed.read_text().splitlines() == [f"published {body} True" for body in ("one", "two", "three")]
    read = tmp_path / "reader"
    process = run(reader, nsqd, read)
    try:
        expected = [f"{body!r} attempt 1" for body in (b"one", b"two", b"three")]
        wait_until(lambda: read.read_text().splitlines() == expected, "the reader prints all messages")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, read.read_text()
        assert read.read_text().splitlines() == expected
    finally:
        process.kill()
        process.wait()


def test_each_curl_command_of_the_page_is_answered(nsqd: NsqdProcess) -> None:
    answered = 0
    for line in COMMANDS:
        if "curl " not in line:
            continue
        words = shlex.split(here(line, nsqd)[line.index("curl ") :])
        path = words[-1].removeprefix(f"http://127.0.0.1:{nsqd.http_port}")
        method = "POST" if "-d" in words or "--data-binary" in words else "GET"
        assert nsqd.http(method, path, b"one\ntwo" if method == "POST" else b"").status == 200, line
        answered += 1
    assert answered >= 5


def test_the_start_commands_of_the_page_have_flags_that_exist() -> None:
    starts = [shlex.split(line) for line in COMMANDS if re.match(r"nsqd |twistd ", line)]
    assert [words[0] for words in starts] == ["nsqd", "twistd"]
    for words in starts:
        flags = [word for word in words if word.startswith("--")]
        assert flags
        read_command_line(flags)
