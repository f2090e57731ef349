"""`nsqtw policy`, on a real broker."""

from __future__ import annotations

import pytest

from nsqtw.testing import Broker
from tests.cli.conftest import Nsqtw


@pytest.fixture
def channel(on_nsqd: Nsqtw, topic: str) -> tuple[str, str]:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "archive")
    return topic, "archive"


def test_a_channel_from_the_default_and_back(on_nsqd: Nsqtw, channel: tuple[str, str], nsqd: Broker) -> None:
    topic = channel[0]
    done = on_nsqd("policy", "set", *channel, "max_attempts=5", "requeue_delay=1500ms", "priority=true", "max_rate=0.5")
    assert (done.code, done.err) == (0, "")
    settings = "max_attempts=5, requeue_delay=1.5s, priority=true, max_rate=0.5"
    assert done.out == f"set {settings} in the policy of {topic}/archive on {nsqd.http_address}\n"
    shown = on_nsqd("policy", "show", *channel)
    rows = {words[0]: words[1:] for line in shown.out.splitlines() if len(words := line.split()) == 4}
    assert rows["max_attempts"] == ["5", "set", "all"]
    assert rows["requeue_delay"] == ["1.5s", "set", "all"]
    assert rows["priority"] == ["true", "set", "all"]
    assert rows["max_age"] == ["0s", "default", "all"]
    unset = on_nsqd("policy", "unset", *channel, "max_attempts", "priority", "-o", "json")
    assert unset.json == {"action": "set", "topic": topic, "channel": "archive", "servers": [nsqd.http_address]}
    document = on_nsqd("policy", "show", *channel, "-o", "json").json
    assert (document["topic"], document["channel"]) == channel
    (node,) = document["nodes"]
    assert (node["node"], node["unused"]) == (nsqd.http_address, [])
    assert node["set"] == {"requeue_delay": "1.5s", "max_rate": 0.5}
    assert node["settings"]["max_attempts"] == {"value": 0, "source": "default"}


def test_a_topic(on_nsqd: Nsqtw, channel: tuple[str, str], nsqd: Broker) -> None:
    topic = channel[0]
    assert on_nsqd("policy", "set", topic, "message_ttl=1h").code == 0
    document = on_nsqd("policy", "show", topic, "-o", "json").json
    assert "channel" not in document
    assert document["nodes"][0]["set"] == {"message_ttl": "1h0m0s"}
    assert (
        on_nsqd("policy", "unset", topic, "message_ttl").out
        == f"unset message_ttl in the policy of {topic} on {nsqd.http_address}\n"
    )
    assert on_nsqd("policy", "show", topic, "-o", "json").json["nodes"][0]["set"] == {}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["set", "t", "max_attempts=5"], "max_attempts is a setting of channels, not of topics"),
        (["set", "t", "c", "message_ttl=5s"], "message_ttl is a setting of topics, not of channels"),
        (["set", "t", "c", "max_atempts=5"], "unknown setting 'max_atempts', did you mean 'max_attempts'?"),
        (["set", "t", "c", "max_attempts=many"], "max_attempts must be a whole number"),
        (["set", "t", "c", "max_attempts"], "'max_attempts' must be a setting and its value, such as max_attempts=5"),
        (["set", "t", "c"], "nothing to set: give settings with their values, such as max_attempts=5"),
        (["unset", "t", "c"], "nothing to unset: give settings after the channel 'c', such as max_attempts"),
        (["unset", "t", "c", "max"], "unknown setting 'max'"),
    ],
)
def test_a_mistake_is_one_line(on_nsqd: Nsqtw, words: list[str], complaint: str) -> None:
    done = on_nsqd("policy", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"nsqtw: {complaint}") and done.err.count("\n") == 1


def test_what_the_node_refuses_is_its_sentence(on_nsqd: Nsqtw, channel: tuple[str, str]) -> None:
    done = on_nsqd("policy", "set", *channel, "priority=true", "ordered_by=header:key")
    assert done.code == 2
    assert done.err == (
        "nsqtw: priority and ordered_by cannot be used together: a priority changes the order (INVALID_POLICY)\n"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["show", "nowhere"], "no node has a topic 'nowhere'; 'nsqtw topic list' shows them"),
        (["set", "nowhere", "message_ttl=1h"], "no node has a topic 'nowhere'; 'nsqtw topic list' shows them"),
        (
            ["show", "TOPIC", "nothing"],
            "the channel does not exist; 'nsqtw channel create' makes one (CHANNEL_NOT_FOUND)",
        ),
        (
            ["unset", "TOPIC", "nothing", "max_rate"],
            "the channel does not exist; 'nsqtw channel create' makes one (CHANNEL_NOT_FOUND)",
        ),
    ],
)
def test_what_is_not_there(on_nsqd: Nsqtw, channel: tuple[str, str], words: list[str], complaint: str) -> None:
    done = on_nsqd("policy", *(channel[0] if word == "TOPIC" else word for word in words))
    assert (done.code, done.err) == (3, f"nsqtw: {complaint}\n")


def test_messages_are_dropped_only_after_a_question(on_nsqd: Nsqtw, channel: tuple[str, str]) -> None:
    topic, name = channel
    for _ in range(3):
        assert on_nsqd("pub", topic, "x").code == 0
    words = ("policy", "set", topic, name, "max_depth=1", "overflow=drop_oldest")
    done = on_nsqd(*words)
    question = f"The bounds of channel {name} of topic {topic} drop 2 messages of its backlog at once. Continue?"
    assert (done.code, done.err) == (2, f"nsqtw: {question} There is no terminal to ask on: repeat with --yes\n")
    assert on_nsqd("channel", "show", topic, name, "-o", "json").json["depth"] == 3
    assert on_nsqd(*words, "--yes").code == 0
    assert on_nsqd("policy", "set", topic, name, "max_depth=2").code == 0, "nothing is dropped"
