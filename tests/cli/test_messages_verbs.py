"""`nsqtw pub`, `tail`, `peek` and `seek`, on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nsqtw.cli.messages import place_text, target_of
from nsqtw.cli.stdio import delimiter_of
from nsqtw.errors import OptionError
from nsqtw.testing import Broker
from nsqtw.tools.stdin import StdinMessages
from tests.cli.conftest import Nsqtw
from tests.process import wait_until
from tests.tools.nsq_tool import topic_stats, unfinished
from tests.wire import Client


def bodies(nsqd: Broker, on_nsqd: Nsqtw, topic: str) -> list[str]:
    """Return the bodies that wait in channel `c`."""
    return [row["body"] for row in on_nsqd("peek", topic, "c", "-n", "1000", "-o", "json").json]


def make(on_nsqd: Nsqtw, topic: str) -> None:
    assert on_nsqd("topic", "create", topic).code == 0
    assert on_nsqd("channel", "create", topic, "c").code == 0


def test_bodies_of_the_command_line_are_published_in_order(nsqd: Broker, on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    done = on_nsqd("pub", topic, "one", "two")
    assert (done.code, done.out) == (0, f"published 2 messages to {topic}\n")
    assert bodies(nsqd, on_nsqd, topic) == ["one", "two"]


@pytest.mark.parametrize(
    ("stdin", "flags", "expected"),
    [
        (b"a\n\nb\nlast", [], ["a", "b", "last"]),
        (b"a\0b\nc", ["--delimiter", r"\0"], ["a", "b\nc"]),
        (b"a--b-c", ["--delimiter", "--"], ["a", "b-c"]),
        (b"all\nof it\n", ["--delimiter", ""], ["all\nof it\n"]),
        (b"twice", ["--count", "2"], ["twice", "twice"]),
        (b"", [], []),
    ],
)
def test_messages_of_stdin(
    nsqd: Broker, on_nsqd: Nsqtw, topic: str, stdin: bytes, flags: list[str], expected: list[str]
) -> None:
    make(on_nsqd, topic)
    done = on_nsqd("pub", topic, *flags, "-o", "json", stdin=stdin)
    assert (done.code, done.json) == (0, {"topic": topic, "published": len(expected)})
    assert bodies(nsqd, on_nsqd, topic) == expected


def test_deferred_messages_wait(nsqd: Broker, on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    assert on_nsqd("pub", topic, "--defer", "1h", "later").code == 0
    [row] = on_nsqd("peek", topic, "c", "--state", "deferred", "-o", "json").json
    assert row["body"] == "later"
    assert row["due"] - row["timestamp"] == pytest.approx(3600 * 10**9, rel=0.01)
    table = on_nsqd("peek", topic, "c", "--state", "deferred").out
    assert table.splitlines()[0].split() == ["ID", "PUBLISHED", "ATTEMPTS", "DUE", "BODY"]


def test_a_deferred_message_may_have_headers(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    assert on_nsqd("pub", topic, "--defer", "30m", "--header", "tenant=acme", "later").code == 0
    [row] = on_nsqd("peek", topic, "c", "--state", "deferred", "-o", "json").json
    assert (row["body"], row["headers"]) == ("later", {"tenant": "acme"})
    assert row["due"] - row["timestamp"] == pytest.approx(1800 * 10**9, rel=0.01)


def test_headers_are_published_and_shown(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    done = on_nsqd("pub", topic, "--header", "Tenant=acme", "--header", "note=a=b", "--ttl", "1h", "one", "two")
    assert (done.code, done.out) == (0, f"published 2 messages to {topic}\n")
    assert on_nsqd("pub", topic, "--id", "o-3", stdin=b"three").code == 0
    rows = on_nsqd("peek", topic, "c", "-o", "json").json
    common = {"note": "a=b", "tenant": "acme", "ttl": "3600000"}
    assert [(row["body"], row["headers"]) for row in rows] == [
        ("one", common),
        ("two", common),
        ("three", {"id": "o-3"}),
    ]
    table = on_nsqd("peek", topic, "c", "--headers").out.splitlines()
    assert table[0].split() == ["ID", "PUBLISHED", "ATTEMPTS", "HEADERS", "BODY"]
    assert "note=a=b, tenant=acme, ttl=3600000" in table[1]
    assert "HEADERS" not in on_nsqd("peek", topic, "c").out


def test_a_priority_and_the_only_channel_of_a_message(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    on_nsqd("channel", "create", topic, "d")
    assert on_nsqd("pub", topic, "--channel", "d", "--priority", "high", "one").code == 0
    assert on_nsqd("pub", topic, "--channel", "d", "two").code == 0
    rows = on_nsqd("peek", topic, "d", "-o", "json").json
    assert [(row["body"], row["headers"]) for row in rows] == [("one", {"priority": "high"}), ("two", {})]
    assert on_nsqd("peek", topic, "c", "-o", "json").json == []


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S%z", "%s"])
def test_a_time_of_delivery(on_nsqd: Nsqtw, topic: str, form: str) -> None:
    make(on_nsqd, topic)
    moment = datetime.now().astimezone().replace(microsecond=0) + timedelta(minutes=30)
    assert on_nsqd("pub", topic, "--deliver-at", moment.strftime(form), "later").code == 0
    (row,) = on_nsqd("peek", topic, "c", "--state", "deferred", "-o", "json").json
    assert row["due"] == pytest.approx(moment.timestamp() * 10**9, abs=2 * 10**9)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--header", "tenant", "x"], "must be NAME=VALUE"),
        (["--header", "a=1", "--header", "A=2", "x"], "given twice"),
        (["--header", "\xe4=1", "x"], "invalid header name"),
        (["--header", "a b=1", "x"], "invalid header name"),
        (["--ttl", "soon", "x"], "a duration such as 60s"),
        (["--ttl", "0s", "x"], "at least 1ms"),
        (["--id", "7", "x", "y"], "an id is that of one message"),
        (["--header", "ttl=5", "--ttl", "1s", "x"], "the header ttl is given twice"),
        (["--id", "7", "--defer", "2h", "x"], "--defer is at most nsqd's --max-req-timeout"),
        (["--priority", "urgent", "x"], "'urgent' is not one of 'high', 'normal', 'low'"),
        (["--priority", "low", "--header", "priority=high", "x"], "the header priority is given twice"),
        (["--deliver-at", "soon", "x"], "must be a time such as 2026-01-31T08:00, or Unix time; a delay is --defer"),
        (["--deliver-at", "2h", "x"], "a delay is --defer"),
        (["--deliver-at", "4102444800", "x"], "raise --max-defer-timeout"),
        (["--deliver-at", "1700000000", "--defer", "1s", "x"], "cannot be given together"),
        (["--channel", "no such", "x"], "no topic or channel can have the name"),
        (["--channel", "other", "x"], "the channel does not exist; 'nsqtw channel create' makes one"),
        (["--channel", "c", "--nsqd-tcp-address", "127.0.0.1:1", "x"], "need HTTP"),
        (["--id", "7", "--nsqd-tcp-address", "127.0.0.1:1", "x"], "--nsqd-tcp-address cannot be given with headers"),
    ],
)
def test_wrong_headers_are_one_line(on_nsqd: Nsqtw, topic: str, words: list[str], text: str) -> None:
    done = on_nsqd("pub", topic, *words)
    assert done.code != 0
    assert text in done.err
    assert len(done.err.splitlines()) == 1


def test_large_headers_of_many_messages_are_sent_in_parts(on_nsqd: Nsqtw, topic: str) -> None:
    """Together they are larger than --max-body-size."""
    make(on_nsqd, topic)
    done = on_nsqd("pub", topic, "--header", f"note={'x' * 16_000}", stdin=b"a\n" * 400)
    assert (done.code, done.out) == (0, f"published 400 messages to {topic}\n")


def test_an_id_is_that_of_one_message_of_stdin(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("pub", topic, "--id", "7", stdin=b"one\ntwo\n")
    assert (done.code != 0, "stdin has more" in done.err) == (True, True)


def test_tail_with_a_channel_consumes_and_finishes(nsqd: Broker, on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "one", "two", "three")
    done = on_nsqd("tail", topic, "c", "-n", "2")
    assert (done.code, done.out) == (0, "one\ntwo\n")
    wait_until(lambda: unfinished(nsqd, topic, "c") == 1, "two messages are finished")


def test_tail_as_json_has_an_object_for_each_message(on_nsqd: Nsqtw, topic: str, nsqd: Broker) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, stdin=b"text\n\xff\xfe")
    done = on_nsqd("sub", topic, "c", "-n", "2", "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert (first["body"], first["encoding"]) == ("text", "text")
    assert (second["body"], second["encoding"]) == ("//4=", "base64")
    assert first["node"] == nsqd.tcp_address
    assert set(first) == {"id", "time", "timestamp", "attempts", "node", "body", "encoding"}


def test_tail_shows_headers_where_it_is_asked_to(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "one", "--header", "tenant=acme", "--header", "b=2")
    on_nsqd("pub", topic, "two")
    assert on_nsqd("tail", topic, "c", "-n", "1", "--headers").out == "b=2, tenant=acme\tone\n"
    assert on_nsqd("tail", topic, "c", "-n", "1", "--headers").out == "-\ttwo\n"
    on_nsqd("pub", topic, "three", "--header", "tenant=acme")
    assert on_nsqd("tail", topic, "c", "-n", "1", "--headers", "--json").json["headers"] == {"tenant": "acme"}


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["-n", "5"], 130)])
def test_ctrl_c_ends_a_tail(
    nsqd: Broker, on_nsqd: Nsqtw, topic: str, tmp_path: Path, own_config: Path, flags: list[str], code: int
) -> None:
    """Without a channel, the messages that others get stay."""
    make(on_nsqd, topic)
    command = [str(Path(sys.executable).with_name("nsqtw")), "tail", topic, *flags]
    output = tmp_path / "output"
    with output.open("wb") as file:
        tail = subprocess.Popen([*command, "--nsqd-http-address", nsqd.http_address], stdout=file)
    try:
        wait_until(lambda: len(on_nsqd("channel", "list", topic, "-o", "json").json) == 2, "the tail has a channel")
        on_nsqd("pub", topic, "seen")
        wait_until(lambda: output.read_bytes() == b"seen\n", "the message is printed")
        tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == code
    finally:
        tail.kill()
        tail.wait()
    assert unfinished(nsqd, topic, "c") == 1
    wait_until(lambda: len(on_nsqd("channel", "list", topic, "-o", "json").json) == 1, "the channel of tail is gone")


def test_a_reader_that_has_enough_ends_a_tail(nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "one", "two", "three")
    nsqtw = Path(sys.executable).with_name("nsqtw")
    pipeline = f"{nsqtw} --nsqd-http-address {nsqd.http_address} tail {topic} c | head -n 1"
    for _ in range(3):  # stdout may be closed before the next message is written, and after it
        on_nsqd("channel", "empty", topic, "c", "--yes")
        on_nsqd("pub", topic, "one", "two", "three")
        done = subprocess.run(["bash", "-o", "pipefail", "-c", pipeline], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_tail_finishes_what_the_reader_of_a_pipe_has_taken(
    nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path, count: int
) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, *map(str, range(100)))
    nsqtw = Path(sys.executable).with_name("nsqtw")
    pipeline = f"{nsqtw} --nsqd-http-address {nsqd.http_address} tail {topic} c | head -n {count}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", pipeline], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, [*map(str, range(count))])
    wait_until(lambda: unfinished(nsqd, topic, "c") == 100 - count, "the others are in the channel")


def test_a_tail_of_a_topic_that_no_node_has_creates_nothing(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("tail", topic, "c", "-n", "1")
    line = f"nsqtw: no node has a topic {topic!r}; --create makes it, and 'nsqtw topic list' shows the others\n"
    assert (done.code, done.out, done.err) == (3, "", line)
    assert topic not in [row["topic"] for row in on_nsqd("topic", "list", "-o", "json").json]


def test_a_tail_tells_of_a_channel_that_it_creates(
    nsqd: Broker, on_nsqd: Nsqtw, topic: str, tmp_path: Path, own_config: Path
) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("pub", topic, "first")
    done = on_nsqd("tail", topic, "one", "-n", "1")
    assert (done.code, done.out, done.err) == (0, "first\n", f"channel one of topic {topic} is created\n")
    on_nsqd("pub", topic, "second")
    errors = tmp_path / "errors"
    words = [Path(sys.executable).with_name("nsqtw"), "tail", topic, "two", "-n", "1"]
    with errors.open("wb") as stderr:
        tail = subprocess.Popen([*words, "--nsqd-http-address", nsqd.http_address], stdout=-1, stderr=stderr)
    wait_until(lambda: "two" in str(topic_stats(nsqd, topic)), "the channel is there")
    on_nsqd("pub", topic, "third")
    assert tail.communicate(timeout=60)[0] == b"third\n"
    assert errors.read_text() == f"channel two of topic {topic} is created: it gets the messages from now on\n"


def test_a_tail_creates_what_it_is_told_to(nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path) -> None:
    words = [Path(sys.executable).with_name("nsqtw"), "tail", topic, "c", "--create", "-n", "1"]
    tail = subprocess.Popen([*words, "--nsqd-http-address", nsqd.http_address], stdout=-1, stderr=-1)
    wait_until(lambda: "client_count': 1" in str(topic_stats(nsqd, topic)), "it consumes")
    on_nsqd("pub", topic, "first")
    assert tail.communicate(timeout=60) == (b"first\n", b"")


@pytest.mark.parametrize("verb", ["peek", "tail"])
def test_a_stdout_that_is_full_is_one_line(
    nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path, verb: str
) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "kept")
    with open("/dev/full", "wb") as full:
        words = [Path(sys.executable).with_name("nsqtw"), "--nsqd-http-address", nsqd.http_address, verb, topic, "c"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "nsqtw: stdout cannot be written: no space left on device\n")
    assert unfinished(nsqd, topic, "c") == 1


def test_peek_of_a_topic_names_the_channels_that_have_its_messages(on_nsqd: Nsqtw, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    assert on_nsqd("peek", topic).out == "no messages, and no channels\n"
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "one", "two")
    assert on_nsqd("peek", topic).out == "no messages wait for all channels; name one: c (2 waiting)\n"


def test_peek_with_headers_has_lines_that_can_be_read(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    headers = [word for number in range(8) for word in ("--header", f"name-{number}=value-{number}")]
    on_nsqd("pub", topic, "x" * 30, *headers)
    head, line = on_nsqd("peek", topic, "c", "--headers").out.splitlines()
    assert "NODE" not in head and line.endswith(f"...  {'x' * 30}")
    assert len(line) < 150


def test_peek_shows_who_has_a_message(nsqd: Broker, on_nsqd: Nsqtw, topic: str, nsqtw: Nsqtw) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "x" * 300)
    assert on_nsqd("peek", topic, "c", "--state", "in-flight").out == "no messages\n"
    table = on_nsqd("peek", topic, "c").out
    assert f"{'x' * 200}... (300 bytes)" in table
    done = on_nsqd("peek", topic, "nowhere")
    assert (done.code, done.err) == (
        3,
        "nsqtw: the channel does not exist; 'nsqtw channel create' makes one (CHANNEL_NOT_FOUND)\n",
    )


def test_dead_letters_are_counted_and_say_where_they_failed(nsqd: Broker, on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    assert "DEAD-LETTERED" not in on_nsqd("channel", "list", topic).out
    assert on_nsqd("policy", "set", topic, "c", "max_attempts=1").code == 0
    assert on_nsqd("pub", topic, "poison").code == 0
    with Client(int(nsqd.tcp_address.rpartition(":")[2])) as client:
        client.sub(topic, "c", ready=1)
        client.req(client.message(), 0)
        wait_until(lambda: on_nsqd("topic", "list", f"{topic}.dead", "-o", "json").json, "the dead-letter topic")
    heads, line = on_nsqd("peek", f"{topic}.dead", "c").out.splitlines()
    assert heads.split()[-5:] == ["FAILED", "IN", "REASON", "DELIVERIES", "BODY"]
    assert line.split()[-4:] == [f"{topic}/c", "requeued", "1", "poison"]
    [row] = on_nsqd("channel", "list", topic, "-o", "json").json
    assert (row["dead_lettered"], row["expired"], row["dropped"]) == (1, None, None)
    for words in (["channel", "list", topic], ["channel", "show", topic, "c"], ["topic", "show", topic], ["stat"]):
        assert "DEAD-LETTERED" in on_nsqd(*words).out, words


def test_the_depth_of_each_priority_is_shown(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    assert on_nsqd("pub", topic, "--priority", "high", "one", "two").code == 0
    assert "HIGH" not in on_nsqd("channel", "list", topic).out
    assert on_nsqd("policy", "set", topic, "c", "priority=true").code == 0
    assert on_nsqd("pub", topic, "--priority", "low", "three").code == 0
    [row] = on_nsqd("channel", "list", topic, "-o", "json").json
    assert (row["high_depth"], row["normal_depth"], row["low_depth"]) == (2, 0, 1)
    heads, *_ = on_nsqd("channel", "list", topic).out.splitlines()
    assert ("HIGH" in heads, "LOW" in heads) == (True, True)


def test_peek_says_that_there_are_more(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "a", "b", "c")
    done = on_nsqd("peek", topic, "c", "-n", "2", "-o", "json")
    assert [row["body"] for row in done.json] == ["a", "b"]
    assert done.err == "2 shown, there are more: -n 20 shows up to 20\n"


def test_control_characters_of_a_body_do_not_reach_the_terminal(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    on_nsqd("pub", topic, "\x1b[31mred")
    assert r"\x1b[31mred" in on_nsqd("peek", topic, "c").out


def test_a_seek_shows_what_it_would_do_and_asks(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    assert on_nsqd("topic", "set", topic, "--retention-time", "1h").code == 0
    on_nsqd("pub", topic, "a", "b", "c")
    assert on_nsqd("tail", topic, "c", "-n", "2").out == "a\nb\n"
    wait_until(lambda: on_nsqd("channel", "list", topic, "-o", "json").json[0]["depth"] == 1, "two are finished")

    dry = on_nsqd("seek", topic, "c", "earliest", "--dry-run", "-o", "json")
    assert (dry.code, dry.json["replayed"], dry.json["skipped"]) == (0, 2, 0)
    refused = on_nsqd("seek", topic, "c", "earliest")
    assert refused.code == 2
    assert refused.err == (
        f"nsqtw: Move channel c of topic {topic} to earliest: 2 messages are delivered again, 0 are skipped. Continue?"
        " There is no terminal to ask on: repeat with --yes\n"
    )
    assert on_nsqd("channel", "list", topic, "-o", "json").json[0]["depth"] == 1
    done = on_nsqd("seek", topic, "c", "1h", "--yes")
    assert done.out.startswith(f"channel c of topic {topic} is moved: 2 messages are delivered again, 0 are skipped\n")
    assert on_nsqd("tail", topic, "c", "-n", "3").out == "a\nb\nc\n"


def test_a_seek_says_what_a_bound_drops_then(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    assert on_nsqd("topic", "set", topic, "--retention-time", "1h").code == 0
    on_nsqd("pub", topic, "a", "b", "c")
    assert on_nsqd("tail", topic, "c", "-n", "3").out == "a\nb\nc\n"
    wait_until(lambda: on_nsqd("channel", "list", topic, "-o", "json").json[0]["depth"] == 0, "all are finished")
    assert on_nsqd("policy", "set", topic, "c", "max_depth=1", "overflow=drop_oldest", "--yes").code == 0
    refused = on_nsqd("seek", topic, "c", "earliest")
    assert ": 3 messages are delivered again, 0 are skipped; its bounds then drop up to 2 of what waits. Continue?" in (
        refused.err
    )
    assert "DROPPED UP TO" in on_nsqd("seek", topic, "c", "earliest", "--dry-run").out
    assert on_nsqd("seek", topic, "c", "earliest", "--yes", "-o", "json").json["max_drops"] == 2


def test_a_seek_to_nonsense_names_what_can_be_given(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    done = on_nsqd("seek", topic, "c", "yesterday", "--yes")
    assert done.code == 2
    assert done.err == (
        "nsqtw: TO must be earliest, latest, a duration (1h: an hour ago), a time (2026-01-31T08:00)"
        " or the id of a message (INVALID_TO)\n"
    )


def test_a_redrive_without_dead_letters(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    done = on_nsqd("channel", "redrive", topic, "c")
    assert done.code == 3
    assert "There is no dead-letter topic, or it has no channel of this name." in done.err


def test_a_seek_into_the_future_is_refused(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("seek", topic, "c", "--yes", "--", "-1h")
    assert (done.code, done.err) == (2, "nsqtw: TO '-1h' is in the future; 1h is that long ago\n")


def test_a_seek_without_kept_messages_names_the_remedy(on_nsqd: Nsqtw, topic: str) -> None:
    make(on_nsqd, topic)
    done = on_nsqd("seek", topic, "c", "1h", "--yes")
    assert done.code == 0
    assert done.err == (
        f"{topic} keeps no finished messages; from now on it does after: nsqtw topic set {topic} --retention-time 24h\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", "back to 01:46 UTC (1 hour ago)"),
        ("2d", "back to 1970-01-09 02:46 UTC (2 days ago)"),
        ("90s", "back to 02:45:10 UTC (90 seconds ago)"),
        ("latest", "to latest"),
        ("1767225600", "to 1767225600"),
    ],
)
def test_words_for_a_place_in_a_log(text: str, expected: str) -> None:
    assert place_text(text, now=10_000.0 if text == "1h" else 874_000.0) == expected


@pytest.mark.parametrize("words", [("peek", "nosuch"), ("seek", "nosuch", "c", "earliest")])
def test_a_topic_that_no_node_has(on_nsqd: Nsqtw, words: tuple[str, ...]) -> None:
    done = on_nsqd(*words)
    assert (done.code, done.err) == (3, "nsqtw: no node has a topic 'nosuch'; 'nsqtw topic list' shows them\n")


def test_a_message_of_stdin_that_is_refused_is_named(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("pub", topic, "--defer", "2h", stdin=b"\nfirst\n")
    assert done.code == 1
    assert done.err.startswith("nsqtw: message 2 of stdin: E_INVALID ")


def test_a_message_that_is_too_large_names_the_option(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("pub", topic, stdin=b"a\n" + b"x" * (1 << 20) + b"x\n")
    assert done.code == 1
    assert "nsqd's --max-msg-size limits it" in done.err


def test_a_delay_that_is_too_long_names_the_option(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("pub", topic, "x", "--defer", "2h")
    assert done.code == 1
    assert done.err.endswith("; --defer is at most nsqd's --max-req-timeout, which is 1h by default\n")


def test_an_empty_stdin_is_a_warning(on_nsqd: Nsqtw, topic: str) -> None:
    done = on_nsqd("pub", topic)
    assert (done.code, done.err) == (0, "nsqtw: warning: stdin had no message\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("0a1b2c3d4e5f6071", "0a1b2c3d4e5f6071"),
        ("1h", "6400000"),
        ("90s", "9910000"),
        ("1767225600", "1767225600"),
        ("20260101", "20260101"),
        ("2026-01-01T00:00:00+01:00", "2025-12-31T23:00:00Z"),
    ],
)
def test_places_in_a_log(text: str, expected: str) -> None:
    assert target_of(text, now=10_000.0) == expected


def test_a_time_without_an_offset_is_local() -> None:
    shown = target_of("2026-01-01 12:00")
    assert datetime.fromisoformat(shown) == datetime(2026, 1, 1, 12).astimezone()


@pytest.mark.parametrize(
    ("text", "expected"), [(r"\n", b"\n"), (r"\0", b"\0"), (r"\x1e", b"\x1e"), ("ä", "ä".encode())]
)
def test_delimiters(text: str, expected: bytes) -> None:
    assert delimiter_of(text) == expected


def test_a_delimiter_that_cannot_be_read() -> None:
    with pytest.raises(OptionError, match="delimiter"):
        delimiter_of(r"\xg")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_a_delimiter_may_come_in_pieces(size: int) -> None:
    """However stdin is cut into reads, the messages are the same."""
    text = b"one--two-with-dashes--" + b"x" * 200_000 + b"--" + b"-last"
    messages = StdinMessages.__new__(StdinMessages)
    messages._delimiter, messages._pieces, messages._size = b"--", [], 0
    found: list[bytes] = []
    for start in range(0, len(text), size if size > 5 else size * 7001):
        end = start + (size if size > 5 else size * 7001)
        found += messages._add(text[start:end])
    found.append(b"".join(messages._pieces))
    assert found == text.split(b"--")


def test_a_deferred_message_is_cancelled(on_nsqd: Nsqtw, topic: str, nsqd: Broker) -> None:
    make(on_nsqd, topic)
    on_nsqd("channel", "create", topic, "d")
    on_nsqd("pub", topic, "--defer", "1h", "one", "two")
    rows = on_nsqd("peek", topic, "c", "--state", "deferred", "-o", "json").json
    one, two = (row["id"] for row in sorted(rows, key=lambda row: row["body"]))
    done = on_nsqd("message", "cancel", topic, one)
    assert (done.code, done.out) == (0, f"message {one} of topic {topic} is cancelled in channels c, d\n")
    again = on_nsqd("message", "cancel", topic, one)
    assert (again.code, again.out) == (3, "")
    assert "no deferred message has this id" in again.err
    in_one = on_nsqd("message", "cancel", topic, two, "--channel", "d", "-o", "json").json
    assert in_one == {
        "topic": topic,
        "cancelled": [{"node": nsqd.http_address, "id": two, "released": True, "channels": ["d"]}],
    }
    [row] = on_nsqd("peek", topic, "c", "--state", "deferred", "-o", "json").json
    assert row["id"] == two


def test_what_cannot_be_cancelled(on_nsqd: Nsqtw, topic: str, nsqd: Broker) -> None:
    unknown = on_nsqd("message", "cancel", topic, "0" * 16)
    assert (unknown.code, unknown.err) == (3, f"nsqtw: no node has a topic '{topic}'; 'nsqtw topic list' shows them\n")
    make(on_nsqd, topic)
    invalid = on_nsqd("message", "cancel", topic, "seven")
    assert (invalid.code, invalid.err.count("\n")) == (2, 1)
    assert "ID must be the 16 hex digits" in invalid.err
    without_window = on_nsqd("message", "cancel", topic, "seven", "--publisher-id")
    assert "no dedupe_window" in without_window.err
    waiting = on_nsqd("pub", topic, "--defer", "1h", "one")
    assert waiting.code == 0
