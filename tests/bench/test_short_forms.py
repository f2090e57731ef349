"""The measurements in a form that takes seconds: every count is checked, the figures mean little."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_case_of_the_bench_counts_right() -> None:
    table = run("tests.bench", "--quick", "--v3")
    for work in (
        "MPUB 200 x 200 B",
        "SUB+FIN of a backlog, 4 channels",
        "HTTP /pub",
        "HTTP /mpub",
        "V3 PUBLISH 200 x 200 B",
        "V3 and a write for each FIN",
    ):
        assert work in table


def test_a_server_that_does_the_least_tells_what_the_machine_leaves() -> None:
    least = os.path.relpath(Path(__file__).with_name("least.py"))
    table = run("tests.bench", "--quick", "--nsqd", least, "--only", "mpub", "--only", "pub-8")
    assert "MPUB 200 x 200 B" in table and "PUB 200 B, 8 connections" in table


def test_protocols_are_measured_beside_each_other() -> None:
    words = ("--rounds", "2", "--seconds", "0.1", "--messages", "2000", "--only", "pub-8", "--only", "single-fins")
    table = run("tests.bench.beside", *words)
    rows = re.findall(r" (V3|V2|ratio) +[\d,.]+ .*", table)
    assert rows == ["V3", "V2", "ratio"] * 2 and "a write for each FIN" in table


def test_durability_is_measured_side_by_side() -> None:
    table = run("tests.bench.durability", "--quick", "--side", "dummy", "--side", "sqlite, fsync")
    head, line, *rows = [line for line in table.splitlines() if line.startswith("|")]
    assert "PUB 200 B, 64 connections" in head and set(line) <= set("| -")
    assert [row.split(" | ")[0] for row in rows] == ["| dummy", "| sqlite, fsync"]
    assert all(row.count(" ± ") == 3 for row in rows)


def test_rates_are_drawn_against_sizes_and_channels(tmp_path: Path) -> None:
    picture = tmp_path / "rates.png"
    table = run("tests.bench.sweep", "--seconds", "0.05", "--rounds", "1", "--png", str(picture))
    assert "65,536 bytes a message" in table and "16 channels" in table
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_turns_are_measured_with_what_disturbs_them() -> None:
    table = run("tests.bench.pauses", "--quick")
    for row in ("| load |", "| cursors |", "| json |", "| text |", "| generation 2 |", "ms, TurnReactor"):
        assert row in table


def test_shapes_are_measured() -> None:
    table = run("tests.bench.shapes", "--quick")
    for verdict in (
        "200 topics, to one topic",
        "of 200 idle connections",
        "with 200 topics and channels",
        "100,000 wait",
    ):
        assert verdict in table


def test_policies_are_measured() -> None:
    table = run("tests.bench.policies", "--quick")
    assert re.findall(r"^\| `json:key`, keys at random \| [\d.]+ \| [\d.]+ \|$", table, re.MULTILINE)


def test_an_ordered_channel_is_measured() -> None:
    head, line, first, *rows = run("tests.bench.order_rates", "--quick").splitlines()
    assert head == "| | V2, RDY 2,500 | V3, RDY 100 |" and line == "|---|---|---|"
    assert re.fullmatch(r"\| without order( \| [\d.]+ M/s, [\d.]+ µs){2} \|", first)
    assert len(rows) == 5 and all(re.fullmatch(r"\| `.+`, keys .+( \| [\d.]+, [\d.]+ µs){2} \|", row) for row in rows)


def test_an_nsqlookupd_is_measured_by_itself_and_beside_another() -> None:
    ours = str(Path(sys.executable).with_name("nsqlookupd"))
    rows = [line for line in run("tests.bench.lookupd", "--quick", "--peer", ours).splitlines() if line.startswith("|")]
    assert [row.split(" | ")[0] for row in rows if "3 nsqds" in row] == [
        "| 3 nsqds x 20 of 30 topics",
        "| ours",
        "| peer",
    ]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("backlog", "--messages", "50000"), id="backlog"),
        pytest.param(("poison", "--messages", "200000"), id="poison"),
    ],
)
def test_memory_and_disk_stay_bounded(case: tuple[str, ...]) -> None:
    assert "ok " in run("tests.bench.endurance", "--case", *case)


def test_memory_after_closed_connections_is_measured() -> None:
    table = run("tests.bench.connections", "--quick")
    for kind in ("sub", "pub", "tls", "snappy", "deflate", "http", "https"):
        assert f"memory after {kind}:" in table


def test_client_libraries_are_measured() -> None:
    table = run("tests.bench.clients", "--quick")
    for client in ("the generator", "ours on asyncio", "ours on Twisted", "pynsq", "gnsq", "ansq"):
        assert re.search(rf"^{client}( +[\d,]+){{3}}$", table, re.MULTILINE), table
