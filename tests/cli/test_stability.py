"""What scripts rely on: the keys of JSON, and one line for an error that nobody expected."""

from __future__ import annotations

import pytest

from nsqtw.cli import context_verbs
from nsqtw.cli.main import run_nsqtw
from nsqtw.testing import Broker
from tests.cli.conftest import Nsqtw

COUNTS = {"depth", "backend_depth", "in_flight", "deferred", "messages", "oldest_message_age", "paused"}
TOPIC = {
    *("topic", "channels", "message_bytes", "durability", "retention", "node_count", "rejected", "deduplicated"),
    "waiting",
    *COUNTS,
}
CHANNEL = {
    *("topic", "channel", "requeued", "timed_out", "consumers", "dropped", "dead_lettered", "expired"),
    *("high_depth", "normal_depth", "low_depth"),
    *COUNTS,
}
RATES = {"in_rate", "out_rate", "requeue_rate", "timeout_rate"}
MESSAGE = {"id", "timestamp", "attempts", "node", "due", "deadline", "consumer", "headers", "body", "encoding"}
SEEK = {"node", "position", "replayed", "skipped", "depth", "max_drops"}
NODE = {
    *("node", "tcp_address", "hostname", "version", "health", "uptime", "topics", "channels", "depth", "messages"),
    *("disk_free", "out_of_date", "role"),
}


def test_the_keys_of_json(on_nsqd: Nsqtw, nsqd: Broker, topic: str) -> None:
    """A key may be added here, and none taken away."""

    def keys(*words: str) -> set[str]:
        found = on_nsqd(*words, "-o", "json").json
        return set(found[0] if isinstance(found, list) else found)

    assert keys("topic", "create", topic) == {"action", "topic", "servers"}
    assert keys("channel", "create", topic, "c") == {"action", "topic", "channel", "servers"}
    assert keys("pub", topic, "x") == {"topic", "published"}
    assert keys("topic", "list", topic) == TOPIC
    assert keys("topic", "show", topic) == {*TOPIC, "nodes"}
    assert keys("channel", "list", topic) == CHANNEL
    assert keys("channel", "show", topic, "c") == {*CHANNEL - {"consumers"}, "consumers", "nodes"}
    assert keys("peek", topic, "c") == MESSAGE
    moved = {"topic", "channel", "replayed", "skipped", "max_drops", "nodes"}
    assert keys("seek", topic, "c", "latest", "--yes") == moved
    assert set(on_nsqd("seek", topic, "c", "latest", "--yes", "-o", "json").json["nodes"][0]) == SEEK
    assert keys("nodes") == NODE
    assert keys("stat", topic) == {"time", "channels"}
    assert set(on_nsqd("stat", topic, "-o", "json").json["channels"][0]) == {*CHANNEL, *RATES}
    assert keys("doctor") == {"errors", "warnings", "findings"}
    assert keys("reload") == {"nodes"}


def test_an_error_that_nobody_expected_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(session: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(context_verbs, "list_contexts", fail)
    assert run_nsqtw(["context", "list"]) == 1
    assert capsys.readouterr().err == (
        "nsqtw: unexpected RuntimeError: two lines (--debug shows where; please report it)\n"
    )
    assert run_nsqtw(["context", "list", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
