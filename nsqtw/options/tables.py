"""Tables of the config file about topics and channels: what both kinds have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nsqtw.errors import InvalidPolicy, OptionError
from nsqtw.options.refusals import check_together
from nsqtw.options.settings import PolicyClass, is_setting, read_setting, settings_of
from nsqtw.options.types import did_you_mean, toml_value

TOPIC_KEY, CHANNEL_KEY = "topic", "channel"
"""The names of the tables in the file."""


def head_of(key: str, pattern: str) -> str:
    """Return the head of a table."""
    return f"[{key}.{toml_value(pattern)}]"


def check_pattern(where: str, pattern: str) -> None:
    """Check a pattern of names. OptionError, one line that begins with `where`, for a `[` that nothing closes."""
    at = pattern.find("[")
    while at >= 0:
        first = at + 2 if pattern[at + 1 : at + 2] == "!" else at + 1
        closed = pattern.find("]", first + 1)  # the first character may be `]` itself
        if closed < 0:
            raise OptionError(f"{where} the pattern {pattern} has a '[' without a ']', so it matches no name")
        at = pattern.find("[", closed)


def table_text(key: str, pattern: str, lines: Iterable[str]) -> str:
    """Return a table of a config file, with an empty line before it."""
    return "".join(f"{line}\n" for line in ("", head_of(key, pattern), *lines))


def policy_lines(policy: PolicyClass, values: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table that give these settings."""
    settings = settings_of(policy)
    return [f"{name} = {settings[name].toml(value)}" for name, value in values.items()]


def read_table(where: str, policy: PolicyClass, table: Any, others: Iterable[str] = ()) -> dict[str, Any]:
    """
    Return the settings in a table, which must not contradict each other; `others` are the keys that are none. Errors
    are OptionError, one line that begins with `where`.
    """
    if not isinstance(table, Mapping):
        raise OptionError(f"{where} must be a table")
    settings = settings_of(policy)
    values: dict[str, Any] = {}
    for name, raw in table.items():
        if name in others:
            continue
        if not is_setting(name):
            raise OptionError(f"{where} unknown key {name!r}{did_you_mean(name, [*others, *settings])}")
        try:
            values[name] = read_setting(policy, name, raw)
        except InvalidPolicy as error:
            raise OptionError(f"{where} {error}") from error
    try:
        check_together(policy, values)
    except InvalidPolicy as error:
        raise OptionError(f"{where} {error}") from error
    return values
