"""The log: one sequence space over memory and backend, whatever the cache has forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.backends.dummy import DummyFactory
from nsqtw.core.log import Cache, Log
from nsqtw.core.segment import encode
from nsqtw.options.broker import Options


def new_log(limit: int) -> Log:
    backend = DummyFactory().open("", "", Options(), lambda *damage: None)
    return Log(backend, backend.queue("t"), Cache(limit))


def fill(log: Log, counts: list[int], gap: int = 0) -> list[int]:
    """Commit and append segments of so many messages; returns all sequences."""
    first, sequences = 100, []
    for count in counts:
        segment = encode([b"%d" % (first + n) for n in range(count)], first, 1, 1)
        log.backend.commit([(log.queue, [segment])], False)
        log.append([segment])
        sequences += range(first, first + count)
        first += count + gap
    return sequences


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(0, 8000), st.integers(0, 3))
def test_everything_is_found_and_following_goes_through_all_of_it(counts: list[int], limit: int, gap: int) -> None:
    log = new_log(limit)
    sequences = fill(log, counts, gap)
    for sequence in sequences:
        found = log.find(sequence)
        assert found is not None
        segment, index = found
        assert segment.first + index == sequence
        assert segment.slice(index, index + 1).endswith(b"%d" % sequence)
    walked, at = [], 0
    while segments := log.following(at):
        walked += [n for segment in segments for n in range(max(segment.first, at), segment.end)]
        at = segments[-1].end
    assert walked == sequences


def test_what_was_never_there_is_not_found() -> None:
    log = new_log(0)
    sequences = fill(log, [3, 3], gap=5)
    assert log.find(sequences[0] - 1) is None
    assert log.find(sequences[2] + 1) is None
    assert log.find(log.end) is None
    assert log.following(log.end) == []


def test_the_cache_has_one_budget_for_all_logs() -> None:
    backend = DummyFactory().open("", "", Options(), lambda *damage: None)
    cache = Cache(10_000)
    logs = [Log(backend, backend.queue(name), cache) for name in "ab"]
    for _ in range(50):
        for log in logs:
            segment = encode([b"x" * 100], log.end, 1, 1)
            backend.commit([(log.queue, [segment])], False)
            log.append([segment])
    assert cache.used <= 10_000
    assert all(log.find(0) is not None for log in logs)


def test_pinned_segments_stay_until_they_are_committed() -> None:
    log = new_log(0)
    segment = encode([b"a"], 5, 1, 1)
    log.append([segment], pinned=True)
    assert log.find(5) == (segment, 0)
    log.committed([segment])
    assert log.find(5) is None, "the backend was never given it, and the cache holds nothing"


def test_blocks_read_from_the_backend_are_shared() -> None:
    log = new_log(0)
    fill(log, [10] * 10)
    reads = []
    read = log.queue.read
    log.queue.read = lambda start, limit: reads.append(start) or read(start, limit)
    for _ in range(4):
        assert log.following(100)
    assert len(reads) == 1
