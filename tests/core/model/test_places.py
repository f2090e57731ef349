"""The table of places: each transition of a row happens in some history, and no other one."""

from __future__ import annotations

from random import Random

import pytest

from nsqtw.core import pending
from nsqtw.core.place import WITHOUT_ROW, Place, check_move
from tests.core.model.history import History, steps_of

HISTORIES = 40
ELEMENTS = [
    ["ordered_by", "max_depth", "drop_oldest", "switch_policies"],
    ["max_attempts", "redrive", "change_letters", "time_out"],
    ["message_ttl", "expired", "ordered_by", "cancel"],
]
UNCHECKED = {Place.FINISHED, Place.IN_FLIGHT, Place.SET_ASIDE}
"""Where messages without a row move in runs, so that none is looked at."""


@pytest.mark.histories
def test_each_transition_of_a_row_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {(place, after) for place in Place if place is not Place.UNREAD for after in place.next}
    left |= {(None, after) for after in WITHOUT_ROW if after not in UNCHECKED}

    def record(before: Place | None, after: Place) -> None:
        check_move(before, after)
        left.discard((before, after))

    monkeypatch.setattr(pending, "check_move", record)
    for seed in range(HISTORIES):
        for elements in ELEMENTS if left else ():
            random = Random(seed)
            steps, choices = steps_of(elements, random), random.getrandbits(32)
            History(elements, choices).run(steps)
    assert not left


@pytest.mark.parametrize(
    ("before", "after"),
    [(Place.WITHHELD, Place.FINISHED), (Place.HELD, Place.IN_FLIGHT), (None, Place.READY_HEAD)],
)
def test_a_transition_that_is_not_in_the_table_is_a_fault(before: Place | None, after: Place) -> None:
    with pytest.raises(AssertionError, match="moves from"):
        check_move(before, after)
