"""
Every kind of damage, met by a real broker: what fsck says, what a start makes of it, what is delivered and logged; and
the same after a repair. docs/how-to/recovery.md is this table in words.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import field, frozen

from nsqtw.backends.disk.format import HEADER_BYTES, RECORD_BYTES
from nsqtw.cli.main import run_nsqtw
from nsqtw.core.segment import BODY_AT
from tests.backends.data_path import spoil
from tests.process import ForkedNsqd, NsqdProcess, wait_until
from tests.tools.fsck.data_path import content, findings, repair_path, whats

FLAGS = ("--max-bytes-per-file=2000",)
BODIES = [b"%05d" % number for number in range(60)]
RECORD = RECORD_BYTES + BODY_AT + len(BODIES[0])
IN_FILE = (2000 - HEADER_BYTES) // RECORD
"""Messages in a full file."""

FIRST, MIDDLE, LAST = BODIES[:IN_FILE], BODIES[IN_FILE : 2 * IN_FILE], BODIES[2 * IN_FILE :]


def logs(data_path: Path) -> list[Path]:
    return sorted((data_path / "t").glob("*.log"))


def record_at(number: int) -> int:
    """Where the record of that number in its file starts."""
    return HEADER_BYTES + number * RECORD


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    The data path of a killed broker with three log files: for `c` everything is new, `read` has finished everything.
    """
    nsqd = ForkedNsqd(tmp_path_factory.mktemp("whole"), *FLAGS)
    try:
        nsqd.start()
        nsqd.create("t", "c", "read")
        nsqd.publish("t", BODIES)
        nsqd.drain("t", "read", len(BODIES))
        nsqd.store()
        # New names are written a moment later.
        wait_until(lambda: b'"read"' in (nsqd.data_path / "nsqd.dat").read_bytes(), "nsqd.dat names the channels")
        nsqd.kill()
    finally:
        nsqd.close()
    assert findings(nsqd.data_path) == []
    return nsqd.data_path


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    """One that was not started yet."""
    nsqd = ForkedNsqd(tmp_path, *FLAGS)
    yield nsqd
    nsqd.close()
    assert "Traceback" not in nsqd.said()


def cut(number: int, size: int) -> Callable[[Path], None]:
    """Cut a log file at `size`, counted from its end when negative."""
    return lambda data_path: os.truncate(
        logs(data_path)[number], size if size >= 0 else logs(data_path)[number].stat().st_size + size
    )


def flipped(number: int, position: int) -> Callable[[Path], None]:
    def do(data_path: Path) -> None:
        path = logs(data_path)[number]
        spoil(path, position if position >= 0 else path.stat().st_size + position)

    return do


def missing(*names: str) -> Callable[[Path], None]:
    """Without what these patterns match."""

    def do(data_path: Path) -> None:
        for name in names:
            for path in data_path.glob(name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def missing_log(number: int) -> Callable[[Path], None]:
    return lambda data_path: logs(data_path)[number].unlink()


def written(name: str, data: bytes) -> Callable[[Path], None]:
    def do(data_path: Path) -> None:
        (data_path / name).parent.mkdir(exist_ok=True)
        (data_path / name).write_bytes(data)

    return do


def without_pages(data_path: Path) -> None:
    """A positions.db of which all but the first page went bad."""
    path = data_path / "positions.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def something_else(data_path: Path) -> None:
    """Another file in the place of positions.db."""
    missing("positions.db-*")(data_path)
    (data_path / "positions.db").write_bytes(b"something else " * 1000)


@frozen
class Case:
    """A damage, the kinds of findings, what `c` and `read` get after a start, and what the log says of it."""

    damage: Callable[[Path], None]
    found: list[str]
    delivered: list[bytes]
    logged: str | None = None
    left: list[str] = field(factory=list)
    """What is found after a repair."""
    again: list[bytes] = field(factory=list)
    """What `read` gets though it had finished it."""
    warned: str | None = None
    """What the log says that costs no message by itself."""


LOST_AT_THE_END = ["positions outside the log", "missing messages"]
CHECKSUM = "are lost: the checksum of the frames is wrong"
NO_RECORD = "are lost: no record where one should start"
GONE = r"ERROR: NSQ: /.*/positions.db {} - channels start at the oldest message kept$"
SET_ASIDE = GONE.format(r"was damaged: positions.db: .*; it is set aside as /.*/positions.db.damaged.1")
SHORTER = r"TOPIC\(t\): the log ends at \d+, positions.db knew it up to \d+; messages lost: \d+$"
BEFORE = r"are lost: some of them are in none of its files, the first of which is /.*\.log: \d+ messages?$"
PART = r"in /.*/t before /.*\.log are lost: a file, or a part of the one before, is missing: \d+ messages?$"
CUT_OFF = r"are no whole record and are cut off, and kept as /.*/damaged.d/1/t/.*\.log\.from-\d+$"
COUNTS = r"damaged records: \d+ lost, 0 of their messages kept; the file as it was is /.*/damaged.d/1/t/"
MENDED = rf"TOPIC\(t\): messages (\d+) to \1 in /.*\.log are lost: {COUNTS}.*\.log$"
REWRITTEN = rf"TOPIC\(t\): /.*\.log: {COUNTS}.*\.log$"

CASES = {
    "the last record cut short": Case(
        cut(2, -10), ["damaged record", "missing messages"], BODIES[:-1], MENDED, left=["missing messages"]
    ),
    "the last record": Case(
        flipped(2, -1), ["damaged record", "missing messages"], BODIES[:-1], MENDED, left=["missing messages"]
    ),
    "the last record cut inside its head": Case(
        lambda data_path: os.truncate(logs(data_path)[2], record_at(len(LAST) - 1) + 9),
        ["torn tail", *LOST_AT_THE_END],
        BODIES[:-1],
        SHORTER,
        left=LOST_AT_THE_END,
        warned=CUT_OFF,
    ),
    "bytes behind the last record": Case(
        lambda data_path: os.truncate(logs(data_path)[2], record_at(len(LAST)) + 100),
        ["torn tail"],
        BODIES,
        warned=r"at \d+: the last 100 bytes are no whole record and are cut off",
    ),
    "a bit of a body": Case(
        flipped(1, record_at(6) - 1),
        ["damaged record", "missing messages"],
        [*FIRST, *MIDDLE[:5], *MIDDLE[6:], *LAST],
        CHECKSUM,
        left=["missing messages"],
        warned=REWRITTEN,
    ),
    "a bit of the head of a record": Case(
        flipped(1, record_at(5)),
        ["damaged record", "missing messages"],
        [*FIRST, *MIDDLE[:5], *MIDDLE[6:], *LAST],
        NO_RECORD,
        left=["missing messages"],
        warned=REWRITTEN,
    ),
    "a bit in the middle of the last file": Case(
        flipped(2, record_at(6) - 1),
        ["damaged record", "missing messages"],
        [*FIRST, *MIDDLE, *LAST[:5], *LAST[6:]],
        MENDED,
        left=["missing messages"],
    ),
    "the last record of an older file": Case(
        flipped(1, -1),
        ["damaged record", "missing messages"],
        [*FIRST, *MIDDLE[:-1], *LAST],
        CHECKSUM,
        left=["missing messages"],
        warned=REWRITTEN,
    ),
    "the header of an older file": Case(flipped(1, 20), ["damaged header"], BODIES),
    "the header of the last file": Case(flipped(2, 20), ["damaged header"], BODIES),
    "the first file is missing": Case(
        missing_log(0), ["missing messages"], [*MIDDLE, *LAST], BEFORE, left=["missing messages"]
    ),
    "a file between is missing": Case(
        missing_log(1), ["missing messages"], [*FIRST, *LAST], PART, left=["missing messages"]
    ),
    "the last file is missing": Case(missing_log(2), LOST_AT_THE_END, [*FIRST, *MIDDLE], SHORTER, left=LOST_AT_THE_END),
    "all files are missing": Case(missing("t"), ["missing messages"], [], SHORTER, left=["missing messages"]),
    "an older file cut inside a record": Case(
        cut(1, record_at(5) + 9),
        ["damaged record", "missing messages"],
        [*FIRST, *MIDDLE[:5], *LAST],
        NO_RECORD,
        left=["missing messages"],
        warned=REWRITTEN,
    ),
    "an older file cut between records": Case(
        cut(1, record_at(5)), ["missing messages"], [*FIRST, *MIDDLE[:5], *LAST], PART, left=["missing messages"]
    ),
    "an older file is empty": Case(
        cut(1, 0), ["damaged header", "missing messages"], [*FIRST, *LAST], left=["missing messages"]
    ),
    "the last file is empty": Case(
        cut(2, 0),
        ["no record", *LOST_AT_THE_END],
        [*FIRST, *MIDDLE],
        SHORTER,
        left=LOST_AT_THE_END,
        warned="no record is whole in the last file, which is set aside as /.*/damaged.d/1/t/.*.log; 0 bytes$",
    ),
    "positions.db is missing": Case(
        missing("positions.db*"),
        ["no positions"],
        BODIES,
        GONE.format("is missing"),
        again=BODIES,
        left=["no positions"],
    ),
    "positions.db is empty": Case(
        lambda data_path: missing("positions.db-*")(data_path) or os.truncate(data_path / "positions.db", 0),
        ["no positions"],
        BODIES,
        GONE.format("is empty"),
        again=BODIES,
        left=["no positions"],
    ),
    "positions.db is something else": Case(
        something_else,
        ["damaged positions"],
        BODIES,
        SET_ASIDE,
        again=BODIES,
        left=["no positions"],
    ),
    "pages of positions.db": Case(
        without_pages, ["damaged positions"], BODIES, SET_ASIDE, again=BODIES, left=["no positions"]
    ),
    "things left lying": Case(
        lambda data_path: (
            [
                written(name, b"left")(data_path)
                for name in (
                    "t/spare.tmp",
                    "t/00000000000001.index",
                    "gone.deleted.0/00000000000001.log",
                    "nsqd.dat.5.tmp",
                )
            ]
            and None
        ),
        ["stray file"] * 2 + ["leftover"] * 2,
        BODIES,
    ),
}


def is_delivered(nsqd: NsqdProcess, case: Case) -> bool:
    """Start it; whether all channels get what they should, and more is accepted and delivered."""
    nsqd.start()
    nsqd.publish("t", [b"afterwards"])
    for channel, bodies in (("c", case.delivered), ("read", case.again)):
        got = [message.body for message in nsqd.drain("t", channel, len(bodies) + 1)]
        assert got == [*bodies, b"afterwards"], channel
    nsqd.stop()
    return True


def lost_lines(nsqd: NsqdProcess) -> list[str]:
    """What the log says of losses."""
    return [line for line in nsqd.said().splitlines() if " ERROR: " in line]


@pytest.mark.parametrize("name", CASES)
def test_a_start_with_damage(name: str, whole: Path, nsqd: NsqdProcess) -> None:
    case = CASES[name]
    shutil.copytree(whole, nsqd.data_path, dirs_exist_ok=True)
    case.damage(nsqd.data_path)
    assert whats(findings(nsqd.data_path)) == case.found
    assert is_delivered(nsqd, case)
    lines = lost_lines(nsqd)
    if case.logged is None:
        assert lines == []
    else:
        assert lines and all(re.search(case.logged, line) for line in lines), lines
    warnings = [line for line in nsqd.said().splitlines() if " WARNING: " in line]
    assert len(warnings) == (case.warned is not None)
    assert all(re.search(case.warned or "", line) for line in warnings), warnings


@pytest.mark.parametrize("name", CASES)
def test_a_start_after_a_repair(name: str, whole: Path, nsqd: NsqdProcess) -> None:
    """The same is delivered, what is missing is said until it is passed, and what was taken away is kept."""
    case = CASES[name]
    shutil.copytree(whole, nsqd.data_path, dirs_exist_ok=True)
    case.damage(nsqd.data_path)
    assert whats(repair_path(nsqd.data_path)) == case.left
    assert is_delivered(nsqd, case)
    lines = lost_lines(nsqd)
    assert bool(lines) <= bool(case.left)
    assert all(re.search("|".join((SHORTER, BEFORE, PART, GONE.format("is (missing|empty)"))), line) for line in lines)
    assert findings(nsqd.data_path) == []


def test_names_that_cannot_be_read(whole: Path, nsqd: NsqdProcess) -> None:
    """They keep a broker from starting; what positions.db knows starts without them."""
    shutil.copytree(whole, nsqd.data_path, dirs_exist_ok=True)
    written("nsqd.dat", b'{"topics":')(nsqd.data_path)
    done = subprocess.run(nsqd.command(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.search(
        r"FATAL: .*failed to parse metadata in .*nsqd.dat - unexpected end of JSON input; restore it, .*\n$",
        done.stderr,
    )
    assert whats(findings(nsqd.data_path)) == ["unreadable names"]
    assert repair_path(nsqd.data_path) == []
    assert (nsqd.data_path / "damaged.d/1/nsqd.dat").read_bytes() == b'{"topics":'
    nsqd.start()
    assert [message.body for message in nsqd.drain("t", "c", len(BODIES))] == BODIES


def test_a_running_broker_keeps_fsck_out(nsqd: NsqdProcess, capsys: pytest.CaptureFixture[str]) -> None:
    nsqd.start()
    before = content(nsqd.data_path)
    for words in ([], ["--repair"]):
        assert run_nsqtw(["fsck", str(nsqd.data_path), *words]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        reason = r"\(possibly in use by another instance of nsqd\); stop it first"
        assert re.fullmatch(rf"nsqtw fsck: failed to lock data-path: .*{reason}\n", said.err)
    assert content(nsqd.data_path) == before
    nsqd.stop()
    assert run_nsqtw(["fsck", str(nsqd.data_path)]) == 0
