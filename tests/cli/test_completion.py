"""Completion in bash, and the names that complete a word. tests/system has the other shells."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.server_answers import ClusterNames
from nsqtw.testing import Broker
from tests.cli.conftest import Nsqtw
from tests.cli.serving import serving
from tests.cli.shells import BASH, SCRIPTS, SECONDS


def completed(words: list[str], incomplete: str, own_config: Path) -> list[str]:
    """Return the completions of a word, as bash is told."""
    line = ["nsqtw", *words, incomplete]
    environment = {
        **os.environ,
        "_NSQTW_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "NSQTW_CONTEXTS": str(own_config),
    }
    done = subprocess.run([SCRIPTS / "nsqtw"], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr == ""
    return [text.partition(",")[2] for text in done.stdout.splitlines() if text]


def test_verbs_and_options(own_config: Path) -> None:
    assert completed([], "to", own_config) == ["topic"]
    assert completed(["topic"], "pa", own_config) == ["pause"]
    assert "--durability" in completed(["topic", "set", "t"], "--d", own_config)
    assert completed(["topic", "set", "t", "--durability"], "f", own_config) == ["fsync"]


def test_names_of_the_cluster_and_contexts(nsqd: Broker, on_nsqd: Nsqtw, own_config: Path) -> None:
    for name in ("orders.new", "orders.old", "users"):
        on_nsqd("topic", "create", name)
    on_nsqd("channel", "create", "users", "archive")
    own_config.write_text(
        f'current = "live"\n[contexts.live]\nnsqd_http_addresses = ["{nsqd.http_address}"]\n'
        '[contexts.dead]\nnsqd_http_addresses = ["127.0.0.1:1"]\n'
    )
    assert completed(["topic", "pause"], "ord", own_config) == ["orders.new", "orders.old"]
    assert completed(["channel", "pause", "users"], "", own_config) == ["archive"]
    assert completed(["channel", "pause", "nowhere"], "", own_config) == []
    assert completed(["drain"], "127", own_config) == [nsqd.http_address]
    assert completed(["context", "use"], "", own_config) == ["live", "dead"]
    assert completed(["--context"], "de", own_config) == ["dead"]
    assert completed(["--context", "dead", "topic", "pause"], "", own_config) == []
    assert completed(["topic", "pause", "--nsqd-http-address", nsqd.http_address], "us", own_config) == ["users"]


def test_settings_of_policies(on_nsqd: Nsqtw, own_config: Path) -> None:
    on_nsqd("channel", "create", "settings", "messenger")
    words = ["policy", "set", "settings"]
    access = ["--nsqd-http-address", on_nsqd("nodes", "-o", "json").json[0]["node"]]
    assert completed([*access, *words], "mess", own_config) == ["messenger", "message_ttl"]
    assert completed([*words, "messenger"], "max_at", own_config) == ["max_attempts"]
    assert completed([*words, "message_ttl=1h"], "max_at", own_config) == []
    assert completed(["policy", "unset", "settings", "messenger", "priority"], "max_at", own_config) == ["max_attempts"]


def test_a_config_file_with_a_mistake_completes_nothing_and_says_nothing(own_config: Path) -> None:
    own_config.write_text("current = 1")
    assert completed(["topic", "pause"], "", own_config) == []
    assert completed(["context", "use"], "", own_config) == []


def test_bash_loads_the_script_and_uses_it(own_config: Path, tmp_path: Path) -> None:
    assert BASH.errors_of_script(tmp_path) == ""
    assert BASH.completed(tmp_path) == "topic\n"


def test_the_address_of_a_node_may_be_one_of_ipv6() -> None:
    with serving(
        "/nodes", b'{"producers": [{"broadcast_address": "::1", "tcp_port": 4150, "http_port": 4151}]}'
    ) as lookupd:
        assert list(ClusterNames(ClusterAccess(lookupd_http_addresses=(lookupd,))).nodes()) == ["[::1]:4151"]
