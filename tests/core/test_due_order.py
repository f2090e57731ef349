"""Messages in the order of their due times, against a sorted list of single messages."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nsqtw.core.due_order import DueOrder, below

TIMES = st.integers(1, 6)


class Orders(RuleBasedStateMachine):
    """Each message is (due, sequence). Sequences are given once, as a topic gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.order = DueOrder()
        self.model: list[tuple[float, int]] = []
        self.last = 0
        self.now_ms = 0

    @rule(due_ms=TIMES, count=st.integers(1, 4))
    def add(self, due_ms: int, count: int) -> None:
        self.order.add(due_ms, self.last, count)
        self.model = sorted([*self.model, *((due_ms, self.last + number) for number in range(count))])
        self.last += count

    @rule(until=st.tuples(TIMES, st.integers(0, 30)) | st.just((inf, inf)), limit=st.integers(1, 5))
    def take(self, until: tuple[float, float], limit: int) -> None:
        runs, reached = self.order.take(until, limit)
        taken = [(due_ms, first + number) for due_ms, first, count in runs for number in range(count)]
        assert taken == [key for key in self.model if key <= until][:limit]
        assert reached == (taken[-1] if len(taken) == limit else until)
        self.model = self.model[len(taken) :]

    @rule(sequence=st.integers(0, 30))
    def remove(self, sequence: int) -> None:
        found = [key for key in self.model if key[1] == sequence and key[0] > self.now_ms]
        assert self.order.remove(sequence, self.now_ms) == bool(found)
        self.model = [key for key in self.model if key not in found]

    @rule(start=st.integers(0, 30))
    def forget_from(self, start: int) -> None:
        self.order.replace(below(self.order, start))
        self.model = [key for key in self.model if key[1] < start]

    @rule(more=st.integers(0, 2))
    def count_due(self, more: int) -> None:
        self.now_ms += more
        assert self.order.count_due(self.now_ms) == sum(due_ms <= self.now_ms for due_ms, _ in self.model)

    @invariant()
    def has_all(self) -> None:
        assert self.order.count == len(self.model) == sum(count for _, _, count in self.order)


TestOrders = Orders.TestCase
