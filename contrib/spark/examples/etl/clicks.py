"""Clicks for the example, the same for each seed: in order of time within some minutes, some late, some malformed."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

_START = datetime(2026, 1, 2, tzinfo=UTC)
_PART_HOURS = 3
#: Less than the delay of the watermark: such clicks are not late.
_DISORDER_MINUTES = 5
_LATE_HOURS = 2
_USERS = 200
_COUNTRIES = ("BR", "DE", "FR", "JP", "US")
_EVENTS = ("buy", "cart", "click", "view")
_ROBOT_ONE_IN, _LATE_ONE_IN, _BROKEN_ONE_IN = 20, 50, 100
_BROKEN = (b'{"time": "2026-01-02T00', b'{"time": "yesterday", "user": "u1"}', b'{"user": "u1"}', b"\xff\xfe")


def write_users(path: Path) -> dict[str, str]:
    """Write the table of users, and return the country of each. Some clicks are of users who are not in it."""
    chance = Random(0)
    users = {f"u{number}": chance.choice(_COUNTRIES) for number in range(_USERS - 10)}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("user", "country"))
        writer.writerows(users.items())
    return users


def parts(count: int, seed: int = 1) -> list[list[bytes]]:
    """Return the messages of two parts, one after the other in time. The second has late clicks of the first's time."""
    chance = Random(seed)
    return [_part(chance, number, count // 2) for number in range(2)]


def _part(chance: Random, number: int, count: int) -> list[bytes]:
    start = _START + timedelta(hours=_PART_HOURS * number)
    messages = []
    for place in range(count):
        time = start + timedelta(hours=_PART_HOURS) * (place / count)
        time -= timedelta(minutes=_DISORDER_MINUTES * chance.random())
        if chance.randrange(_BROKEN_ONE_IN) == 0:
            messages.append(chance.choice(_BROKEN))
            continue
        if number == 1 and chance.randrange(_LATE_ONE_IN) == 0:
            time -= timedelta(hours=_LATE_HOURS)
        agent = "robot" if chance.randrange(_ROBOT_ONE_IN) == 0 else "browser"
        messages.append(_click(time, f"u{chance.randrange(_USERS)}", chance.choice(_EVENTS), agent))
    # The newest click of the part, which moves the watermark.
    return [*messages, _click(start + timedelta(hours=_PART_HOURS), "u0", "view", "browser")]


def _click(time: datetime, user: str, event: str, agent: str) -> bytes:
    click = {"time": time.isoformat(timespec="milliseconds"), "user": user, "event": event, "agent": agent}
    return json.dumps(click).encode()
