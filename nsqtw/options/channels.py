"""
Tables of the config file for channels:

    [channel."orders.*/archive"]
    max_attempts = 5
    requeue_delay = "1s"

The name of a table is a pattern of topics, `/`, and a pattern of channels (`*`, `?`, `[abc]`; case counts). Of several
that match a channel the last one that sets a key wins. The keys are the settings of `ChannelPolicy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import attrs

from nsqtw.errors import OptionError
from nsqtw.options.matching import Tables
from nsqtw.options.refusals import LETTER_SETTINGS, misfit
from nsqtw.options.resolution import PolicyTable
from nsqtw.options.settings import ChannelPolicy
from nsqtw.options.tables import CHANNEL_KEY, check_pattern, head_of, policy_lines, read_table, table_text

_WILDCARDS = re.compile(r"[*?\[]")


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
    def table(self) -> PolicyTable:
        """The settings with the head of the table."""
        return PolicyTable(head_of(CHANNEL_KEY, self.pattern), self.policy)


def channel_tables(rules: tuple[ChannelRule, ...]) -> Tables[ChannelRule, ChannelPolicy]:
    """Return these tables for look-ups by the names of a topic and a channel."""
    return Tables(ChannelPolicy, rules, lambda rule: rule.patterns)


def read_channel_rules(path: str, tables: object) -> tuple[ChannelRule, ...]:
    """Return the rules of a config file. OptionError, one line that names table and key."""
    if not isinstance(tables, Mapping):
        raise OptionError(f'config file {path}: channel must be tables, such as [channel."orders.*/archive"]')
    rules = tuple(_rule(path, pattern, table) for pattern, table in tables.items())
    for rule in rules:
        _check_letters(path, rule, rules)
    return rules


def channel_rules_text(rules: Iterable[ChannelRule]) -> str:
    """Return the tables that give these rules."""
    return "".join(table_text(CHANNEL_KEY, rule.pattern, policy_lines(ChannelPolicy, rule.policy)) for rule in rules)


def _rule(path: str, pattern: str, table: object) -> ChannelRule:
    where = _place(path, pattern)
    topics, _, channels = pattern.partition("/")
    if not topics or not channels or "/" in channels:
        remedy = head_of(CHANNEL_KEY, f"{topics or '*'}/{channels.replace('/', '') or '*'}")
        raise OptionError(f"{where} must have a pattern of topics, one / and a pattern of channels, such as {remedy}")
    for part in (topics, channels):
        check_pattern(where, part)
    return ChannelRule(pattern, read_table(where, ChannelPolicy, table))


def _check_letters(path: str, rule: ChannelRule, rules: Iterable[ChannelRule]) -> None:
    """
    Check the dead-letter topic of a rule for one topic, with the settings that all tables give it. OptionError if the
    topic cannot have it. That of a pattern is checked for each channel.
    """
    topic, channels = rule.patterns
    if rule.policy.keys().isdisjoint(LETTER_SETTINGS) or _WILDCARDS.search(topic):
        return
    values: dict[str, Any] = {}
    for other in rules:
        topic_pattern, channel_pattern = other.patterns
        if _matches(topic, topic_pattern) and _matches(channels, channel_pattern):
            values |= other.policy
    policy = ChannelPolicy(**values)
    problem = misfit(policy, topic)
    if problem is not None:
        raise OptionError(f"{_place(path, rule.pattern)} {problem}")


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name, or all that match another pattern, match this one."""
    return name == pattern or (_WILDCARDS.search(pattern) is not None and fnmatchcase(name, pattern))


def _place(path: str, pattern: str) -> str:
    return f'config file {path}: [{CHANNEL_KEY}."{pattern}"]'
