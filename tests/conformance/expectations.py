"""
Which scenarios of the kit do not pass, and why. What is not named here has to pass.

The tables can only shrink: a row whose scenarios pass, and a row that is about no scenario, fail the check. Whoever
builds a feature deletes its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase

import attrs


class Outcome(Enum):
    """What becomes of a scenario."""

    PASSES = "passes"
    FAILS = "fails"
    NOT_PLAYED = "is not played"


@attrs.frozen
class Row:
    """
    The scenarios that a pattern matches, all of one outcome for one reason; `but` are patterns of those among them
    the row is not about.
    """

    pattern: str
    reason: str
    but: tuple[str, ...] = ()
    outcome: Outcome = Outcome.FAILS

    def is_about(self, scenario: str) -> bool:
        return fnmatchcase(scenario, self.pattern) and not any(fnmatchcase(scenario, other) for other in self.but)


OPEN: tuple[Row, ...] = ()
"""At nsqd's default options: features that are not there yet."""

ON_PURPOSE = (
    Row("restart/deferred", "deferred messages keep their time over a restart"),
    Row("again/dpub_no_channel", "deferred messages keep their time over a restart"),
    Row("again/requeued_later", "deferred messages keep their time over a restart"),
    Row("memory/deferred_no_memory", "deferred messages keep their time when the memory queue is full"),
    Row("memory/deferred_overflow", "deferred messages keep their time when the memory queue is full"),
    Row("restart/kill_memory_lost", "SIGKILL loses nothing that was answered"),
    Row("config_keys/defaults", "TLS is 1.2 or better unless asked lower"),
    Row("config_keys/bool_word_stops", "a word that is no flag is refused"),
    Row("config_keys/set", "bounds and experiments are checked at the start"),
    Row("info/flags", "bounds are checked at the start"),
    Row("bodies/tiny_body_size", "--max-body-size is not below --max-msg-size"),
    Row("bodies/message_above_body_size", "--max-body-size is not below --max-msg-size"),
    Row("http_limits/body_below_message", "--max-body-size is not below --max-msg-size"),
    Row("upgrades/policy_requires", "an unknown --tls-client-auth-policy is refused"),
)
"""
At nsqd's default options: better or stricter than nsqd (docs/reference/compatibility.md). With --nsq-compat they pass.
"""

SAFER = (
    Row("identify_json/large_document", "a body of IDENTIFY has at most 64 KiB"),
    Row("http_routes/body_ends_early", "a body that is cut off is answered with 400"),
    Row("lookupd_more/negative_port", "an nsqd whose port is none is refused"),
    Row("http_routes/bad_chunks", "a body whose chunks are none is answered with 400"),
)
"""At any options: what nsqd takes and we refuse, see docs/how-to/security.md."""


def expected(scenario: str, rows: Iterable[Row]) -> Row | None:
    """The row a scenario falls under; None if it has to pass."""
    return next((row for row in rows if row.is_about(scenario)), None)
