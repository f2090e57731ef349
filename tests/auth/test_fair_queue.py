"""Turns: however many an address sends, the next one of another address is next."""

from __future__ import annotations

from nsqtw.auth.fair_queue import Turns


def test_addresses_take_turns() -> None:
    turns: Turns[str] = Turns(10)
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert turns.add(item[0], item) is None
    assert [turns.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert turns.add("a", "a4") is None
    assert turns.take() == "a4"


def test_who_has_most_waiting_loses_the_newest() -> None:
    turns: Turns[str] = Turns(3)
    for item in ("a1", "a2", "a3"):
        turns.add("a", item)
    assert turns.add("a", "a4") == "a4"
    assert turns.add("b", "b1") == "a3"
    assert turns.add("b", "b2") == "b2"
    assert turns.add("c", "c1") == "a2"
    assert turns.add("d", "d1") == "d1"
    assert [turns.take() for _ in range(3)] == ["a1", "b1", "c1"]
