"""What the config file says of some channels only, and of the policies of topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqtw.errors import OptionError
from nsqtw.options.broker import Options
from nsqtw.options.channels import ChannelRule
from nsqtw.options.files import config_text
from nsqtw.options.resolution import NO_CHANNEL_POLICY
from nsqtw.options.settings import changed_settings
from nsqtw.options.topics import TopicRule
from tests.options.test_topics import options_of

RULES = """
[topic."orders.*"]
durability = "fsync"
message_ttl = "2d"

[channel."*/archive"]
max_attempts = 5
requeue_delay = "1s"

[channel."orders.*/arch*"]
max_attempts = 9
"""


def test_the_last_table_that_matches_counts_for_each_key(tmp_path: Path) -> None:
    options = options_of(tmp_path, RULES)
    assert changed_settings(options.channel_policy_of("clicks", "archive")) == {
        "max_attempts": 5,
        "requeue_delay": "1s",
    }
    assert changed_settings(options.channel_policy_of("orders.eu", "archive")) == {
        "max_attempts": 9,
        "requeue_delay": "1s",
    }
    assert changed_settings(options.channel_policy_of("orders.eu", "archive2")) == {"max_attempts": 9}
    for other in (("orders.eu", "Archive"), ("Orders.eu", "arch"), ("x", "y")):
        assert options.channel_policy_of(*other) is NO_CHANNEL_POLICY
    assert (options.topic_policy_of("orders.eu").message_ttl, options.topic_policy_of("x").message_ttl) == (172800.0, 0)
    assert options.durability_of("orders.eu") == "fsync"


SHOWN = 'such as [channel."{}"]'
FORM = "must have a pattern of topics, one / and a pattern of channels"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[channel."a/b"]\nmax_atempts = 5',
            "[channel.\"a/b\"] unknown key 'max_atempts', did you mean 'max_attempts'?",
        ),
        ('[channel."a/b"]\nmax_attempts = -1', '[channel."a/b"] max_attempts must be 0 to 65535'),
        ('[channel."a/b"]\nmax_attempts = true', '[channel."a/b"] max_attempts must be a whole number'),
        ('[channel."a/b"]\npriority = 1', '[channel."a/b"] priority must be true or false'),
        (
            '[channel."a/b"]\npriority = true\nordered_by = "header:k"',
            '[channel."a/b"] priority and ordered_by cannot be used together: a priority changes the order',
        ),
        ('[channel."a/b"]\nmessage_ttl = "1h"', '[channel."a/b"] message_ttl is a setting of topics, not of channels'),
        ('[channel."a/b"]\ndurability = "os"', "[channel.\"a/b\"] unknown key 'durability'"),
        ("[topic.a]\nmax_attempts = 5", '[topic."a"] max_attempts is a setting of channels, not of topics'),
        (
            '[topic.a]\nmessage_ttl = "soon"',
            '[topic."a"] message_ttl must be a number with a unit, such as 250ms or 1h30m',
        ),
        ("[topic.a]\nmessage_tll = 5", "[topic.\"a\"] unknown key 'message_tll', did you mean 'message_ttl'?"),
        ("[channel.a]\nmax_attempts = 5", f'[channel."a"] {FORM}, {SHOWN.format("a/*")}'),
        ('[channel."/c"]', f'[channel."/c"] {FORM}, {SHOWN.format("*/c")}'),
        ('[channel."a/b/c"]', f'[channel."a/b/c"] {FORM}, {SHOWN.format("a/bc")}'),
        (
            '[channel."self/b"]\nmax_attempts = 1\ndead_letter_topic = "self"',
            "[channel.\"self/b\"] dead_letter_topic 'self' is the topic itself: set it to another one",
        ),
        (
            '[channel."*/*"]\ndead_letter_topic = "self"\n[channel."self/b*"]\nexpired = "dead_letter"',
            "[channel.\"self/b*\"] dead_letter_topic 'self' is the topic itself: set it to another one",
        ),
        (
            '[channel."t/b"]\nmax_attempts = 1\ndead_letter_topic = "dead#ephemeral"',
            "[channel.\"t/b\"] dead_letter_topic 'dead#ephemeral' is ephemeral, and topic 't' is not: set it to"
            " a durable one",
        ),
        (
            f'[channel."{"t" * 60}/b"]\nmax_attempts = 1',
            f"[channel.\"{'t' * 60}/b\"] topic '{'t' * 60}.dead' for dead letters has an invalid name: set"
            " dead_letter_topic to another one",
        ),
        (
            '[channel."o[/b"]',
            "[channel.\"o[/b\"] the pattern o[ has a '[' without a ']', so it matches no name",
        ),
        (
            '[channel."o[a]/b[!]"]',
            "[channel.\"o[a]/b[!]\"] the pattern b[!] has a '[' without a ']', so it matches no name",
        ),
        ('[topic."a[]"]', "[topic.\"a[]\"] the pattern a[] has a '[' without a ']', so it matches no name"),
        (
            '[channel."a/b"]\nrequeue_delay = "1h"',
            '[channel."a/b"] requeue_delay 1h0m0s is longer than max_requeue_delay 15m0s',
        ),
        ("channel = 5", 'channel must be tables, such as [channel."orders.*/archive"]'),
        ('[channel."a/b"]\noverflow = 1979-05-27', '[channel."a/b"] overflow must be reject or drop_oldest'),
        ('[channel."a/b"]\nmax_depth = {a = 1}', '[channel."a/b"] max_depth must be a whole number'),
        ('channel."a/b" = 5', '[channel."a/b"] must be a table'),
        ('[chanel."a/b"]', 'unknown table [chanel."a/b"], did you mean [channel."a/b"]?'),
        ('[topics."a"]', 'unknown table [topics."a"], did you mean [topic."a"]?'),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        options_of(tmp_path, text)
    assert str(refused.value) == f"config file {tmp_path / 'nsqd.toml'}: {said}"


@pytest.mark.parametrize(
    "text",
    [
        '[channel."*/*"]\nmax_attempts = 1\ndead_letter_topic = "dead"\n[channel."dead/b"]\nmax_depth = 5',
        f'[channel."*/b"]\ndead_letter_topic = "dead"\n[channel."{"t" * 60}/b"]\nmax_attempts = 1',
        '[channel."dead/b"]\nmax_attempts = 0\ndead_letter_topic = "dead"',
    ],
)
def test_a_dead_letter_topic_that_is_not_used_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert options_of(tmp_path, text).channel_rules


def test_what_is_printed_is_read_back(tmp_path: Path) -> None:
    channels = (
        ChannelRule('odd "name" \\ ü.*/\x7f', {"max_rate": 0.5, "priority": True, "dead_letter_topic": "late"}),
        ChannelRule("a/b", {"max_age": 90061.5, "max_bytes": 1 << 40, "overflow": "drop_oldest"}),
        ChannelRule("empty/*"),
        ChannelRule("[a]b/[!]]c[]]"),
    )
    topics = (TopicRule("t", "fsync", policy={"message_ttl": 1.5}),)
    text = config_text(Options(topic_rules=topics, channel_rules=channels), {})
    read = options_of(tmp_path, text)
    assert (read.topic_rules, read.channel_rules) == (topics, channels)
