"""What is in flight: a client that keeps the order is not looked up, and all others find the same."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nsqtw.core.in_flight import Delivery, InFlight
from nsqtw.core.segment import SEQUENCE_BITS, consecutive_ids, sequence_of

NODE = 617 << SEQUENCE_BITS
FAR = 4090
"""Near the border where the endings of ids begin again."""


def delivery(deadline: float = 60.0, **settings: Any) -> Delivery:
    return Delivery(deadline, 0.0, 0, **settings)


def ids(first: int, count: int) -> list[bytes]:
    return consecutive_ids(NODE + first, count)


def test_what_goes_on_without_a_gap_in_one_delivery_is_one_run() -> None:
    one, other, flight = delivery(), delivery(), InFlight()
    flight.add(NODE + FAR, 5, one)
    flight.add(NODE + FAR + 5, 5, one)
    flight.add(NODE + FAR + 10, 5, other)
    flight.add(NODE + FAR + 20, 5, other)
    assert flight.next_ids(99, b", ") == b", ".join(ids(FAR, 15) + ids(FAR + 20, 5))
    assert flight.finish_next(12) == [(one, 10), (other, 2)]
    assert flight.next_ids(4, b"") == b"".join(ids(FAR + 12, 3) + ids(FAR + 20, 1))
    assert (len(flight), flight.next_ids(0, b"")) == (8, b"")


def test_what_is_in_order_behind_what_was_not_is_not_looked_up_either() -> None:
    flight = InFlight()
    flight.add(NODE, 4, delivery())
    first, second, third, fourth = ids(0, 4)
    assert None not in flight.take([second, first])
    assert flight.next_ids(9, b"") == b""
    flight.add(NODE + 4, 2, delivery())
    assert flight.next_ids(9, b"") == b"".join(ids(4, 2))
    assert None not in flight.take([third, fourth])
    assert flight.next_ids(9, b"") == b"".join(ids(4, 2)), "they were found without those that came later"


def ranges_of(told: list[bytes]) -> list[tuple[int, int]]:
    """The fewest ranges of consecutive ids."""
    ranges: list[tuple[int, int]] = []
    for number in (int(one, 16) for one in told):
        if ranges and sum(ranges[-1]) == number:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((number, 1))
    return ranges


class Table(RuleBasedStateMachine):
    """Beside one dict of all ids, in the order in which they were handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.flight = InFlight()
        self.known: dict[bytes, Delivery] = {}
        self.gathered: set[bytes] = set()
        self.end = FAR
        self.last = delivery()

    @rule(gap=st.integers(0, 2), count=st.integers(1, 9), deadline=st.integers(0, 3))
    def hand_out(self, gap: int, count: int, deadline: int) -> None:
        if self.last.deadline != deadline:
            self.last = delivery(deadline)
        self.end += gap
        self.flight.add(NODE + self.end, count, self.last)
        self.known.update(dict.fromkeys(ids(self.end, count), self.last))
        self.end += count

    @rule(gaps=st.lists(st.integers(0, 2), min_size=1, max_size=9), deadline=st.integers(0, 3))
    def hand_out_gathered(self, gaps: list[int], deadline: int) -> None:
        sequences = [NODE + sequence for sequence in accumulate([gap + 1 for gap in gaps], initial=self.end)]
        self.end = sequences.pop() - NODE
        gathered, self.last = [ids(sequence - NODE, 1)[0] for sequence in sequences], delivery(deadline)
        self.flight.add_gathered(gathered, [sequence - NODE for sequence in sequences], self.last)
        self.known.update(dict.fromkeys(gathered, self.last))
        self.gathered.update(gathered)

    @rule(back=st.integers(1, 30), deadline=st.integers(0, 3))
    def hand_out_again(self, back: int, deadline: int) -> None:
        (message_id,) = ids(self.end - back, 1)
        if message_id not in self.known:
            again = delivery(deadline, sequence=self.end - back, attempts=2)
            self.flight.add(NODE + self.end - back, 1, again)
            self.known[message_id] = again

    @rule(most=st.integers(0, 20))
    def finish_in_order(self, most: int) -> None:
        told = self.flight.next_ids(most, b" ").split()
        assert len(told) <= most
        runs = [[*run] for run in self.flight.next_runs(len(told))] if told else []
        assert [sequence for run in runs for sequence in run] == [sequence_of(one) for one in told]
        assert self.flight.split_in_order([(int(one, 16), 1) for one in told]) == (len(told), ())
        ranges = self.flight.next_ranges(most) if most else []
        in_ranges = [one for number, count in ranges for one in consecutive_ids(number, count)]
        assert in_ranges == told[: len(in_ranges)]
        assert in_ranges == told or told[len(in_ranges)] in self.gathered
        assert self.flight.split_in_order(ranges) == (len(in_ranges), ())
        taken = [self.known.pop(message_id) for message_id in told]
        finished = self.flight.finish_next(len(told))
        assert [one for one, count in finished for _ in range(count)] == taken

    @rule(data=st.data())
    def finish_some(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from([*self.known, *ids(0, 2)]), max_size=8))
        assert self.flight.take(some) == [self.known.pop(message_id, None) for message_id in some]

    @rule(data=st.data(), deadline=st.integers(0, 3))
    def touch(self, data: st.DataObject, deadline: int) -> None:
        (unknown,) = ids(0, 1)
        message_id = data.draw(st.sampled_from([*self.known, unknown]))
        assert self.flight.get(message_id) is self.known.get(message_id)
        assert (message_id in self.flight) == (message_id in self.known)
        if message_id in self.known:
            self.known[message_id] = delivery(deadline)
            self.flight.replace(message_id, self.known[message_id])

    @rule(now=st.integers(0, 3))
    def time_out(self, now: int) -> None:
        late = [(message_id, one) for message_id, one in self.known.items() if one.deadline <= now]
        assert self.flight.take_timed_out(now) == late
        for message_id, _ in late:
            del self.known[message_id]

    @rule(back=st.integers(0, 30))
    def move(self, back: int) -> None:
        start = self.end - back
        self.flight.forget(start)
        self.known = {one: found for one, found in self.known.items() if sequence_of(one) < start}

    @rule()
    def empty(self) -> None:
        self.flight.forget()
        self.known.clear()

    @invariant()
    def knows_the_same(self) -> None:
        assert len(self.flight) == len(self.known)
        assert [*self.flight.items()] == [*self.known.items()]
        first = [sequence_of(one) for one, found in self.known.items() if found.attempts == 1]
        assert self.flight.first_deliveries() == first
        assert self.flight.next_deadline == min((one.deadline for one in self.known.values()), default=None)

    @rule(back=st.integers(0, 30))
    def count_below(self, back: int) -> None:
        start = self.end - back
        assert self.flight.count_below(start) == sum(sequence_of(one) < start for one in self.known)

    @invariant()
    def the_next_are_the_youngest_in_order(self) -> None:
        told = self.flight.next_ids(len(self.known), b" ").split()
        assert told == [*self.known][len(self.known) - len(told) :]
        ranges = ranges_of(told)
        assert self.flight.split_in_order(ranges) == (len(told), ())
        other = (NODE + self.end + 5, 2)
        for index, (number, count) in enumerate(ranges):
            before = sum(count for _, count in ranges[:index])
            for wrong in ((number, count + 1), (number, 0), (number + 1, count), other):
                if wrong != ranges[-1]:
                    given = [*ranges[:index], wrong, other]
                    assert self.flight.split_in_order(given) == (before, [wrong, other])


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
