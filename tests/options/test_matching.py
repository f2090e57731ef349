"""The tables of the config file that match a topic or a channel, against a look at each table by itself."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.options.channels import ChannelRule, channel_tables
from nsqtw.options.resolution import NOTHING_GIVEN, resolve
from nsqtw.options.settings import ChannelPolicy
from nsqtw.options.topics import TopicRule, topic_tables

NAMES = st.text("aAb.", min_size=1, max_size=3)
PATTERNS = st.text("aAb.*?[]!", min_size=1, max_size=4)
SETTINGS = st.dictionaries(st.sampled_from(["max_attempts", "max_depth"]), st.integers(1, 3))


@given(st.lists(PATTERNS, max_size=70), st.lists(NAMES, min_size=1))
def test_tables_of_topics(patterns: list[str], topics: list[str]) -> None:
    tables = topic_tables(tuple(TopicRule(pattern) for pattern in patterns))
    for topic in topics:
        found = [rule.pattern for rule in tables.matching(topic)]
        assert found == [pattern for pattern in patterns if fnmatchcase(topic, pattern)]


@given(
    st.lists(st.tuples(PATTERNS, PATTERNS, SETTINGS), max_size=8),
    st.lists(st.tuples(NAMES, NAMES, SETTINGS), min_size=1),
)
def test_tables_of_channels(
    tables: list[tuple[str, str, dict[str, int]]], channels: list[tuple[str, str, dict[str, int]]]
) -> None:
    rules = tuple(ChannelRule(f"{topics}/{channels}", settings) for topics, channels, settings in tables)
    looked_up = channel_tables(rules)
    for topic, channel, run_time in channels:
        matching = [
            rule
            for rule, (topics, names, _) in zip(rules, tables, strict=True)
            if fnmatchcase(topic, topics) and fnmatchcase(channel, names)
        ]
        assert list(looked_up.matching(topic, channel)) == matching
        for settings in (run_time, NOTHING_GIVEN):
            expected = resolve(ChannelPolicy, [rule.table for rule in matching if rule.policy], settings)
            assert looked_up.resolve(settings, topic, channel) == expected
