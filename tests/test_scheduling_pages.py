"""What docs/how-to/deduplication.md and scheduled-messages.md tell people to type does what they say."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nsqtw.http.query import parameters
from nsqtw.message_headers import encode_headers
from nsqtw.options.policies import TopicPolicy, read_policy
from nsqtw.options.types import parse_duration
from tests.core.harness import WALL_NS
from tests.http.broker_fixture import Reply, Web

PAGES = Path(__file__).parent.parent / "docs/how-to"
ADDRESS = "http://127.0.0.1:4151"
ID = "0a1b2c3d4e5f6071"


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text("utf-8")
    return [
        found
        for word, found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if word == language
    ]


class Shell:
    """Performs the commands of a page at a broker. The ids of publishers are given to it as the HTTP API gives them."""

    def __init__(self, page: str, channel: str) -> None:
        self.page = page
        self.settings: dict[str, Any] = {}
        for text in blocks(page, "toml"):
            self.settings.update(tomllib.loads(text))
        self.web = Web(max_msg_size=100, max_defer_timeout=parse_duration(self.settings.get("max_defer_timeout", "0")))
        self.ids: list[str] = []
        for name, given in self.settings["topic"].items():
            topic = self.web.core.topic(name)
            topic.channel(channel, self.web.core.now)
            topic.set_policy(read_policy(TopicPolicy, given))

    def lines(self) -> list[str]:
        return [line for text in blocks(self.page, "") for line in text.splitlines()]

    def curl(self, line: str) -> Reply | None:
        words = shlex.split(line)
        assert words[0] == "curl"
        target = words[-1].removeprefix(ADDRESS)
        body = words[words.index("-d") + 1].encode() if "-d" in words else b""
        params = parameters(target.partition("?")[2].encode())
        if target.startswith("/pub") and "id" in params:
            headers = [encode_headers({"id": params["id"]})]
            self.web.core.topic(params["topic"]).put([body], int(params.get("defer", "0")), lambda error: None, headers)
            self.web.core.turn()
            return None
        return self.web.post(target.replace(ID, self.ids[-1] if self.ids else ID), body)


@pytest.fixture(autouse=True)
def _wall_clock_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsqtw.runtime.pump.set_clock", lambda broker, now: broker.follow_wall(WALL_NS, now))


def test_the_message_of_the_page_about_deduplication_is_stored_once() -> None:
    shell = Shell("deduplication.md", "c")
    assert len(shell.lines()) == 2
    for line in shell.lines():
        shell.curl(line)
    topic = shell.web.core.topic("payments")
    assert (topic.channels["c"].depth, topic.deduplicated_count) == (1, 1)


def test_the_commands_of_the_page_about_scheduled_messages() -> None:
    shell = Shell("scheduled-messages.md", "mail")
    shell.web.core.topic("reminders").channel("phone", shell.web.core.now)
    (answer_with_ids, answer_to_cancel) = [json.loads(text) for text in blocks("scheduled-messages.md", "json")]
    cancelled, deferred = 0, 0
    for line in shell.lines():
        if line.startswith("nsqtw "):
            assert line.startswith("nsqtw message cancel reminders ")
            continue
        reply = shell.curl(line)
        deferred += "/pub" in line
        if reply is None:
            continue
        assert reply.status == 200, (line, reply.body)
        if "ids=true" in line:
            assert reply.json.keys() == answer_with_ids.keys()
            shell.ids += reply.json["ids"]
        if "cancel" in line:
            cancelled += 1
            assert reply.json.keys() == answer_to_cancel.keys()
            assert reply.json["channels"] == answer_to_cancel["channels"]
        assert shell.web.core.topic("reminders").channels["mail"].deferred_count == deferred - cancelled
    assert (deferred, cancelled) == (5, 2)
