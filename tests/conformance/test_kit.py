"""
Our broker against the scenarios recorded from nsqd 1.3.0: what does not pass is in the tables of `expectations.py`.

The whole kit is played once, most of it waiting; there is a test for each area of it.
"""

from __future__ import annotations

import pytest

from .play import scenarios
from .verdict import Verdict, rounds

AREAS = sorted({scenario.partition("/")[0] for scenario in scenarios()})
AT_DEFAULTS, WITH_COMPAT = rounds()

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    """What came of the kit at the default options."""
    return AT_DEFAULTS.play()


@pytest.mark.parametrize("area", AREAS)
def test_at_the_default_options(area: str, verdict: Verdict) -> None:
    assert not {name: what for name, what in verdict.surprises.items() if name.startswith(f"{area}/")}


def test_what_is_better_on_purpose_is_nsqds_way_with_nsq_compat() -> None:
    assert WITH_COMPAT.scenarios
    assert not WITH_COMPAT.play().surprises
