"""What docs/how-to/ordering.md and priorities.md show is what happens, and their settings are right."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from nsqtw.message_headers import encode_headers
from nsqtw.options.refusals import contradiction
from nsqtw.options.settings import ChannelPolicy, read_policy
from nsqtw.stats.document import document
from tests.core.harness import BrokerHarness

HOW_TO = Path(__file__).parent.parent / "docs/how-to"
PAGES = ("ordering", "priorities")


def blocks(page: str, language: str) -> list[str]:
    text = (HOW_TO / f"{page}.md").read_text("utf-8")
    return [
        block
        for word, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if word == language
    ]


def dialogues(page: str) -> list[str]:
    return [block for block in blocks(page, "text") if block.startswith("publish")]


def tables(page: str) -> dict[str, dict[str, object]]:
    """The tables of channels in the config file of a page."""
    return {name: table for text in blocks(page, "toml") for name, table in tomllib.loads(text)["channel"].items()}


def play(core: BrokerHarness, dialogue: str) -> None:
    """Publish, receive, finish and requeue the bodies that the lines of a dialogue have."""
    reader = core.reader()
    got: dict[str, bytes] = {}
    for line in dialogue.splitlines():
        verb, *bodies = line.split()
        if verb == "publish":
            headers = [encode_headers({"priority": body.partition("-")[0]}) for body in bodies]
            core.topic().put([body.encode() for body in bodies], 0, [].append, headers)
        elif verb == "gets":
            messages = reader.read()
            assert [message.body.decode() for message in messages] == bodies
            got.update({message.body.decode(): message.id for message in messages})
        elif verb == "finish":
            assert reader.finish(*[got[body] for body in bodies]) == []
        else:
            assert verb == "requeue"
            assert [reader.requeue(got[body]) for body in bodies] == [None] * len(bodies)


@pytest.mark.parametrize("page", PAGES)
def test_the_dialogue_of_the_page(page: str) -> None:
    core = BrokerHarness()
    core.channel().policies.set(next(iter(tables(page).values())))
    dialogue, *_ = dialogues(page)
    play(core, dialogue)


def test_the_window_of_the_page() -> None:
    _, dialogue = dialogues("ordering")
    core = BrokerHarness()
    core.channel().policies.set({"ordered_by": "json:customer", "order_window": 2})
    play(core, dialogue)
    core.channel().policies.set({"ordered_by": "json:customer"})
    with pytest.raises(AssertionError):
        play(core, dialogue)


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_of_the_page(page: str) -> None:
    words = shlex.split(blocks(page, "")[0])
    given = [*tables(page).values(), json.loads(words[words.index("-d") + 1])]
    for settings in given:
        policy = ChannelPolicy(**read_policy(ChannelPolicy, settings))
        assert policy != ChannelPolicy()
        assert contradiction(policy) is None


def test_what_stats_shows() -> None:
    (shown,) = blocks("ordering", "json")
    core = BrokerHarness()
    core.channel().policies.set({"ordered_by": "json:customer"})
    core.put(*[b'{"customer":"a","n":%d}' % number for number in range(3)])
    core.reader()
    core.turn()
    (topic,) = document(core.broker, "1.3.0", now=core.now)["topics"]
    assert topic["channels"][0]["order"] == json.loads(shown)["order"]
