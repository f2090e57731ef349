"""TLS on a client's connection: the handshake and how it can end, and what goes through it."""

from __future__ import annotations

import json
import shutil
import ssl
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import LogEvent
from twisted.python.failure import Failure

from nsqtw.errors import OptionError
from nsqtw.net.tcp import BrokerConnection
from nsqtw.net.tls_names import suite_name
from nsqtw.net.tls_settings import TlsSettings
from nsqtw.net.tls_transport import HANDSHAKE_SECONDS, MAX_ANSWERED_BYTES
from nsqtw.options.broker import Options
from tests.certificates import Certificates, Pair
from tests.http.broker_fixture import Log
from tests.net.test_tcp import Edge, SpyTransport
from tests.net.tls_client import TlsClient, context

OK = b"\0\0\0\6\0\0\0\0OK"
NOT_TLS = b"E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake"
TLS_13, TLS_12 = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def identify(**asked: Any) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps({"feature_negotiation": True, **asked}).encode())


def error(text: bytes) -> bytes:
    return struct.pack(">ii", len(text) + 4, 1) + text


def pub(body: bytes) -> bytes:
    return b"PUB t\n" + sized(body)


class Transport(SpyTransport):
    """A socket's, between 127.0.0.1:4150 and :5. What is written after it was closed is not sent."""

    def __init__(self) -> None:
        super().__init__()
        self.hostAddr = IPv4Address("TCP", "127.0.0.1", 4150)
        self.peerAddr = IPv4Address("TCP", "127.0.0.1", 5)

    def lose(self, reason: Exception | None = None) -> None:
        self.protocol.connectionLost(Failure(reason or ConnectionDone()))


class Guard(Edge):
    """An edge with a certificate."""

    def __init__(self, pair: Pair, **options: Any) -> None:
        super().__init__()
        given = {"tls_cert": pair.certificate, "tls_key": pair.key, **options}
        for name, value in given.items():
            setattr(self.broker.options, name, value)
        self.options = Options(**given)
        self.settings = TlsSettings(self.options, self.reactor)
        self.factory.tls = self.settings

    def meet(self, **asked: Any) -> Transport:
        """A client that has asked for TLS and read the answer."""
        connection, transport = self.factory.buildProtocol(None), Transport()
        transport.protocol = connection
        connection.makeConnection(transport)
        connection.dataReceived(b"  V2" + identify(tls_v1=True, **asked))
        self.settle()
        size, kind = struct.unpack_from(">ii", transport.value())
        assert (kind, json.loads(transport.value()[8:])["tls_v1"]) == (0, True)
        assert size + 4 == len(transport.value()), "nothing is said behind the answer"
        transport.clear()
        return transport

    def connect_securely(self, wants: ssl.SSLContext | None = None) -> tuple[TlsClient, Transport]:
        """A client with TLS that has read its OK."""
        transport = self.meet()
        client = TlsClient(transport, wants)
        client.shake()
        self.settle()
        assert client.read() == OK
        return client, transport

    def seen(self) -> dict[str, Any]:
        """What the broker knows of its only client."""
        (client,) = self.broker.clients.values()
        names = ("tls", "tls_version", "tls_cipher_suite", "common_name")
        return {name: getattr(client, name) for name in names}


@pytest.fixture
def guard(certificates: Certificates) -> Guard:
    return Guard(certificates.server)


# -- the way through


def test_a_client_publishes_through_tls(guard: Guard, certificates: Certificates) -> None:
    client, transport = guard.connect_securely(context(authority=certificates.authority.certificate))
    client.send(pub(b"hello"))
    guard.settle()
    assert client.read() == OK
    assert guard.core.topic().message_count == 1
    assert guard.seen()["tls"] is True
    assert transport.reading


@pytest.mark.parametrize(
    ("wants", "version", "suite"),
    [
        ({"lowest": TLS_13}, "TLS1.3", "Unknown 4866"),
        ({"highest": TLS_12}, "TLS1.2", "Unknown 49196"),
        (
            {"highest": TLS_12, "ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
            "TLS1.2",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ),
    ],
)
def test_stats_say_what_was_agreed_on_in_nsqds_words(
    guard: Guard, wants: dict[str, Any], version: str, suite: str
) -> None:
    guard.connect_securely(context(**wants))
    assert guard.seen() == {"tls": True, "tls_version": version, "tls_cipher_suite": suite, "common_name": ""}


def test_names_of_suites() -> None:
    assert suite_name("ECDHE-RSA-AES128-GCM-SHA256") == "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    assert suite_name("TLS_AES_128_GCM_SHA256") == "Unknown 4865"
    assert suite_name("none of this name") == "Unknown 0"


def test_a_handshake_may_come_byte_by_byte(guard: Guard) -> None:
    transport = guard.meet()
    client = TlsClient(transport)
    hello = client.hello()
    for at in range(len(hello)):
        transport.protocol.dataReceived(hello[at : at + 1])
    client.shake()
    guard.settle()
    assert client.read() == OK


def test_large_things_go_both_ways(guard: Guard) -> None:
    client, _ = guard.connect_securely()
    body = bytes(range(256)) * 2000
    client.send(pub(body) * 3)
    guard.settle()
    assert client.read() == OK * 3
    client.send(b"SUB t c\n")
    guard.settle()
    client.send(b"RDY 5\n")
    for _ in range(5):
        guard.settle()
    assert client.read().count(body) == 3


def test_commands_of_one_chunk_reach_the_session_as_one(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are 16 KB; a chunk is the unit of work all the same."""
    client, _ = guard.connect_securely()
    chunks: list[int] = []
    take = BrokerConnection.dataReceived

    def receive(connection: BrokerConnection, data: bytes) -> None:
        chunks.append(len(data))
        take(connection, data)

    monkeypatch.setattr(BrokerConnection, "dataReceived", receive)
    client.send(pub(b"x" * 90_000))
    assert chunks == [90_000 + len(pub(b""))]


def test_a_client_that_sends_with_the_end_of_its_handshake_is_heard(guard: Guard) -> None:
    transport = guard.meet()
    client = TlsClient(transport, context(lowest=TLS_13))
    while not client._try_to_shake():
        client.exchange()
    client.tls.write(pub(b"early"))
    client.exchange()
    guard.settle()
    assert client.read() == OK + OK


def test_back_pressure_reaches_the_socket(guard: Guard) -> None:
    client, transport = guard.connect_securely()
    assert transport.producer is next(iter(guard.factory.connections))
    client.send(b"SUB t c\nNOP\n")
    guard.turn()
    assert not transport.reading  # until the channel is saved
    guard.settle()
    assert transport.reading
    assert client.read() == OK


# -- the end


def test_a_client_that_says_goodbye_still_gets_its_answers(guard: Guard) -> None:
    client, transport = guard.connect_securely()
    client.tls.write(pub(b"last"))
    client.end()
    guard.settle()
    assert client.read() == OK
    assert client.has_been_ended
    assert transport.disconnecting
    transport.lose()


def test_a_client_that_ends_its_side_without_goodbye_does_too(guard: Guard) -> None:
    client, transport = guard.connect_securely()
    client.send(pub(b"last"))
    transport.protocol.readConnectionLost()
    guard.settle()
    assert client.read() == OK
    assert transport.disconnecting


def test_an_error_is_read_before_the_goodbye(guard: Guard) -> None:
    client, transport = guard.connect_securely()
    client.send(b"BOGUS\n")
    guard.settle()
    assert client.read() == error(b"E_INVALID invalid command BOGUS")
    assert client.has_been_ended
    transport.lose()
    assert not guard.factory.connections


def test_what_is_no_tls_any_more_ends_the_connection(guard: Guard) -> None:
    _, transport = guard.connect_securely()
    with Log() as lines:
        transport.protocol.dataReceived(b"PUB t\n" + sized(b"in plain text"))
        assert transport.aborting
        transport.lose(ConnectionLost())
        guard.settle()
    (line,) = [line for line in lines if line.startswith("error")]
    assert line.startswith("error: client(127.0.0.1:5) - failed to read command - ")
    assert not guard.broker.topics


class Chatty:
    """OpenSSL's connection to a peer that sends nothing but KeyUpdates."""

    def __init__(self, real: SSL.Connection) -> None:
        self._real = real
        self._said = b""

    def bio_write(self, data: bytes) -> None:
        self._said += data

    def recv(self, size: int) -> bytes:
        raise SSL.WantReadError

    def bio_read(self, size: int) -> bytes:
        if not self._said:
            raise SSL.WantReadError
        said, self._said = self._said[:size], self._said[size:]
        return said

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_what_tls_answers_by_itself_has_a_bound(guard: Guard) -> None:
    """Back-pressure does not reach it: a client that never reads would have it all kept, before any AUTH."""
    _, transport = guard.connect_securely()
    tls = transport.protocol
    tls._connection = Chatty(tls._connection)
    written = len(transport.value())
    for _ in range(MAX_ANSWERED_BYTES // 16384):
        tls.dataReceived(b"x" * 16384)
    assert not transport.aborting
    with Log() as lines:
        tls.dataReceived(b"x")
        assert transport.aborting
        assert len(transport.value()) - written == MAX_ANSWERED_BYTES + 1
        transport.lose(ConnectionLost())
        guard.settle()
    (line,) = [line for line in lines if line.startswith("error")]
    assert line.endswith(": tls: too many answers are asked for."), line


def test_a_broker_that_stops_says_goodbye(guard: Guard) -> None:
    client, transport = guard.connect_securely()
    guard.factory.disconnect_all()
    assert client.has_been_ended
    assert transport.disconnecting


# -- handshakes that fail


def test_a_client_that_goes_on_in_plain_text_is_told_so_in_plain_text(guard: Guard) -> None:
    transport = guard.meet()
    transport.protocol.dataReceived(pub(b"hello"))
    guard.settle()
    assert transport.value() == error(NOT_TLS)
    assert transport.disconnecting
    assert ("error", f"[127.0.0.1:5] - {NOT_TLS.decode()}") in guard.core.lines
    transport.protocol.dataReceived(pub(b"and again"))
    transport.lose()
    guard.settle()
    assert not guard.broker.topics
    assert not guard.broker.clients


def test_a_handshake_has_a_deadline(guard: Guard) -> None:
    transport = guard.meet()
    transport.protocol.dataReceived(TlsClient(transport).hello()[:20])
    guard.reactor.advance(HANDSHAKE_SECONDS - 0.001)
    assert transport.value() == b""
    guard.reactor.advance(0.002)
    guard.settle()
    text = b"E_IDENTIFY_FAILED IDENTIFY failed read tcp 127.0.0.1:4150->127.0.0.1:5: i/o timeout"
    assert transport.value() == error(text)
    assert transport.disconnecting


def test_a_handshake_that_is_done_has_none(guard: Guard) -> None:
    client, transport = guard.connect_securely()
    guard.reactor.advance(HANDSHAKE_SECONDS + 1)
    client.send(pub(b"x"))
    guard.settle()
    assert client.read() == OK
    transport.lose()
    assert [call for call in guard.reactor.getDelayedCalls() if call.getTime() < HANDSHAKE_SECONDS] == []


@pytest.mark.parametrize("how", ["end", "loss"])
def test_a_connection_lost_in_the_middle_of_a_handshake_is_no_error(
    guard: Guard, how: str, logged_failures: list[LogEvent]
) -> None:
    transport = guard.meet()
    transport.protocol.dataReceived(TlsClient(transport).hello())
    with Log() as lines:
        if how == "end":
            transport.protocol.readConnectionLost()
            assert transport.disconnecting
        transport.lose(ConnectionDone())
        guard.reactor.advance(HANDSHAKE_SECONDS)
        guard.settle()
    assert [line for line in lines if not line.startswith("info")] == []
    assert not guard.factory.connections
    assert not guard.broker.clients


def test_a_broker_that_stops_waits_for_no_handshake(guard: Guard) -> None:
    transport = guard.meet()
    guard.factory.disconnect_all()
    assert transport.disconnecting
    guard.reactor.advance(HANDSHAKE_SECONDS)
    assert transport.value() == b""
    assert [line for line in guard.core.lines if line[0] == "error"] == []
    transport.lose()


@pytest.mark.parametrize(
    ("options", "wants", "reason"),
    [
        ({"tls_min_version": 772}, {"highest": TLS_12}, b"tls: client offered only unsupported versions"),
        ({}, {"highest": TLS_12, "ciphers": "AES128-SHA256"}, b"tls: no cipher suite supported by both client and"),
        ({"tls_client_auth_policy": "require"}, {"highest": TLS_12}, b"tls: client didn't provide a certificate"),
        ({"tls_client_auth_policy": "require-verify"}, {}, b"tls: client didn't provide a certificate"),
    ],
)
def test_why_a_handshake_failed(
    certificates: Certificates,
    options: dict[str, Any],
    wants: dict[str, Any],
    reason: bytes,
) -> None:
    guard = Guard(certificates.server, **options)
    transport = guard.meet()
    client = TlsClient(transport, context(**wants))
    written = client.fail_to_shake()
    guard.settle()
    assert b"E_IDENTIFY_FAILED IDENTIFY failed " + reason in written
    assert transport.disconnecting


def test_a_client_that_does_not_trust_us_says_so(guard: Guard, certificates: Certificates) -> None:
    transport = guard.meet()
    client = TlsClient(transport, context(authority=certificates.stranger.certificate))
    with pytest.raises(ssl.SSLCertVerificationError):
        client.shake()
    client.exchange()
    guard.settle()
    assert transport.disconnecting


def test_old_versions_are_refused_unless_asked_for(certificates: Certificates) -> None:
    assert Options().tls_min_version == 771
    old = ssl.TLSVersion.TLSv1
    wants = context(lowest=old, highest=old, ciphers="ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        Guard(certificates.server).connect_securely(wants)
    guard = Guard(certificates.server, tls_min_version=769)
    guard.connect_securely(wants)
    assert guard.seen()["tls_version"] == "TLS1.0"
    assert guard.seen()["tls_cipher_suite"] == "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"


# -- certificates of clients


def admits(guard: Guard, pair: Pair | None) -> bool:
    """Whether a client with this certificate can publish. With TLS 1.3 it learns of its refusal late."""
    transport = guard.meet()
    client = TlsClient(transport, context(certificate=pair))
    try:
        client.shake()
        guard.settle()
        return client.read() == OK
    except ssl.SSLError:
        return False


@pytest.mark.parametrize(
    ("policy", "nobody", "stranger", "friend"),
    [
        ("", True, True, True),
        ("require", False, True, True),
        ("require-verify", False, False, True),
        ("typo", True, True, True),
    ],
)
def test_who_is_let_in(
    certificates: Certificates,
    policy: str,
    nobody: bool,
    stranger: bool,
    friend: bool,
) -> None:
    authority = certificates.authority.certificate
    guard = Guard(certificates.server, tls_client_auth_policy=policy, tls_root_ca_file=authority)
    found = [admits(guard, pair) for pair in (None, certificates.stranger, certificates.client)]
    assert found == [nobody, stranger, friend]


def test_the_system_has_authorities_too(monkeypatch: pytest.MonkeyPatch, certificates: Certificates) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificates.authority.certificate)
    guard = Guard(certificates.server, tls_client_auth_policy="require-verify")
    assert [admits(guard, pair) for pair in (certificates.stranger, certificates.client)] == [False, True]


@pytest.mark.parametrize(("policy", "name"), [("", ""), ("require", "friend"), ("require-verify", "friend")])
def test_the_name_in_a_certificate(certificates: Certificates, policy: str, name: str) -> None:
    authority = certificates.authority.certificate
    guard = Guard(certificates.server, tls_client_auth_policy=policy, tls_root_ca_file=authority)
    guard.connect_securely(context(certificate=certificates.client))
    assert guard.seen()["common_name"] == name


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x03"),  # the version
        (b"\x0c\x06friend", b"\x03\x06\x00riend"),  # the name as bits
    ],
    ids=["version 4", "bits"],
)
def test_a_certificate_that_cannot_be_read_has_no_name(
    certificates: Certificates, tmp_path: Path, was: bytes, is_now: bytes
) -> None:
    """Without an authority to verify it nobody has looked at it before."""
    guard = Guard(certificates.server, tls_client_auth_policy="require")
    sound = ssl.PEM_cert_to_DER_cert(Path(certificates.client.certificate).read_text())
    assert sound.count(was) == 1
    odd = tmp_path / "odd.crt"
    odd.write_text(ssl.DER_cert_to_PEM_cert(sound.replace(was, is_now)))
    guard.connect_securely(context(certificate=Pair(str(odd), certificates.client.key)))
    assert guard.seen()["common_name"] == ""


# -- what is off


def test_sessions_are_not_resumed(guard: Guard) -> None:
    for version in (TLS_12, TLS_13):
        wants = context(lowest=version, highest=version)
        client, _ = guard.connect_securely(wants)
        again = TlsClient(guard.meet(), wants, client.tls.session)
        again.shake()
        guard.settle()
        assert again.read() == OK
        assert not again.tls.session_reused


def test_nothing_is_renegotiated(guard: Guard) -> None:
    transport = guard.meet()
    wants = SSL.Context(SSL.TLS_CLIENT_METHOD)
    wants.set_max_proto_version(SSL.TLS1_2_VERSION)
    client = SSL.Connection(wants, None)
    client.set_connect_state()

    def exchange() -> None:
        with suppress(SSL.WantReadError):
            transport.protocol.dataReceived(client.bio_read(65536))
        if transport.value():
            client.bio_write(transport.value())
            transport.clear()

    for _ in range(5):
        try:
            client.do_handshake()
        except SSL.WantReadError:
            exchange()
    guard.settle()
    exchange()
    assert client.recv(100) == OK
    client.renegotiate()
    with pytest.raises(SSL.Error, match="no renegotiation"):
        for _ in range(3):
            with suppress(SSL.WantReadError):
                client.do_handshake()
            exchange()


# -- other certificates


def server_name(guard: Guard, wants: ssl.SSLContext) -> bytes:
    """The certificate a new client sees."""
    client, _ = guard.connect_securely(wants)
    found = client.tls.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_new_connections_have_the_new_certificate(certificates: Certificates, tmp_path: Path) -> None:
    pair = Pair(str(tmp_path / "a.crt"), str(tmp_path / "a.key"))
    shutil.copy(certificates.server.certificate, pair.certificate)
    shutil.copy(certificates.server.key, pair.key)
    guard = Guard(pair)
    wants = context()
    old = server_name(guard, wants)
    client, _ = guard.connect_securely()

    shutil.copy(certificates.renewed.certificate, pair.certificate)
    with pytest.raises(OptionError, match="--tls-key is not the key of --tls-cert"):
        guard.settings.read(guard.options)()
    assert server_name(guard, wants) == old

    shutil.copy(certificates.renewed.key, pair.key)
    guard.settings.read(guard.options)()
    assert server_name(guard, wants) not in (b"", old)
    client.send(pub(b"still here"))
    guard.settle()
    assert client.read() == OK

    Path(pair.certificate).write_text("nonsense")
    with pytest.raises(OptionError, match="--tls-cert must hold a certificate"):
        guard.settings.read(guard.options)()
    Path(pair.key).unlink()
    with pytest.raises(OptionError):
        guard.settings.read(guard.options)()
    assert server_name(guard, wants) not in (b"", old)


def test_the_settings_know_when_the_certificate_expires(certificates: Certificates) -> None:
    guard = Guard(certificates.server)
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", certificates.server.certificate],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = ssl.cert_time_to_seconds(shown.stdout.strip().partition("=")[2])
    assert guard.settings.expiries() == {certificates.server.certificate: expected}


def test_new_connections_have_the_new_authorities(certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    shutil.copy(certificates.authority.certificate, file)
    policy = {"tls_client_auth_policy": "require-verify", "tls_root_ca_file": str(file)}
    guard = Guard(certificates.server, **policy)
    assert admits(guard, certificates.client)
    shutil.copy(certificates.stranger.certificate, file)
    guard.settings.read(guard.options)()
    assert not admits(guard, certificates.client)
    assert admits(guard, certificates.stranger)
