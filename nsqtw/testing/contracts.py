"""
Contract of storage backends, as tests. Run them like this, with pytest:

    from nsqtw.testing.contracts import BackendContract

    class TestMine(BackendContract):
        def make_backend(self, directory):
            return MyBackend(directory)

`HeaderContract` is for those that provide `IHeaderBackend`, `DirectedContract` for those whose queues provide
`IDirectedQueue`, `FailingCommitContract` for those that can be made to fail; `positions_contract` is for `IPositions`.
For readable failures put `pytest.register_assert_rewrite("nsqtw.testing.contracts")` into a conftest.py.
docs/how-to/plugin-backend.md shows a backend with its tests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from zope.interface.verify import verifyObject

from nsqtw.core.segment import Segment, encode
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend, IBackendQueue, IDirectedQueue, IHeaderBackend
from nsqtw.message_headers import encode_headers

PUBLISHED_NS = 1_700_000_000_000_000_000


def make_segment(first: int, count: int = 1, size: int = 10, delay_ms: int = 0) -> Segment:
    """A segment whose messages have bodies of `size` bytes that tell them apart."""
    bodies = [(b"%d " % sequence * size)[:size] for sequence in range(first, first + count)]
    return encode(bodies, first, 1, PUBLISHED_NS, delay_ms)


def make_segment_with_headers(
    first: int, count: int = 1, size: int = 10, delay_ms: int = 0, channel: str = "", header_bytes: int = 10
) -> Segment:
    """The same with headers that tell the messages apart; every third message has none."""
    segment = make_segment(first, count, size, delay_ms)
    headers = [
        encode_headers({"sequence": str(sequence), "filler": "x" * header_bytes}) if sequence % 3 else b""
        for sequence in range(first, first + count)
    ]
    return Segment(first, count, delay_ms, segment.frames, headers if any(headers) else None, channel)


def headers(segments: Iterable[Segment]) -> dict[int, tuple[str, bytes]]:
    """Return what is beside the frames: for each sequence the channel and the encoded headers."""
    return {
        segment.first + index: (segment.channel, segment.headers_of(index))
        for segment in segments
        for index in range(segment.count)
    }


def messages(segments: Iterable[Segment]) -> dict[int, tuple[int, bytes]]:
    """Return the contents of segments: for each sequence the delay and the frame. The segments must ascend."""
    contents: dict[int, tuple[int, bytes]] = {}
    above = 0
    for segment in segments:
        assert segment.first >= above, f"{segment} does not come after the sequence {above - 1}"
        above = segment.end
        for index in range(segment.count):
            contents[segment.first + index] = (segment.delay_ms, segment.slice(index, index + 1))
    return contents


def read_all(queue: IBackendQueue, start: int = 0, limit: int = 1000) -> list[Segment]:
    """Return all segments from `start` on, read as a channel reads them."""
    segments: list[Segment] = []
    while some := queue.read(start, limit):
        segments += some
        start = some[-1].end
    return segments


class OnDirectory:
    """The common base of the backend contracts."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        """A new data path."""
        return str(tmp_path)


class OfBackend(OnDirectory):
    """A backend under test."""

    persistent = True
    """Whether committed messages survive a close and an open."""

    def make_backend(self, directory: str) -> IBackend:
        """Open the backend under test on a data path. Called again on the same one after a close."""
        raise NotImplementedError

    @pytest.fixture
    def backend(self, directory: str) -> Iterator[IBackend]:
        backend = self.make_backend(directory)
        yield backend
        backend.close()


class BackendContract(OfBackend):
    """The duties of `IBackend` and `IBackendQueue`."""

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
        """`read` returns about as many bytes as its limit says, and one segment whatever its size."""
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
        """Messages committed through one object are read through the other."""
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
        """The iterable of kept sequences may be expensive."""

        def never() -> Iterator[int]:
            raise AssertionError("nobody should ask")
            yield 0

        queue.trim(10, never())
        backend.commit([(queue, [make_segment(10, 10)])], False)
        queue.trim(10, never())
        assert list(messages(read_all(queue))) == list(range(10, 20))

    def test_the_end_never_falls(self, backend: IBackend, queue: IBackendQueue) -> None:
        """A queue has nothing to free when everything is trimmed, or while it is open."""
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
        reopened = backend.queue("a")
        assert reopened.read(0, 1000) == []
        backend.commit([(reopened, [make_segment(50, 5)])], True)
        assert list(messages(read_all(reopened))) == list(range(50, 55))
        reopened.delete()
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
        contents: dict[int, tuple[int, bytes]] = {}
        while True:
            is_writing = writer.is_alive()
            segments = queue.read(seen[0], 2000)
            contents.update(messages(segments))
            if segments:
                seen[0] = segments[-1].end
            elif is_writing:
                writer.join(0.001)
            else:
                break
        writer.join()
        assert failures == []
        assert contents == messages(make_segment(first, 2, size=300) for first in range(0, total, 2))


class HeaderContract(OfBackend):
    """The duties of a backend that provides `IHeaderBackend`."""

    @pytest.fixture
    def segments(self) -> list[Segment]:
        """All kinds: with and without headers, large headers, one message, deferred ones, for one channel."""
        return [
            make_segment(0, 3),
            make_segment_with_headers(3, 4),
            make_segment_with_headers(7, 1),
            make_segment_with_headers(8, 50, header_bytes=3000),
            make_segment(58, 2, delay_ms=700),
            make_segment_with_headers(60, 3, delay_ms=700),
            make_segment_with_headers(70, 3, channel="one"),
            Segment(73, 2, 0, make_segment(73, 2).frames, None, "another#ephemeral"),
            make_segment_with_headers(75, 500, size=200, channel="one"),
            make_segment(575, 400, size=200),
        ]

    def test_it_says_so(self, backend: IBackend) -> None:
        """The broker asks for the interface."""
        assert verifyObject(IHeaderBackend, backend)

    def test_headers_and_channels_are_read_as_they_were(self, backend: IBackend, segments: list[Segment]) -> None:
        """With the frames, whether they were committed at once or one by one."""
        one, each = backend.queue("one"), backend.queue("each")
        assert backend.commit([(one, segments)], True) == {}
        for segment in segments:
            assert backend.commit([(each, [segment])], False) == {}
        for queue in (one, each):
            found = read_all(queue)
            assert messages(found) == messages(segments)
            assert headers(found) == headers(segments)

    def test_headers_and_channels_survive(self, directory: str, segments: list[Segment]) -> None:
        """A close and an open, and what is committed afterwards, too."""
        backend = self.make_backend(directory)
        assert backend.commit([(backend.queue("topic"), segments)], False) == {}
        backend.close()
        backend = self.make_backend(directory)
        later = make_segment_with_headers(2000, 5)
        assert backend.commit([(backend.queue("topic"), [later])], False) == {}
        found = read_all(backend.queue("topic"))
        backend.close()
        kept = [*segments, later] if self.persistent else [later]
        assert messages(found) == messages(kept)
        assert headers(found) == headers(kept)

    def test_trim_keeps_headers_and_channels(self, backend: IBackend, segments: list[Segment]) -> None:
        """What is left of a segment has those that it had."""
        queue = backend.queue("topic")
        for segment in segments:
            assert backend.commit([(queue, [segment])], False) == {}
        whole, everything = headers(segments), messages(segments)
        for keep in ([1, 4, 7, 20, 61, 71, 74, 80, 300, 301], [4, 20, 71, 301], [71]):
            queue.trim(975, iter(keep))
            found = read_all(queue)
            assert headers(found).items() <= whole.items()
            assert messages(found).items() <= everything.items()
            assert messages(found).keys() >= {*keep}


class DirectedContract(HeaderContract):
    """The duties of a backend whose queues provide `IDirectedQueue`, too."""

    @pytest.mark.parametrize("trimmed", [False, True])
    def test_segments_for_one_channel_are_found(
        self, backend: IBackend, segments: list[Segment], *, trimmed: bool
    ) -> None:
        """Those that a read finds, from any place on, in any number of steps, and none of another topic."""
        queue, other = backend.queue("topic"), backend.queue("other")
        assert IDirectedQueue.providedBy(queue) and verifyObject(IDirectedQueue, queue)
        assert queue.directed(0) == ([], queue.end)
        for segment in segments:
            assert backend.commit([(queue, [segment]), (other, [segment])], False) == {}
        if trimmed:
            queue.trim(975, iter([1, 4, 71, 74, 80, 300]))
        found = read_all(queue)
        for start in (0, 71, 73, 76, 600, queue.end):
            expected = {n: s.channel for s in found if s.channel for n in range(max(start, s.first), s.end)}
            directed: dict[int, str] = {}
            place = start
            while place < queue.end:
                runs, reached = queue.directed(place)
                assert reached > place
                directed |= {n: channel for first, end, channel in runs for n in range(max(first, start), end)}
                place = reached
            assert directed == expected
            assert queue.directed(queue.end) == ([], queue.end)


class FailingCommitContract(OnDirectory):
    """The duties of a backend whose commits can be made to fail."""

    def make_backend(self, directory: str) -> IBackend:
        """Like in `BackendContract`."""
        raise NotImplementedError

    def break_commits(self, backend: IBackend, good: int) -> None:
        """Let the backend store `good` queues of each commit and fail at the next one."""
        raise NotImplementedError

    def repair_commits(self, backend: IBackend) -> None:
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
        self.repair_commits(backend)
        assert backend.commit([(queue, failing)], False) == {}
        assert backend.commit([(queue, [after])], True) == {}
        assert messages(read_all(queue)) == messages([before, *failing, after])
        backend.close()
        backend = self.make_backend(directory)
        assert messages(read_all(backend.queue("topic"))) == messages([before, *failing, after])
        backend.close()

    def test_one_queue_fails_and_the_answer_says_which(self, directory: str) -> None:
        """Each queue is stored completely or not at all: those not in the result are stored."""
        backend = self.make_backend(directory)
        queues = [backend.queue(name) for name in ("a", "b", "c")]
        backend.commit([(queue, [make_segment(0)]) for queue in queues], False)
        self.break_commits(backend, 1)
        failed = backend.commit([(queue, [make_segment(1, 3)]) for queue in queues], False)
        assert failed
        self.repair_commits(backend)
        for queue in queues:
            assert list(messages(read_all(queue))) == ([0] if queue in failed else [0, 1, 2, 3])
            assert queue.end == (1 if queue in failed else 4)
        assert backend.commit([(queue, [make_segment(10)]) for queue in queues], False) == {}
        assert [list(messages(read_all(queue, 4))) for queue in queues] == [[10], [10], [10]]
        backend.close()
