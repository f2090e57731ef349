"""A broker as a process and its nsqlookupds, good and bad ones, on sockets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Certificates
from tests.discovery.fake_lookupd import MISDEEDS, SILENT, FakeLookupd, http_response, lookupds
from tests.process import LookupdProcess, NsqdProcess, Start, starting, wait_until
from tests.wire import HOST

LONG_TIME = "--http-client-request-timeout=50s"
SHORT_TIME = "--http-client-request-timeout=300ms"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start_one:
        yield start_one


@pytest.fixture
def lookupd() -> Iterator[Any]:
    """Makes nsqlookupds."""
    with lookupds() as make:
        yield make


def test_it_introduces_itself_and_tells_all_again_after_each_connection(start: Start, lookupd: Any) -> None:
    peer: FakeLookupd = lookupd()
    broker = start(peer.flag(), "--broadcast-address=b.example", "--topology-zone=z", "--topology-region=r")
    broker.create("t", "c")
    peer.await_commands("REGISTER t", "REGISTER t c")
    told = peer.introductions[0]
    assert told.pop("hostname")
    assert told == {
        "broadcast_address": "b.example",
        "http_port": broker.http_port,
        "tcp_port": broker.tcp_port,
        "topology_region": "r",
        "topology_zone": "z",
        "version": "1.3.0",
    }
    peer.commands.clear()
    peer.drop()
    peer.await_commands("REGISTER t c")
    assert len(peer.introductions) == 2
    assert "REGISTER t" not in peer.commands
    broker.restart()
    wait_until(lambda: len(peer.introductions) == 3, "it introduces itself again")
    assert "LOOKUP: closing" in broker.said()


NO_ANSWER = """
import socket, time
from nsqtw.tap import main_nsqd
look_up = socket.getaddrinfo
def never(name, *given, **more):
    # A name server that is silent: the broker must end before it.
    return time.sleep(1e6) if name == "lookupd.example" else look_up(name, *given, **more)
socket.getaddrinfo = never
main_nsqd()
"""


class Unnamed(NsqdProcess):
    """A broker to which no name server says where its nsqlookupd is."""

    def program(self) -> list[str]:
        return [sys.executable, "-c", NO_ANSWER]


def test_it_stops_though_no_name_server_answers(tmp_path: Path) -> None:
    broker = Unnamed(tmp_path, "--lookupd-tcp-address=lookupd.example:4160")
    try:
        broker.start()
        wait_until(lambda: "LOOKUPD(lookupd.example:4160): " in broker.said(), "it has looked the name up")
        broker.publish("t", [b"1"])
        broker.stop()
    finally:
        broker.close()


def test_bad_ones_cost_nobody_but_themselves(start: Start, lookupd: Any) -> None:
    bad = [lookupd(misdeed) for misdeed in MISDEEDS]
    good: FakeLookupd = lookupd()
    good.channels = {f"t{number}": ["c"] for number in range(20)}
    for peer in bad:
        peer.http_answer = None
    # All that is asked over HTTP are those that said where they are: the good one, and the slow one for a second.
    broker = start(*(peer.flag() for peer in [*bad, good]), "--http-client-request-timeout=2s")
    with broker.client() as producer:
        for number in range(20):
            producer.pub(f"t{number}", b"first")
            producer.pub(f"t{number}", b"second")
    good.await_commands(*(f"REGISTER t{number} c" for number in range(20)))
    for number in (0, 19):
        bodies = [message.body for message in broker.drain(f"t{number}", "c", 2)]
        assert bodies == [b"first", b"second"]
    assert len(good.introductions) == 1


def test_a_publisher_does_not_wait_for_an_nsqlookupd_and_a_consumer_not_for_ever(start: Start, lookupd: Any) -> None:
    peer: FakeLookupd = lookupd()
    peer.http_answer = None
    broker = start(peer.flag(), LONG_TIME)
    wait_until(lambda: "peer info" in broker.said(), "it knows its nsqlookupd")
    broker.publish("held", [b"1", b"2"])
    (topic,) = broker.stats("held")
    assert (topic["depth"], topic["channels"]) == (2, [])
    broker.order("/topic/delete?topic=held")
    broker.stop()
    hasty = start(peer.flag(), SHORT_TIME)
    wait_until(lambda: "peer info" in hasty.said(), "it knows its nsqlookupd")
    hasty.publish("t", [b"1"])
    assert [message.body for message in hasty.drain("t", "c", 1)] == [b"1"]
    assert "failed to query nsqlookupd for channels to pre-create for topic t - i/o timeout" in hasty.said()


UNFIT_ANSWERS = [
    (b"\x00\x01garbage\r\n\r\n", ""),
    (http_response(b"nonsense"), "the answer does not say which channels"),
    (http_response(b'{"channels":7}'), "the answer does not say which channels"),
    (http_response(b"[" * 100_000), "the answer does not say which channels"),
    (http_response(b" " * 2_000_000), "the answer has more than 1048576 bytes"),
    (http_response(b"", "302 Found", "Location: http://127.0.0.1:1/"), "got response 302"),
    (http_response(b'{"channels":["c"]}', "500 Oops"), "got response 500"),
]


def test_an_answer_that_will_not_do_is_said_and_the_topic_starts(start: Start, lookupd: Any) -> None:
    peer: FakeLookupd = lookupd()
    broker = start(peer.flag(), LONG_TIME)
    wait_until(lambda: "peer info" in broker.said(), "it knows its nsqlookupd")
    for number, (answer, why) in enumerate(UNFIT_ANSWERS):
        peer.http_answer = answer
        broker.publish(f"t{number}", [b"1"])
        assert len(broker.drain(f"t{number}", "c", 1)) == 1
        (line,) = [line for line in broker.said().splitlines() if f"to pre-create for topic t{number} - " in line]
        assert line.endswith(why), line
        assert f"topic t{number} - {peer.tcp_address}: " in line


def test_names_that_are_none_and_ephemeral_ones_are_not_made(start: Start, lookupd: Any) -> None:
    peer: FakeLookupd = lookupd()
    peer.http_answer = http_response(json.dumps({"channels": ["c", "e#ephemeral", "no name", 7, None, ""]}).encode())
    broker = start(peer.flag(), LONG_TIME)
    wait_until(lambda: "peer info" in broker.said(), "it knows its nsqlookupd")
    broker.publish("t", [b"1"])
    peer.await_commands("REGISTER t c")
    assert [channel["channel_name"] for channel in broker.stats("t")[0]["channels"]] == ["c"]
    assert peer.questions == ["/channels?topic=t"]


# Python's ssl leaves a socket to the garbage whose other end has gone when it is wrapped.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_over_tls_with_a_certificate_and_a_secret(
    start: Start, lookupd: Any, certificates: Certificates, tmp_path: Path
) -> None:
    peer: FakeLookupd = lookupd(certificates=certificates)
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    flags = [
        peer.flag(),
        "--lookupd-tls",
        f"--lookupd-tls-cert={certificates.client.certificate}",
        f"--lookupd-tls-key={certificates.client.key}",
    ]
    authority = f"--lookupd-tls-root-ca-file={certificates.authority.certificate}"
    broker = start(*flags, authority, f"--lookupd-secret-file={secret}", "--log-level=debug")
    broker.create("t")
    peer.await_commands("REGISTER t")
    assert peer.introductions[0]["secret"] == "hunter2"
    assert "hunter2" not in broker.said()
    broker.stop()
    count = len(peer.introductions)
    stranger = start(*flags, f"--lookupd-tls-root-ca-file={certificates.stranger.certificate}")
    wait_until(lambda: f"ERROR: LOOKUPD({peer.tcp_address}): " in stranger.said(), "it does not trust that one")
    assert "peer info" not in stranger.said()
    assert len(peer.introductions) == count


def test_an_nsqlookupd_of_ours_that_wants_all_of_it_is_told_and_asked(
    start: Start, certificates: Certificates, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    peer = LookupdProcess(
        tmp_path / "lookupd",
        *certificates.server.flags(),
        f"--tls-root-ca-file={certificates.authority.certificate}",
        "--tls-client-auth-policy=require-verify",
        f"--peer-secret-file={secret}",
        "--http-auth=all",
        f"--broadcast-address={HOST}",
    )
    try:
        peer.start()
        flags = [
            f"--lookupd-tcp-address=localhost:{peer.tcp_port}",
            "--lookupd-tls",
            f"--lookupd-tls-cert={certificates.client.certificate}",
            f"--lookupd-tls-key={certificates.client.key}",
            f"--lookupd-tls-root-ca-file={certificates.authority.certificate}",
            f"--lookupd-secret-file={secret}",
        ]
        first, second = start(*flags), start(*flags)
        first.create("t", "c")
        wait_until(lambda: "REGISTER category:channel key:t subkey:c" in peer.said(), "the channel is registered")
        second.publish("t", [b"1"])
        wait_until(lambda: second.stats("t")[0]["channels"], "the channel is made")
        assert [message.body for message in second.drain("t", "c", 1)] == [b"1"]
    finally:
        peer.close()
    assert "hunter2" not in peer.said() + first.said() + second.said()


def test_addresses_are_changed_over_http(start: Start, lookupd: Any) -> None:
    first, second = lookupd(), lookupd(SILENT)
    broker = start()
    broker.create("t")

    def put(*addresses: str) -> None:
        body = json.dumps(addresses).encode()
        assert broker.http("PUT", "/config/nsqlookupd_tcp_addresses", body).body == body.replace(b" ", b"")

    put(first.tcp_address)
    first.await_commands("REGISTER t")
    put(second.tcp_address, f"{HOST}:1")
    wait_until(lambda: second.introductions, "the second one is spoken to")
    assert f"LOOKUP({first.tcp_address}): removing peer" in broker.said()


def test_an_nsqlookupd_that_sends_the_secret_back_does_not_have_it_in_the_log(
    start: Start, lookupd: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    peer: FakeLookupd = lookupd()
    peer.http_answer = b"Authorization: Bearer hunter2\r\n\r\n"
    broker = start(peer.flag(), f"--lookupd-secret-file={secret}")
    wait_until(lambda: "peer info" in broker.said(), "it has met it")
    broker.create("t", "c")
    wait_until(lambda: "failed to query nsqlookupd" in broker.said(), "it has asked")
    assert "hunter2" not in broker.said()
