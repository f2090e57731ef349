"""What docs/how-to/deduplication.md and scheduled-messages.md tell people to type does what they say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqtw.http.query import parameters
from nsqtw.message_headers import encode_headers
from nsqtw.options.broker import Options
from nsqtw.options.policies import TopicPolicy, read_policy
from nsqtw.options.types import parse_duration
from tests.core.harness import START
from tests.http.broker_fixture import Reply, Web

PAGES = Path(__file__).parent.parent / "docs/how-to"
ADDRESS = "http://127.0.0.1:4151"
ID = "0a1b2c3d4e5f6071"


def all_blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of the code blocks of a page, in their order."""
    text = (PAGES / page).read_text("utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return [found for word, found in all_blocks(page) if word == language]


def words_of(line: str) -> list[str]:
    """Return the words of a command as a shell expands them."""
    script = f"printf '%s\\n' {line}" if "$(" in line else ""
    if not script:
        return shlex.split(line)
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout.splitlines()


class Shell:
    """
    Performs the commands of a page, from the top, at a broker whose options are at their default until the page sets
    them. The ids of publishers are given to it as the HTTP API gives them.
    """

    def __init__(self, page: str, channel: str) -> None:
        self.page = page
        self.channel = channel
        self.web = Web(max_msg_size=100, max_req_timeout=Options().max_req_timeout)
        self.ids: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yield the commands of the page; the settings that stand before one are made before it."""
        for language, text in all_blocks(self.page):
            if language == "toml":
                self._set(tomllib.loads(text))
            elif not language:
                yield from text.splitlines()

    def _set(self, settings: dict[str, Any]) -> None:
        for name, given in settings.pop("topic", {}).items():
            topic = self.web.core.topic(name)
            topic.channel(self.channel, self.web.core.now)
            topic.set_policy(read_policy(TopicPolicy, given))
        for name, text in settings.items():
            assert name == "max_defer_timeout"
            self.web.core.options.max_defer_timeout = parse_duration(text)

    def curl(self, line: str) -> Reply | None:
        words = words_of(line)
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
    wall_ns = time.time_ns() - int(START * 10**9)  # the broker has run for START seconds
    monkeypatch.setattr("nsqtw.runtime.pump.set_clock", lambda broker, now: broker.follow_wall(wall_ns, now))


def test_the_message_of_the_page_about_deduplication_is_stored_once() -> None:
    shell = Shell("deduplication.md", "c")
    for line in shell.lines():
        shell.curl(line)
    topic = shell.web.core.topic("payments")
    assert (topic.channels["c"].depth, topic.deduplicated_count) == (1, 1)


def test_the_commands_of_the_page_about_scheduled_messages() -> None:
    shell = Shell("scheduled-messages.md", "mail")
    for channel in ("mail", "phone"):
        shell.web.core.topic("reminders").channel(channel, shell.web.core.now)
    (answer_with_ids, answer_to_cancel) = [json.loads(text) for text in blocks("scheduled-messages.md", "json")]
    cancelled, deferred = 0, 0
    for line in shell.lines():
        if line.startswith("nsqtw "):
            assert line.startswith(("nsqtw message cancel reminders ", "nsqtw pub reminders "))
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
    assert (deferred, cancelled) == (6, 2)
