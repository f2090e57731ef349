"""Reloading a daemon: what changes, what needs a restart, and mistakes, which change nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqtw.daemon.reload import CERTIFICATE_OPTIONS, FileReader, Reload
from nsqtw.daemon.running_config import RunningConfig
from nsqtw.errors import OptionError
from nsqtw.nsqd.reload import TOPIC_OPTIONS
from nsqtw.options.broker import NSQD, Options
from nsqtw.options.command_line import NSQD_READER
from nsqtw.options.files import config_text
from nsqtw.options.topics import TopicRule
from tests.http.broker_fixture import Log
from tests.process import Answer, LookupdProcess, Start, starting, wait_until
from tests.wire import Refused


class Daemon:
    """A daemon without anything but options, which come from a config file and these words."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.path = directory / "nsqd.toml"
        self.path.touch()
        line = NSQD_READER.read_command_line([f"--config={self.path}", *words])
        self.options: Options = NSQD_READER.resolve(line).options
        self.readers: list[FileReader] = []
        self.followed: list[frozenset[str]] = []
        config = RunningConfig(NSQD, self.options, lambda: NSQD_READER.resolve(line))
        self._reload = Reload(config, lambda: self.readers, self.followed.append)

    def reload(self, text: str) -> dict[str, Any]:
        self.path.write_text(text)
        return self._reload.run().document()


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def keys(changes: list[dict[str, Any]]) -> list[str]:
    return [change["option"] for change in changes]


def test_what_can_change_does(daemon: Daemon) -> None:
    found = daemon.reload('log_level = "debug"\nmax_rdy_count = 7\nmsg_timeout = "5s"\n')
    assert found["changed"] == [
        {"option": "log_level", "old": "info", "new": "debug"},
        {"option": "msg_timeout", "old": "1m0s", "new": "5s"},
        {"option": "max_rdy_count", "old": 2500, "new": 7},
    ]
    assert (found["restart"], found["files"]) == ([], [])
    assert "log_level" not in found["unchanged"] and "max_topics" in found["unchanged"]
    assert (daemon.options.max_rdy_count, daemon.options.msg_timeout) == (7, 5.0)
    assert daemon.followed == [{"log_level", "max_rdy_count", "msg_timeout"}]


def test_what_needs_a_restart_is_named_each_time(daemon: Daemon) -> None:
    for _ in range(2):
        found = daemon.reload('max_msg_size = "2MB"\nbackend = "sqlite"\n')
        assert found["changed"] == []
        assert found["restart"] == [
            {"option": "max_msg_size", "old": 1048576, "new": 2097152},
            {"option": "backend", "old": "disk", "new": "sqlite"},
        ]
        assert daemon.options.max_msg_size == 1048576
    assert keys(daemon.reload("")["restart"]) == []


def test_what_is_written_in_another_way_is_no_change(daemon: Daemon) -> None:
    daemon.reload('msg_timeout = "30s"\n')
    assert daemon.reload("msg_timeout = 30000\n")["changed"] == []


def test_a_flag_stands_over_the_file(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "--max-rdy-count=9")
    assert daemon.reload("max_rdy_count = 7\n")["changed"] == []
    assert daemon.options.max_rdy_count == 9


def test_what_was_changed_over_http_stays_until_the_file_says_something_else(daemon: Daemon) -> None:
    daemon.options.log_level = 1
    assert daemon.reload("max_topics = 5\n")["changed"] == [{"option": "max_topics", "old": 0, "new": 5}]
    assert daemon.options.log_level == 1
    daemon.reload('max_topics = 5\nlog_level = "error"\n')
    assert daemon.options.log_level == 4


def test_rules_for_topics(daemon: Daemon) -> None:
    (change,) = daemon.reload('[topic."a*"]\ndurability = "fsync"\n')["changed"]
    assert change == {"option": "[topic]", "old": "", "new": '\n[topic."a*"]\ndurability = "fsync"\n'}
    assert daemon.options.topic_rules == (TopicRule("a*", durability="fsync"),)
    assert daemon.followed == [{"topic_rules"}]


def test_rules_for_channels_and_policies_of_topics(daemon: Daemon) -> None:
    text = '[topic."a*"]\nmessage_ttl = "1h0m0s"\n\n[channel."a*/c"]\nmax_attempts = 5\n'
    topics, channels = daemon.reload(text)["changed"]
    assert topics == {"option": "[topic]", "old": "", "new": '\n[topic."a*"]\nmessage_ttl = "1h0m0s"\n'}
    assert channels == {"option": "[channel]", "old": "", "new": '\n[channel."a*/c"]\nmax_attempts = 5\n'}
    assert daemon.followed == [{"topic_rules", "channel_rules"}] and daemon.followed[0] <= TOPIC_OPTIONS
    assert daemon.options.channel_policy_of("ab", "c").max_attempts == 5
    assert keys(daemon.reload('[topic."a*"]\nmessage_ttl = "1h"\n')["changed"]) == ["[channel]"]


def test_secrets_are_masked(daemon: Daemon) -> None:
    found = daemon.reload('auth = "oauth:token-4711"\nauth_http_addresses = ["http://me:hush@auth:80"]\n')
    assert keys(found["restart"]) == ["auth_http_addresses", "auth"]
    assert "4711" not in json.dumps(found) and "hush" not in json.dumps(found)


def test_a_certificate_can_be_another_one_and_cannot_be_switched_on(daemon: Daemon) -> None:
    assert keys(daemon.reload('tls_cert = "a.crt"\n')["restart"]) == ["tls_cert"]
    daemon = Daemon(daemon.path.parent, "--tls-key=a.key")
    assert daemon.options.tls_cert == "a.crt"
    assert keys(daemon.reload('tls_cert = "b.crt"\n')["changed"]) == ["tls_cert"]
    assert daemon.options.tls_cert == "b.crt"
    assert keys(daemon.reload("")["restart"]) == ["tls_cert"]
    assert daemon.options.tls_cert == "b.crt"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("max_topic = 1\n", "config file {path}: unknown key 'max_topic', did you mean 'max_topics'?"),
        ("max_topics = -1\n", "--max-topics must be 0 or more, not -1"),
        ("max_topics = \n", "failed to load config file {path} - toml: Invalid value (at line 2, column 14)"),
    ],
)
def test_a_mistake_changes_nothing(daemon: Daemon, text: str, line: str) -> None:
    daemon.readers = [FileReader("grants", lambda options: pytest.fail("nothing is read"))]
    with Log() as lines, pytest.raises(OptionError):
        daemon.reload('log_level = "debug"\n' + text)
    assert lines == [f"error: RELOAD: nothing is changed - {line.format(path=daemon.path)}"]
    assert (daemon.options.log_level, daemon.followed) == (2, [])


def test_a_file_that_cannot_be_used_stays_with_the_options_about_it(daemon: Daemon) -> None:
    used: list[str] = []

    def certificates(options: Options) -> Callable[[], None]:
        assert options.tls_root_ca_file == "ca.crt", "the options as they are to be"
        raise OptionError("no such file")

    def grants(options: Options) -> Callable[[], None]:
        assert (options.max_topics, options.tls_root_ca_file) == (5, "")
        return lambda: used.append("grants")

    daemon.readers = [
        FileReader("certificates", certificates, CERTIFICATE_OPTIONS),
        FileReader("grants", grants),
        FileReader("none", lambda options: None),
    ]
    text = 'max_topics = 5\ntls_root_ca_file = "ca.crt"\n'
    with Log() as lines:
        found = daemon.reload(text)
    assert (found["files"], found["failed"], keys(found["changed"])) == (
        ["grants"],
        {"certificates": "no such file"},
        ["max_topics"],
    )
    assert lines[0] == "error: RELOAD: the certificates stay as they were - no such file"
    assert (used, daemon.options.tls_root_ca_file) == (["grants"], "")
    daemon.readers = []
    assert keys(daemon.reload(text)["changed"]) == ["tls_root_ca_file"], "it is tried again"


def test_the_log_of_a_reload(daemon: Daemon) -> None:
    with Log() as lines:
        daemon.reload("")
        daemon.reload('log_level = "warn"\nmax_msg_size = 5\n')
    assert lines == [
        "info: RELOAD: there is nothing to reload",
        "info: RELOAD: changed: log_level ('info' to 'warn')",
        "warn: RELOAD: needs a restart: max_msg_size (1048576 to 5)",
    ]


def test_every_option_that_can_be_reloaded_is_in_the_report(daemon: Daemon) -> None:
    reloadable = {option.key for option in NSQD if option.is_reloadable} | {"[topic]", "[channel]"}
    assert set(daemon.reload("")["unchanged"]) == reloadable
    for fixed in (
        "tcp_address",
        "data_path",
        "backend",
        "max_msg_size",
        "node_id",
        "protocols",
        "auth",
        "tls_required",
    ):
        assert fixed not in reloadable


# -- processes


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def report(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_a_broker_goes_on_with_other_options(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "nsqd.toml"
    config.write_text("max_rdy_count = 5\n")
    broker = start(f"--config={config}")
    broker.create("orders", "c")
    with broker.client() as consumer:
        consumer.sub("orders", "c")
        with broker.client() as other, pytest.raises(Refused, match="RDY count 6 out of range 0-5"):
            other.sub("orders", "c", ready=6)
            other.cls()
        config.write_text(
            'max_rdy_count = 6\nmax_topics = 1\nmax_msg_size = 10\n[topic."orders"]\ndurability = "fsync"\n'
            'retention_time = "1h"\n'
        )
        found = report(broker.http("POST", "/v2/reload"))
        assert set(keys(found["changed"])) == {"max_topics", "max_rdy_count", "[topic]"}
        assert keys(found["restart"]) == ["max_msg_size"]
        consumer.rdy(6)
        broker.publish("orders", [b"larger than ten bytes"])
        assert consumer.drain(1)[0].body == b"larger than ten bytes"
    assert broker.http("POST", "/pub?topic=second", b"x").status == 503
    (topic,) = broker.stats("orders")
    assert topic["durability"] == "fsync"
    assert topic["retention"]
    config.write_text("max_rdy_count = nonsense\n")
    answer = broker.http("POST", "/v2/reload")
    assert (answer.status, json.loads(answer.body)) == (400, {"message": "INVALID_CONFIG"})
    os.kill(broker.pid, signal.SIGHUP)
    wait_until(lambda: broker.said().count("ERROR: RELOAD: nothing is changed - failed to load") == 2, "it is said")
    assert broker.http("GET", "/config/max_rdy_count").body == b"6"
    broker.stop()


def test_a_broker_finds_and_leaves_its_nsqlookupds(start: Start, tmp_path: Path) -> None:
    lookupd = LookupdProcess(tmp_path / "lookupd")
    lookupd.start()
    config = tmp_path / "nsqd.toml"
    config.write_text("")
    try:
        broker = start(f"--config={config}")
        broker.create("t")
        config.write_text(f'nsqlookupd_tcp_addresses = ["127.0.0.1:{lookupd.tcp_port}"]\n')
        broker.signal(signal.SIGHUP)
        wait_until(lambda: bool(lookupd.producers("t")), "it is registered")
        config.write_text("")
        broker.signal(signal.SIGHUP)
        wait_until(lambda: not lookupd.producers("t"), "it has left")
        broker.stop()
    finally:
        lookupd.close()


def test_an_nsqlookupd_goes_on_with_other_options(tmp_path: Path) -> None:
    config = tmp_path / "nsqlookupd.toml"
    config.write_text("")
    lookupd = LookupdProcess(tmp_path / "lookupd", f"--config={config}")
    lookupd.start()
    try:
        config.write_text('max_topics = 1\ninactive_producer_timeout = "1m"\n')
        found = report(lookupd.http("POST", "/v2/reload"))
        assert keys(found["changed"]) == ["max_topics"]
        assert keys(found["restart"]) == ["inactive_producer_timeout"]
        assert lookupd.http("POST", "/topic/create?topic=one").status == 200
        assert lookupd.http("POST", "/topic/create?topic=two").status == 503
        lookupd.stop()
    finally:
        lookupd.close()


def test_what_a_broker_prints_as_its_options_reloads_to_nothing(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    found = daemon.reload(config_text(daemon.options, {}))
    assert (found["changed"], found["restart"]) == ([], [])
