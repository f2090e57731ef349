"""Headers: what was published is delivered with these headers, whatever protocol it came by and goes by."""

from __future__ import annotations

import random

from tests.crash.policies.row import Row

_VALUES = ("", "one", "zwölf", "x" * 300)
_MOST = 4


class Headers(Row):
    """Messages with none to some headers, in two channels."""

    name = "headers"
    channel_names = ("one", "two")

    def headers(self, chance: random.Random) -> dict[str, str]:
        names = chance.sample([f"name-{number}" for number in range(2 * _MOST)], chance.randint(0, _MOST))
        return {name: chance.choice(_VALUES) for name in names}
