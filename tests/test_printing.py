"""What of a foreign text reaches a terminal or a log."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw import foreign_text

ROOT = Path(__file__).parent.parent
BIDI = {"\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
BEYOND_ASCII = "日本語　è👩\u200d🚀\u00a0"
"""Letters, an emoji of several characters, and spaces that are no controls."""


def is_dangerous(character: str) -> bool:
    """Whether a character controls a terminal, ends a line, or changes the order of others."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in BIDI


@pytest.mark.parametrize("number", [*range(0x100), 0x61C, *range(0x2000, 0x2070), 0xD800, 0xDFFF, 0xFEFF])
def test_what_controls_a_terminal_is_escaped(number: int) -> None:
    character = chr(number)
    shown = foreign_text.one_line(f"a{character}b")
    assert (shown == f"a{character}b") is not is_dangerous(character)
    assert foreign_text.printable(character) == (character if character in "\t\n" else shown[1:-1])


def test_other_text_stays_as_it_is() -> None:
    assert foreign_text.one_line(BEYOND_ASCII) == foreign_text.printable(BEYOND_ASCII) == BEYOND_ASCII


@given(st.text())
def test_json_is_the_same_value_and_controls_nothing(text: str) -> None:
    shown = foreign_text.json_text({"body": [text]}, indent=2)
    assert json.loads(shown) == {"body": [text]}
    assert not [character for character in shown if is_dangerous(character) and character != "\n"]


@pytest.mark.parametrize(
    "line",
    [
        "print('x')",
        "sys.stdout.write('x')",
        "sys.stderr.buffer.write(b'x')",
        "from sys import stdout",
        "click.echo('x')",
        "traceback.print_exc()",
        "from rich.text import Text; Text('x')",
    ],
)
def test_no_other_module_can_write(line: str) -> None:
    """ruff refuses it, with the settings of the project."""
    module = f"import sys, traceback\nimport click\n\n{line}\n"
    words = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select=T20,TID251", "--stdin-filename"]
    for path, is_refused in (("nsqtw/cli/new.py", True), ("nsqtw/printing.py", False), ("tests/new.py", False)):
        done = subprocess.run([*words, path, "-"], input=module, capture_output=True, text=True, cwd=ROOT)
        assert ("TID251" in done.stdout or "T201" in done.stdout) is (
            is_refused or ("print('" in line and "tests" not in path)
        )


PROGRAMS = [
    "nsqd",
    "nsqlookupd",
    "nsqadmin",
    "nsqtw",
    "nsq_stat",
    "nsq_tail",
    "nsq_to_file",
    "nsq_to_http",
    "nsq_to_nsq",
]


@pytest.mark.parametrize("program", [*PROGRAMS, "to_nsq"])
def test_a_version_that_cannot_be_written_is_one_line(program: str) -> None:
    with open("/dev/full", "wb") as full:
        words = [Path(sys.executable).with_name(program), "--version"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "stdout cannot be written: no space left on device" in done.stderr


@pytest.mark.parametrize("program", [*PROGRAMS, "to_nsq"])
def test_a_stderr_that_cannot_be_written_is_no_traceback(program: str) -> None:
    with open("/dev/full", "wb") as full:
        words = [Path(sys.executable).with_name(program), "--no-such-flag"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_help_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        words = [Path(sys.executable).with_name("nsqtw"), "--help"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "nsqtw: stdout cannot be written: no space left on device\n")


def test_exceptions_from_that_are_few() -> None:
    """Each of them has its reason beside it."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "nsqtw").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if "noqa: T" in line
    ]
    assert found == [
        "nsqtw/cli/output.py",
        "nsqtw/cli/output.py",
        "nsqtw/daemon/process.py",
        "nsqtw/tools/backup/copy.py",
    ]
