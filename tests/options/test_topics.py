"""What the config file says of some topics only."""

from __future__ import annotations

from pathlib import Path
from tomllib import loads

import pytest

from nsqtw.errors import OptionError
from nsqtw.options.broker import Options
from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.files import config_text
from nsqtw.options.topics import Retention, TopicRule

RULES = """
durability = "memory"

[topic."orders.*"]
durability = "fsync"

[topic."orders.test"]
durability = "os"
"""


def options_of(tmp_path: Path, text: str, *flags: str) -> Options:
    path = tmp_path / "nsqd.toml"
    path.write_text(text)
    return resolve(read_command_line([f"--config={path}", *flags])).options


def test_the_last_table_that_matches_a_topic_counts(tmp_path: Path) -> None:
    options = options_of(tmp_path, RULES)
    classes = {name: options.durability_of(name) for name in ("orders.eu", "orders.test", "Orders.eu", "clicks")}
    assert classes == {"orders.eu": "fsync", "orders.test": "os", "Orders.eu": "memory", "clicks": "memory"}


def test_each_key_of_a_table_counts_by_itself(tmp_path: Path) -> None:
    options = options_of(
        tmp_path,
        """
        retention_bytes = 5000
        [topic."*"]
        retention_time = "24h"
        [topic."orders.*"]
        retention_bytes = 0
        channel_start = "earliest"
        [topic."orders.test"]
        retention_time = 1500
        """,
    )
    assert options.retention_of("clicks") == Retention(86400.0, 5000)
    assert options.retention_of("orders.eu") == Retention(86400.0, 0)
    assert options.retention_of("orders.test") == Retention(1.5, 0), "a bare number is milliseconds, as everywhere"
    assert (options.channel_start_of("clicks"), options.channel_start_of("orders.eu")) == ("latest", "earliest")


def test_a_flag_for_all_topics_leaves_the_tables_alone(tmp_path: Path) -> None:
    options = options_of(tmp_path, RULES, "--durability=os")
    assert (options.durability_of("orders.eu"), options.durability_of("clicks")) == ("fsync", "os")


TIME = "must be a duration, 0 or more, such as 24h or 7d"
SIZE = "must be a number of bytes, 0 or more, such as 1048576 or 1GB"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[topic.a]\ndurability = "disk"', '[topic."a"] durability must be one of memory, os, fsync'),
        ("[topic.a]\ndurability = 1", '[topic."a"] durability must be one of memory, os, fsync'),
        ('[topic.a]\ndurabillity = "os"', "[topic.\"a\"] unknown key 'durabillity', did you mean 'durability'?"),
        ('[topic.a]\nretention_time = "-1h"', f'[topic."a"] retention_time {TIME}'),
        (
            '[topic.a]\nretention_time = "1w"',
            f'[topic."a"] retention_time {TIME}',
        ),
        ('[topic.a]\nretention_bytes = "1G"', f'[topic."a"] retention_bytes {SIZE}'),
        ("[topic.a]\nretention_bytes = -1", f'[topic."a"] retention_bytes {SIZE}'),
        ("[topic.a]\nretention_bytes = true", f'[topic."a"] retention_bytes {SIZE}'),
        ('[topic.a]\nchannel_start = "first"', '[topic."a"] channel_start must be one of earliest, latest'),
        ("topic = 5", 'topic must be tables, such as [topic."orders.*"]'),
        ("topic.a = 5", '[topic."a"] must be a table'),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        options_of(tmp_path, text)
    assert str(refused.value) == f"config file {tmp_path / 'nsqd.toml'}: {said}"


def test_what_is_printed_is_read_back(tmp_path: Path) -> None:
    kept = TopicRule("d", None, 90061.5, 0, "earliest")
    rules = (kept, TopicRule('odd "name" \\ ü.*', "fsync"), TopicRule("b"), TopicRule("c", "memory"))
    text = config_text(Options(topic_rules=rules), {})
    assert loads(text)["topic"]["b"] == {}
    assert options_of(tmp_path, text).topic_rules == rules
