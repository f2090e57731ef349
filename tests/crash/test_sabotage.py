"""
A checker that finds nothing proves nothing: each of these brokers breaks a promise, and has to be caught. The short
form, for `make test`, has most without a policy, and one for each policy; `make crash` ends with the others.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.failing_calls import SYNC, Fault
from tests.crash.history import KILL, POWER, STOP
from tests.crash.nemesis import DRAINED, MIDST, SETTLED, UNREAD, End
from tests.crash.policies.sabotage import SABOTAGES as SABOTAGES_OF_POLICIES
from tests.crash.policies.table import ROWS
from tests.crash.promises import Broken
from tests.crash.rounds import Campaign
from tests.crash.sabotage import SABOTAGES

MOST_SECONDS = 600.0
pytestmark = pytest.mark.timeout(1800)
"""A machine may be slow; here these take two seconds each."""
MOST_MESSAGES = 150
ENDS = {
    "forget_commit": End(MIDST, KILL),
    "forget_sync": End(MIDST, POWER),
    "forget_held_rows": End(SETTLED, KILL),
    "forget_in_flight": End(SETTLED, KILL),
    "forget_saving": End(DRAINED, KILL),
    "forget_attempts": End(MIDST, KILL),
    "forget_stored_attempts": End(SETTLED, KILL),
    "deliver_early": End(MIDST, KILL),
    "requeue_early": End(DRAINED, KILL),
    "restore_early": End(SETTLED, KILL),
    "miscount": End(DRAINED, KILL),
    "garble": End(MIDST, KILL),
    "deliver_by_counts": End(UNREAD, KILL),
}
"""The deaths that show it soonest."""
OF_POLICIES = {
    "forget_headers": ("headers", MIDST),
    "lose_letters": ("letters", MIDST),
    "keep_letters": ("letters", MIDST),
    "deliver_too_often": ("letters", MIDST),
    "forget_held": ("held", MIDST),
    "blame_restarts": ("last", MIDST),
    "deliver_forever": ("last", MIDST),
    "blame_stops": ("last", MIDST),
    "finish_others": ("letters", MIDST),
    "redrive_to_all": ("letters", MIDST),
    "deliver_expired": ("expiring", MIDST),
    "store_refused": ("rejecting", MIDST),
    "drop_too_many": ("dropping", MIDST),
    "forget_sizes": ("heavy", MIDST),
    "forget_requeued_sizes": ("heavy", SETTLED),
    "keep_old": ("aging", UNREAD),
    "drop_young": ("aging", MIDST),
    "forget_rate": ("paced", MIDST),
    "requeue_at_once": ("delayed", MIDST),
    "time_out_at_once": ("delayed", MIDST),
    "disconnect_at_once": ("delayed", MIDST),
    "restore_early": ("delayed", SETTLED),
    "forget_growth": ("delayed-long", MIDST),
    "forget_longest_delay": ("delayed-long", MIDST),
    "forget_variation": ("delayed-long", MIDST),
    "vary_too_much": ("delayed-long", MIDST),
    "forget_saved_timeouts": ("delayed-long", MIDST),
    "forget_saved_disconnects": ("delayed-long", MIDST),
    "drop_expired": ("stale", MIDST),
    "rename_letters": ("stale", MIDST),
    "publish_to_all": ("directed", MIDST),
    "release_to_all": ("directed", MIDST),
    "forget_policies": ("live", MIDST),
    "answer_policies_early": ("live", MIDST),
    "forget_ids": ("once", MIDST),
    "forget_directed_ids": ("once-to-one", MIDST),
    "deliver_together": ("ordered", UNREAD),
    "forget_window": ("ordered-window", MIDST),
    "widen_window_after_start": ("ordered-window", MIDST),
    "forget_classes": ("urgent", MIDST),
    "starve_low": ("urgent-shares", MIDST),
    "miscount_classes": ("urgent-shares", MIDST),
    "drop_in_order": ("urgent-dropping", MIDST),
    "keep_old_of_classes": ("urgent-aging", UNREAD),
    "forget_positions": ("urgent", SETTLED),
    "forget_cancel": ("scheduled", MIDST),
    "confirm_unstored": ("headers", MIDST),
}
"""The row that finds it, and when the broker dies. The first one of each row is in the short form."""
FAULTS = {"deliver_by_counts": (Fault(SYNC, "EIO", ".log"),)}
"""The failed calls that show it, where not every kind does."""
MESSAGES = {"deliver_by_counts": 600, "time_out_at_once": 300, "disconnect_at_once": 300, "deliver_forever": 30}
"""Where longer rounds show it sooner: more calls fail meanwhile, or more messages time out; or where many rounds do."""
FLAGS = dict.fromkeys(("disconnect_at_once", "forget_saved_disconnects", "blame_stops"), ("--requeue-on-disconnect",))
"""The options with which it shows."""
HOW = {"blame_stops": STOP}
"""How the broker dies, where that is not by a kill."""
DRAINS = {"deliver_forever": 0.0}
"""The share of rounds after which everything is drained, where that is not 1."""


LONG = {"deliver_by_counts", "forget_stored_attempts", "requeue_early", "restore_early"}
"""Those that take longest of the ones without a policy: others show that such deaths are seen."""
SHORT = {row: sabotage for sabotage, (row, _) in reversed(OF_POLICIES.items())}


def forms(sabotages: Iterable[str], short: Container[str]) -> list[Any]:
    """Return all of them, those that are not in the short form with the mark."""
    return [one if one in short else pytest.param(one, marks=pytest.mark.long) for one in sabotages]


@pytest.mark.plain  # what is sabotaged are methods of the core
@pytest.mark.parametrize("sabotage", forms(SABOTAGES, SABOTAGES.keys() - LONG))
def test_a_broken_promise_is_found(tmp_path: Path, sabotage: str) -> None:
    campaign = Campaign(
        tmp_path,
        "disk",
        "sabotage",
        ends=[ENDS[sabotage]],
        most_messages=MESSAGES.get(sabotage, MOST_MESSAGES),
        faults=FAULTS.get(sabotage, ()),
        sabotage=sabotage,
        rows=(),
    )
    _assert_found(campaign)


@pytest.mark.plain
@pytest.mark.parametrize("sabotage", forms(sorted({*SABOTAGES_OF_POLICIES, *OF_POLICIES}), {*SHORT.values()}))
def test_a_broken_promise_of_a_policy_is_found(tmp_path: Path, sabotage: str) -> None:
    row, scene = OF_POLICIES[sabotage]
    campaign = Campaign(
        tmp_path,
        "disk",
        "sabotage",
        ends=[End(scene, HOW.get(sabotage, KILL))],
        most_messages=MESSAGES.get(sabotage, MOST_MESSAGES),
        flags=FLAGS.get(sabotage, ()),
        sabotage=sabotage,
        rows=[row],
        is_plain=False,
        drains=DRAINS.get(sabotage, 1.0),
    )
    _assert_found(campaign)


def test_every_row_has_a_sabotage() -> None:
    assert SHORT.keys() == ROWS.keys()


def _assert_found(campaign: Campaign) -> None:
    end = time.monotonic() + MOST_SECONDS
    try:
        with pytest.raises(Broken) as caught:
            campaign.run(lambda: time.monotonic() >= end)
    finally:
        campaign.close()
    print(caught.value, campaign.tally)
