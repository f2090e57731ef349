"""The examples of docs/how-to/spark*.md and of contrib/spark/README.md do what the pages say, from top to bottom."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.process import Counts, ForkedNsqd, LookupdProcess, NsqdProcess, wait_until
from tests.spark.log_stream import keep
from tests.wire import HOST

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = re.compile(r'"(clicks\.jsonl|incoming|(?:checkpoints|lake|spools)/\w+)"')
#: The ranges of time of the pages, which here are around the day of the test.
MOMENTS = {
    "2026-11-20T00:00:00Z": "2020-01-01T00:00:00Z",
    "2026-11-21T00:00:00Z": "2100-01-01T00:00:00Z",
    "2026-11-20T10:00:00Z": "2020-01-01T00:00:00Z",
    "2026-11-20T11:00:00Z": "2100-01-01T00:00:00Z",
}
CLICKS = [b'{"user": "ann", "amount": 2.5}', b'{"user": "bob", "amount": 1.0}', b'{"user": "ann", "amount": 4.0}']
CHANNEL = "test"


def blocks(page: str, language: str) -> list[str]:
    return [text for word, text in BLOCK.findall((ROOT / page).read_text("utf-8")) if word == language]


class Machine:
    """A machine with a session and a broker, on which the examples of the pages run in `folder`."""

    def __init__(self, spark: SparkSession, broker: NsqdProcess, lookupd: LookupdProcess, folder: Path) -> None:
        self.spark, self.broker, self.lookupd, self.folder = spark, broker, lookupd, folder
        self._places = MOMENTS | {
            "127.0.0.1:4150": f"{HOST}:{broker.tcp_port}",
            "127.0.0.1:4151": f"{HOST}:{broker.http_port}",
            "127.0.0.1:4161": f"{HOST}:{lookupd.http_port}",
        }

    def run(self, page: str) -> dict[str, Any]:
        """Run every example of a page in order, and return the names of its programs."""
        names: dict[str, Any] = {"spark": self.spark}
        for language, text in BLOCK.findall((ROOT / page).read_text("utf-8")):
            if language == "python":
                exec(self._here(text), names)
            elif language == "sql":
                for statement in filter(str.strip, self._here(text).split(";")):
                    self.spark.sql(statement).collect()
            elif language == "sh":
                for line in text.splitlines():
                    self._curl(shlex.split(line, comments=True))
        return names

    def _here(self, text: str) -> str:
        for shown, here in self._places.items():
            text = text.replace(shown, here)
        return FILES.sub(rf'"{self.folder}/\1"', text)

    def _curl(self, words: list[str]) -> None:
        """Send the request of a command with curl; the other commands install packages or start programs."""
        if words[:1] != ["curl"]:
            return
        body = words[words.index("-d") + 1].encode() if "-d" in words else b""
        answer = self.broker.http("POST", words[-1].removeprefix("http://127.0.0.1:4151"), body)
        assert answer.status == 200, (words, answer)


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupdProcess]:
    with closing(LookupdProcess(tmp_path_factory.mktemp("lookupd"))) as process:
        process.start()
        yield process


@pytest.fixture(scope="module")
def broker(lookupd: LookupdProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    flags = f"--broadcast-address={HOST}", f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}"
    with closing(ForkedNsqd(tmp_path_factory.mktemp("broker"), *flags)) as process:
        process.start()
        yield process
        process.assert_no_traceback()


@pytest.fixture
def machine(spark: SparkSession, broker: NsqdProcess, lookupd: LookupdProcess, tmp_path: Path) -> Iterator[Machine]:
    """A machine without topics, whose session shares no temporary views with other tests."""
    yield Machine(spark.newSession(), broker, lookupd, tmp_path)
    for topic in broker.stats():
        broker.order(f"/topic/delete?topic={topic['topic_name']}")


def bodies(machine: Machine, topic: str, count: int) -> list[bytes]:
    return sorted(message.body for message in machine.broker.drain(topic, CHANNEL, count))


def test_the_first_write_and_the_first_read(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/how-to/spark.md"
    machine.run(page)
    (shown,) = blocks(page, "text")
    assert shown in capsys.readouterr().out


def test_writing(machine: Machine) -> None:
    for topic in ("clicks", "orders.eu", "orders.us", "lines", "counts"):
        machine.broker.create(topic, CHANNEL)
    (machine.folder / "clicks.jsonl").write_bytes(b"\n".join(CLICKS))
    (machine.folder / "incoming").mkdir()
    (machine.folder / "incoming/file").write_text("a\nb\na\n")
    machine.run("docs/how-to/spark-writing.md")
    answer = machine.broker.http("GET", f"/v2/channel/messages?topic=orders.eu&channel={CHANNEL}")
    assert [order["headers"] for order in json.loads(answer.body)["messages"]] == [{"key": "customer-1"}]
    assert Counts(depth=0, in_flight=0, deferred=1) == machine.broker.counts("orders.us", CHANNEL)
    assert sorted(json.loads(body)["amount"] for body in bodies(machine, "clicks", 3)) == [1.0, 2.5, 4.0]
    assert bodies(machine, "lines", 3) == [b"a", b"a", b"b"]
    assert bodies(machine, "counts", 2) == [b'{"value":"a","count":2}', b'{"value":"b","count":1}']


def test_a_channel(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.run("docs/how-to/spark-channel.md")
    rows = machine.spark.read.parquet(str(machine.folder / "lake/visits")).collect()
    assert [(row.value, row.attempts) for row in rows] == [('{"user": "ann", "page": "/"}', 1)]
    assert '|{"user": "bob", "page": "/cart"}|1       |' in capsys.readouterr().out
    machine.broker.await_counts("visits", "spark", Counts(depth=1, in_flight=0, deferred=0))


def test_a_log(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    keep(machine.broker, "clicks", "clicks.eu")
    machine.broker.publish("clicks", CLICKS)
    machine.broker.publish("clicks.eu", CLICKS[:1])
    wait_until(lambda: all(map(machine.lookupd.producers, ("clicks", "clicks.eu"))), "nsqlookupd knows the topics")
    machine.run("docs/how-to/spark-log.md")
    rows = machine.spark.read.parquet(str(machine.folder / "lake/clicks")).collect()
    assert sorted(row.topic for row in rows) == ["clicks"] * 3 + ["clicks.eu"]
    assert capsys.readouterr().out == "3\n3\n"


def test_values(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    keep(machine.broker, "clicks", "clicks.avro")
    machine.broker.create("alerts", CHANNEL)
    machine.broker.publish("clicks", CLICKS)
    machine.broker.publish("clicks.avro", [b"\x06ann"])
    names = machine.run("docs/how-to/spark-values.md")
    assert sorted(row[:2] for row in names["clicks"].collect()) == [("ann", 2.5), ("ann", 4.0), ("bob", 1.0)]
    assert [row.value.user for row in names["records"].collect()] == ["ann"]
    assert bodies(machine, "alerts", 3) == [b'{"user":"ann"}', b'{"user":"ann"}', b'{"user":"bob"}']
    assert "|       3|" in capsys.readouterr().out, "the table function"


def test_the_readme(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    keep(machine.broker, "clicks")
    (machine.folder / "clicks.jsonl").write_bytes(b"\n".join(CLICKS))
    machine.run("contrib/spark/README.md")
    assert capsys.readouterr().out.count('"user":"ann"') == 2
