"""`nsqtw-spark profile` of a log and of an archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.process import NsqdProcess
from tests.spark.jobs.conftest import Job, at

MESSAGES: list[Any] = [
    *({"n": number, "user": {"id": number}} for number in range(90)),
    *({"n": str(number)} for number in range(8)),
    {"n": 1, "user": {"id": 1}},  # for the third time, with the next one
    {"n": 1, "user": {"id": 1}},
]


def publish(broker: NsqdProcess, topic: str, bodies: list[bytes]) -> None:
    assert broker.http("POST", f"/mpub?topic={topic}", b"\n".join(bodies)).status == 200


@pytest.fixture
def filled(broker: NsqdProcess) -> NsqdProcess:
    """A broker with messages in "t" and "u"."""
    publish(broker, "t", [*(json.dumps(message).encode() for message in MESSAGES), b"no json"])
    publish(broker, "u", [b'{"other": true}'] * 3)
    return broker


def test_the_figures_of_a_log(job: Job, filled: NsqdProcess) -> None:
    done = job("profile", at(filled), "--topic=t", "--json")
    assert done.code == 0, done.err
    [found] = json.loads(done.out)["topics"]
    assert (found["messages"], sum(hour["messages"] for hour in found["hours"])) == (101, 101)
    sizes = sorted(len(json.dumps(message)) for message in MESSAGES)
    assert (sizes[50], sizes[-1]) == (found["size"]["p50"], found["size"]["max"])
    [n] = [field for field in found["json"]["fields"] if field["field"] == "n"]
    assert (n["conflict"], [each["count"] for each in n["types"]]) == (True, [92, 8])
    [user] = [field for field in found["json"]["fields"] if field["field"] == "user"]
    assert (user["conflict"], user["present"]) == (False, 0.92)
    assert found["json"]["not_json"] == 1
    assert found["duplicates"]["by_value"] == {"messages": 2, "distinct": 1, "most": 3}
    assert found["duplicates"]["by_id"]["messages"] == 0
    assert done.err.startswith("read 101 messages in ")


def test_a_pattern_of_topics_with_a_page(job: Job, filled: NsqdProcess, tmp_path: Path) -> None:
    made = tmp_path / "profile.html"
    done = job("profile", at(filled), "--topic-pattern=[tu]", f"--html={made}", "--no-duplicates")
    assert done.code == 0, done.err
    assert "conflict" in done.out
    text = made.read_text("utf-8")
    assert "<h2>t</h2>" in text and "<h2>u</h2>" in text


def test_without_rich_the_tables_are_plain(job: Job, filled: NsqdProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    done = job("profile", at(filled), "--topic=t")
    assert done.code == 0, done.err
    assert "t: JSON fields\nfield    present  types" in done.out


def test_the_figures_of_an_archive(job: Job, filled: NsqdProcess, tmp_path: Path) -> None:
    lake = f"{tmp_path / 'lake'}"
    for topic in "tu":
        archived = job("archive", at(filled), f"--topic={topic}", f"--output={lake}-{topic}", "--once", "--quiet")
        assert archived.code == 0, archived.err
    done = job("profile", f"--archive={lake}-t", "--topic=t", "--where=json is not null", "--json")
    assert done.code == 0, done.err
    [found] = json.loads(done.out)["topics"]
    assert (found["messages"], found["json"]["not_json"], found["duplicates"]["by_value"]["messages"]) == (100, 0, 2)


def test_a_topic_without_messages(job: Job, broker: NsqdProcess) -> None:
    done = job("profile", at(broker), "--topic=t", "--json")
    assert (done.code, json.loads(done.out)["topics"]) == (0, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["NSQD"], "give either --topic or --topic-pattern"),
        (["--topic=t"], "give either --archive, or --nsqd-http-address or --lookupd-http-address"),
        (["NSQD", "--topic=t", "--archive=lake"], "give either --archive, or --nsqd-http-address"),
        (["NSQD", "--topic=tt"], 'has no topic "tt"; did you mean "t"?'),
        (["NSQD", "--topic-pattern=x.*"], 'has no topic that "x.*" matches; there are: t, u'),
        (["NSQD", "--topic-pattern=("], '--topic-pattern "(" is no regular expression'),
        (["NSQD", "--topic=t", "--html=/no/where.html"], "its folder does not exist"),
        (["NSQD", "--topic=t", "--html=/"], '--html "/": Is a directory'),
        (["NSQD", "--topic=t", "--where=sum(position) > 1"], "The columns are value, text, json, topic"),
        (["--topic=t", "--archive=/no/lake"], '--archive "/no/lake" has no archive'),
    ],
)
def test_a_mistake_is_one_line(job: Job, broker: NsqdProcess, words: list[str], said: str) -> None:
    done = job("profile", *[at(broker) if word == "NSQD" else word for word in words])
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert said in done.err
