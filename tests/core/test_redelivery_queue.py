"""The redelivery queue, alone and against a model: a list of what waits, with the mark of each."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nsqtw.core.checkpoint import CursorState, HeldRow, PendingRow
from nsqtw.core.due_order import BEHIND_ALL, Key
from nsqtw.core.pending import Pages, PendingStore
from nsqtw.core.place import Place
from nsqtw.core.redelivery_queue import RedeliveryQueue
from nsqtw.core.topic_log import TopicLog
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness

MEM_QUEUE_SIZE = 5
PAGE = 4


class SavedRows:
    """The pending rows of one channel as positions.db has them. `fails`: it cannot be read."""

    def __init__(self, rows: list[PendingRow] = []) -> None:  # noqa: B006  # never changed
        self.rows = sorted(rows, key=lambda row: (row.due_ms, row.sequence))
        self.fails = False

    def pending(self, topic: str, channel: str, after: tuple[float, float], limit: int) -> tuple[list[PendingRow], Key]:
        if self.fails:
            raise BackendError("no positions")
        rows = [row for row in self.rows if (row.due_ms, row.sequence) > after]
        end = (rows[limit - 1].due_ms, rows[limit - 1].sequence) if len(rows) >= limit else BEHIND_ALL
        return rows[:limit], end

    def held(self, topic: str, channel: str) -> list[HeldRow]:
        return []

    def count_pending(self, topic: str, channel: str, after: tuple[float, float], until_ms: float, below: float) -> int:
        found, _ = self.pending(topic, channel, after, len(self.rows) + 1)
        return len([row for row in found if row.due_ms <= until_ms and row.sequence < below])


def queue(rows: SavedRows | None = None, mem_queue_size: int = MEM_QUEUE_SIZE) -> tuple[RedeliveryQueue, PendingStore]:
    """A queue of a topic, and its pending rows, of which those in `rows` are saved."""
    topic: TopicLog = BrokerHarness(mem_queue_size=mem_queue_size, page_rows=PAGE).topic()
    pending = PendingStore(None if rows is None else Pages(rows, "t", "c"), PAGE)
    if rows is not None:
        pending.restore(CursorState("c", pending_count=len(rows.rows)))
    return RedeliveryQueue(topic, pending), pending


def taken(redeliveries: RedeliveryQueue, reached: int) -> list[int]:
    """All whose turn has come, in their order."""
    found = []
    while (sequence := redeliveries.first(reached)) is not None:
        found.append(sequence)
        redeliveries.take()
    return found


class Queues(RuleBasedStateMachine):
    """Sequences are given once, ascending. The times of deferred messages are those of `now_ms`."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.pending = queue()
        self.waiting: list[tuple[int, int]] = []
        """Mark and sequence, in the order of delivery."""
        self.deferred: list[tuple[int, int]] = []
        self.out: list[int] = []
        """Taken, and not finished."""
        self.last = self.now_ms = self.reached = 0
        self.end = 3

    @property
    def mark(self) -> int:
        return min(self.end, self.reached + MEM_QUEUE_SIZE)

    @rule()
    def requeue(self) -> None:
        self.last += 1
        self.pending.put(self.last, 1, Place.REQUEUED)
        self.queue.add(self.last, self.reached, self.end)
        self.waiting.append((self.mark, self.last))

    @rule(delay_ms=st.integers(1, 6))
    def defer(self, delay_ms: int) -> None:
        self.last += 1
        self.pending.defer(self.last, 1, self.now_ms + delay_ms)
        self.deferred.append((self.now_ms + delay_ms, self.last))

    @rule(more=st.integers(0, 4))
    def time_passes(self, more: int) -> None:
        self.now_ms += more
        self.queue.add_due(self.now_ms, self.reached, self.end)
        due = sorted(key for key in self.deferred if key[0] <= self.now_ms)
        self.deferred = [key for key in self.deferred if key not in due]
        self.waiting += [(self.mark, sequence) for _, sequence in due]

    @rule(more=st.integers(1, 4))
    def release(self, more: int) -> None:
        self.end += more

    @rule(more=st.integers(1, 4))
    def read_on(self, more: int) -> None:
        self.reached = min(self.end, self.reached + more)

    @rule(at_once=st.booleans())
    def take(self, *, at_once: bool) -> None:
        found = self.queue.first(self.reached, at_once=at_once)
        if not self.waiting or not (at_once or self.waiting[0][0] <= self.reached):
            assert found is None
            return
        assert found == self.waiting.pop(0)[1]
        self.queue.take()
        self.pending.move(found, Place.SET_ASIDE)
        assert self.pending.attempts(found) == 1, "it keeps its row"
        self.out.append(found)

    @precondition(lambda self: self.out)
    @rule(is_finished=st.booleans())
    def end_taken(self, *, is_finished: bool) -> None:
        """What was taken is finished, or given back."""
        out, self.out = sorted(self.out), []
        if is_finished:
            assert all(self.pending.finish(sequence) for sequence in out)
        else:
            self.queue.take_back(out, self.reached)
            self.waiting = [*((self.reached, sequence) for sequence in out), *self.waiting]

    @rule()
    def serve_at_once(self) -> None:
        self.queue.serve_at_once(self.reached)
        self.waiting = [(self.reached, sequence) for _, sequence in self.waiting]

    @rule(count=st.integers(0, 4))
    def drop(self, count: int) -> None:
        dropped, self.waiting = self.waiting[:count], self.waiting[count:]
        assert self.queue.drop(count, self.reached) == [sequence for _, sequence in dropped]

    @rule(chosen=st.sets(st.integers(0, 20), max_size=4))
    def remove(self, chosen: set[int]) -> None:
        """Their rows are the matter of the caller."""
        sequences = {sequence for _, sequence in self.waiting if sequence in chosen}
        self.queue.remove(sequences)
        assert all(self.pending.finish(sequence) for sequence in sequences)
        self.waiting = [entry for entry in self.waiting if entry[1] not in sequences]

    @rule(start=st.integers(0, 20))
    def forget_from(self, start: int) -> None:
        self.pending.forget_from(start)
        self.queue.forget_from(start)
        self.waiting = [entry for entry in self.waiting if entry[1] < start]
        self.deferred = [key for key in self.deferred if key[1] < start]
        self.out = [sequence for sequence in self.out if sequence < start]

    @rule()
    def forget(self) -> None:
        self.pending.forget()
        self.queue.forget()
        self.waiting, self.deferred, self.out = [], [], []

    @invariant()
    def has_all(self) -> None:
        sequences = [sequence for _, sequence in self.waiting]
        assert self.queue.first_sequences() == sequences
        assert (self.queue.count, self.queue.is_empty) == (len(sequences), not sequences)
        assert self.queue.count_below(5) == sum(sequence < 5 for sequence in sequences)
        assert self.pending.count == len(sequences) + len(self.deferred) + len(self.out)
        assert not self.queue.is_being_saved

    @invariant()
    def nothing_waits_behind_another_mark(self) -> None:
        """So the first one tells whether any turn has come."""
        marks = [max(mark, self.reached) for mark, _ in self.waiting]
        assert marks == sorted(marks)


TestQueues = Queues.TestCase


@pytest.mark.parametrize(
    ("mem_queue_size", "end", "mark"),
    [(5, 100, 15), (5, 12, 12), (0, 100, 11), (100, 10, 10)],
    ids=["after so many others", "at the end", "after one at least", "at once when all is read"],
)
def test_the_mark_of_a_requeued_message(mem_queue_size: int, end: int, mark: int) -> None:
    redeliveries, pending = queue(mem_queue_size=mem_queue_size)
    pending.put(3, 1, Place.REQUEUED)
    redeliveries.add(3, 10, end)
    assert redeliveries.first(mark - 1) is None
    assert redeliveries.first(mark) == 3


def test_what_is_taken_back_comes_first_in_its_order() -> None:
    redeliveries, pending = queue()
    for sequence in (1, 2, 3, 4):
        pending.put(sequence, 1, Place.REQUEUED)
        redeliveries.add(sequence, 10, 10)
    for sequence in (1, 2):
        assert redeliveries.first(10) == sequence
        redeliveries.take()
        pending.move(sequence, Place.SET_ASIDE)
    redeliveries.take_back([1, 2], 10)
    assert taken(redeliveries, 10) == [1, 2, 3, 4]


def rows_due_at(*due_ms: int) -> SavedRows:
    """A saved row of each of the sequences 1, 2 and so on."""
    return SavedRows([PendingRow(sequence, 1, due) for sequence, due in enumerate(due_ms, 1)])


def test_what_was_in_flight_comes_first_after_a_start_and_then_what_is_due() -> None:
    redeliveries, pending = queue(rows_due_at(0, 0, 7, 50))
    pending.put(9, 1, Place.REQUEUED)
    redeliveries.restore([9], 10)
    assert redeliveries.first_sequences() == [9]
    redeliveries.add_due(7, 10, 100)
    assert redeliveries.count == redeliveries.restored_count == 4
    assert taken(redeliveries, 10) == [9, 1, 2, 3], "none of them waits for its mark"
    assert redeliveries.restored_count == 0
    redeliveries.add_due(50, 10, 100)
    assert taken(redeliveries, 14) == [], "and one that becomes due later does"
    assert taken(redeliveries, 15) == [4]


def test_many_due_messages_are_read_a_page_at_a_time() -> None:
    rows = rows_due_at(*[5] * 3 * PAGE)
    redeliveries, pending = queue(rows)
    redeliveries.add_due(5, 10, 10)
    assert redeliveries.count == 3 * PAGE
    assert len(redeliveries.first_sequences()) < 3 * PAGE, "the rest are counted"
    assert pending.due_behind_count == 3 * PAGE - len(redeliveries.first_sequences())
    assert taken(redeliveries, 10) == [*range(1, 3 * PAGE + 1)]
    assert (redeliveries.count, redeliveries.is_empty, pending.due_behind_count) == (0, True, 0)


def test_dropping_reads_on() -> None:
    redeliveries, pending = queue(rows_due_at(*[5] * 3 * PAGE))
    redeliveries.add_due(5, 10, 10)
    assert redeliveries.drop(2 * PAGE, 10) == [*range(1, 2 * PAGE + 1)]
    assert redeliveries.count == pending.count == PAGE


def test_dropping_when_nothing_can_be_read() -> None:
    """What was dropped is said; where none was, the error is."""
    rows = rows_due_at(*[5] * 3 * PAGE)
    redeliveries, pending = queue(rows)
    redeliveries.add_due(5, 10, 10)
    rows.fails = True
    dropped = redeliveries.drop(3 * PAGE, 10)
    assert dropped == [*range(1, len(dropped) + 1)]
    assert redeliveries.count == pending.count == 3 * PAGE - len(dropped)
    with pytest.raises(BackendError):
        redeliveries.drop(1, 10)
    rows.fails = False
    assert taken(redeliveries, 10) == [*range(len(dropped) + 1, 3 * PAGE + 1)]


def test_becoming_due_when_nothing_can_be_read() -> None:
    rows = rows_due_at(*[5] * 3 * PAGE)
    redeliveries, pending = queue(rows)
    pending.put(99, 1, Place.REQUEUED)
    redeliveries.restore([99], 10)
    rows.fails = True
    with pytest.raises(BackendError):
        redeliveries.add_due(5, 10, 100)
    assert redeliveries.first_sequences() == [99]
    rows.fails = False
    redeliveries.add_due(5, 10, 100)
    assert taken(redeliveries, 10) == [99, *range(1, 3 * PAGE + 1)], "that was the first look after the start"


def test_what_nsqd_would_have_read_from_disk_is_never_more_than_there_is() -> None:
    redeliveries, _ = queue(rows_due_at(0, 0, 0))
    redeliveries.restore([], 10)
    redeliveries.add_due(1, 10, 10)
    assert redeliveries.restored_count == 3
    redeliveries.drop(1, 10)
    assert redeliveries.restored_count == 2
    redeliveries.remove({2})
    redeliveries.limit_restored_count()
    assert redeliveries.restored_count == 1
    redeliveries.forget_from(2)
    assert redeliveries.restored_count == 0
