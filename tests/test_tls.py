"""A broker with a certificate, as a process: every combination of upgrades, HTTPS, SIGHUP, and its end."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.certificates import Certificates, Pair
from tests.process import NsqdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST, Closed, Frame, Refused, mpub

Start = Callable[..., NsqdProcess]
HTTPS = "HTTPS: listening on "


@pytest.fixture
def start(tmp_path: Path, certificates: Certificates) -> Iterator[Start]:
    """Start a broker with the server's certificate and more flags."""
    brokers = []

    def begin(*flags: str, pair: Pair = certificates.server) -> NsqdProcess:
        broker = NsqdProcess(tmp_path, *pair.flags(), f"--https-address={HOST}:0", *flags)
        brokers.append(broker)
        broker.start()
        return broker

    yield begin
    for broker in brokers:
        broker.close()


@pytest.fixture
def wants(certificates: Certificates) -> ssl.SSLContext:
    """A client that trusts our authority alone."""
    return ssl.create_default_context(cafile=certificates.authority.certificate)


def https_port(broker: NsqdProcess) -> int:
    wait_until(lambda: HTTPS in broker.said(), "it listens for HTTPS")
    return int(broker.said().partition(HTTPS)[2].split()[0].rpartition(":")[2])


def ask(broker: NsqdProcess, wants: ssl.SSLContext, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("localhost", https_port(broker), timeout=ANSWER_SECONDS, context=wants)
    connection.sock = wants.wrap_socket(
        socket.create_connection((HOST, https_port(broker)), timeout=ANSWER_SECONDS), server_hostname="localhost"
    )
    try:
        connection.request(method, path, body or None)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_every_combination_of_upgrades(start: Start, wants: ssl.SSLContext) -> None:
    broker = start()
    bodies = [b"small", os.urandom(300_000), b"\0" * 1_000_000]
    combinations = [(tls, asked) for tls in (None, wants) for asked in ({}, {"snappy": True}, {"deflate": True})]
    for index, (tls, asked) in enumerate(combinations):
        topic = f"t{index}"
        broker.create(topic, "c")
        with broker.client() as producer, broker.client() as consumer:
            producer.upgrade(tls, **asked)
            consumer.upgrade(tls, **asked, heartbeat_interval=1000)
            consumer.sub(topic, "c", ready=10)
            for body in bodies:
                producer.pub(topic, body)
            producer.mpub(topic, [b"many"] * 1000)
            assert [message.body for message in consumer.drain(1003)] == [*bodies, *[b"many"] * 1000]
            while not consumer.heartbeats:
                producer.pub(topic, b"more")
                consumer.drain(1)
            (seen,) = [one["clients"][0] for found in broker.stats(topic) for one in found["channels"]]
        assert (seen["tls"], seen["snappy"], seen["deflate"]) == (
            tls is not None,
            "snappy" in asked,
            "deflate" in asked,
        )
        version, suite = ("TLS1.3", "Unknown 4866") if tls else ("", "")
        assert (seen["tls_version"], seen["tls_cipher_suite"]) == (version, suite)
        assert (seen["tls_negotiated_protocol"], seen["tls_negotiated_protocol_is_mutual"]) == ("", tls is not None)
    broker.stop()


def test_tls_required_keeps_plain_text_out(start: Start, wants: ssl.SSLContext) -> None:
    broker = start("--tls-required")
    with (
        broker.client() as client,
        pytest.raises(Refused, match=r"^E_INVALID cannot PUB in current state .TLS required.$"),
    ):
        client.pub("t", b"x")
    refused = {"message": "TLS_REQUIRED", "https_port": https_port(broker)}
    assert broker.http("GET", "/ping") == (403, json.dumps(refused).encode())
    assert ask(broker, wants, "POST", "/pub?topic=t", b"x") == (200, b"OK")
    with broker.client() as client:
        client.upgrade(wants)
        client.sub("t", "c", ready=1)
        assert client.message().body == b"x"
    broker.stop()


def test_a_client_certificate_opens_tcp_and_https(start: Start, certificates: Certificates) -> None:
    authority = certificates.authority.certificate
    broker = start("--tls-client-auth-policy=require-verify", f"--tls-root-ca-file={authority}")
    for pair, is_let_in in ((None, False), (certificates.stranger, False), (certificates.client, True)):
        wants = ssl.create_default_context(cafile=authority)
        if pair is not None:
            wants.load_cert_chain(*pair)
        with broker.client() as client:
            try:
                client.upgrade(wants)
                client.pub("t", b"x")
                was_let_in = True
            except (ssl.SSLError, Closed, ConnectionError):
                was_let_in = False
        assert was_let_in == is_let_in
        try:
            answer = ask(broker, wants, "GET", "/ping")
        except (ssl.SSLError, ConnectionError, http.client.HTTPException):
            answer = None
        assert answer == ((200, b"OK") if is_let_in else None)
    broker.stop()


def serial(broker: NsqdProcess) -> bytes:
    """The certificate that HTTPS shows."""
    return ssl.get_server_certificate((HOST, https_port(broker)), timeout=ANSWER_SECONDS).encode()


def test_sighup_reloads_certificates(start: Start, certificates: Certificates, tmp_path: Path) -> None:
    pair = Pair(str(tmp_path / "a.crt"), str(tmp_path / "a.key"))
    shutil.copy(certificates.server.certificate, pair.certificate)
    shutil.copy(certificates.server.key, pair.key)
    broker = start(pair=pair)
    wants = ssl.create_default_context(cafile=certificates.authority.certificate)
    with broker.client() as old:
        old.upgrade(wants)

        Path(pair.certificate).write_text("nonsense")
        os.kill(broker.pid, signal.SIGHUP)
        said = (
            "ERROR: RELOAD: the certificates stay as they were - failed to build TLS config - "
            f"--tls-cert must hold a certificate (PEM): there is none in {pair.certificate}\n"
        )
        wait_until(lambda: said in broker.said(), "what is wrong is said")
        server = Path(certificates.server.certificate).read_bytes()
        assert serial(broker).split() == server.split()

        shutil.copy(certificates.renewed.certificate, pair.certificate)
        shutil.copy(certificates.renewed.key, pair.key)
        os.kill(broker.pid, signal.SIGHUP)
        wait_until(lambda: "INFO: RELOAD: read again: certificates\n" in broker.said(), "they are reloaded")
        assert serial(broker).split() == Path(certificates.renewed.certificate).read_bytes().split()
        with broker.client() as new:
            new.upgrade(wants)
            new.pub("t", b"new")
        old.pub("t", b"old")
    broker.stop()


def test_it_stops_at_once_whatever_handshake_is_open(start: Start) -> None:
    broker = start()
    with broker.client() as waiting, socket.create_connection((HOST, https_port(broker))) as silent:
        assert waiting.identify(tls_v1=True)["tls_v1"]
        silent.sendall(b"\x16\x03\x01")
        broker.stop()


def test_plain_text_where_tls_should_begin(start: Start) -> None:
    broker = start()
    with broker.client() as client:
        client.identify(tls_v1=True)
        client.send(mpub("t", [b"x"]))
        text = b"E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake"
        assert client.rest() == [Frame(1, text)]
    with socket.create_connection((HOST, https_port(broker)), timeout=ANSWER_SECONDS) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert plain.makefile("rb").readline() == b"HTTP/1.0 400 Bad Request\r\n"
    broker.stop()


def test_a_bomb_leaves_the_broker_as_large_as_it_was(start: Start) -> None:
    """128 MB of commands in half a MB."""
    broker = start()

    def peak_bytes() -> int:
        status = Path(f"/proc/{broker.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    with broker.client() as client:
        client.upgrade(deflate=True)
        client.pub("t", b"x")
        before = peak_bytes()
        client.send((b"NOP " + b"x" * 16000 + b"\n") * (1 << 13))
        client.pub("t", b"x")
    assert peak_bytes() - before < 16 << 20
    broker.stop()


def test_without_a_certificate_there_is_no_tls(tmp_path: Path) -> None:
    broker = NsqdProcess(tmp_path, f"--https-address={HOST}:0")
    try:
        broker.start()
        with broker.client() as client:
            assert client.upgrade(ssl.create_default_context(), snappy=True)["tls_v1"] is False
            client.pub("t", b"x")
        assert HTTPS not in broker.said()
        broker.stop()
    finally:
        broker.close()


def test_what_was_asked_for_by_a_word_nobody_knows_is_said(start: Start) -> None:
    broker = start("--tls-client-auth-policy=Require", "--nsq-compat")
    said = (
        "WARNING: --tls-client-auth-policy=Require asks for no client certificate: known are require and require-verify"
    )
    assert said in broker.said()
    broker.stop()
