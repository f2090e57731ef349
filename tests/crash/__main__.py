"""``python -m tests.crash``: brokers are made to crash, and what they promised is checked."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from itertools import count, cycle
from pathlib import Path

import attrs

from tests.crash.damage import DAMAGES
from tests.crash.history import Tally
from tests.crash.promises import Broken
from tests.crash.rounds import Campaign
from tests.crash.seed import chosen_seed

CAMPAIGN_SECONDS = 20.0
"""Then another one begins, on a new data path and with other options."""


def main(words: list[str]) -> int:
    """1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", help="what decides what is done (default: a new one each time)")
    parser.add_argument("--backend", choices=[*DAMAGES], action="append", help="only this one (default: all)")
    options = parser.parse_args(words)
    seed = options.seed or chosen_seed()
    print(f"seed {seed}", flush=True)
    total = Tally()
    end = time.monotonic() + options.minutes * 60
    for number, backend in zip(count(), cycle(options.backend or [*DAMAGES])):
        if number and time.monotonic() >= end:
            break
        if not _campaign(backend, f"{seed}.{number}", end, total):
            return 1
    print(total)
    return 0


def _campaign(backend: str, seed: str, end: float, total: Tally) -> bool:
    """Whether all went well; its figures are added to `total`."""
    directory = Path(tempfile.mkdtemp(prefix="nsqtw-crash-"))
    campaign = Campaign(directory, backend, seed)
    stop = min(end, time.monotonic() + CAMPAIGN_SECONDS)
    try:
        campaign.run(lambda: time.monotonic() >= stop)
    except Broken as broken:
        print(broken, file=sys.stderr)
        return False
    finally:
        campaign.close()
        for name, value in attrs.asdict(campaign.tally).items():
            setattr(total, name, getattr(total, name) + value)
    print(f"{campaign.about}: {campaign.tally}", flush=True)
    shutil.rmtree(directory)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
