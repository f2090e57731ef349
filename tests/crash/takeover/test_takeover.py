"""
A minute of takeovers, and all promises checked. The same deeds each time under `make test`; `make crash-takeover` goes
on for longer.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.crash.promises import Broken
from tests.crash.seed import chosen_seed
from tests.crash.takeover.rounds import KILLED, TakeoverCampaign
from tests.crash.takeover.sabotage import SABOTAGES

pytestmark = [pytest.mark.timeout(1800), pytest.mark.process]
SECONDS = 60.0
"""By the test's own clock: a slow machine survives fewer rounds, one at least."""
MOST_SECONDS = 600.0
DEEDS = ("stop owner", "lose primary", "part owner", "kill owner", "end owner", "fill store", "force", "part both")
SHOWN_BY = {
    "forget_fence": "stop owner",
    "claim_without_copy": "kill owner",
    "confirm_before_store": "kill owner",
}
"""The deed that shows it soonest."""


def test_promises_are_kept_through_takeovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seed and what came of it are always shown."""
    campaign = TakeoverCampaign(tmp_path, chosen_seed(), deeds=DEEDS)
    end = time.monotonic() + SECONDS
    try:
        campaign.run(lambda: time.monotonic() >= end)
    finally:
        campaign.close()
        with capsys.disabled():
            print(f"\nCRASH_SEED {campaign.about}: {campaign.tally}")
    assert campaign.tally.acknowledged and not campaign.tally.lost


@pytest.mark.plain  # what is sabotaged are methods of the broker
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_broken_promise_of_replication_is_found(tmp_path: Path, sabotage: str) -> None:
    campaign = TakeoverCampaign(
        tmp_path, "sabotage", deeds=[SHOWN_BY[sabotage]], ends=[KILLED], rows=(), sabotage=sabotage, drains=1.0
    )
    end = time.monotonic() + MOST_SECONDS
    try:
        with pytest.raises(Broken) as caught:
            campaign.run(lambda: time.monotonic() >= end)
    finally:
        campaign.close()
    print(caught.value, campaign.tally)
