"""What docs/how-to/dead-letters.md and expiry.md tell people to type does what they say."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nsqtw.core.policy.letter import DISCONNECTED, EXPIRED, REQUEUED, TIMED_OUT, TOO_MANY_ATTEMPTS
from nsqtw.core.policy.redrive import STATES
from nsqtw.options.settings import ChannelPolicy, TopicPolicy, read_policy
from tests.core.policy.harness import fail, put, settle, stored
from tests.http.broker_fixture import Web
from tests.pages import reading
from tests.process import NOTHING, Counts

PAGES = Path(__file__).parent.parent / "docs/how-to"
LETTERS = (PAGES / "dead-letters.md").read_text("utf-8")
EXPIRY = (PAGES / "expiry.md").read_text("utf-8")
PORT = "127.0.0.1:4151"


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for word, text in found if word == language]


def commands(page: str) -> Iterator[tuple[str, str, str]]:
    """Method, target and body of each curl command of a page, in order."""
    for line in "".join(blocks(page, "")).splitlines():
        words = shlex.split(line)
        if words.pop(0) != "curl":
            continue
        body = words.pop(words.index("-d") + 1) if "-d" in words else ""
        method = words.pop(words.index("-X") + 1) if "-X" in words else "POST" if body else "GET"
        (url,) = (word for word in words if not word.startswith("-"))
        yield method, url.removeprefix(f"http://{PORT}"), body


def follow(web: Web, target: str, body: str) -> None:
    """Set the policy that a PUT of a page sets."""
    parts = urlsplit(target)
    names = parse_qs(parts.query)
    topic = web.core.topic(names["topic"][0])
    if parts.path == "/v2/topic/policy":
        topic.policies.set(read_policy(TopicPolicy, json.loads(body)))
    else:
        assert parts.path == "/v2/channel/policy"
        channel = web.core.channel(names["channel"][0], topic.name)
        channel.policies.set(read_policy(ChannelPolicy, json.loads(body)))


def test_the_tables_of_the_config_file_are_policies() -> None:
    for page in (LETTERS, EXPIRY):
        for text in blocks(page, "toml"):
            tables = tomllib.loads(text)
            for kind, policy in (("topic", TopicPolicy), ("channel", ChannelPolicy)):
                for settings in tables.get(kind, {}).values():
                    assert read_policy(policy, settings)


def test_dead_letters_go_and_come_back() -> None:
    web = Web()
    for channel in ("billing", "archive"):
        web.core.channel(channel, "orders")
    (_, policy, given), *redrives, (_, publish, body) = commands(LETTERS)
    follow(web, policy, given)
    put(web.core, b"1", b"2", b"3", topic="orders")
    reader = web.core.reader("billing", "orders")
    for attempts in (1, 2, 3):
        for message in reader.read():
            assert message.attempts == attempts
            reader.requeue(message.id)
    reader.leave()
    settle(web.core)
    for headers in stored(web.core, "orders.dead").values():
        assert {name for name in headers if f"`{name}`" not in LETTERS} == set()

    answers = []
    for method, target, _ in redrives:
        answers.append(web.ask(method, target))
        for _ in range(8):
            web.core.now += 0.1
            web.pump.wake()
            web.turn()
    assert [answer.status for answer in answers] == [200] * 4
    assert [answer.json["state"] for answer in answers] == ["dry run", "running", "done", "done"]
    (example,) = blocks(LETTERS, "json")
    shown = {**answers[1].json, "started": 1767225600}
    assert shown == json.loads(example)

    assert web.post(publish, body.encode()).status == 200
    assert web.core.reader("billing", "orders").bodies() == [b"1", b"2", b"3", body.encode()]
    assert web.core.reader("archive", "orders").bodies() == [b"1", b"2", b"3"]


def test_a_reader_gets_a_dead_letter_and_puts_it_back(tmp_path: Path) -> None:
    with reading("how-to/dead-letters.md", tmp_path) as reader:
        typed = {line.command: line.output for line in reader.follow()}
        assert "cannot be processed" in typed["nsqtw peek orders.dead billing --headers"]
        reader.nsqd.await_counts("orders", "billing", Counts(2, 0, 0))
        reader.nsqd.await_counts("orders.dead", "billing", NOTHING)


def test_messages_expire() -> None:
    web = Web()
    web.core.channel("audit", "prices.eur")
    (_, target, given), (_, publish, body) = commands(EXPIRY)
    follow(web, target, given)
    put(web.core, b"1", topic="prices.eur")
    put(web.core, b"2", topic="prices.eur", ttl="90000")
    web.core.wait(60)
    assert web.core.reader("audit", "prices.eur").bodies() == [b"2"]
    assert web.core.channel("audit", "prices.eur").expired_count == 1
    assert web.post(publish, body.encode()).status == 200
    assert stored(web.core, "prices.eur")[body.encode()] == {"ttl": "90000"}


def channel_tables(page: str) -> dict[str, dict[str, Any]]:
    """The settings of channels in the config files of a page, by pattern."""
    tables: dict[str, dict[str, Any]] = {}
    for text in blocks(page, "toml"):
        tables |= tomllib.loads(text).get("channel", {})
    return tables


def test_dead_letters_go_to_the_topic_that_a_table_names() -> None:
    policy = read_policy(ChannelPolicy, channel_tables(LETTERS)["orders.*/billing"])
    core = Web().core
    core.channel("billing", "orders.eu").policies.set({**policy, "max_attempts": 1})
    put(core, b"1", topic="orders.eu")
    assert fail(core.reader("billing", "orders.eu")) == [b"1"]
    settle(core)
    assert stored(core, policy["dead_letter_topic"])[b"1"]["nsq-dead-topic"] == "orders.eu"


def test_expired_messages_become_dead_letters_where_a_table_says_so() -> None:
    core = Web().core
    core.channel("audit", "prices.eur").policies.set(
        read_policy(ChannelPolicy, channel_tables(EXPIRY)["prices.*/audit"])
    )
    put(core, b"1", topic="prices.eur", ttl="1000")
    core.wait(1)
    assert core.reader("audit", "prices.eur").bodies() == []
    settle(core)
    assert stored(core, "prices.eur.dead")[b"1"]["nsq-dead-reason"] == EXPIRED


def test_every_word_is_on_the_page() -> None:
    words = (REQUEUED, TIMED_OUT, DISCONNECTED, EXPIRED, TOO_MANY_ATTEMPTS, *STATES)
    assert [word for word in words if f"`{word}`" not in LETTERS] == []
