"""``python -m tests.crash.takeover``: two brokers with one data set, of which one takes over from the other."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.crash.promises import Broken
from tests.crash.seed import chosen_seed
from tests.crash.takeover.nemesis import Nemesis
from tests.crash.takeover.rounds import TakeoverCampaign, TakeoverTally
from tests.crash.takeover.sabotage import SABOTAGES

ROUNDS_OF_CAMPAIGN = 20
"""Then another one begins, with a new store and other options."""


def main(words: list[str]) -> int:
    """1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.takeover", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long at most (default: 10)")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="how many at most (default: as time allows)")
    parser.add_argument("--seed", help="what decides what is done (default: a new one each time)")
    parser.add_argument("--deed", choices=[*Nemesis.DEEDS], action="append", help="only this one (default: all)")
    parser.add_argument("--sabotage", choices=[*SABOTAGES], default="", help="brokers that break a promise")
    parser.add_argument("--go-on", action="store_true", help="go on after a broken promise")
    options = parser.parse_args(words)
    seed = options.seed or chosen_seed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    print(f"seed {seed}", flush=True)
    total = TakeoverTally()
    broken = 0
    end = time.monotonic() + options.minutes * 60
    for number in count():
        if total.rounds >= options.rounds or (number and time.monotonic() >= end):
            break
        rounds = min(ROUNDS_OF_CAMPAIGN, options.rounds - total.rounds)
        if not _campaign(f"{seed}.{number}", options, end, rounds, total):
            broken += 1
            if not options.go_on:
                break
    print(total)
    return 1 if broken else 0


def _campaign(seed: str, options: argparse.Namespace, end: float, rounds: int, total: TakeoverTally) -> bool:
    """Whether all went well; its figures are added to `total`."""
    directory = Path(tempfile.mkdtemp(prefix="nsqtw-takeover-"))
    deeds = options.deed or [*Nemesis.DEEDS]
    campaign = TakeoverCampaign(
        directory, seed, deeds=deeds, sabotage=options.sabotage, told=lambda line: print(line, flush=True)
    )
    print(campaign.about, flush=True)
    try:
        campaign.run(lambda: time.monotonic() >= end or campaign.tally.rounds >= rounds)
    except Broken as broken:
        print(broken, file=sys.stderr, flush=True)
        return False
    finally:
        campaign.close()
        total.add(campaign.tally)
    print(campaign.tally, flush=True)
    shutil.rmtree(directory)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
