"""--protocol: the installed protocols that a broker speaks. Where TLS is required it comes before their data."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsqtw.errors import DuplicatePlugin, PluginError, UnknownPlugin
from nsqtw.plugins import ProtocolPlugin, find_protocols
from tests.certificates import Certificates
from tests.process import EXECUTABLE, NsqdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent.parent
PLUGIN = """
from nsqtw.plugins import ProtocolPlugin

echo = ProtocolPlugin(name="ECHO", summary="says it again", magic=b"ECHO", dotted="echo_protocol.EchoFactory")
long = ProtocolPlugin(name="LONG", summary="five", magic=b"LONGS", dotted="echo_protocol.EchoFactory")
broken = ProtocolPlugin(name="BROKEN", summary="no code", magic=b"BRKN", dotted="echo_protocol_that_is_not.Factory")
"""
CODE = """
from zope.interface import implementer

from nsqtw.interfaces import IProtocol, IProtocolFactory


@implementer(IProtocol)
class Echo:
    closing = False
    wants_data = True

    def __init__(self):
        self._out = []

    def receive_data(self, chunk, now):
        print("ECHO WAS GIVEN DATA", flush=True)
        self._out.append(b"echo " + chunk)

    def receive_end(self, now):
        self.closing = True

    def data_to_send(self):
        out, self._out = self._out, []
        return out

    def pause_delivery(self):
        pass

    def resume_delivery(self, now):
        pass

    def connection_lost(self, now):
        pass


@implementer(IProtocolFactory)
class EchoFactory:
    name, summary, magic, broker_api = "ECHO", "says it again", b"ECHO", 1

    def session(self, broker, remote_address, changed, now):
        return Echo()
"""
GIVEN = "ECHO WAS GIVEN DATA"
Start = Callable[..., NsqdProcess]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation with more protocols, for the processes of a test."""
    plugins = tmp_path / "project/twisted/plugins"
    plugins.mkdir(parents=True)
    (plugins / "echo_plugin.py").write_text(PLUGIN)
    (tmp_path / "project/echo_protocol.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path / "project", ROOT))))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers."""
    brokers: list[NsqdProcess] = []

    def begin(*flags: str) -> NsqdProcess:
        broker = NsqdProcess(tmp_path, *flags)
        brokers.append(broker)
        broker.start()
        return broker

    yield begin
    for broker in brokers:
        broker.close()


def connect(broker: NsqdProcess) -> socket.socket:
    return socket.create_connection((HOST, broker.tcp_port), ANSWER_SECONDS)


def answer(connection: socket.socket, said: bytes) -> bytes:
    """What comes back, up to the end or to the end of a line."""
    connection.sendall(said)
    got = b""
    while not got.endswith(b"\n"):
        piece = connection.recv(1000)
        if not piece:
            break
        got += piece
    return got


def test_an_installed_protocol_serves_only_when_it_is_enabled(start: Start) -> None:
    broker = start()
    assert "; AUTH is off; protocols: V2\n" in broker.said()
    with connect(broker) as connection:
        assert answer(connection, b"ECHOhello\n").endswith(b"E_BAD_PROTOCOL")
    broker.stop()
    assert GIVEN not in broker.said()


@pytest.mark.parametrize("flags", [["--protocol=V2,ECHO"], ["--protocol=V2", "--protocol", "ECHO"]])
def test_it_serves_beside_v2(start: Start, flags: list[str]) -> None:
    broker = start(*flags)
    assert "protocols: V2, ECHO\n" in broker.said()
    with connect(broker) as connection, broker.client() as client:
        assert answer(connection, b"ECHOhello\n") == b"echo hello\n"
        client.pub("t", b"x")
    broker.stop()


def test_v2_can_be_left_out(start: Start) -> None:
    broker = start("--protocol=ECHO")
    with connect(broker) as connection:
        assert answer(connection, b"  V2NOP\n").endswith(b"E_BAD_PROTOCOL")
    with connect(broker) as connection:
        assert answer(connection, b"ECHOhello\n") == b"echo hello\n"
    broker.stop()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("V2,NONE", "unknown protocol 'NONE'; installed: BROKEN, ECHO, LONG, V2, V3."),
        ("LONG", "protocol 'LONG' has the magic b'LONGS': it must be four bytes"),
        ("BROKEN", "protocol 'BROKEN' cannot be loaded from echo_protocol_that_is_not.Factory: No module named"),
        (",", "--protocol must be at least one name"),
    ],
)
def test_what_cannot_be_enabled_is_said_at_the_start_once(tmp_path: Path, names: str, text: str) -> None:
    free = [f"--tcp-address={HOST}:0", f"--http-address={HOST}:0"]
    done = subprocess.run([EXECUTABLE, *free, f"--protocol={names}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count(f"FATAL: failed to instantiate nsqd - {text}") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["true", "tcp-https"])
def test_where_tls_is_required_a_protocol_gets_no_data_before_it(
    start: Start, certificates: Certificates, word: str
) -> None:
    tls = [*certificates.server.flags(), f"--https-address={HOST}:0", f"--tls-required={word}"]
    broker = start("--protocol=V2,ECHO", *tls)
    how = "required" if word == "true" else "required but for HTTP"
    assert f"NSQ: TLS is {how}; AUTH is off; protocols: V2, ECHO\n" in broker.said()
    with connect(broker) as connection:
        assert b"E_INVALID the connection must begin with TLS" in answer(connection, b"ECHOhello\n")
    wait_until(lambda: "the connection must begin with TLS" in broker.said(), "the log says it")
    assert GIVEN not in broker.said()
    trusting = ssl.create_default_context(cafile=certificates.authority.certificate)
    with trusting.wrap_socket(connect(broker), server_hostname="localhost") as connection:
        assert answer(connection, b"ECHOhello\n") == b"echo hello\n"
        assert answer(connection, b"again\n") == b"echo again\n"
    # V2 is as in nsqd: IDENTIFY comes first, and TLS then.
    with broker.client() as client:
        client.upgrade(trusting)
        client.pub("t", b"x")
    with trusting.wrap_socket(connect(broker), server_hostname="localhost") as connection:
        assert b"E_INVALID V2 turns to TLS with IDENTIFY" in answer(connection, b"  V2NOP\n")
    broker.stop()


def test_where_it_is_not_required_both_ways_are_open(start: Start, certificates: Certificates) -> None:
    broker = start("--protocol=V2,ECHO", *certificates.server.flags(), f"--https-address={HOST}:0")
    trusting = ssl.create_default_context(cafile=certificates.authority.certificate)
    with connect(broker) as plain, trusting.wrap_socket(connect(broker), server_hostname="localhost") as connection:
        assert answer(plain, b"ECHOhello\n") == b"echo hello\n"
        assert answer(connection, b"ECHOhello\n") == b"echo hello\n"
    broker.stop()


# -- the plugins


def protocol(name: str, magic: bytes, dotted: str = "nsqtw.protocols.v2.V2Factory") -> ProtocolPlugin:
    return ProtocolPlugin(name=name, summary="for tests", magic=magic, dotted=dotted)


def test_only_what_is_enabled_is_found() -> None:
    v2, other = protocol("V2", b"  V2"), protocol("V3", b"  V3")
    assert find_protocols(["V2"], [other, v2]) == {b"  V2": v2}
    assert find_protocols(["V3", "V2", "V3"], [other, v2]) == {b"  V2": v2, b"  V3": other}
    assert find_protocols(["V2"])[b"  V2"].name == "V2"


def test_plugins_that_are_not_enabled_are_in_nobodys_way() -> None:
    v2 = protocol("V2", b"  V2")
    installed = [v2, protocol("V3", b"  V2"), protocol("V4", b"long magic"), protocol("V5", b"  V5", "no.where")]
    assert find_protocols(["V2"], installed) == {b"  V2": v2}
    with pytest.raises(DuplicatePlugin, match="protocol '  V2' is provided more than once"):
        find_protocols(["V2", "V3"], installed)
    with pytest.raises(PluginError, match="must be four bytes"):
        find_protocols(["V2", "V4"], installed)
    with pytest.raises(PluginError, match=r"cannot be loaded from no.where"):
        find_protocols(["V5"], installed)


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicatePlugin, match=r"protocol 'V3' is provided more than once: a.B, c.D"):
        find_protocols(["V3"], [protocol("V3", b"  V3", "c.D"), protocol("V3", b"  V4", "a.B")])
    with pytest.raises(UnknownPlugin, match="unknown protocol 'V9'; installed: V3"):
        find_protocols(["V9"], [protocol("V3", b"  V3")])


class UnguardedFactory:
    """As protocols were written before there was IBroker."""

    name, summary, magic = "OLD", "for tests", b" OLD"


def test_a_protocol_for_the_unguarded_broker_is_refused_in_one_line() -> None:
    old = protocol("OLD", b" OLD", f"{__name__}.UnguardedFactory")
    with pytest.raises(
        PluginError, match=r"'OLD' \(.*\) is not made for this nsqtw: .* broker_api = 2 .*plugin-protocol.md$"
    ):
        find_protocols(["OLD"], [old])


class LaterFactory(UnguardedFactory):
    """For an IBroker that there is not yet."""

    broker_api = 3


class FormerFactory(UnguardedFactory):
    """For the first IBroker."""

    broker_api = 1


def test_the_versions_of_the_broker_that_are_served() -> None:
    with pytest.raises(PluginError, match="broker_api = 2"):
        find_protocols(["OLD"], [protocol("OLD", b" OLD", f"{__name__}.LaterFactory")])
    former = protocol("OLD", b" OLD", f"{__name__}.FormerFactory")
    assert find_protocols(["OLD"], [former]) == {b" OLD": former}


def test_nobody_else_takes_the_magic_of_v2() -> None:
    other = protocol("OTHER", b"  V2", f"{__name__}.UnguardedFactory")
    with pytest.raises(PluginError, match="protocol 'OTHER' has the magic b'  V2', which belongs to V2"):
        find_protocols(["OTHER"], [other])
