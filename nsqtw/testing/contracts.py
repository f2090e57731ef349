"""
What every backend must do, as tests. Whoever writes one runs them like this, with pytest:

    from nsqtw.testing.contracts import BackendContract

    class TestMine(BackendContract):
        def make_backend(self, directory):
            return MyBackend(directory)

`FailingCommitContract` is for those that can be made to fail, `PositionsContract` for `IPositions`. For
readable failures put `pytest.register_assert_rewrite("nsqtw.testing.contracts")` into a conftest.py.
docs/plugins.md shows a backend with its tests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from math import inf
from operator import attrgetter
from pathlib import Path

import pytest
from zope.interface.verify import verifyObject

from nsqtw.core.cut import Cut, HeldRow, HeldRun, Saved, SavedCursor, SavedTopic, Waiting
from nsqtw.core.held import BEFORE_ALL, all_rows
from nsqtw.core.segment import Segment, encode
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend, IBackendQueue, IPositions

PUBLISHED_NS = 1_700_000_000_000_000_000


def make_segment(first: int, count: int = 1, size: int = 10, delay_ms: int = 0) -> Segment:
    """A segment whose messages have bodies of `size` bytes that tell them apart."""
    bodies = [(b"%d " % sequence * size)[:size] for sequence in range(first, first + count)]
    return encode(bodies, first, 1, PUBLISHED_NS, delay_ms)


def messages(segments: Iterable[Segment]) -> dict[int, tuple[int, bytes]]:
    """What is in segments: for each sequence the delay and the frame. The segments must ascend."""
    found: dict[int, tuple[int, bytes]] = {}
    above = 0
    for segment in segments:
        assert segment.first >= above, f"{segment} does not come after the sequence {above - 1}"
        above = segment.end
        for index in range(segment.count):
            found[segment.first + index] = (segment.delay_ms, segment.cut(index, index + 1))
    return found


def read_all(queue: IBackendQueue, start: int = 0, limit: int = 1000) -> list[Segment]:
    """All segments from `start` on, read as a channel reads them."""
    found: list[Segment] = []
    while some := queue.read(start, limit):
        found += some
        start = some[-1].end
    return found


class OnDirectory:
    """What all of them start with."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        """A new data path."""
        return str(tmp_path)


class BackendContract(OnDirectory):
    """The duties of `IBackend` and `IBackendQueue`."""

    persistent = True
    """Whether what was committed is there after a close and an open."""

    def make_backend(self, directory: str) -> IBackend:
        """Open the backend under test on a data path. Called again on the same one after a close."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self, directory: str) -> Iterator[IBackend]:
        backend = self.make_backend(directory)
        yield backend
        backend.close()

    @pytest.fixture
    def queue(self, backend: IBackend) -> IBackendQueue:
        return backend.queue("topic")

    def test_it_provides_the_interfaces(self, backend: IBackend, queue: IBackendQueue) -> None:
        """The backend and its queues have what the interfaces name."""
        assert verifyObject(IBackend, backend)
        assert verifyObject(IBackendQueue, queue)

    def test_a_new_queue_is_empty(self, backend: IBackend, queue: IBackendQueue) -> None:
        """Nothing is stored, and asking changes nothing."""
        assert queue.read(0, 1000) == []
        assert queue.read(5, 1000) == []
        assert (queue.first, queue.end, queue.size) == (0, 0, 0)
        assert backend.commit([], False) == {}
        assert backend.commit([], True) == {}

    def test_what_is_committed_is_read_as_it_was(self, backend: IBackend, queue: IBackendQueue) -> None:
        """Segments come back in order, with their delays and their bytes."""
        segments = [make_segment(7, 3), make_segment(10, 1, delay_ms=5000), make_segment(11, 2, size=0)]
        assert backend.commit([(queue, segments[:2])], False) == {}
        assert backend.commit([(queue, segments[2:])], False) == {}
        assert messages(read_all(queue)) == messages(segments)
        assert (queue.first, queue.end) == (7, 13)
        assert queue.size >= sum(len(segment.frames) for segment in segments)

    def test_a_read_starts_with_the_segment_that_contains_the_sequence(
        self, backend: IBackend, queue: IBackendQueue
    ) -> None:
        """A segment is given whole, also when the reader wants its last message only."""
        backend.commit([(queue, [make_segment(0, 10), make_segment(10, 10), make_segment(20, 10)])], False)
        assert queue.read(19, 1)[0].first <= 19
        assert set(range(19, 30)) <= messages(read_all(queue, 19)).keys()
        assert messages(read_all(queue, 29)).keys() >= {29}

    def test_a_gap_is_passed_over(self, backend: IBackend, queue: IBackendQueue) -> None:
        """A reader in a gap gets what comes next."""
        far = 5 << 40
        backend.commit([(queue, [make_segment(100, 2), make_segment(2_000_000, 2)])], False)
        backend.commit([(queue, [make_segment(far, 2)])], False)
        assert list(messages(read_all(queue, 102))) == [2_000_000, 2_000_001, far, far + 1]
        assert list(messages(read_all(queue, 2_000_002))) == [far, far + 1]
        assert queue.read(far + 2, 1000) == []
        assert queue.end == far + 2

    def test_a_read_is_bounded_but_never_empty(self, backend: IBackend, queue: IBackendQueue) -> None:
        """About `limit` bytes, and one segment whatever its size."""
        segments = [make_segment(number, 1, size=100) for number in range(50)]
        backend.commit([(queue, segments)], False)
        size = len(segments[0].frames)
        assert len(queue.read(0, 1)) == 1
        assert len(queue.read(0, 10 * size)) <= 11
        assert messages(read_all(queue, 0, 3 * size)) == messages(segments)

    def test_a_segment_of_5_mb(self, backend: IBackend, queue: IBackendQueue) -> None:
        """One message may be as large as it likes."""
        segments = [make_segment(0), make_segment(1, 1, size=5_000_000), make_segment(2)]
        backend.commit([(queue, segments)], False)
        assert messages(read_all(queue)) == messages(segments)
        assert messages(queue.read(1, 1)).keys() >= {1}

    def test_many_segments_in_one_commit(self, backend: IBackend, queue: IBackendQueue) -> None:
        """A commit takes what a turn brought, however many segments that is."""
        segments = [make_segment(number, 1, size=1) for number in range(3000)]
        assert backend.commit([(queue, segments)], False) == {}
        assert messages(read_all(queue, 0, 100_000)) == messages(segments)

    def test_queues_are_apart(self, backend: IBackend) -> None:
        """One commit serves several topics; each has its own sequences."""
        queues = {name: backend.queue(name) for name in ("a", "b", "..", "a.deleted.1", "a#ephemeral")}
        writes = [(queue, [make_segment(100 * n, n + 1)]) for n, queue in enumerate(queues.values())]
        assert backend.commit(writes, True) == {}
        for queue, segments in writes:
            assert messages(read_all(queue)) == messages(segments)

    def test_a_queue_opened_twice_is_the_same(self, backend: IBackend, queue: IBackendQueue) -> None:
        """What is committed through one is read through the other."""
        backend.commit([(queue, [make_segment(0, 3)])], False)
        assert list(messages(read_all(backend.queue("topic")))) == [0, 1, 2]

    def test_it_is_reopened(self, directory: str) -> None:
        """After a close and an open everything is there, or with a backend that forgets, nothing."""
        backend = self.make_backend(directory)
        segments = [make_segment(0, 5), make_segment(1000, 5, delay_ms=7)]
        backend.commit([(backend.queue("one"), segments[:1]), (backend.queue(".."), segments[1:])], False)
        backend.close()
        backend = self.make_backend(directory)
        names = sorted(backend.topics())
        kept = {name: messages(read_all(backend.queue(name))) for name in ("one", "..")}
        ends = [backend.queue(name).end for name in ("one", "..")]
        backend.close()
        if self.persistent:
            assert names == ["..", "one"]
            assert kept == {"one": messages(segments[:1]), "..": messages(segments[1:])}
            assert ends == [5, 1005]
        else:
            assert names == []
            assert kept == {"one": {}, "..": {}}
            assert ends == [0, 0]

    def test_trim_keeps_what_is_wanted(self, backend: IBackend, queue: IBackendQueue) -> None:
        """Whatever is freed, it is not from `below` on and not in `keep`; then with less, and at last with none."""
        segments = [make_segment(first, 10, size=50) for first in range(0, 500, 10)]
        for segment in segments:
            backend.commit([(queue, [segment])], False)
        everything = messages(segments)
        for below, keep in ((200, [3, 4, 77, 150]), (330, [4, 150, 200, 299]), (500, [])):
            queue.trim(below, iter(keep))
            kept = messages(read_all(queue))
            assert kept.items() <= everything.items()
            assert kept.keys() >= {*keep, *range(below, 500)}
            assert queue.end == 500
            assert queue.first <= min([*kept, queue.end])

    def test_trim_with_nothing_to_free_asks_for_nothing(self, backend: IBackend, queue: IBackendQueue) -> None:
        """What is kept may be costly to find out."""

        def never() -> Iterator[int]:
            raise AssertionError("nobody should ask")
            yield 0

        queue.trim(10, never())
        backend.commit([(queue, [make_segment(10, 10)])], False)
        queue.trim(10, never())
        assert list(messages(read_all(queue))) == list(range(10, 20))

    def test_the_end_never_falls(self, backend: IBackend, queue: IBackendQueue) -> None:
        """Not when everything is trimmed, and not while it is open."""
        ends = []
        for first in range(0, 100, 10):
            backend.commit([(queue, [make_segment(first, 10)])], False)
            queue.trim(first + 10, [])
            ends.append(queue.end)
        assert ends == list(range(10, 110, 10))
        assert queue.first <= queue.end

    def test_a_deleted_topic_is_gone(self, directory: str) -> None:
        """Another one of its name is new, and those of similar names stay."""
        backend = self.make_backend(directory)
        queues = {name: backend.queue(name) for name in ("a", "a.deleted.0", "a.deleted.1")}
        for queue in queues.values():
            backend.commit([(queue, [make_segment(0, 5)])], False)
        queues["a"].delete()
        again = backend.queue("a")
        assert again.read(0, 1000) == []
        backend.commit([(again, [make_segment(50, 5)])], True)
        assert list(messages(read_all(again))) == list(range(50, 55))
        again.delete()
        assert list(messages(read_all(queues["a.deleted.0"]))) == list(range(5))
        backend.close()
        backend = self.make_backend(directory)
        assert backend.topics() == (["a.deleted.0", "a.deleted.1"] if self.persistent else [])
        backend.close()

    def test_an_empty_queue_can_be_deleted_and_closed(self, backend: IBackend, queue: IBackendQueue) -> None:
        """A topic may be deleted before anything was published."""
        queue.delete()
        backend.queue("another").close()
        assert backend.topics() == []

    def test_it_is_read_while_another_thread_commits_and_trims(self, backend: IBackend, queue: IBackendQueue) -> None:
        """The reader sees whole segments in order, and all that it still wants."""
        failures: list[BaseException] = []
        total = 240

        def write() -> None:
            try:
                for first in range(0, total, 2):
                    assert backend.commit([(queue, [make_segment(first, 2, size=300)])], False) == {}
                    queue.trim(min(seen), [])
            except BaseException as error:
                failures.append(error)

        seen = [0]
        writer = threading.Thread(target=write)
        writer.start()
        found: dict[int, tuple[int, bytes]] = {}
        while True:
            is_writing = writer.is_alive()
            segments = queue.read(seen[0], 2000)
            found.update(messages(segments))
            if segments:
                seen[0] = segments[-1].end
            elif is_writing:
                writer.join(0.001)
            else:
                break
        writer.join()
        assert failures == []
        assert found == messages(make_segment(first, 2, size=300) for first in range(0, total, 2))


class FailingCommitContract(OnDirectory):
    """The duties of a backend whose commits can be made to fail."""

    def make_backend(self, directory: str) -> IBackend:
        """As in `BackendContract`."""
        raise NotImplementedError

    def break_commits(self, backend: IBackend, good: int) -> None:
        """From now on let the backend store `good` queues of a commit and fail at the next one."""
        raise NotImplementedError

    def mend_commits(self, backend: IBackend) -> None:
        """Let commits succeed again."""
        raise NotImplementedError

    def test_a_failed_commit_shows_nothing_and_heals(self, directory: str) -> None:
        """Nothing of it can be read; the same can be committed when the cause is gone."""
        backend = self.make_backend(directory)
        queue = backend.queue("topic")
        before, failing, after = make_segment(0, 3), [make_segment(3, 2), make_segment(5, 2)], make_segment(7)
        backend.commit([(queue, [before])], False)
        self.break_commits(backend, 0)
        for _ in range(2):
            failed = backend.commit([(queue, failing)], False)
            assert list(failed) == [queue]
            assert isinstance(failed[queue], BackendError)
            assert messages(read_all(queue)) == messages([before])
            assert queue.end == 3
        self.mend_commits(backend)
        assert backend.commit([(queue, failing)], False) == {}
        assert backend.commit([(queue, [after])], True) == {}
        assert messages(read_all(queue)) == messages([before, *failing, after])
        backend.close()
        backend = self.make_backend(directory)
        assert messages(read_all(backend.queue("topic"))) == messages([before, *failing, after])
        backend.close()

    def test_one_queue_fails_and_the_answer_says_which(self, directory: str) -> None:
        """All or nothing for each queue: those not named in the answer are stored."""
        backend = self.make_backend(directory)
        queues = [backend.queue(name) for name in ("a", "b", "c")]
        backend.commit([(queue, [make_segment(0)]) for queue in queues], False)
        self.break_commits(backend, 1)
        failed = backend.commit([(queue, [make_segment(1, 3)]) for queue in queues], False)
        assert failed
        self.mend_commits(backend)
        for queue in queues:
            assert list(messages(read_all(queue))) == ([0] if queue in failed else [0, 1, 2, 3])
            assert queue.end == (1 if queue in failed else 4)
        assert backend.commit([(queue, [make_segment(10)]) for queue in queues], False) == {}
        assert [list(messages(read_all(queue, 4))) for queue in queues] == [[10], [10], [10]]
        backend.close()


class PositionsContract(OnDirectory):
    """The duties of `IPositions`."""

    def make_positions(self, directory: str) -> IPositions:
        """Open the positions under test on a data path. Called again on the same one, after a close or without."""
        raise NotImplementedError

    @pytest.fixture
    def positions(self, directory: str) -> Iterator[IPositions]:
        positions = self.make_positions(directory)
        positions.load()
        yield positions
        positions.close(False)

    def reopened(self, positions: IPositions, directory: str, *, clean: bool = False) -> Saved:
        """What the next process finds."""
        positions.close(clean)
        again = self.make_positions(directory)
        saved = self.loaded(again)
        again.close(False)
        return saved

    def loaded(self, positions: IPositions) -> Saved:
        """What it has, the held rows too."""
        saved: Saved = positions.load()
        for topic in saved.topics:
            for cursor in topic.cursors:
                assert cursor.held == []
                cursor.held = sorted(all_rows(positions, topic.name, cursor.name), key=attrgetter("sequence"))
        return saved

    def test_it_provides_the_interface(self, positions: IPositions) -> None:
        """It has what the interface names."""
        assert verifyObject(IPositions, positions)

    def test_a_new_data_path_has_nothing(self, directory: str) -> None:
        """No block was ever reserved, so none is known."""
        positions = self.make_positions(directory)
        assert positions.load() == Saved()
        positions.close(False)

    def test_everything_in_a_cut_is_kept(self, positions: IPositions, directory: str) -> None:
        """Each field comes back as it was saved."""
        held = [HeldRow(3, 2, 0), HeldRow(5, 65535, 1_700_000_000_000)]
        first = [8, 6, 7]
        cursors = [
            SavedCursor(
                "c1", paused=True, next=9, taken_total=8, first_deliveries=first, held=held, held_count=2, replays=12
            ),
            SavedCursor("c2#ephemeral"),
        ]
        topic = SavedTopic(
            "t",
            paused=True,
            released=(1 << 53) - 1,
            released_total=20,
            end=30,
            put_total=25,
            dropped=[(10, 12), (15, 20)],
            waiting=[Waiting(21, 3, 60_000), Waiting(25, 1, 1 << 40)],
            durability="fsync",
            retention_time=90061.5,
            retention_bytes=1 << 40,
            floor=7,
            marks=[(7, 1_700_000_000_000, 0), (30, 1_700_000_000_001, 1 << 50)],
            runs=[(7, 0), (15, 5), (30, 20)],
            cursors=cursors,
        )
        positions.save(Cut(topics=[topic, SavedTopic("empty")]))
        saved = self.reopened(positions, directory)
        assert saved == Saved(topics=[topic, SavedTopic("empty")])

    def test_a_cut_changes_only_what_is_in_it(self, positions: IPositions, directory: str) -> None:
        """Topics and cursors that are not named stay; held rows come as differences."""
        rows = [HeldRow(sequence, 1, 0) for sequence in (1, 2, 3)]
        cursors = [SavedCursor("c", next=5, held=rows, held_count=3), SavedCursor("d", next=4)]
        first = SavedTopic("t", released=9, cursors=cursors)
        positions.save(Cut(topics=[first, SavedTopic("other", paused=True)]))
        change = SavedCursor("c", next=7, held=[HeldRow(2, 5, 8), HeldRow(6, 1, 0)], dropped_rows=[1, 99], held_count=3)
        positions.save(Cut(topics=[SavedTopic("t", released=11, cursors=[change])]))
        held = [HeldRow(2, 5, 8), HeldRow(3, 1, 0), HeldRow(6, 1, 0)]
        cursor = SavedCursor("c", next=7, held=held, held_count=3)
        topic = SavedTopic("t", released=11, cursors=[cursor, SavedCursor("d", next=4)])
        saved = self.reopened(positions, directory)
        assert saved == Saved(topics=[topic, SavedTopic("other", paused=True)])

    def test_an_emptied_channel_has_only_its_new_rows(self, positions: IPositions, directory: str) -> None:
        """Emptying comes before the rows of the same cut."""
        rows = [HeldRow(sequence, 1, 0) for sequence in range(5)]
        positions.save(Cut(topics=[SavedTopic("t", cursors=[SavedCursor("c", held=rows, held_count=5)])]))
        emptied = SavedCursor("c", next=9, held=[HeldRow(8, 1, 0)], emptied=True, held_count=1)
        positions.save(Cut(topics=[SavedTopic("t", cursors=[emptied])]))
        saved = self.reopened(positions, directory)
        assert saved.topics[0].cursors == [SavedCursor("c", next=9, held=[HeldRow(8, 1, 0)], held_count=1)]

    def test_a_channel_that_was_moved_has_no_rows_beyond_the_place_but_new_ones(
        self, positions: IPositions, directory: str
    ) -> None:
        """Removing them comes before the rows of the same cut. Other channels keep theirs."""
        rows = [HeldRow(sequence, 1, 0) for sequence in range(5)]
        cursors = [SavedCursor(name, held=rows, held_count=5) for name in "cd"]
        positions.save(Cut(topics=[SavedTopic("t", cursors=cursors)]))
        assert [positions.count_held_below("t", "c", sequence) for sequence in (0, 3, 9)] == [0, 3, 5]
        moved = SavedCursor("c", next=3, held=[HeldRow(8, 1, 0)], forgotten_from=3, held_count=4)
        positions.save(Cut(topics=[SavedTopic("t", cursors=[moved])]))
        assert positions.count_held_below("t", "c", 9) == 4
        saved = self.reopened(positions, directory)
        kept = [*rows[:3], HeldRow(8, 1, 0)]
        assert saved.topics[0].cursors == [SavedCursor("c", next=3, held=kept, held_count=4), cursors[1]]

    def test_deleted_and_born_again_in_one_cut(self, positions: IPositions, directory: str) -> None:
        """Deletions come first; nothing of the old one is left; unknown names do no harm."""
        held = [HeldRow(1, 1, 0)]
        old = [SavedCursor(name, next=5, held=held, held_count=1, first_deliveries=[4]) for name in "xy"]
        positions.save(Cut(topics=[SavedTopic("gone", cursors=old), SavedTopic("t", cursors=old)]))
        positions.save(
            Cut(
                deleted_topics=["gone", "never"],
                deleted_channels=[("t", "x"), ("t", "never"), ("never", "x")],
                topics=[SavedTopic("gone", cursors=[SavedCursor("x")]), SavedTopic("t", cursors=[SavedCursor("x")])],
            )
        )
        saved = self.reopened(positions, directory)
        topics = {topic.name: {cursor.name: cursor for cursor in topic.cursors} for topic in saved.topics}
        assert topics == {"gone": {"x": SavedCursor("x")}, "t": {"x": SavedCursor("x"), "y": old[1]}}

    def test_reserved_blocks_are_kept(self, positions: IPositions, directory: str) -> None:
        """Also without any cut. A few more may be taken, as there are plenty."""
        most = (1 << 33) + 64
        positions.reserve(5)
        positions.reserve(most)
        positions.reserve(7)  # of a thread that was slower
        found = self.reopened(positions, directory).next_block
        assert found is not None and most <= found < most + 10

    def test_a_clean_stop_is_noted_once(self, positions: IPositions, directory: str) -> None:
        """The process after it has not stopped yet."""
        assert self.reopened(positions, directory, clean=True).clean_stop
        again = self.make_positions(directory)
        assert not again.load().clean_stop
        again.close(False)

    def test_unfinished_is_what_some_channel_still_wants(self, positions: IPositions) -> None:
        """Under the lowest `next`: first deliveries and held rows of all channels, each once, ascending."""
        behind = SavedCursor("behind", next=100, first_deliveries=[99, 7], held=[HeldRow(3, 1, 0), HeldRow(50, 2, 9)])
        ahead = SavedCursor("ahead", next=500, first_deliveries=[300, 7], held=[HeldRow(50, 1, 0), HeldRow(4, 1, 0)])
        positions.save(Cut(topics=[SavedTopic("t", released=600, cursors=[behind, ahead])]))
        assert self.unfinished(positions, "t") == (100, [3, 4, 7, 50, 99])
        positions.save(Cut(deleted_channels=[("t", "behind")]))
        assert self.unfinished(positions, "t") == (500, [4, 7, 50, 300])
        positions.save(Cut(topics=[SavedTopic("t", released=600, floor=50)]))
        assert self.unfinished(positions, "t") == (50, [4, 7]), "nothing is trimmed that is retained"
        positions.save(Cut(deleted_channels=[("t", "ahead")], topics=[SavedTopic("t", released=600, floor=700)]))
        assert self.unfinished(positions, "t") == (600, [])
        assert positions.unfinished("unknown") is None

    def test_unfinished_of_many_held_rows(self, positions: IPositions) -> None:
        """More than fit into one page of anything."""
        held = [HeldRow(sequence, 1, 0) for sequence in range(0, 30_000, 3)]
        cursors = [SavedCursor("c", next=20_000, held=held), SavedCursor("d", next=25_000, held=held[::2])]
        positions.save(Cut(topics=[SavedTopic("t", cursors=cursors)]))
        assert self.unfinished(positions, "t") == (20_000, list(range(0, 20_000, 3)))

    def test_held_rows_come_in_pages_by_when_they_are_due(self, positions: IPositions) -> None:
        """Then by sequence; a page starts behind a row, or behind all rows of a time."""
        rows = [HeldRow(7, 1, 0), HeldRow(9, 0, 30), HeldRow(2, 0, 30), HeldRow(5, 3, 20), HeldRow(1, 0, 1 << 47)]
        other = [HeldRow(3, 1, 25)]
        cursors = [SavedCursor("c", held=rows, held_count=5), SavedCursor("d", held=other, held_count=1)]
        positions.save(Cut(topics=[SavedTopic("t", cursors=cursors), SavedTopic("u", cursors=[SavedCursor("c")])]))
        ordered = [rows[0], rows[3], rows[2], rows[1], rows[4]]
        assert positions.held("t", "c", BEFORE_ALL, 10) == ordered
        assert positions.held("t", "c", BEFORE_ALL, 2) == ordered[:2]
        assert positions.held("t", "c", (20, 5), 2) == ordered[2:4]
        assert positions.held("t", "c", (30, 2), 9) == ordered[3:]
        assert positions.held("t", "c", (30, inf), 9) == ordered[4:]
        assert positions.held("t", "c", (inf, inf), 9) == []
        assert positions.held("t", "d", BEFORE_ALL, 9) == other
        for unknown in (("u", "c"), ("u", "x"), ("x", "c")):
            assert positions.held(*unknown, BEFORE_ALL, 9) == []
            assert positions.count_held(*unknown, BEFORE_ALL, 9) == 0

    def test_held_rows_are_counted_by_when_they_are_due(self, positions: IPositions) -> None:
        """Both ends as said: behind a row, up to a time."""
        rows = [HeldRow(sequence, 1, due_ms) for sequence, due_ms in ((1, 0), (2, 10), (4, 10), (3, 11), (5, 30))]
        positions.save(Cut(topics=[SavedTopic("t", cursors=[SavedCursor("c", held=rows, held_count=5)])]))
        counts = [positions.count_held("t", "c", BEFORE_ALL, until) for until in (0, 9, 10, 29, 30)]
        assert counts == [1, 1, 3, 4, 5]
        assert positions.count_held("t", "c", (10, 2), 11) == 2
        assert positions.count_held("t", "c", (10, inf), 11) == 1
        assert positions.count_held("t", "c", (11, inf), 11) == 0

    def test_runs_are_rows(self, positions: IPositions, directory: str) -> None:
        """Of messages that were never delivered."""
        runs = [HeldRun(10, 3, 500), HeldRun(20, 1, 400), HeldRun(30, 5000, 600)]
        positions.save(Cut(topics=[SavedTopic("t", cursors=[SavedCursor("c", runs=runs, held_count=5004)])]))
        (cursor,) = self.reopened(positions, directory).topics[0].cursors
        assert cursor.held_count == 5004
        assert cursor.held[:5] == [
            HeldRow(10, 0, 500),
            *(HeldRow(n, 0, 500) for n in (11, 12)),
            HeldRow(20, 0, 400),
            HeldRow(30, 0, 600),
        ]
        assert [row.sequence for row in cursor.held[4:]] == list(range(30, 5030))
        assert {(row.attempts, row.due_ms) for row in cursor.held[4:]} == {(0, 600)}

    def test_held_rows_are_forgotten_from_a_sequence_on(self, positions: IPositions) -> None:
        """Of one channel; the answer is how many."""
        rows = [HeldRow(sequence, 1, 50 - sequence) for sequence in range(1, 6)]
        cursors = [SavedCursor(name, held=rows, held_count=5) for name in "cd"]
        positions.save(Cut(topics=[SavedTopic("t", cursors=cursors)]))
        assert positions.forget_held("t", "c", 4) == 2
        assert positions.forget_held("t", "c", 4) == 0
        assert positions.forget_held("t", "unknown", 4) == 0
        assert positions.held("t", "c", BEFORE_ALL, 9) == rows[2::-1]
        assert positions.held("t", "d", BEFORE_ALL, 9) == rows[::-1]

    def test_delays_are_forgotten(self, positions: IPositions) -> None:
        """Of all channels; the rest of the rows stays."""
        cursors = [SavedCursor(name, held=[HeldRow(2, 7, 50), HeldRow(3, 1, 0)], held_count=2) for name in "cd"]
        positions.save(Cut(topics=[SavedTopic("t", cursors=cursors)]))
        positions.forget_delays()
        for name in "cd":
            assert positions.held("t", name, BEFORE_ALL, 9) == [HeldRow(2, 7, 0), HeldRow(3, 1, 0)]

    def test_the_shift_of_the_wall_clock_is_kept(self, positions: IPositions, directory: str) -> None:
        """Until another one is saved."""
        positions.save(Cut(wall_shift_ms=-5_000))
        positions.save(Cut(topics=[SavedTopic("t")]))
        assert self.reopened(positions, directory).wall_shift_ms == -5_000

    def unfinished(self, positions: IPositions, topic: str) -> tuple[int, list[int]]:
        """The answer of `unfinished`, read to its end."""
        answer = positions.unfinished(topic)
        assert answer is not None
        below, sequences = answer
        return below, list(sequences)
