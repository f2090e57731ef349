"""The broker for other people's tests: `nsqtw.testing.broker` and the fixture `nsq_broker`."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from nsqtw.testing import Broker, BrokerNotStarted, broker


def publish(nsqd: Broker, body: bytes) -> None:
    with urllib.request.urlopen(f"http://{nsqd.http_address}/pub?topic=t", body) as answer:
        assert answer.read() == b"OK"


def stats(nsqd: Broker) -> str:
    with urllib.request.urlopen(f"http://{nsqd.http_address}/stats") as answer:
        text: str = answer.read().decode()
    return text


def test_acknowledged_messages_survive_a_kill(nsq_broker: Broker) -> None:
    publish(nsq_broker, b"one")
    addresses = (nsq_broker.tcp_address, nsq_broker.http_address)
    nsq_broker.kill()
    assert nsq_broker.pid == 0
    nsq_broker.restart()
    assert (nsq_broker.tcp_address, nsq_broker.http_address) == addresses
    assert "depth: 1 " in stats(nsq_broker)


def test_options_reach_the_broker_and_its_data_is_removed() -> None:
    with broker("--verbose", max_msg_size=3, log_level="debug") as nsqd, broker() as other:
        assert nsqd.tcp_address != other.tcp_address
        with pytest.raises(urllib.error.HTTPError, match="413"):
            publish(nsqd, b"four")
        publish(other, b"four")
        data_path = Path(nsqd.data_path)
        assert data_path.is_dir()
        assert "listening" in nsqd.log
    assert not data_path.exists()


def test_a_broker_that_does_not_start_says_why() -> None:
    with pytest.raises(BrokerNotStarted, match="flag provided but not defined: -nope"), broker("--nope"):
        pass


def test_the_fixture_works_in_another_suite(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import urllib.request\n\n\n"
        "def test_ping(nsq_broker):\n"
        '    assert urllib.request.urlopen(f"http://{nsq_broker.http_address}/ping").read() == b"OK"\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_loads_nothing_of_twisted() -> None:
    script = "import sys, nsqtw.testing.pytest_plugin; print('twisted' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n"
