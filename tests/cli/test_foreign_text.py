"""What other programs say, on a terminal: it controls nothing there, and writes no line of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqtw.testing import Broker
from tests.cli.conftest import Nsqtw
from tests.cli.serving import serving
from tests.cli.terminal import Terminal
from tests.cli.test_completion import completed
from tests.wire import HOST

TITLE = "\x1b]0;PWN\x07"
FORGED = "2026/11/28 00:00:00 INF    1 [orders/nsq_to_file] a forged line"
DANGEROUS = (TITLE, f"\n{FORGED}", "\x9b31m", "\u202e")
EVIL = f"a{TITLE}\x9b31m\u202e"
NODES = [
    {"broadcast_address": EVIL, "hostname": EVIL, "tcp_port": 9, "http_port": 9, "version": EVIL, "topics": ["orders"]},
    {
        **{"broadcast_address": f"x\n{FORGED}", "hostname": "h", "tcp_port": 9, "http_port": 9, "version": "1.3.0"},
        "topics": ["orders"],
    },
]


def assert_harmless(terminal: Terminal) -> None:
    raw = terminal.raw.replace("\r\n", "\n")
    assert not [text for text in DANGEROUS if text in raw], raw


@pytest.fixture(scope="module")
def lookupd() -> Iterator[str]:
    """An nsqlookupd that names nsqds with such addresses, as NSQ's does."""
    answer = json.dumps({"channels": [EVIL], "producers": NODES}).encode()
    more = {"/nodes": (200, answer), "/topics": (200, json.dumps({"topics": ["orders", EVIL]}).encode())}
    with serving("/lookup", answer, more=more) as address:
        yield address


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("nsqtw", ["tail", "orders"], "no host and port"),
        ("nsqtw", ["tail", "orders", "--debug"], "no host and port"),
        ("nsqtw", ["sub", "orders", "c", "-n", "1"], "no host and port"),
        ("nsqtw", ["pub", "orders", "x"], "no host and port"),
        ("nsqtw", ["nodes"], ""),
        ("nsqtw", ["nodes", "-o", "json"], ""),
        ("nsqtw", ["stat", "-n", "1"], ""),
        ("nsqtw", ["topic", "list"], ""),
        ("nsqtw", ["doctor"], ""),
        ("nsq_tail", ["--topic=orders"], "no host and port"),
        ("nsq_to_file", ["--topic=orders", "--output-dir=out"], "no host and port"),
        ("nsq_to_http", ["--topic=orders", f"--post=http://{HOST}:1/"], "no host and port"),
        ("nsq_to_nsq", ["--topic=orders", f"--destination-nsqd-tcp-address={HOST}:1"], "no host and port"),
        ("nsq_stat", ["--topic=orders", "--channel=c", "--count=1"], "ERROR"),
    ],
)
def test_an_nsqlookupds_text_is_only_text(
    lookupd: str, own_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    program: str, words: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    option = [f"--lookupd-http-address={lookupd}"]
    with Terminal(*words, *option, program=program, columns=400) as terminal:
        if said:
            terminal.wait_for(said)
            if "pub" not in words:  # which ends by itself
                terminal.interrupt()
        terminal.end()
        assert_harmless(terminal)


@pytest.mark.parametrize("words", [[], ["-o", "json"]])
def test_a_message_is_only_text(nsqd: Broker, on_nsqd: Nsqtw, topic: str, own_config: Path, words: list[str]) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    on_nsqd("pub", topic, f"body {EVIL}")
    for verb in (["peek", topic, "c"], ["tail", topic, "c", "-n", "1", *(["--json"] if words else [])]):
        own = words if verb[0] == "peek" else []
        with Terminal("--nsqd-http-address", nsqd.http_address, *verb, *own, columns=400) as terminal:
            assert terminal.end() == 0
            assert "body a" in terminal.text
            assert_harmless(terminal)


def test_a_message_in_nsq_tail_is_only_text_on_a_terminal(nsqd: Broker, on_nsqd: Nsqtw, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    on_nsqd("pub", topic, f"body {EVIL}")
    words = (f"--topic={topic}", "--channel=c", "-n=1", f"--nsqd-tcp-address={nsqd.tcp_address}")
    with Terminal(*words, program="nsq_tail") as terminal:
        assert terminal.end() == 0
        assert "body a\\x1b]0;PWN\\x07\\x9b31m\\u202e" in terminal.text
        assert_harmless(terminal)


@pytest.mark.parametrize("words", [["topic", "show"], ["tail", "orders"], ["drain"]])
def test_a_name_that_completes_a_word_is_a_name(lookupd: str, own_config: Path, words: list[str]) -> None:
    """A shell puts it on the command line."""
    found = completed(["--lookupd-http-address", lookupd, *words], "", own_config)
    assert found == (["orders"] if "topic" in words else [])
