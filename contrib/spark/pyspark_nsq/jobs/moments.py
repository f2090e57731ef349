"""Moments on a command line: RFC 3339, or milliseconds of Unix time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Seconds of Unix time have fewer digits until the year 5138.
_MILLISECONDS = re.compile(r"\d{12,15}")


class Moment(click.ParamType[int]):
    """Converts to milliseconds of Unix time."""

    name = "moment"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if _MILLISECONDS.fullmatch(value):
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(
                f'"{value}" is neither RFC 3339 with an offset, for example 2026-11-25T14:00:00Z, '
                "nor Unix time in milliseconds",
                param,
                ctx,
            )
        return milliseconds(moment)


MOMENT = Moment()


def milliseconds(moment: datetime) -> int:
    """Return the Unix time of a moment in milliseconds, rounded down."""
    elapsed = moment - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1000 + elapsed.microseconds // 1000


def rfc3339(unix_ms: int) -> str:
    """Return a moment in UTC, without a fraction when there is none."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds" if unix_ms % 1000 else "seconds").replace("+00:00", "Z")
