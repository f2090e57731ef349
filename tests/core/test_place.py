"""The page about places has all of them, and what a kill does to each is what the table of transitions says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nsqtw.core.place import TRANSITIONS, Place, check_move
from tests.core.harness import BrokerHarness
from tests.core.model.places import after_a_start

PAGE = Path(__file__).parents[2] / "docs/architecture.md"


def after_a_kill(place: Place) -> str:
    """Return where a start finds a message, in words."""
    return ", ".join(one.value for one in Place if one in after_a_start(place))


def test_the_page_says_of_each_place_what_a_kill_does() -> None:
    section = PAGE.read_text("utf-8").partition("## Places of a message")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+) \|.*\| ([a-z, ]+) \|$", section, re.MULTILINE)
    assert rows[0] == ("place", "after a kill")
    assert rows[1:] == [(place.value, after_a_kill(place)) for place in Place]


def test_each_place_can_be_reached_and_left() -> None:
    after = {row.after for row in TRANSITIONS}
    assert after == {*Place}
    assert {place for place in Place if not place.next} == {Place.FINISHED}


def test_a_move_that_is_not_in_the_table_fails() -> None:
    check_move(Place.DEFERRED, Place.REQUEUED)
    with pytest.raises(AssertionError, match="a message moves from"):
        check_move(Place.DEFERRED, Place.SET_ASIDE)


def test_a_channel_is_not_moved_while_a_checkpoint_has_it() -> None:
    """What is saved of it may be in two states then. The API waits."""
    core = BrokerHarness()
    channel = core.channel()
    core.put(b"a", b"b")
    save = core.begin_save()
    with pytest.raises(AssertionError, match="during a checkpoint"):
        channel.seek(0)
    core.end_save(save)
    channel.seek(0)
