"""
Half a minute of crashes, and all promises checked. The same deeds each time under `make test`; `make crash` goes on for
longer.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.crash.damage import DAMAGES
from tests.crash.rounds import Campaign
from tests.crash.seed import chosen_seed

pytestmark = pytest.mark.timeout(1800)
SECONDS = 15.0
"""By the test's own clock: a slow machine survives fewer rounds, one at least."""


@pytest.mark.parametrize("backend", [*DAMAGES])
def test_promises_are_kept_through_crashes(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The seed and what came of it are always shown."""
    campaign = Campaign(tmp_path, backend, chosen_seed())
    end = time.monotonic() + SECONDS
    try:
        campaign.run(lambda: time.monotonic() >= end)
    finally:
        campaign.close()
        with capsys.disabled():
            print(f"\nCRASH_SEED {campaign.about}: {campaign.tally}")
    assert campaign.tally.acknowledged and not campaign.tally.lost
