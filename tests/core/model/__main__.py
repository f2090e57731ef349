"""``python -m tests.core.model``: histories of policies, administration and faults, in all pairs, against a model."""

from __future__ import annotations

import argparse
import sys
import time
from itertools import count
from random import Random

from tests.core.model.elements import PAIRS, covering, pairs_of
from tests.core.model.reduce import check
from tests.crash.seed import chosen_seed


def main(words: list[str]) -> int:
    """An error of the broker or of the model ends it."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.model", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", help="what decides what is done (default: a new one each time)")
    options = parser.parse_args(words)
    seed = options.seed or chosen_seed()
    print(f"seed {seed}", flush=True)
    end, began = time.monotonic() + options.minutes * 60, time.process_time()
    histories, pairs = 0, set[frozenset[str]]()
    for number in count():
        random = Random(f"{seed}.{number}")
        for elements in covering(random):
            if time.monotonic() >= end:
                seconds = (time.process_time() - began) / max(1, histories)
                print(f"{histories} histories, {len(pairs)} of {len(PAIRS)} pairs, {seconds:.3f} s of CPU each")
                return 0
            check(elements, random)
            histories += 1
            pairs.update(pairs_of(elements))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
