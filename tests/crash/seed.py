"""Where chance comes from: the environment, so that `make test` does the same each time, or nowhere."""

from __future__ import annotations

import os
import secrets

VARIABLE = "CRASH_SEED"


def chosen_seed() -> str:
    """The seed that was asked for, or a new one. Whoever uses it prints it."""
    return os.environ.get(VARIABLE) or str(secrets.randbelow(1_000_000))
