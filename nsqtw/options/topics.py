"""
Tables of the config file for topics:

    [topic."orders.*"]
    durability = "fsync"
    retention_time = "24h"
    retention_bytes = 1073741824
    channel_start = "earliest"
    message_ttl = "2d"

The name of a table is a pattern (`*`, `?`, `[abc]`; case counts). Of several that match a topic the last one that sets
a key wins. The settings of `TopicPolicy` are keys too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from nsqtw.errors import OptionError
from nsqtw.options.matching import Tables
from nsqtw.options.resolution import PolicyTable
from nsqtw.options.settings import TopicPolicy
from nsqtw.options.tables import TOPIC_KEY, check_pattern, head_of, policy_lines, read_table, table_text
from nsqtw.options.types import DURATION, SIZE

DURABILITY_TEXTS = {
    "memory": "at once: a crash of nsqd loses the messages that were not consumed",
    "os": "when the operating system has it: it survives a crash of nsqd",
    "fsync": "when it is on the disk: it survives a power failure",
}
"""The durability classes. A text completes "OK is sent"."""
DURABILITIES = tuple(DURABILITY_TEXTS)
EARLIEST, LATEST = STARTS = ("earliest", "latest")
"""
The start of a new channel: the oldest message kept, or, as in nsqd, the first message that was released to no channel.
"""

_MAX_SECONDS = 2**63 / 10**9
_MAX_BYTES = 2**63 - 1


@attrs.frozen
class Retention:
    """How long, and how many bytes of, finished messages of a topic are kept. 0 is no limit; both 0: none are kept."""

    time: float = 0.0
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.time or self.bytes)


@attrs.frozen
class TopicRule:
    """The settings of topics that match `pattern`; None: not set."""

    pattern: str
    durability: str | None = None
    retention_time: float | None = None
    retention_bytes: int | None = None
    channel_start: str | None = None
    policy: Mapping[str, Any] = attrs.field(factory=dict)
    """The settings of its policy."""

    @property
    def table(self) -> PolicyTable:
        """The settings of its policy with the head of the table."""
        return PolicyTable(head_of(TOPIC_KEY, self.pattern), self.policy)


@attrs.frozen
class _Key:
    """A key that a table may have: `check` gives the value, or None for one that is not `form`."""

    name: str
    form: str
    check: Callable[[Any], Any]
    text: Callable[[Any], str]


def is_retention_time(seconds: float) -> bool:
    """Return whether a topic can keep its messages that long."""
    return 0 <= seconds < _MAX_SECONDS


def is_retention_bytes(size: int) -> bool:
    """Return whether a topic can keep so much."""
    return 0 <= size <= _MAX_BYTES


def topic_tables(rules: tuple[TopicRule, ...]) -> Tables[TopicRule, TopicPolicy]:
    """Return these tables for look-ups by the name of a topic."""
    return Tables(TopicPolicy, rules, lambda rule: (rule.pattern,))


def chosen(name: str, rules: Sequence[TopicRule], default: Any) -> Any:
    """Return the value that the last one of these tables with the key `name` has."""
    values = [getattr(rule, name) for rule in rules]
    return next((value for value in reversed(values) if value is not None), default)


def read_rules(path: str, tables: object) -> tuple[TopicRule, ...]:
    """The rules in a config file. OptionError, one line that names table and key."""
    if not isinstance(tables, Mapping):
        raise OptionError(f'config file {path}: topic must be tables, such as [topic."orders.*"]')
    return tuple(_rule(path, pattern, table) for pattern, table in tables.items())


def rules_text(rules: Iterable[TopicRule]) -> str:
    """The tables that give these rules."""
    return "".join(table_text(TOPIC_KEY, rule.pattern, _lines(rule)) for rule in rules)


def _lines(rule: TopicRule) -> list[str]:
    values = [(key, getattr(rule, key.name)) for key in _KEYS.values()]
    lines = [f"{key.name} = {key.text(value)}" for key, value in values if value is not None]
    return lines + policy_lines(TopicPolicy, rule.policy)


def _rule(path: str, pattern: str, table: Any) -> TopicRule:
    where = f'config file {path}: [{TOPIC_KEY}."{pattern}"]'
    check_pattern(where, pattern)
    policy = read_table(where, TopicPolicy, table, _KEYS)
    rule = {}
    for name, key in _KEYS.items():
        if name in table:
            rule[name] = key.check(table[name])
            if rule[name] is None:
                raise OptionError(f"{where} {name} must be {key.form}")
    return TopicRule(pattern, **rule, policy=policy)


def _seconds(raw: Any) -> float | None:
    try:
        seconds: float = DURATION.coerce(raw)
    except ValueError:
        return None
    return seconds if is_retention_time(seconds) else None


def _size(raw: Any) -> int | None:
    try:
        size: int = SIZE.coerce(raw)
    except ValueError:
        return None
    return size if is_retention_bytes(size) else None


def _word_of(words: tuple[str, ...]) -> Callable[[Any], str | None]:
    return lambda raw: raw if raw in words else None


_KEYS = {
    key.name: key
    for key in (
        _Key("durability", f"one of {', '.join(DURABILITIES)}", _word_of(DURABILITIES), json.dumps),
        _Key(
            "retention_time",
            "a duration, 0 or more, such as 24h or 7d",
            _seconds,
            lambda seconds: json.dumps(DURATION.show(seconds), ensure_ascii=False),
        ),
        _Key("retention_bytes", "a number of bytes, 0 or more, such as 1048576 or 1GB", _size, str),
        _Key("channel_start", f"one of {', '.join(STARTS)}", _word_of(STARTS), json.dumps),
    )
}
