"""
Rules of the config file for some channels only:

    [channel."orders.*/archive"]
    max_attempts = 5
    requeue_delay = "1s"

The name of a table is a pattern of topics, `/`, and a pattern of channels (`*`, `?`, `[abc]`; case counts). Of several
that match a channel the last one that sets a key wins. The keys are the settings of `ChannelPolicy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from nsqtw.errors import OptionError
from nsqtw.options.matching import Tables
from nsqtw.options.policies import ChannelPolicy, Source
from nsqtw.options.tables import CHANNEL_KEY, check_pattern, head_of, policy_lines, read_table, table_text


@attrs.frozen
class ChannelRule:
    """The settings of channels that match `pattern`."""

    pattern: str
    policy: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def patterns(self) -> tuple[str, str]:
        """The patterns of topics and of channels."""
        topics, _, channels = self.pattern.partition("/")
        return topics, channels

    @property
    def source(self) -> Source:
        """The settings with the head of the table."""
        return Source(head_of(CHANNEL_KEY, self.pattern), self.policy)


def channel_tables(rules: tuple[ChannelRule, ...]) -> Tables[ChannelRule, ChannelPolicy]:
    """Return these tables for look-ups by the names of a topic and a channel."""
    return Tables(ChannelPolicy, rules, lambda rule: rule.patterns)


def read_channel_rules(path: str, tables: object) -> tuple[ChannelRule, ...]:
    """Return the rules of a config file. OptionError, one line that names table and key."""
    if not isinstance(tables, Mapping):
        raise OptionError(f'config file {path}: channel must be tables, such as [channel."orders.*/archive"]')
    return tuple(_rule(path, pattern, table) for pattern, table in tables.items())


def channel_rules_text(rules: Iterable[ChannelRule]) -> str:
    """Return the tables that give these rules."""
    return "".join(table_text(CHANNEL_KEY, rule.pattern, policy_lines(ChannelPolicy, rule.policy)) for rule in rules)


def _rule(path: str, pattern: str, table: object) -> ChannelRule:
    where = f'config file {path}: [{CHANNEL_KEY}."{pattern}"]'
    topics, _, channels = pattern.partition("/")
    if not topics or not channels or "/" in channels:
        remedy = head_of(CHANNEL_KEY, f"{topics or '*'}/{channels.replace('/', '') or '*'}")
        raise OptionError(f"{where} must have a pattern of topics, one / and a pattern of channels, such as {remedy}")
    for part in (topics, channels):
        check_pattern(where, part)
    return ChannelRule(pattern, read_table(where, ChannelPolicy, table))
