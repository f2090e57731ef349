"""
Options from environment variables: `NSQTW_` and the flag in upper case, with `_` for each dash. Those of other
programs than nsqd have the program's name in between: `NSQTW_NSQLOOKUPD_`.

    NSQTW_MSG_TIMEOUT=30s  NSQTW_DEFLATE=false  NSQTW_LOOKUPD_TCP_ADDRESS=10.0.0.1:4160,10.0.0.2:4160

A value is written as for the flag; a list has commas between its values, and an empty text is an empty one.
NSQTW_CONFIG names a config file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from nsqtw.errors import OptionError
from nsqtw.gocompat.values import quoted
from nsqtw.options.broker import NSQD
from nsqtw.options.fields import VARIABLE_PREFIXES, Option, OptionTable
from nsqtw.options.types import Kind, did_you_mean, unfit


class Environment:
    """The variables among `variables` that are for a program, as a source of options."""

    name = "environment"

    def __init__(self, variables: Mapping[str, str], table: OptionTable[Any] = NSQD) -> None:
        self._prefix = table.prefix
        self._config = f"{table.prefix}CONFIG"
        self._known = {self._config, *(option.variable for option in table)}
        self._variables = {name: text for name, text in variables.items() if _prefix_of(name) == table.prefix}

    @property
    def config(self) -> str:
        """The config file that is named; empty for none."""
        return self._variables.get(self._config, "")

    def holds(self, option: Option) -> bool:
        """Return whether the option is set here."""
        return option.variable in self._variables

    def read(self, option: Option) -> Any:
        """The value of an option that is set here. OptionError, naming the variable, for a value that is none."""
        text = self._variables[option.variable]
        try:
            return _parse(option.kind, text)
        except ValueError as failure:
            raise OptionError(
                f"invalid value {quoted(text)} for {option.variable}: {unfit(option.kind, text, failure)}"
            ) from failure

    def mistakes(self) -> list[OptionError]:
        """None: a cluster manager may set variables of its own that look like ours."""
        return []

    def warnings(self) -> list[str]:
        """A line for each variable that looks like ours and is none."""
        unknown = sorted(self._variables.keys() - self._known)
        hints = ((name, did_you_mean(name, self._known, self._prefix)) for name in unknown)
        return [f"environment: unknown variable {name!r}{hint}" for name, hint in hints]


def _prefix_of(name: str) -> str:
    """The prefix of the program that a variable is for; empty when it is for none of ours."""
    return max((prefix for prefix in VARIABLE_PREFIXES.values() if name.startswith(prefix)), key=len, default="")


def _parse(kind: Kind, text: str) -> Any:
    if kind.add is None:
        return kind.parse(text)
    parts = (part.strip() for part in text.split(","))
    return reduce(kind.add, (kind.parse(part) for part in parts if part), ())
