"""The result of a check."""

from __future__ import annotations

from enum import Enum

import attrs

from nsqtw.foreign_text import one_line


class Level(Enum):
    """How bad a finding is. An error ends `nsqtw doctor` with exit code 1."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen
class Finding:
    """What a check found: `what` it looked at, the `text`, and for a problem what to do. Servers name both."""

    level: Level
    check: str
    what: str = attrs.field(converter=one_line)
    text: str = attrs.field(converter=one_line)
    remedy: str = ""


@attrs.frozen
class CheckSubject:
    """Findings of one check about one thing."""

    check: str
    what: str

    def ok(self, text: str) -> Finding:
        """Return a finding without a problem."""
        return Finding(Level.OK, self.check, self.what, text)

    def warning(self, text: str, remedy: str) -> Finding:
        """Return a problem that may matter later."""
        return Finding(Level.WARNING, self.check, self.what, text, remedy)

    def error(self, text: str, remedy: str) -> Finding:
        """Return a problem that matters now."""
        return Finding(Level.ERROR, self.check, self.what, text, remedy)
