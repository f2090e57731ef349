"""The spool against a model, a list of rows: appended, read, forgotten, opened again, also after a crash."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pyspark_nsq.channel import spool as spool_module
from pyspark_nsq.channel.spool import Spool, read_spans
from pyspark_nsq.errors import SpoolError

from tests.spark.spans import frame, rows_of, span_of

WINDOW = 1_000
NSQDS = ("a:1", "b:1")
deliveries = st.lists(
    st.tuples(st.sampled_from(NSQDS), st.lists(st.integers(0, 60), min_size=1, max_size=6)), min_size=1, max_size=4
)


class SpoolMachine(RuleBasedStateMachine):
    """`rows` has all that was ever appended, by number; `known` the ids and when they came."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="channel-spool-"))
        self.path = str(self.folder / "spool")
        self.now = 10 * WINDOW
        self.rows: list[tuple[str, bytes, bytes]] = []
        self.known: dict[tuple[str, int], int] = {}
        self.forgotten = 0
        self.patches = [
            mock.patch.object(spool_module, "_SEGMENT_ROWS", 4),
            mock.patch("pyspark_nsq.channel.segment._INDEX_STEP", 1),
        ]
        for patch in self.patches:
            patch.start()
        self.spool = Spool.open(self.path)
        self.uuid = self.spool.uuid

    def teardown(self) -> None:
        self.spool.close()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.folder)

    @rule(groups=deliveries)
    def append(self, groups: list[tuple[str, list[int]]]) -> None:
        self.now += 1
        spans, fresh = [], 0
        by_nsqd: dict[str, list[int]] = {}
        for nsqd, numbers in groups:
            spans.append(span_of(nsqd, [frame(b"%016x" % one, b"%d at %d" % (one, self.now)) for one in numbers]))
            by_nsqd.setdefault(nsqd, []).extend(numbers)
        for nsqd, numbers in by_nsqd.items():
            for one in numbers:
                if (nsqd, one) not in self.known:
                    self.known[nsqd, one] = self.now
                    self.rows.append((nsqd, b"%016x" % one, b"%d at %d" % (one, self.now)))
                    fresh += 1
        assert fresh == self.spool.append(spans, self.now)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.forgotten = data.draw(st.integers(self.forgotten, len(self.rows)), "up to")
        self.spool.forget(self.forgotten, self.now - WINDOW)

    @precondition(lambda self: self.forgotten == len(self.rows))
    @rule()
    def outlive_the_window(self) -> None:
        """All is forgotten, so all ids are."""
        self.now += 2 * WINDOW
        self.spool.forget(self.forgotten, self.now - WINDOW)
        self.known.clear()

    @rule()
    def open_again(self) -> None:
        self.spool.close()
        self.spool = Spool.open(self.path)

    @rule(rest=st.binary(max_size=80), keeps=st.integers(0, 200))
    def crash(self, rest: bytes, keeps: int) -> None:
        """While it appended: some of a record is at the end, or something else."""
        segment = max((self.folder / "spool").glob("*.segment"))
        size = segment.stat().st_size
        self.spool.append([span_of("a:1", [frame(b"f" * 16, b"of the crash")])], self.now)
        whole = segment.read_bytes()
        self.spool.close()
        for newer in (self.folder / "spool").iterdir():
            if newer.suffix == ".segment" and newer.name > segment.name:
                newer.unlink()
                segment.with_suffix(".ids").unlink()
        kept = whole[: min(size + keeps, len(whole) - 1)]
        segment.write_bytes(kept if (kept + rest).startswith(whole) else kept + rest)
        self.spool = Spool.open(self.path)

    @rule()
    def another_cannot_be_taken_for_it(self) -> None:
        try:
            list(read_spans(self.path, "0" * 32, self.forgotten, len(self.rows)))
        except SpoolError as error:
            assert "is another one" in str(error)
        else:
            raise AssertionError("read")

    @invariant()
    def it_has_the_rows(self) -> None:
        assert (self.uuid, len(self.rows)) == (self.spool.uuid, self.spool.end)
        assert self.forgotten + 1 == self.spool.first()
        kept = self.rows[self.forgotten :]
        for spans in (
            self.spool.spans(self.forgotten, len(self.rows)),
            read_spans(self.path, self.uuid, self.forgotten, len(self.rows)),
        ):
            found = rows_of(spans)
            assert kept == [(row.nsqd, row.id, row.body) for row in found]
            assert list(range(self.forgotten + 1, len(self.rows) + 1)) == [row.seq for row in found]
        assert sum(34 + len(body) for _, _, body in kept) == self.spool.frame_bytes

    @invariant()
    def any_part_is_the_same_part(self) -> None:
        middle = (self.forgotten + len(self.rows)) // 2
        some = [body for _, _, body in self.rows[middle : middle + 3]]
        assert some == [row.body for row in rows_of(self.spool.spans(middle, middle + len(some)))]
        fitting = self.spool.fit(middle, len(self.rows), 20)
        total, expected = 0, middle
        for _, _, body in self.rows[middle:]:
            total += len(body)
            if total > 20 and expected > middle:
                break
            expected += 1
        assert expected == fitting


TestSpool = SpoolMachine.TestCase
TestSpool.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
