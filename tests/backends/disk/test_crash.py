"""
Crashes at every point of a history.

A `Life` does what a broker does and notes after which step of the file layer which messages must be there. Every
prefix of the steps, and prefixes with a torn write behind them, is then what a killed process left; of a power
loss only what was synced is left. From each the log is opened, and must have what it must have, nothing that was
never written, and go on.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from nsqtw.backends.disk import trim as disk_trim
from nsqtw.backends.files import Files
from nsqtw.core.segment import Segment
from nsqtw.testing.contracts import headers, make_segment, make_segment_with_headers, messages, read_all
from nsqtw.testing.files import FaultyFiles
from tests.backends.data_path import DataPath

_SOME = 4
"""Of every so many first crashes one is taken: each has second ones."""
Messages = dict[int, tuple[int, bytes]]
Shape = tuple[int, int, int, str | None]
"""A gap, the number of messages, the size of each, and their channel; None: without headers."""


class Unhurried(Files):
    """Files that are not waited for: what a sync is good for shows in the traces."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class Life:
    """One topic's log, and what must be in it when it crashes."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.files = FaultyFiles(str(directory))
        self.path = DataPath(directory, limit, self.files)
        self.written: Messages = {}
        self.beside: dict[int, tuple[str, bytes]] = {}
        """Channel and headers of all that was written."""
        self.stored: set[int] = set()
        self.durable: set[int] = set()
        self.unproven: set[int] = set()
        """Stored, and the fsync that should have made it durable failed."""
        self.marks: list[tuple[int, frozenset[int], frozenset[int]]] = []
        self.mark()

    def mark(self) -> None:
        """From this step on a crash has to leave `stored`, a power loss `durable`."""
        self.marks.append((len(self.files.trace), frozenset(self.stored), frozenset(self.durable)))

    def commit(self, *segments: Segment, durable: bool = False) -> bool:
        self.written.update(messages(segments))
        self.beside.update(headers(segments))
        error = self.path.commit(*segments, durable=durable)
        if error is None:
            self.stored |= messages(segments).keys()
            if durable:
                self.durable = self.stored - self.unproven
            self.mark()
        return error is None

    def trim(self, below: int, keep: Iterable[int]) -> None:
        wanted = {*keep}
        self.stored = {sequence for sequence in self.stored if sequence >= below or sequence in wanted}
        self.durable &= self.stored
        self.mark()
        self.path.queue.trim(below, sorted(wanted))

    def needed(self, step: int, *, power_loss: bool) -> frozenset[int]:
        """What has to be there after so many steps."""
        stored, durable = [mark[1:] for mark in self.marks if mark[0] <= step][-1]
        return durable if power_loss else stored

    def crashes(self) -> Iterator[tuple[int, int | None]]:
        """After each step, and within each write at some bytes."""
        for step in range(len(self.files.trace) + 1):
            yield step, None
            if step < len(self.files.trace) and self.files.trace[step].operation == "write":
                size = len(self.files.trace[step].data)
                yield from ((step, torn) for torn in sorted({1, 63, 65, 100, 105, size // 2, size - 1}) if torn < size)

    def check(
        self,
        directory: Path,
        step: int,
        torn: int | None = None,
        *,
        power_loss: bool = False,
        chance: Random | None = None,
    ) -> None:
        """Crash there, open what is left, and go on with it."""
        shutil.rmtree(directory, ignore_errors=True)
        self.files.crash(str(directory), step, torn=torn, power_loss=power_loss, chance=chance)
        self.check_opened(directory, step, power_loss=power_loss)

    def check_opened(self, directory: Path, step: int, *, power_loss: bool) -> None:
        """What is left of a crash after a step is opened, has what it must have, and goes on."""
        path = DataPath(directory, self.path.limit, Unhurried())
        segments = read_all(path.queue)
        found = messages(segments)
        needed = self.needed(step, power_loss=power_loss)
        self.check_headers(segments, needed)
        assert needed <= found.keys(), f"lost {sorted(needed - found.keys())} at step {step}"
        assert found.items() <= self.written.items()
        if not power_loss:
            assert path.reports == []
        end = max(path.queue.end, max(self.written, default=0)) + 1000
        path.commit_each(make_segment(end, 3), make_segment(end + 3, 1, size=path.limit))
        path.reopen()
        assert messages(read_all(path.queue)).keys() == {*found, *range(end, end + 4)}
        path.queue.trim(end, [])
        assert set(path.sequences()) >= set(range(end, end + 4))
        path.close()

    def check_headers(self, segments: Iterable[Segment], needed: Iterable[int]) -> None:
        """All that is needed has its headers. Of what is not, a power loss may have left the frames alone."""
        beside = headers(segments)
        assert {sequence: beside[sequence] for sequence in needed}.items() <= self.beside.items()
        for sequence, (channel, encoded) in beside.items():
            assert channel == self.beside[sequence][0] and encoded in (b"", self.beside[sequence][1])


@pytest.fixture
def life(tmp_path: Path) -> Life:
    (tmp_path / "before").mkdir()
    life = Life(tmp_path / "before", 1500)
    files = life.files
    for first in range(0, 40, 2):
        assert life.commit(make_segment(first, 2, size=60), durable=first % 10 == 0)
    life.trim(20, [3, 4, 11])
    assert life.commit(*[make_segment(first, 2, size=60) for first in range(40, 60, 2)])
    files.space = 150
    assert not life.commit(make_segment(60, 2, size=90))
    files.heal()
    assert life.commit(make_segment(70, 2, size=90), durable=True)
    files.fail("sync", errno.EIO)
    assert not life.commit(make_segment(80, 2, size=70), durable=True)
    assert life.commit(make_segment(90, 2, size=90), make_segment(92, 1, size=4000), durable=True)
    life.trim(58, [4, 41])
    for first in range(100, 120, 2):
        assert life.commit(make_segment(first, 2, size=75), durable=first % 8 == 0)
    for first in range(120, 140, 2):
        channel = "c" if first % 6 == 0 else ""
        assert life.commit(make_segment_with_headers(first, 2, size=30, channel=channel), durable=first % 8 == 0)
    life.trim(138, [122])
    assert life.commit(make_segment_with_headers(140, 2), make_segment(142, 2))
    life.trim(140, [])
    for first in range(150, 170, 2):
        assert life.commit(make_segment(first, 2, size=75))
    life.path.reopen()
    assert life.commit(make_segment(200, 5), durable=True)
    return life


def test_the_history_has_all_that_can_happen(life: Life) -> None:
    """Or the tests below would show little."""
    operations = {step.operation for step in life.files.trace}
    assert operations >= {"create", "write", "truncate", "sync", "sync_directory", "rename", "unlink", "make_directory"}
    renamed_to = [step.new_path for step in life.files.trace if step.operation == "rename"]
    assert any(path.endswith("spare.tmp") for path in renamed_to)
    renamed = [step.path for step in life.files.trace if step.operation == "rename"]
    assert any(path.endswith("spare.tmp") for path in renamed)
    assert any(path.endswith(".log.tmp") for path in renamed)


@pytest.mark.histories
def test_a_kill_at_any_step_loses_nothing(life: Life, tmp_path: Path) -> None:
    """All that was committed and is wanted is there, whole; nothing is reported as damaged."""
    for step, torn in life.crashes():
        life.check(tmp_path / "after", step, torn, power_loss=False)


@pytest.mark.histories
def test_a_power_loss_at_any_step_loses_nothing_durable(life: Life, tmp_path: Path) -> None:
    """All that was committed as durable, or before something that was, is there."""
    for step in range(len(life.files.trace) + 1):
        life.check(tmp_path / "after", step, None, power_loss=True)


@pytest.mark.histories
def test_a_power_loss_that_left_some_of_what_was_not_synced(life: Life, tmp_path: Path) -> None:
    """Blocks of a file in any order, so with holes, and names without content: nothing durable is lost by it."""
    for step in range(len(life.files.trace) + 1):
        life.check(tmp_path / "after", step, power_loss=True, chance=Random(step))


@pytest.mark.histories
@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "power loss"])
def test_a_recovery_may_be_interrupted_at_any_step(life: Life, tmp_path: Path, power_loss: bool) -> None:
    """What the first crash had to leave, the second one leaves."""
    interrupted = 0
    for step, torn in [*life.crashes()][::_SOME]:
        first, second = tmp_path / "first", tmp_path / "second"
        shutil.rmtree(first, ignore_errors=True)
        chance = Random(step) if power_loss else None
        life.files.crash(str(first), step, torn=torn, power_loss=power_loss, chance=chance)
        recovering = FaultyFiles(str(first))
        DataPath(first, life.path.limit, recovering)
        for again in range(1, len(recovering.trace)):
            interrupted += 1
            shutil.rmtree(second, ignore_errors=True)
            recovering.crash(str(second), again, power_loss=power_loss)
            life.check_opened(second, step, power_loss=power_loss)
    assert interrupted


@pytest.mark.histories
@pytest.mark.parametrize("how", ["killed", "power loss", "power loss by chance"])
def test_a_last_file_that_is_freed_takes_nothing_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The topic is idle again and again, with all of its messages finished, or nearly all."""
    monkeypatch.setattr(disk_trim, "CLOSE_BYTES", 200)
    (tmp_path / "before").mkdir()
    life = Life(tmp_path / "before", 100_000)
    closed = 0
    for round_number, kept in enumerate(([], [3], [], [1, 2], [])):
        start = round_number * 100
        for first in range(start, start + 20, 2):
            assert life.commit(make_segment(first, 2, size=60), durable=first % 8 == 0)
        keep = [start + number for number in kept]
        life.trim(start + 20, keep)
        life.trim(start + 20, keep)
        closed += all(file.closed for file in life.path.queue.log.log_files)
        if round_number == 2:
            life.path.reopen()
    assert closed == 5
    for step, torn in life.crashes() if how == "killed" else ((n, None) for n in range(len(life.files.trace) + 1)):
        chance = Random(step) if how == "power loss by chance" else None
        life.check(tmp_path / "after", step, torn, power_loss=how != "killed", chance=chance)


def test_files_of_a_failed_commit_that_a_power_loss_brings_back_hide_nothing(tmp_path: Path) -> None:
    """Its directory was synced with their names in it, and one of them with what it has."""
    (tmp_path / "before").mkdir()
    life = Life(tmp_path / "before", 400)
    assert life.commit(make_segment(0), durable=True)
    for _ in range(2):
        life.files.fail("sync", errno.EIO, after=1)
    assert not life.commit(*[make_segment(first, size=900) for first in (5, 6, 7)], make_segment(8), durable=True)
    assert life.commit(make_segment(9), durable=True)
    for step in range(len(life.files.trace) + 1):
        life.check(tmp_path / "after", step, power_loss=True)


def test_the_end_of_a_file_that_a_failed_commit_had_filled_is_cut_on_stable_storage_too(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    life = Life(tmp_path / "before", 400)
    assert life.commit(make_segment(0), durable=True)
    life.files.fail("sync", errno.EIO, after=1)
    assert not life.commit(make_segment(1), make_segment(2, size=900), durable=True)
    assert life.path.backend.commit([], True) == {}
    life.files.crash(str(tmp_path / "after"), len(life.files.trace), power_loss=True)
    assert DataPath(tmp_path / "after").sequences() == [0]


def test_a_deletion_interrupted_at_any_step_is_finished(tmp_path: Path) -> None:
    """The topic is there with all it had, or is gone with its directory."""
    (tmp_path / "before").mkdir()
    life = Life(tmp_path / "before", 300)
    for first in range(5):
        life.commit(make_segment(first, 1, size=100))
    start = len(life.files.trace)
    life.path.queue.delete()
    for step in range(start, len(life.files.trace) + 1):
        directory = tmp_path / str(step)
        life.files.crash(str(directory), step)
        path = DataPath(directory)
        if step == start:
            assert path.sequences() == list(range(5))
        else:
            assert (path.sequences(), list(directory.iterdir())) == ([], [])
        path.close()


class LogAgainstModel(RuleBasedStateMachine):
    """Whatever is done in whatever order, the log has what a set of messages has."""

    directories: Path

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.may_report = False

    @initialize(limit=st.sampled_from([1, 400, 1500, 10_000]))
    def start(self, limit: int) -> None:
        self.root = self.directories / "life"
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        self.limit = limit
        self.next = 0
        self.open(self.root / "0")

    def open(self, directory: Path, before: Life | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.life = Life(directory, self.limit)
        if before is not None:
            segments = read_all(self.life.path.queue)
            found = messages(segments)
            assert found.items() <= before.written.items()
            self.life.written, self.life.beside = before.written, before.beside
            self.life.stored = set(found)
            self.life.durable = set(found)
            self.life.marks = [(0, frozenset(found), frozenset(found))]

    def segments(self, shapes: list[Shape]) -> list[Segment]:
        segments = []
        for gap, count, size, channel in shapes:
            self.next += gap
            if channel is None:
                segments.append(make_segment(self.next, count, size=size))
            else:
                segments.append(make_segment_with_headers(self.next, count, size=size, channel=channel))
            self.next += count
        return segments

    shapes = st.lists(
        st.tuples(
            st.sampled_from([0, 0, 1, 2_000_000]),
            st.integers(1, 20),
            st.sampled_from([0, 10, 60, 900]),
            st.sampled_from([None, None, "", "c"]),
        ),
        min_size=1,
        max_size=5,
    )

    @rule(shapes=shapes, durable=st.booleans())
    def commit(self, shapes: list[Shape], durable: bool) -> None:
        assert self.life.commit(*self.segments(shapes), durable=durable)

    @rule(shapes=shapes, space=st.integers(0, 3000))
    def commit_on_a_full_disk(self, shapes: list[Shape], space: int) -> None:
        self.life.files.space = space
        self.life.commit(*self.segments(shapes))
        self.life.files.heal()

    @rule(
        shapes=shapes,
        operations=st.lists(
            st.sampled_from(["sync", "write", "open", "truncate", "sync_directory", "unlink", "rename"]),
            min_size=1,
            max_size=3,
        ),
        after=st.integers(0, 2),
    )
    def commit_with_failures(self, shapes: list[Shape], operations: list[str], after: int) -> None:
        for operation in operations:
            self.life.files.fail(operation, errno.EIO, after=after)
        before = self.life.stored - self.life.durable
        if not self.life.commit(*self.segments(shapes), durable=True) and "sync" in operations:
            self.life.unproven |= before
        self.life.files.heal()
        # A recycled file that could not be cut, or must not be written any more, ends in what looks like damage.
        self.may_report |= "truncate" in operations or "sync" in operations

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        below = data.draw(st.integers(0, self.next))
        candidates = sorted(sequence for sequence in self.life.stored if sequence < below)
        keep = data.draw(st.sets(st.sampled_from(candidates), max_size=10)) if candidates else set()
        self.life.trim(below, keep)

    @rule()
    def reopen(self) -> None:
        self.life.path.reopen()

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Killed now, or a few steps ago with the last write torn, or the power fails."""
        trace = self.life.files.trace
        power_loss = data.draw(st.booleans())
        step = data.draw(st.integers(max(0, len(trace) - 12), len(trace)))
        torn = None
        if not power_loss and step < len(trace) and trace[step].operation == "write":
            torn = data.draw(st.integers(0, len(trace[step].data)))
        before = self.life
        needed = before.needed(step, power_loss=power_loss)
        self.number += 1
        directory = self.root / str(self.number)
        before.files.crash(str(directory), step, torn=torn, power_loss=power_loss)
        before.path.close()
        self.open(directory, before)
        assert needed <= self.life.stored, f"lost {sorted(needed - self.life.stored)}"
        self.may_report |= power_loss
        assert self.life.path.reports == [] or self.may_report

    @invariant()
    def it_has_what_it_must_have(self) -> None:
        queue = self.life.path.queue
        segments = read_all(queue, 0, 5000)
        found = messages(segments)
        self.life.check_headers(segments, self.life.stored)
        assert self.life.stored <= found.keys()
        assert found.items() <= self.life.written.items()
        assert queue.first <= min(found, default=queue.end)
        assert queue.end == max(found, default=queue.end - 1) + 1
        for start in (*list(found)[::17], self.next):
            assert read_all(queue, start, 1)[:1] == [] or messages(read_all(queue, start, 700)).keys() >= {
                sequence for sequence in found if sequence >= start
            }

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.path.close()


@pytest.mark.histories
def test_a_log_against_a_model(tmp_path: Path) -> None:
    """Commits, failures, trims, restarts, crashes."""
    LogAgainstModel.directories = tmp_path
    run_state_machine_as_test(
        LogAgainstModel, settings=settings(max_examples=60, stateful_step_count=25, deadline=None)
    )
