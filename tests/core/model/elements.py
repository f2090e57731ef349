"""
The elements of which histories are made: policies, administration verbs and faults. A policy has the settings that a
channel gets; a verb and a fault are methods of `History`.

`covering` makes sets of elements such that each pair of elements is together in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

from nsqtw.options.refusals import contradiction
from nsqtw.options.settings import ChannelPolicy

CHANNEL_POLICIES: dict[str, list[dict[str, Any]]] = {
    "max_attempts": [{"max_attempts": 1}, {"max_attempts": 2}],
    "expired": [{"expired": "dead_letter"}],
    "ordered_by": [{"ordered_by": "header:key"}],
    "order_window": [{"ordered_by": "header:key", "order_window": 1}],
    "priority": [{"priority": True}],
    "requeue_delay": [{"requeue_delay": 3.0, "max_requeue_delay": 20.0}],
    "max_depth": [{"max_depth": 3}, {"max_depth": 8}],
    "max_bytes": [{"max_bytes": 300}, {"max_bytes": 600}],
    "max_age": [{"max_age": 20.0}, {"max_age": 40.0}],
    "drop_oldest": [{"overflow": "drop_oldest"}],
    "max_rate": [{"max_rate": 5.0}, {"max_rate": 20.0}],
}
TOPIC_POLICIES = ("message_ttl", "dedupe_window", "retention", "requeue_on_disconnect")
POLICIES = (*CHANNEL_POLICIES, *TOPIC_POLICIES)
VERBS = (
    "switch_policies",
    "change_letters",
    "pause_channel",
    "pause_topic",
    "empty_channel",
    "empty_topic",
    "seek_earliest",
    "seek_latest",
    "seek_message",
    "seek_time",
    "cancel",
    "redrive",
    "recreate_channel",
    "retain",
)
FAULTS = (
    "kill",
    "kill_after_save",
    "stop",
    "migrate",
    "restore",
    "save_fails",
    "save_lasts",
    "fill_disk",
    "refuse_letters",
    "time_out",
)
ELEMENTS = (*POLICIES, *VERBS, *FAULTS)
EXCLUDED = {
    frozenset((one, other))
    for one, other in combinations(CHANNEL_POLICIES, 2)
    if contradiction(ChannelPolicy(**CHANNEL_POLICIES[one][0] | CHANNEL_POLICIES[other][0]))
}
"""Policies that are refused together (`options.refusals.REFUSED`)."""
PAIRS = [pair for pair in map(frozenset, combinations(ELEMENTS, 2)) if pair not in EXCLUDED]
SIZE = 7
"""Elements of a history: so many that a history has many pairs, and so few that each of them happens several times."""


def covering(random: Random) -> Iterator[list[str]]:
    """Make sets of elements, until each pair has been in one."""
    left = {pair: None for pair in random.sample(PAIRS, len(PAIRS))}
    while left:
        chosen = sorted(next(iter(left)))
        while len(chosen) < SIZE:
            others = [one for one in ELEMENTS if one not in chosen and not _is_excluded(one, chosen)]
            random.shuffle(others)
            chosen.append(max(others, key=lambda one: sum(frozenset((one, other)) in left for other in chosen)))
        for pair in pairs_of(chosen):
            left.pop(pair, None)
        yield chosen


def pairs_of(chosen: list[str]) -> list[frozenset[str]]:
    """Return the pairs in a set of elements."""
    return [frozenset(pair) for pair in combinations(chosen, 2)]


def _is_excluded(one: str, chosen: list[str]) -> bool:
    return any(frozenset((one, other)) in EXCLUDED for other in chosen)
