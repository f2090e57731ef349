"""Questions about the lag that fail or hang: no micro-batch fails or waits for them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.jobs.brokers import Brokers
from pyspark_nsq.jobs.connection import Connection
from pyspark_nsq.log.client import Extent, LogClient
from pyspark_nsq.log.discovery import Discovery
from pyspark_nsq.log.positions import Log
from pyspark_nsq.log.stream import LogStreamReader
from pyspark_nsq.monitoring.answers import Answers
from pyspark_nsq.monitoring.channel_lag import ChannelLag
from pyspark_nsq.monitoring.figures import KEY
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.log import LogOptions

from tests.process import ForkedNsqd, NsqdProcess, starting, wait_until
from tests.spark.http_thread import HttpThread
from tests.wire import HOST

EXTENT = {"first": 5, "end": 9, "earliest": 5, "latest": 9}


class OddNsqd(HttpThread):
    """An nsqd and an nsqlookupd. `hangs`: it answers no question about a lag; else it does not know them."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.asked_for_lag = 0
        self.may_answer = threading.Event()
        self.secrets: dict[str, str | None] = {}
        self.host = HOST
        super().__init__(server := OddServer((HOST, 0), OddHandler), "http://")
        server.odd = self


class OddServer(ThreadingHTTPServer):
    odd: OddNsqd
    daemon_threads = True
    request_queue_size = 64


class OddHandler(BaseHTTPRequestHandler):
    server: OddServer

    def do_GET(self) -> None:
        odd, path = self.server.odd, self.path.partition("?")[0]
        odd.secrets[path] = self.headers["Authorization"]
        node = {"broadcast_address": odd.host, "tcp_port": 1, "http_port": 4151, "topics": ["t"]}
        known = {"/v2/topic/log/range": EXTENT, "/lookup": {"producers": [node]}, "/nodes": {"producers": [node]}}
        if path == "/v2/topic/log/lag":
            odd.asked_for_lag += 1
            if odd.hangs:
                odd.may_answer.wait()
        self.send_response(200 if path in known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(known.get(path, {"message": "NOT_FOUND"})).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def options(odd: OddNsqd, **more: str) -> LogOptions:
    given = {"replay": "log", "nsqdHttpAddresses": odd.address, "topic": "t", "retries": "0"}
    return LogOptions.parse(given | {"requestTimeoutMs": "60000"} | more)


def test_extents_do_not_wait_for_lags() -> None:
    with OddNsqd(hangs=True) as odd:
        client = LogClient(options(odd))
        lags = [client.lag(Log(f"t{number}", odd.address), 5) for number in range(20)]
        wait_until(lambda: odd.asked_for_lag >= 8, "as many are under way as may be")
        log = Log("t", odd.address)
        assert {log: Extent(**EXTENT)} == client.extents([log])
        assert not any(lag.done() for lag in lags)
        odd.may_answer.set()
        for lag in lags:
            assert "has no logs to read" in str(lag.exception())


def test_an_nsqd_that_does_not_know_lags_is_unanswered() -> None:
    with OddNsqd() as odd:
        reader = LogStreamReader(options(odd, startingOffsets="earliest"))
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        reported = reader.reportLatestOffset()
    assert reported is not None
    assert (reported[KEY]["unanswered"], reported[odd.address]) == (1, 9)
    assert {odd.address: 9} == end


def test_a_mistake_is_logged_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broken: Future[int] = Future()
    broken.set_exception(TypeError("a mistake"))
    with caplog.at_level(logging.ERROR, "pyspark_nsq"):
        assert Answers[str, int]().get({"a": 0}, lambda _: broken) == {}
    assert "the lag at a is unknown: TypeError('a mistake')" in caplog.text


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NsqdProcess]:
    with starting(tmp_path, ForkedNsqd) as start:
        one = start()
        one.create("t", "c")
        yield one


def test_damage_behind_a_micro_batch_does_not_fail_it(broker: NsqdProcess, tmp_path: Path) -> None:
    broker.publish("t", [b"1", b"2"])
    given = {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "c", "maxRowsPerTrigger": "1"}
    reader = ChannelStreamReader(ChannelOptions.parse(given | {"spoolPath": str(tmp_path / "spool")}))
    try:
        start = reader.initialOffset()
        wait_until(lambda: reader.reportLatestOffset()["seq"] == 2, "both are there")
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        (segment,) = (tmp_path / "spool").glob("*.segment")
        data = bytearray(segment.read_bytes())
        data[-1] ^= 1
        segment.write_bytes(data)
        assert reader.reportLatestOffset()[KEY]["lag"][0]["messages"] == 1
        assert end["seq"] == 1
    finally:
        reader.stop()


def test_a_secret_in_a_file_is_not_sent_in_the_clear_beside_tls(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    with OddNsqd() as odd:
        given = {"nsqdTcpAddresses": f"{HOST}:1", "nsqdHttpAddresses": odd.address, "topic": "t", "channel": "c"}
        given |= {"authSecretFile": str(tmp_path / "secret"), "tls": "true"}
        ChannelLag(ChannelOptions.parse(given)).report({}, 0, None, 0)
    assert "/stats" in odd.secrets
    assert {None} == set(odd.secrets.values())


def test_a_secret_in_a_file_is_not_sent_to_nsqlookupds_by_jobs(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    with OddNsqd() as odd:
        given = {"lookupdHttpAddresses": odd.address, "authSecretFile": str(tmp_path / "secret")}
        assert [f"http://{HOST}:4151"] == Brokers(Connection(given)).addresses()
    assert odd.secrets == {"/nodes": None}


@pytest.mark.parametrize("topics", [{"topic": "t"}, {"subscribePattern": "t.*"}])
def test_an_ipv6_address_that_an_nsqlookupd_names_is_in_brackets(topics: dict[str, str]) -> None:
    with OddNsqd() as odd:
        odd.host = "fd00::1"
        given = LogOptions.parse({"replay": "log", "lookupdHttpAddresses": odd.address} | topics)
        assert [Log("t", "http://[fd00::1]:4151")] == Discovery(LogClient(given), given).logs()[0]
        assert Brokers(Connection({"lookupdHttpAddresses": odd.address})).addresses() == ["http://[fd00::1]:4151"]
