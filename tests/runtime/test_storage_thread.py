"""A save, step by step, and what a failure leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from zope.interface import implementer

from nsqtw.core.checkpoint import Checkpoint, NamedTopic, TopicState
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.errors import BackendError, BackendFull
from nsqtw.interfaces import IFreeingQueue, OperatorLog
from nsqtw.runtime.storage_thread import StorageThread, perform
from nsqtw.testing.memory import MemoryPositions


class SpyQueue:
    first, end, size = 3, 9, 100

    def __init__(self, calls: list, error: str = "") -> None:
        self._calls, self._error = calls, error

    def trim(self, below: int, keep: object) -> None:
        self._calls.append(("trim", below, list(keep)))
        if self._error:
            raise BackendError(self._error)

    def delete(self) -> None:
        self._calls.append(("delete",))
        if self._error:
            raise BackendError(self._error)


class FailingPositions(MemoryPositions):
    def save(self, checkpoint: Checkpoint) -> None:
        raise BackendError("no space")


class InlineReactor:
    """Runs what it is given at once, in whatever thread."""

    def callFromThread(self, call: object, *args: object) -> None:
        call(*args)


def nothing(*line: object) -> None:
    raise AssertionError(line)


def into(lines: list) -> OperatorLog:
    """A log that keeps its lines."""
    return lambda level, text, /, **fields: lines.append((level, text.format(**fields)))


def a_save(calls: list, error: str = "") -> CheckpointJob:
    queue = SpyQueue(calls, error)
    checkpoint = Checkpoint(topics=[TopicState("t", released=7, end=9, put_total=2)])
    return CheckpointJob(checkpoint, reserve=1024, deleted=[("old", queue)], trims=[("t", queue, None)])


def test_a_save_reserves_saves_deletes_and_trims_by_what_it_saved() -> None:
    calls: list = []
    positions = MemoryPositions()
    assert perform(a_save(calls), positions, nothing) is None
    assert calls == [("delete",), ("trim", 7, [])]
    saved = positions.load()
    assert (saved.next_block, [topic.name for topic in saved.topics]) == (1024, ["t"])


def test_when_saving_fails_nothing_is_deleted_or_trimmed() -> None:
    calls: list = []
    error = perform(a_save(calls), FailingPositions(), nothing)
    assert (str(error), calls) == ("no space", [])


def test_on_a_full_disk_trim_follows_what_was_saved_before() -> None:
    class FullPositions(MemoryPositions):
        def save(self, checkpoint: Checkpoint) -> None:
            raise BackendFull("no space")

    calls: list = []
    positions = FullPositions()
    MemoryPositions.save(positions, Checkpoint(topics=[TopicState("t", released=5, end=9, put_total=2)]))
    error = perform(a_save(calls), positions, nothing)
    assert (str(error), calls) == ("no space", [("trim", 5, [])])


def test_what_fails_after_saving_is_logged() -> None:
    calls: list = []
    lines: list = []
    assert perform(a_save(calls, "EIO"), MemoryPositions(), into(lines)) is None
    assert lines == [
        ("error", "TOPIC(old): failed to delete its files - EIO"),
        ("error", "TOPIC(t): failed to free space - EIO"),
    ]


def test_a_cut_is_saved_although_its_bounds_cannot_be_read() -> None:
    class Unreadable(MemoryPositions):
        def unfinished(self, topic: str) -> None:
            raise BackendError("EIO")

    calls: list = []
    lines: list = []
    assert perform(a_save(calls), Unreadable(), into(lines)) is None
    assert (calls, lines) == ([("delete",)], [("error", "TOPIC(t): failed to free space - EIO")])


def test_names_are_written_when_positions_are_saved_and_before_anything_goes() -> None:
    calls: list = []

    class SpyPositions(MemoryPositions):
        def save(self, checkpoint: Checkpoint) -> None:
            calls.append(("save",))
            super().save(checkpoint)

    save = a_save(calls)
    save.names = (NamedTopic("t"),)
    assert perform(save, SpyPositions(), nothing, lambda names: calls.append(("names", names))) is None
    assert calls == [("save",), ("names", (NamedTopic("t"),)), ("delete",), ("trim", 7, [])]


def test_a_save_without_names_leaves_them_as_they_are() -> None:
    assert perform(a_save([]), MemoryPositions(), nothing, nothing) is None


def test_no_names_are_written_when_saving_fails() -> None:
    save = a_save([])
    save.names = ()
    assert perform(save, FailingPositions(), nothing, nothing) is not None


def test_that_names_cannot_be_written_stays_in_the_save_and_fails_nothing_else() -> None:
    def fail(names: object) -> None:
        raise BackendError("read-only file system")

    calls: list = []
    save = a_save(calls)
    save.names = ()
    assert perform(save, MemoryPositions(), nothing, fail) is None
    assert (str(save.names_error), calls) == ("read-only file system", [("delete",), ("trim", 7, [])])


def test_a_trim_of_a_topic_nobody_saved_is_left_out() -> None:
    calls: list = []
    save = CheckpointJob(Checkpoint(), None, trims=[("unknown", SpyQueue(calls), None)])
    assert perform(save, MemoryPositions(), nothing) is None
    assert calls == []


def test_what_is_wanted_of_a_queue_that_has_nothing_to_free_is_not_found_out() -> None:
    @implementer(IFreeingQueue)
    class FullQueue(SpyQueue):
        may_free = False

    class CountingPositions(MemoryPositions):
        asked = 0

        def unfinished(self, topic: str) -> tuple[int, Iterable[int]] | None:
            self.asked += 1
            return super().unfinished(topic)

    calls: list = []
    positions, queue = CountingPositions(), FullQueue(calls)
    save = CheckpointJob(
        Checkpoint(topics=[TopicState("t", released=7, end=9, put_total=2)]), None, trims=[("t", queue, None)]
    )
    assert perform(save, positions, nothing) is None
    assert (calls, positions.asked) == ([], 0)
    queue.may_free = True
    assert perform(save, positions, nothing) is None
    assert (calls, positions.asked) == ([("trim", 7, [])], 1)


def test_bounds_that_come_with_the_save_need_no_saved_topic() -> None:
    calls: list = []
    save = CheckpointJob(Checkpoint(), None, trims=[("t#ephemeral", SpyQueue(calls), (5, [1, 2]))])
    assert perform(save, MemoryPositions(), nothing) is None
    assert calls == [("trim", 5, [1, 2])]


def test_the_thread_does_jobs_in_order_and_a_broken_part_fails_its_own_job_only() -> None:
    class BrokenPositions(MemoryPositions):
        def save(self, checkpoint: Checkpoint) -> None:
            if checkpoint.deleted_topics:
                raise ZeroDivisionError("broken")
            super().save(checkpoint)

    answers: list = []
    done = threading.Event()

    def answer(save: CheckpointJob, error: BackendError | None) -> None:
        answers.append((save.reserve, error and str(error), threading.current_thread() is threading.main_thread()))
        if len(answers) == 3:
            done.set()

    writer = StorageThread(InlineReactor(), BrokenPositions(), nothing)
    writer.save(CheckpointJob(Checkpoint(topics=[TopicState("a")]), 1), answer)
    writer.save(CheckpointJob(Checkpoint(deleted_topics=["a"]), 2), answer)
    writer.save(CheckpointJob(Checkpoint(topics=[TopicState("b")]), 3), answer)
    assert done.wait(30)
    writer.close()
    assert answers == [(1, None, False), (2, "ZeroDivisionError: broken", False), (3, None, False)]


def test_the_thread_writes_names() -> None:
    written: list = []
    writer = StorageThread(InlineReactor(), MemoryPositions(), nothing, written.append)
    writer.save(CheckpointJob(Checkpoint(), None, (NamedTopic("t"),)), lambda save, error: None)
    writer.close()
    assert written == [(NamedTopic("t"),)]


def test_a_flight_is_committed_in_the_thread_and_brought_back() -> None:
    class SpyFlight:
        seconds = -1.0

        def commit(self, log: object) -> dict:
            return {"committed": threading.current_thread() is not threading.main_thread()}

    done: list = []
    writer = StorageThread(InlineReactor(), MemoryPositions(), nothing)
    batch: Any = SpyFlight()
    writer.commit(batch, lambda *what: done.append(what))
    writer.close()
    assert done == [(batch, {"committed": True})]
    assert batch.seconds >= 0
