"""
What the config file says of some topics only:

    [topic."orders.*"]
    durability = "fsync"

The name of a table is a pattern (`*`, `?`, `[abc]`; case counts). Of several that match a topic the last one that sets
a key wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import attrs

from nsqtw.errors import OptionError
from nsqtw.suggestions import did_you_mean

KEY = "topic"
"""The name of the tables in the file."""
DURABILITIES = ("memory", "os", "fsync")


@attrs.frozen
class TopicRule:
    """What holds for the topics that match `pattern`; None: nothing is said."""

    pattern: str
    durability: str | None = None


def durability_of(topic: str, rules: Iterable[TopicRule], default: str) -> str:
    """The class of a topic."""
    chosen = [rule.durability for rule in rules if rule.durability and fnmatchcase(topic, rule.pattern)]
    return chosen[-1] if chosen else default


def read_rules(path: str, tables: object) -> tuple[TopicRule, ...]:
    """The rules in a config file. OptionError, one line that names table and key."""
    if not isinstance(tables, Mapping):
        raise OptionError(f'config file {path}: topic must be tables, such as [topic."orders.*"]')
    return tuple(_rule(path, pattern, table) for pattern, table in tables.items())


def rules_text(rules: Iterable[TopicRule]) -> str:
    """The tables that give these rules."""
    lines = []
    for rule in rules:
        lines += ["", f"[{KEY}.{json.dumps(rule.pattern, ensure_ascii=False)}]"]
        if rule.durability is not None:
            lines.append(f'durability = "{rule.durability}"')
    return "".join(f"{line}\n" for line in lines)


def _rule(path: str, pattern: str, table: Any) -> TopicRule:
    where = f'config file {path}: [{KEY}."{pattern}"]'
    if not isinstance(table, Mapping):
        raise OptionError(f"{where} must be a table")
    for key in table:
        if key != "durability":
            raise OptionError(f"{where} unknown key {key!r}{did_you_mean(key, ['durability'])}")
    durability = table.get("durability")
    if durability is not None and durability not in DURABILITIES:
        raise OptionError(f"{where} durability must be one of {', '.join(DURABILITIES)}")
    return TopicRule(pattern, durability)
