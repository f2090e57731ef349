"""The backend that forgets."""

from __future__ import annotations

import pytest

from nsqtw.backends.dummy import DummyBackend, DummyFactory
from nsqtw.errors import OptionError
from nsqtw.interfaces import IBackend, IBackendQueueFactory
from nsqtw.testing.contracts import BackendContract, HeaderContract, make_segment, messages, read_all


class TestDummyContract(BackendContract, HeaderContract):
    persistent = False

    def make_backend(self, directory: str) -> IBackend:
        return DummyBackend()


def no_report(*damage: object) -> None:
    raise AssertionError(damage)


def test_the_factory_opens_it(tmp_path):
    """It needs no options and touches no file."""
    assert IBackendQueueFactory.providedBy(DummyFactory())
    backend = DummyFactory().open("", str(tmp_path), None, no_report)
    backend.commit([(backend.queue("t"), [make_segment(0)])], True)
    backend.close()
    assert list(tmp_path.iterdir()) == []


def test_it_takes_no_argument(tmp_path):
    """One line says so."""
    with pytest.raises(OptionError, match="takes no argument"):
        DummyFactory().open("somewhere", str(tmp_path), None, no_report)


def test_memory_is_given_back():
    """Of a segment with few wanted messages only these are kept; the size says what is kept."""
    backend = DummyBackend()
    queue = backend.queue("t")
    segments = [make_segment(first, 100) for first in (0, 100, 200)]
    backend.commit([(queue, segments)], False)
    whole = queue.size
    queue.trim(250, [5, 120, *range(130, 160)])
    kept = read_all(queue)
    assert list(messages(kept)) == [5, *range(100, 300)]
    assert queue.size == sum(len(segment.frames) for segment in kept) < whole
    queue.trim(300, [])
    assert (queue.first, queue.end, queue.size) == (300, 300, 0)
