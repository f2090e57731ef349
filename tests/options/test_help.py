"""What people read of the options: --help, the tables in the docs, and the man page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nsqtw.options.broker import BY_FLAG, TABLE
from nsqtw.options.command_line import OTHER_FLAGS
from nsqtw.options.help import man_page, options_table, pages, usage

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.plain  # the pages lie beside the tree's modules
@pytest.mark.parametrize("page", ["configuration.md", "nsqd.1"])
def test_the_pages_in_the_docs_are_up_to_date(page: str) -> None:
    """Brought up to date by: python -m nsqtw.options.help"""
    path = ROOT / "docs/reference" / page
    assert pages()[path] == path.read_text("utf-8")


@pytest.mark.plain  # the pages lie beside the tree's modules
@pytest.mark.process
def test_bringing_pages_up_to_date_that_are_writes_none() -> None:
    before = {path: path.stat().st_mtime_ns for path in pages()}
    command = [sys.executable, "-m", "nsqtw.options.help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_usage_has_every_flag_in_nsqds_layout() -> None:
    text = usage("nsqd")
    assert text.startswith("Usage of nsqd:\n")
    shown = re.findall(r"^  -(\S+)", text, re.MULTILINE)
    assert shown == sorted([*BY_FLAG, *OTHER_FLAGS])
    assert (
        "  -tcp-address string\n    \taddress for TCP clients (must be host:port, or the path of a unix socket, "
        in text
    )
    assert '(default "0.0.0.0:4150")\n' in text
    assert "  -msg-timeout duration\n" in text
    assert "(default 1m0s)\n" in text
    assert "  -deflate\n    \tallow deflate compression (default true)\n" in text


@pytest.mark.parametrize("empty", ["broadcast-tcp-port", "data-path", "statsd-exclude-ephemeral"])
def test_usage_leaves_out_defaults_that_say_nothing(empty: str) -> None:
    _, _, entry = usage("nsqd").partition(f"  -{empty}")
    assert "default" not in entry.partition("\n  -")[0]


def test_the_table_has_a_row_for_every_option() -> None:
    rows = options_table().splitlines()
    assert rows[:2] == ["| flag | config key | kind | default | reload | meaning |", "|---|---|---|---|---|---|"]
    assert [row.split("`")[1] for row in rows[2:]] == [f"--{option.flag}" for option in TABLE]


def test_the_man_page_has_every_flag_and_key() -> None:
    page = man_page()
    assert page.startswith('.TH NSQD 1 "" nsqtw "User Commands"\n.SH NAME\nnsqd - ')
    for flag in [*BY_FLAG, *OTHER_FLAGS]:
        assert f"\n.TP\n\\fB\\-\\-{flag.replace('-', chr(92) + '-')}\\fR" in page
    for option in TABLE:
        assert f"\nConfig key {option.key}" in page
    assert not re.search(r"^\.(?!TH|SH|B |TP|PP|nf|fi)", page, re.MULTILINE)
