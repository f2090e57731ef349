"""docs/how-to/policies.md: its tables are the settings of the program, and everything it tells people to type works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.refusals import REFUSED
from nsqtw.options.settings import ChannelPolicy, PolicyClass, TopicPolicy, changed_settings, settings_of
from tests.http.broker_fixture import Web
from tests.pages import Page, reading

HOW_TO = Path(__file__).parent.parent / "docs/how-to"
PAGE = Page("how-to/policies.md")
EMPTY = '""'
"""An empty text, as the tables show it."""


def rows_of(policy: PolicyClass) -> list[list[str]]:
    """The cells of the table of a policy, without the last one, which names a page."""
    return [
        [
            f"`{setting.name}`",
            setting.kind.word,
            f"`{setting.text(setting.default) or EMPTY}`",
            setting.bounds or ", ".join(setting.kind.words),
            setting.help,
        ]
        for setting in settings_of(policy).values()
    ]


def table_below(heading: str) -> list[list[str]]:
    section = PAGE.text.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


TABLES: list[tuple[str, PolicyClass]] = [
    ("### Settings of topics", TopicPolicy),
    ("### Settings of channels", ChannelPolicy),
]


@pytest.mark.parametrize(("heading", "policy"), TABLES)
def test_the_tables_have_every_setting(heading: str, policy: PolicyClass) -> None:
    assert [row[:5] for row in table_below(heading)] == rows_of(policy)


@pytest.mark.parametrize(("heading", "policy"), TABLES)
def test_each_setting_has_a_page_that_explains_it_and_links_back(heading: str, policy: PolicyClass) -> None:
    overview = PAGE.text.partition("## Three ways")[0]
    for name, *_, link in table_below(heading):
        page = re.search(r"\((.+?)(#.*)?\)", link)
        assert page is not None, name
        text = (HOW_TO / page[1]).read_text("utf-8")
        assert name.strip("`") in text and "](policies.md" in text, name
        assert name in overview and page[1] in overview, name


def test_the_page_has_each_combination_that_is_refused() -> None:
    """Not the values that are wrong by themselves."""
    rows = [{*re.findall(r"`(\w+)", " ".join(row[:2]))} for row in table_below("## Settings that exclude each other")]
    combined = [row for row in REFUSED if len(row.settings) > 1 or row.channels]
    assert [row.settings for row in combined if not any({*row.settings} <= names for names in rows)] == []


def test_a_reader_sets_policies_that_outlive_a_kill(tmp_path: Path) -> None:
    with reading("how-to/policies.md", tmp_path) as reader:
        reader.follow()
        nsqd = reader.nsqd
        before = nsqd.http("GET", "/v2/channel/policy?topic=orders&channel=archive").body
        assert json.loads(before)["set"] == {"requeue_delay": "1s"}
        nsqd.kill()
        nsqd.start()
        assert nsqd.http("GET", "/v2/channel/policy?topic=orders&channel=archive").body == before


def test_the_answer_of_the_page_has_the_fields_of_one() -> None:
    (shown,) = map(json.loads, PAGE.blocks("json"))
    web = Web()
    answer = web.ask("PUT", "/v2/channel/policy?topic=orders&channel=archive", b'{"requeue_delay": "1s"}').json
    assert shown.keys() == answer.keys()
    assert shown["settings"].keys() < answer["settings"].keys()


def test_the_config_file_of_the_page(tmp_path: Path) -> None:
    (text,) = PAGE.blocks("toml")
    path = tmp_path / "nsqd.toml"
    path.write_text(text)
    options = resolve(read_command_line([f"--config={path}"])).options
    assert changed_settings(options.topic_policy_of("orders.eu")) == {"message_ttl": "48h0m0s"}
    assert changed_settings(options.channel_policy_of("orders.eu", "archive")) == {
        "max_attempts": 5,
        "requeue_delay": "1s",
    }
    assert changed_settings(options.channel_policy_of("orders.eu", "billing")) == {"max_attempts": 5}
