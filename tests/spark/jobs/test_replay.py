"""`nsqtw-spark replay`: from a log or an archive into a topic or a channel, each mistake in one line."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.errors import PublishError
from pyspark_nsq.jobs.replay import publish as publishing

from tests.process import ForkedNsqd, NsqdProcess, starting, wait_until
from tests.spark.jobs.conftest import Job, Outcome, at, publish
from tests.spark.jobs.replay_job import SECTION
from tests.wire import HOST

LONG = 400
HEADERS = b"\x06tenant\x00\x04acme"


class Replayed:
    """The topic "target" with a channel, and the job for it."""

    def __init__(self, job: Job, broker: NsqdProcess) -> None:
        self._job = job
        self.broker = broker
        broker.create("target", "c")

    def run(self, *words: str, to: str = "--to-topic=target") -> Outcome:
        return self._job("replay", at(self.broker), "--topic=t", to, *words)

    def bodies(self, count: int) -> list[bytes]:
        return [message.body for message in self.broker.drain("target", "c", count)]


@pytest.fixture
def replayed(job: Job, broker: NsqdProcess) -> Replayed:
    return Replayed(job, broker)


def moment(broker: NsqdProcess) -> str:
    """A moment in milliseconds, after all that is published and before all that will be."""
    from tests.spark.test_log import another_millisecond

    return str(another_millisecond())


def count_of(broker: NsqdProcess, topic: str) -> int:
    return int(broker.stats(topic)[0]["message_count"])


def test_a_log_is_published_again(replayed: Replayed, broker: NsqdProcess) -> None:
    bodies = publish(broker, 0, 500)
    done = replayed.run()
    assert done.code == 0, done.err
    assert done.out.startswith('replayed 500 messages into topic "target", 500 of them in this run, ')
    assert done.err.startswith("500 of 500 messages (100%), ")
    assert Counter(bodies) == Counter(replayed.bodies(500))


def test_time_predicate_and_limit_choose_messages(replayed: Replayed, broker: NsqdProcess) -> None:
    publish(broker, 0, 10)
    start = moment(broker)
    publish(broker, 10, 30)
    end = moment(broker)
    publish(broker, 30, 40)
    words = (f"--from={start}", f"--to={end}", "--where=json::int % 2 = 0 and text <> '12'", "--limit=4", "--ordered")
    done = replayed.run(*words)
    assert done.code == 0, done.err
    assert replayed.bodies(4) == [b"10", b"14", b"16", b"18"]


def test_dry_run_counts_by_hour_and_publishes_nothing(replayed: Replayed, broker: NsqdProcess) -> None:
    publish(broker, 0, 100)
    done = replayed.run("--dry-run", "--where=text < '2'", to="--to-topic=another")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["topic", "hour", "messages", "bytes"]
    assert lines[-1] == ["total", "12", "22"]
    assert sum(int(line[2]) for line in lines[1:-1]) == 12
    assert {"t", "u", "target"} == {topic["topic_name"] for topic in broker.stats()}


def test_ordered_keeps_the_positions_over_sections(
    replayed: Replayed, broker: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "SECTION_MESSAGES", 150)
    bodies = publish(broker, 0, 400)
    assert replayed.run("--ordered").code == 0
    assert bodies == replayed.bodies(400)


def test_a_rate_is_given_to_the_sink_of_one_task(
    replayed: Replayed, broker: NsqdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = publish(broker, 0, 200)
    asked: list[dict[str, str]] = []
    real = publishing.Target.options

    def options(self: publishing.Target, burst: int) -> dict[str, str]:
        asked.append(real(self, burst) | {"showProgress": "true"})
        return asked[-1]

    monkeypatch.setattr(publishing.Target, "options", options)
    assert replayed.run("--rate=1000").code == 0
    assert [(each["maxRowsPerSecond"], each["batchSize"]) for each in asked] == [("1000", "100")]
    assert Counter(bodies) == Counter(replayed.bodies(200))


def test_an_archive_is_published_again(job: Job, replayed: Replayed, broker: NsqdProcess, tmp_path: Path) -> None:
    bodies = publish(broker, 0, 300)
    lake = f"{tmp_path / 'lake'}"
    assert job("archive", at(broker), "--topic=t", f"--output={lake}", "--once", "--quiet").code == 0
    broker.order("/topic/delete?topic=t")
    words = ("replay", f"--archive={lake}", "--topic=t", at(broker), "--to-topic=target")
    counted = job(*words, "--dry-run")
    assert counted.out.splitlines()[-1].split() == ["total", "300", str(sum(map(len, bodies)))]
    done = job(*words, "--where=value >= '150'")
    assert done.code == 0, done.err
    expected = Counter(body for body in bodies if body >= b"150")
    assert expected == Counter(replayed.bodies(expected.total()))


def test_a_channel_is_moved_back_and_never_forwards(job: Job, broker: NsqdProcess) -> None:
    broker.create("t", "c")
    publish(broker, 0, 20)
    middle = moment(broker)
    bodies = publish(broker, 20, 30)
    words = ("replay", at(broker), "--topic=t", "--to-channel=c")
    behind = job(*words, f"--from={middle}")
    assert behind.code == 0, behind.err
    assert "not moved, the channel is behind --from" in behind.out
    assert len(broker.drain("t", "c", 30)) == 30
    trial = job(*words, f"--from={middle}", "--dry-run")
    assert trial.out.splitlines()[-1] == 'would replay 10 messages of topic "t" into channel "c"'
    assert broker.counts("t", "c") == (0, 0, 0)
    done = job(*words, f"--from={middle}")
    assert done.out.splitlines()[-1] == 'replayed 10 messages of topic "t" into channel "c"'
    assert bodies == [message.body for message in broker.drain("t", "c", 10)]
    assert job(*words).out.splitlines()[-1] == 'replayed 30 messages of topic "t" into channel "c"'


def test_a_selection_is_published_to_one_channel(job: Job, broker: NsqdProcess) -> None:
    publish(broker, 0, 20)
    words = ("replay", at(broker), "--topic=t", "--to-channel=c")
    done = job(*words, "--to-topic=t.replay", "--limit=5")
    assert done.code == 0, done.err
    assert len(broker.drain("t.replay", "c", 5)) == 5
    broker.create("shared", "c", "other")
    assert job(*words, "--to-topic=shared", "--limit=5").code == 0
    assert len(broker.drain("shared", "c", 5)) == 5
    assert broker.counts("shared", "other") == (0, 0, 0)
    broker.create("t", "c", "other")
    broker.drain("t", "c", 20)
    for _ in range(2):
        done = job(*words, "--to-topic=t", "--where=json::int < 3")
        assert done.out.startswith('replayed 3 messages into topic "t"'), "messages for one channel are not in the log"
    assert len(broker.drain("t", "c", 6)) == 6
    assert broker.counts("t", "other") == (0, 0, 0)


def test_headers_are_published_again_but_those_of_the_broker(
    job: Job, replayed: Replayed, broker: NsqdProcess, tmp_path: Path
) -> None:
    publish(broker, 0, 3)
    message = struct.pack(">i", len(HEADERS)) + HEADERS + struct.pack(">i", 5) + b"hello"
    body = b"NSQH" + struct.pack(">i", 1) + message
    assert broker.http("POST", "/mpub?topic=t&binary=true&headers=true", body).status == 200
    lake = f"{tmp_path / 'lake'}"
    words = ("--topic=t", f"--output={lake}", "--once", "--quiet", "--headers")
    assert job("archive", at(broker), *words).code == 0
    assert replayed.run("--where=headers['tenant'] = 'acme'").code == 0
    done = job("replay", f"--archive={lake}", "--topic=t", at(broker), "--to-topic=target")
    assert done.code == 0, done.err
    found = json.loads(broker.http("GET", "/v2/channel/messages?topic=target&channel=c").body)["messages"]
    assert Counter((one["body"], str(one.get("headers"))) for one in found) == {
        ("hello", "{'tenant': 'acme'}"): 2,
        **{(f"{number}", "None"): 1 for number in range(3)},
    }


def test_headers_of_the_broker_are_left_out(job: Job, replayed: Replayed, broker: NsqdProcess) -> None:
    broker.create("t", "c")
    assert broker.http("PUT", "/v2/channel/policy?topic=t&channel=c", b'{"max_attempts": 1}').status == 200
    broker.create("t.dead")
    broker.order("/v2/topic/retention?topic=t.dead&time=1h")
    publish(broker, 7, 8)
    with broker.client() as client:
        client.sub("t", "c", ready=1)
        client.req(client.message(), 0)
        wait_until(lambda: count_of(broker, "t.dead"), "the message is a dead letter")
    done = job("replay", at(broker), "--topic=t.dead", "--to-topic=target")
    assert done.code == 0, done.err
    assert replayed.bodies(1) == [b"7"]


def test_a_topic_into_itself_must_be_allowed(replayed: Replayed, broker: NsqdProcess) -> None:
    publish(broker, 0, 10)
    refused = replayed.run(to="--to-topic=t")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert 'topic "t" would be replayed into itself' in refused.err
    allowed = replayed.run("--allow-same-topic", to="--to-topic=t")
    assert allowed.out.startswith('replayed 10 messages into topic "t"'), "what is published meanwhile is not replayed"
    assert count_of(broker, "t") == 20


def test_a_failed_replay_goes_on_where_it_was(
    replayed: Replayed, broker: NsqdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "SECTION_MESSAGES", 100)
    bodies = publish(broker, 0, 300)
    real = publishing.Replay._publish
    started: list[Any] = []

    def fail(self: publishing.Replay, *given: Any) -> int:
        started.append(given)
        if len(started) == 3:
            raise PublishError("no nsqd took it")
        return real(self, *given)

    state = f"--checkpoint={tmp_path / 'state'}"
    monkeypatch.setattr(publishing.Replay, "_publish", fail)
    failed = replayed.run(state)
    assert failed.code == 1
    assert failed.err.splitlines()[-1] == "nsqtw-spark: no nsqd took it"
    publish(broker, 300, 310)  # not part of the plan
    other = replayed.run(state, "--where=true")
    assert '--where was not given, and is "true"; give the same options, or another file' in other.err
    done = replayed.run(state)
    assert done.err.startswith("going on after 200 of 300 messages\n300 of 300 messages (100%)")
    assert 'replayed 300 messages into topic "target", 100 of them in this run' in done.out
    assert Counter(bodies) == Counter(replayed.bodies(300))
    again = replayed.run(state)
    assert again.out.startswith("all 300 messages have been replayed; give another --checkpoint")


@pytest.mark.timeout(1800)
def test_after_sigkill_at_most_one_section_comes_again(replayed: Replayed, broker: NsqdProcess, tmp_path: Path) -> None:
    bodies = publish(broker, 0, 20 * SECTION)
    state = tmp_path / "state"
    words = ["replay", at(broker), "--topic=t", "--to-topic=target", f"--checkpoint={state}"]
    log = tmp_path / "driver.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tests.spark.jobs.replay_job", *words]
        driver = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def has_begun() -> bool:
        assert driver.poll() is None, log.read_text()
        return state.exists() and json.loads(state.read_text())["sections_done"] >= 2

    wait_until(has_begun, "two sections", seconds=LONG)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    before = json.loads(state.read_text())["published"]
    assert 2 * SECTION <= before < len(bodies)
    done = replayed.run(*words[4:])
    assert done.code == 0, done.err
    assert done.err.startswith(f"going on after {before:,} of {len(bodies):,} messages")
    count = count_of(broker, "target")
    assert len(bodies) <= count <= len(bodies) + SECTION
    assert set(bodies) == set(replayed.bodies(count))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to-topic=x"], "give either --archive, or --nsqd-http-address or --lookupd-http-address"),
        (["NSQD"], "give --to-topic or --to-channel"),
        (["NSQD", "--to-topic=a b"], '--to-topic "a b" is no name for NSQ; 1 to 64 of'),
        (["NSQD", "--to-topic=x", "--from=monday"], '"monday" is neither RFC 3339 with an offset'),
        (["NSQD", "--to-topic=x", "--from=1767225600001", "--to=1767225600001"], "--from is not before --to"),
        (["NSQD", "--to-topic=x", "--rate=0"], "0 is not in the range x>=1"),
        (["NSQD", "--to-topic=x", "--where=colour = 1"], "with name `colour` cannot be resolved"),
        (["NSQD", "--to-topic=x", "--where=json:n > 1"], "A JSON field needs a type: json:user.id::int."),
        (["NSQD", "--to-topic=x", "--where=text ="], "Syntax error at or near end of input"),
        (["NSQD", "--to-topic=x", "--where=text"], "The columns are value, text, json, topic"),
        (["NSQD", "--to-topic=x", "--topic=tt"], 'has no topic "tt"; did you mean "t"?'),
        (["NSQD", "--to-topic=x", "--checkpoint=/no/where"], "its folder must exist"),
        (["NSQD", "--to-channel=c"], 'topic "t" has no channel "c"; there are: none'),
        (["NSQD", "--to-channel=c", "--topic=tt"], 'NSQ has no topic "tt"; did you mean "t"?'),
        (["NSQD", "--to-channel=c", "--limit=5"], "--limit needs --to-topic: nsqd moves a channel back in the log"),
        (["NSQD", "--to-channel=c", "--to=2026-01-01T00:00:00Z"], "--to needs --to-topic"),
        (["--archive=/no/lake", "NSQD", "--to-topic=x"], '--archive "/no/lake" has no archive; give the --output of'),
        (["--archive=/no/lake", "--to-topic=x"], "give --to-nsqd-http-address, an nsqd to publish to"),
        (["--lookupd-http-address=127.0.0.1:1", "--to-topic=x"], "give --to-nsqd-http-address, an nsqd to publish to"),
        (["--nsqd-http-address=nowhere", "--to-topic=x"], '"nowhere" is not host:port'),
    ],
)
def test_a_mistake_is_one_line(job: Job, broker: NsqdProcess, words: list[str], said: str) -> None:
    topic = [] if any(word.startswith("--topic=") for word in words) else ["--topic=t"]
    done = job("replay", *topic, *[at(broker) if word == "NSQD" else word for word in words])
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert said in done.err
    assert {"t", "u"} == {found["topic_name"] for found in broker.stats()}


def test_messages_that_only_a_larger_max_msg_size_allows(job: Job, tmp_path: Path) -> None:
    with starting(tmp_path, ForkedNsqd) as start:
        broker = start("--max-msg-size=3000000")
        broker.create("t")
        broker.order("/v2/topic/retention?topic=t&time=1h")
        assert broker.http("POST", "/pub?topic=t", b"x" * 1_500_000).status == 200
        words = ("replay", "--topic=t", at(broker), "--to-topic=x")
        refused = job(*words)
        assert refused.code == 1 and "--max-message-bytes of nsqtw-spark replay" in refused.err, refused
        done = job(*words, "--max-message-bytes=3000000")
        assert done.code == 0, done
        (topic,) = broker.stats("x")
        assert topic["message_count"] == 1


def test_a_broker_that_does_not_answer_is_one_line(job: Job, broker: NsqdProcess) -> None:
    broker.stop()
    done = job("replay", "--topic=t", at(broker), "--to-topic=x")
    assert (done.code, done.err.count("\n")) == (1, 1), done
    assert f"{HOST}:{broker.http_port}/stats: connection refused" in done.err
