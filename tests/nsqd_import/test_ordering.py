"""The order in which messages go to the log, and how many held rows it costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.nsqd_import import ordering as module
from nsqtw.nsqd_import.ordering import OTHER, Kind, Order, arrange, count

A, B, C = range(3)
NOTHING_UNREAD = {A: 0, B: 0, C: 0}


def rows(order: Order, counts: dict[Kind, int], channel: int) -> int:
    """How many held rows the channel needs."""
    return sum(
        number for kind, number in counts.items() if channel in kind and order.rank(kind) < order.whole_from[channel]
    )


def test_nothing_to_order() -> None:
    order = arrange({OTHER: 0}, NOTHING_UNREAD)
    assert order.kinds == [OTHER]
    assert order.whole_from == {A: 0, B: 0, C: 0}


def test_one_channel_needs_no_rows() -> None:
    counts = {OTHER: 0, (A,): 1000}
    order = arrange(counts, {A: 0})
    assert order.whole_from == {A: 0}
    assert order.left(A) == 1000


def test_what_somebody_has_had_stands_before_everything_else() -> None:
    counts = {OTHER: 3, (A,): 1000}
    order = arrange(counts, {A: 0})
    assert [order.rank(kind) for kind in (OTHER, (A,))] == [0, 1]
    assert order.whole_from == {A: 1}


def test_channels_behind_each_other_need_no_rows() -> None:
    counts = {OTHER: 0, (A,): 1_000_000, (A, B): 500, (A, B, C): 10}
    order = arrange(counts, NOTHING_UNREAD)
    assert order.kinds == [OTHER, (A,), (A, B), (A, B, C)]
    assert [rows(order, counts, channel) for channel in (A, B, C)] == [0, 0, 0]


def test_a_channel_that_has_the_oldest_and_the_newest_behind_it_needs_no_rows() -> None:
    """The order of publishing would cost a row for each message of B."""
    counts = {OTHER: 0, (A,): 10_000, (A, B): 1_000_000}
    order = arrange(counts, {A: 0, B: 0})
    assert rows(order, counts, B) == 0


def test_the_small_difference_pays_and_not_the_large_backlog() -> None:
    counts = {OTHER: 0, (A,): 5_000_000, (B, C): 100}
    order = arrange(counts, NOTHING_UNREAD)
    assert [rows(order, counts, channel) for channel in (A, B, C)] == [0, 100, 100]


def test_messages_unread_before_are_weighed_too() -> None:
    """B would need a row for each of its old ones, were it not to want all that comes."""
    counts = {OTHER: 0, (A,): 10, (A, B): 10, (B,): 20}
    assert arrange(counts, {A: 0, B: 0}).whole_from[B] == 2
    assert rows(arrange(counts, {A: 0, B: 1000}), counts, B) == 0


def test_a_channel_that_goes_on_from_where_it_stands() -> None:
    assert arrange({OTHER: 0, (A, B): 10}, {A: 5, B: 0}).whole_from == {A: 0, B: 0}
    assert arrange({OTHER: 1, (A, B): 10}, {A: 5, B: 0}).whole_from == {A: 1, B: 1}


def test_rare_kinds_among_very_many_are_not_ranked(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_KINDS", 2)
    counts = {OTHER: 0, (A,): 10, (A, B): 20, (B,): 1, (C,): 1}
    order = arrange(counts, NOTHING_UNREAD)
    assert len(order.kinds) == 3
    assert order.rank((B,)) == order.rank((C,)) == 0
    assert rows(order, counts, C) == 1


def test_kinds_beyond_those_that_can_be_counted_are_odd(monkeypatch) -> None:
    monkeypatch.setattr(module, "_MAX_COUNTED", 3)
    assert count([(A,), (B,), (C,), (A, B), (A,)]) == {OTHER: 2, (A,): 2, (B,): 1}


KINDS = st.dictionaries(
    st.sets(st.sampled_from([A, B, C])).map(lambda kind: tuple(sorted(kind))), st.integers(1, 50)
).map(lambda counts: {OTHER: 0, **counts})


@given(KINDS, st.fixed_dictionaries({channel: st.integers(0, 30) for channel in (A, B, C)}))
def test_from_its_place_on_a_channel_wants_everything(counts: dict[Kind, int], unread: dict[int, int]) -> None:
    order = arrange(counts, unread)
    assert sum(order.counts) == sum(counts.values())
    assert sorted(order.kinds) == sorted(counts)
    for channel in unread:
        whole = range(order.whole_from[channel], len(order.kinds))
        assert all(channel in order.kinds[rank] for rank in whole if order.counts[rank])
        assert order.left(channel) == sum(order.counts[rank] for rank in whole)
        assert rows(order, counts, channel) + order.left(channel) == sum(
            number for kind, number in counts.items() if channel in kind
        )
