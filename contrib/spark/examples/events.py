"""Files of clicks for the pipeline. Some lines are malformed, and some clicks are those of robots."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from random import Random

#: 2026-01-01 00:00:00 UTC. The clicks are of the day after it.
_START = 1_767_225_600
_DAY_SECONDS = 86_400
_FILES = 4
_USERS = 500
_BROKEN_ONE_IN = 1000
_ROBOT_ONE_IN = 50
_EVENTS = ("view", "click", "cart", "buy")
_COUNTRIES = ("DE", "FR", "JP", "BR", "US")


def write(folder: Path, count: int, seed: int) -> tuple[str, str]:
    """Write `count` clicks into `folder`. Return the pattern of their files, and the file of users."""
    chance = Random(seed)
    for number in range(_FILES):
        with (folder / f"clicks-{number}.json").open("w", encoding="utf-8") as file:
            for _ in range(number, count, _FILES):
                file.write(_line(chance) + "\n")
    users = folder / "users.csv"
    with users.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("user", "country"))
        writer.writerows((f"u{number}", chance.choice(_COUNTRIES)) for number in range(_USERS))
    return str(folder / "clicks-*.json"), str(users)


def _line(chance: Random) -> str:
    if chance.randrange(_BROKEN_ONE_IN) == 0:
        return '{"time": "not finis'
    return json.dumps(
        {
            "time": _START + chance.randrange(_DAY_SECONDS),
            "user": f"u{chance.randrange(_USERS)}",
            "event": chance.choice(_EVENTS),
            "agent": "robot" if chance.randrange(_ROBOT_ONE_IN) == 0 else "browser",
        }
    )
