"""
Repair against the broker's own recovery: whatever is damaged, a broker delivers after a repair what it would have
delivered without, or more.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from nsqtw.errors import NsqtwError
from nsqtw.tools.fsck.data_path import check_data_path
from nsqtw.tools.fsck.repair import repair
from tests.backends.data_path import spoil
from tests.tools.fsck.data_path import Stored, content, copy_of, delivered, findings, repair_path, whats

CHANNELS = ("c", "d")
OPTIONS = {"max_bytes_per_file": 700, "mem_queue_size": 10}

STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 6), st.integers(0, 200)),
    st.tuples(st.just("defer"), st.integers(1, 3), st.integers(0, 50)),
    st.tuples(st.just("direct"), st.sampled_from(CHANNELS), st.sampled_from([0, 60_000])),
    st.tuples(st.just("finish"), st.sampled_from(CHANNELS), st.integers(1, 8)),
    st.tuples(st.just("hold"), st.sampled_from(CHANNELS), st.integers(1, 4)),
    st.tuples(st.just("save")),
    st.tuples(st.just("empty"), st.sampled_from(CHANNELS)),
)
DAMAGE = st.tuples(
    st.sampled_from(["flip", "flip", "flip", "cut", "remove", "junk", "zero"]),
    st.integers(0, 99),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 7),
)


def live(directory: Path, steps: list[tuple], *, clean: bool) -> Path:
    """Play a broker's life; the data path it leaves."""
    broker = Stored(directory, **OPTIONS)
    for channel in CHANNELS:
        broker.channel(channel)
    broker.save()
    number = 0
    for step in steps:
        if step[0] in ("put", "defer"):
            for _ in range(step[1]):
                broker.put(b"%d " % number + b"." * step[2], delay_ms=60_000 if step[0] == "defer" else 0)
                broker.turn()
                number += 1
        elif step[0] == "direct":
            broker.topic().put([b"%d to one" % number], step[2], lambda error: None, None, step[1])
            broker.turn()
            number += 1
        elif step[0] == "save":
            broker.save()
        elif step[0] == "empty":
            broker.channel(step[1]).empty()
        else:
            reader = broker.reader(step[1], ready=step[2])
            ids = [message.id for message in reader.read()]
            if step[0] == "finish":
                reader.finish(*ids)
            reader.leave()
    if clean:
        broker.stop()
        return directory
    left = copy_of(directory, directory.with_name("left"))
    broker.close()
    return left


def damage(directory: Path, kind: str, which: int, where: float, bit: int) -> None:
    """Do something bad to one of the files."""
    names = [name for name in content(directory) if not name.endswith("-shm")]
    logs = [name for name in names if name.endswith(".log")]
    of_kind = names if which % 3 == 0 or not logs else logs
    path = directory / of_kind[which // 3 % len(of_kind)]
    data = bytearray(path.read_bytes())
    position = int(where * len(data))
    if kind == "remove":
        path.unlink()
        return
    if kind == "flip" and data:
        data[position] ^= 1 << bit
    elif kind == "cut":
        del data[position:]
    elif kind == "zero":
        data[position : position + 64] = bytes(len(data[position : position + 64]))
    elif kind == "junk":
        data += os.urandom(bit + 1) * 9
    path.write_bytes(data)


def started(directory: Path) -> dict | None:
    """What is delivered; None when a broker does not start."""
    try:
        return delivered(directory, *CHANNELS, **OPTIONS)
    except NsqtwError:
        return None


MANY_FILES = [("put", 6, 100), ("finish", "c", 4), ("hold", "c", 2), ("defer", 2, 5), ("put", 6, 100), ("save",)]


@settings(max_examples=60)
@given(steps=st.lists(STEP, max_size=12), damages=st.lists(DAMAGE, max_size=4), clean=st.booleans())
@example(steps=[], damages=[("flip", 1, 0.5, 0), ("flip", 4, 0.9, 0)], clean=False)
@example(steps=[], damages=[("remove", 4, 0, 0), ("cut", 5, 0.0, 0)], clean=True)
@example(steps=[("direct", "c", 0), ("direct", "d", 60_000), ("put", 1, 9), ("save",)], damages=[], clean=False)
@example(steps=[("direct", "c", 0), ("put", 3, 9), ("save",)], damages=[("flip", 10, 0.6, 3)] * 2, clean=False)
def test_a_repair_loses_nothing_that_would_have_been_delivered(steps, damages, clean) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "data").mkdir()
        directory = live(Path(scratch) / "data", MANY_FILES + steps, clean=clean)
        for one in damages:
            damage(directory, *one)
        found = findings(directory)
        if not damages:
            assert set(whats(found)) <= {"stray file", "torn tail"}
            assert not (clean and found)
        before = started(directory)
        repair_path(directory)
        after = started(directory)
        event(f"starts: {before is not None}, then {after is not None}; something found: {bool(found)}")
        if before is not None:
            assert after is not None
            for channel in CHANNELS:
                assert after[channel] >= before[channel], channel


def damage_every_kind(directory: Path) -> None:
    """Something for every step of a repair."""
    logs = sorted(directory.glob("t/*.log"))
    for path, position in ((logs[0], -1), (logs[1], 100), (logs[1], 20)):
        spoil(path, position if position >= 0 else path.stat().st_size + position)
    os.truncate(logs[-1], logs[-1].stat().st_size - 3)
    (logs[0].parent / f"{(1 << 53) - 1:014x}.log").write_bytes(b"just begun")
    logs[1].with_suffix(".index").write_bytes(b"wrong")
    (directory / "nsqd.dat.5.tmp").touch()
    (directory / "t.deleted.0").mkdir()
    (directory / "t.deleted.0" / "a.log").touch()


def test_a_repair_that_is_interrupted_anywhere_loses_nothing_either(tmp_path: Path) -> None:
    """It stops before any call that changes something, as if the machine had stopped there, and is run again."""
    (tmp_path / "data").mkdir()
    directory = live(tmp_path / "data", MANY_FILES, clean=False)
    damage_every_kind(directory)
    before = started(directory)
    assert before is not None
    for calls in range(1000):
        broken = copy_of(directory, tmp_path / str(calls))
        left = [calls]
        with pytest.MonkeyPatch.context() as patched:
            for name in ("rename", "link", "unlink", "pwritev", "ftruncate", "rmdir"):
                patched.setattr(os, name, stopping(getattr(os, name), left))
            with suppress(Stopped):
                repair(check_data_path(str(broken)))
        between = started(broken)
        repair_path(broken)
        after = started(broken)
        assert between is not None and after is not None
        for channel in CHANNELS:
            assert between[channel] >= before[channel], (calls, channel)
            assert after[channel] >= before[channel], (calls, channel)
        if left[0]:
            break
    assert 10 < calls < 999


class Stopped(BaseException):
    """The machine stopped."""


def stopping(call, left: list[int]):
    """`call` until `left` is used up."""

    def limited(*args, **named):
        if not left[0]:
            raise Stopped
        left[0] -= 1
        return call(*args, **named)

    return limited
