"""A model that finds nothing proves nothing: each of these faults has to be found by a few histories."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.channel_policy import ChannelPolicies
from nsqtw.core.cursor import Cursor
from nsqtw.core.policy import undelivered
from tests.core.model.history import History, steps_of
from tests.crash.policies.sabotage import blame_restarts, forget_held

pytestmark = pytest.mark.plain  # what is sabotaged are methods of the core
HISTORIES = 60


def judge_by_what_is_kept() -> None:
    """A move to the place where the channel is, as to the oldest message kept, finishes what is unfinished."""
    Channel._is_forwards = lambda self, sequence: sequence >= self.cursor.next  # type: ignore[method-assign,union-attr]


def skip_unseen() -> None:
    """A move back finishes what was requeued or deferred, and does not say so."""
    seek = Cursor.seek

    def wrong(self: Cursor, *arguments: int, skips: bool) -> None:
        seek(self, *arguments, skips=True)

    Cursor.seek = wrong  # type: ignore[method-assign,assignment]


def forget_what_is_set_aside() -> None:
    """Messages that wait for their key are gone when the order ends."""
    set_order = ChannelPolicies._set_order

    def wrong(self: ChannelPolicies, ordered_by: str) -> None:
        channel = self._channel
        if not ordered_by and channel.cursor is not None:
            for sequence in channel.set_aside:
                channel.cursor.finish(sequence)
        set_order(self, ordered_by)

    ChannelPolicies._set_order = wrong  # type: ignore[method-assign]


def forget_the_leaving() -> None:
    """A move back forgets the held messages before its place."""
    forget = Channel._forget_held
    Channel._forget_held = lambda self, start=0: forget(self)  # type: ignore[method-assign]


SABOTAGES: list[tuple[Callable[[], None], Any, str, list[str]]] = [
    (judge_by_what_is_kept, Channel, "_is_forwards", ["seek_earliest", "time_out"]),
    (skip_unseen, Cursor, "seek", ["seek_message", "retention"]),
    (forget_held, Cursor, "restore", ["max_attempts", "refuse_letters", "kill_after_save"]),
    (blame_restarts, undelivered, "MAX_INTERRUPTIONS", ["max_attempts", "kill"]),
    (forget_what_is_set_aside, ChannelPolicies, "_set_order", ["ordered_by", "switch_policies"]),
    (forget_the_leaving, Channel, "_forget_held", ["max_attempts", "refuse_letters", "seek_message"]),
]
"""What is sabotaged, the attribute that is changed, and the elements that show it."""


@pytest.mark.parametrize(
    ("sabotage", "owner", "name", "elements"), SABOTAGES, ids=[entry[0].__name__ for entry in SABOTAGES]
)
def test_a_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
    sabotage: Callable[[], None],
    owner: object,
    name: str,
    elements: list[str],
) -> None:
    monkeypatch.setattr(owner, name, getattr(owner, name))  # it is as before after the test
    sabotage()
    with pytest.raises(AssertionError):
        for seed in range(HISTORIES):
            random = Random(seed)
            steps, choices = steps_of(elements, random), random.getrandbits(32)
            History(elements, choices).run(steps)
