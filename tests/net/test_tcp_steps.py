"""What one connection sends at once is carried out in steps, in turn with other connections."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from zope.interface import provider

from nsqtw.interfaces import IProtocolFactory
from nsqtw.net.tcp import BrokerConnection
from nsqtw.protocols.compression import Deflate
from nsqtw.protocols.session import STEP_BYTES
from nsqtw.protocols.v2_session import STEP_COMMANDS
from tests.net.test_tcp import OK, Edge, SpyTransport, body
from tests.protocols.test_v2_steps import Willing

NOPS = b"NOP\n" * STEP_COMMANDS


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Edge:
    """An edge whose turns have time for one step."""
    monkeypatch.setattr("nsqtw.runtime.long_work.SLICE_SECONDS", -1.0)
    edge = Edge()
    edge.broker.options.max_idle_commands = 0
    return edge


def pub(topic: bytes, data: bytes) -> bytes:
    return b"PUB %s\n" % topic + body(data)


def turn(edge: Edge) -> None:
    """One turn of the reactor: what it was asked to call by now, and not what that asks for."""
    now = edge.reactor.seconds()
    for call in [call for call in edge.reactor.calls if call.getTime() <= now]:
        if call.active():
            edge.reactor.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)


def test_a_chunk_of_many_commands_takes_turns_in_which_it_is_not_read_from(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2" + NOPS * 3 + pub(b"t", b"x"))
    turn(edge)
    assert not transport.reading
    turns = 1
    while not transport.value():
        turn(edge)
        turns += 1
    assert turns >= 3
    edge.settle()
    assert transport.value() == OK
    assert transport.reading


def test_connections_take_turns(edge: Edge) -> None:
    """A short chunk does not wait for the end of a long one."""
    flood, flooding = edge.connect()
    flood.dataReceived(b"  V2" + NOPS * 100 + pub(b"t", b"long"))
    turn(edge)
    other, transport = edge.connect()
    other.dataReceived(b"  V2" + NOPS * 3 + pub(b"t", b"short"))
    turns = 0
    while not transport.value():
        turn(edge)
        turns += 1
    assert turns < 12
    assert not flooding.value()
    edge.settle()
    assert flooding.value() == OK


def test_the_end_of_input_comes_after_the_commands(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2" + NOPS * 3 + pub(b"t", b"x"))
    connection.readConnectionLost()
    edge.settle()
    assert transport.value() == OK
    assert transport.disconnecting


def test_a_connection_that_is_lost_takes_no_more_steps(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2" + NOPS * 3 + pub(b"t", b"x"))
    connection.connectionLost(Failure(ConnectionDone()))
    edge.settle()
    assert "t" not in edge.broker.topics


def test_a_broker_that_stops_waits_for_no_steps(edge: Edge) -> None:
    connection, _ = edge.connect()
    connection.dataReceived(b"  V2" + NOPS * 3 + pub(b"t", b"x"))
    edge.factory.disconnect_all()
    edge.settle()
    assert "t" not in edge.broker.topics


def test_a_session_that_waited_and_then_is_behind_goes_on(edge: Edge) -> None:
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2SUB t c\n" + NOPS * 3 + pub(b"t", b"x"))
    edge.settle()
    edge.settle()
    assert transport.value() == OK * 2


def test_what_deflate_holds_follows_step_by_step(edge: Edge) -> None:
    connection, transport = edge.connect()
    document = json.dumps({"feature_negotiation": True, "deflate": True}).encode()
    connection.dataReceived(b"  V2IDENTIFY\n" + body(document))
    edge.settle()
    written = transport.value()
    stream = Deflate(6)
    stream.feed(written[4 + struct.unpack_from(">i", written)[0] :])
    assert stream.read() == OK
    transport.clear()
    connection.dataReceived(stream.compress(NOPS * 2000 + pub(b"t", b"x")))
    turns = 0
    while not transport.value():
        turn(edge)
        turns += 1
    assert turns > 1000
    stream.feed(transport.value())
    assert stream.read() == OK


def test_who_was_ended_for_talking_is_counted(edge: Edge) -> None:
    edge.broker.options.max_idle_commands = 10
    connection, transport = edge.connect()
    connection.dataReceived(b"  V2" + b"NOP\n" * 20)
    while not transport.disconnecting:
        edge.reactor.advance(0.1)
    assert transport.value().endswith(b"E_INVALID too many commands without effect")
    assert edge.factory.limits.rejections.counts == {"max-idle-commands": 1}


class Failing(Willing):
    """A session of a plugin that cannot take its second piece."""

    def receive_data(self, *given: Any) -> None:
        super().receive_data(*given)
        if len(self.told) > 1:
            raise ValueError("this is a bug")

    def data_to_send(self) -> list[bytes]:
        return []


@provider(IProtocolFactory)
class Factory:
    name = "FAILING"

    @staticmethod
    def session(*given: Any) -> Failing:
        return Failing()


def test_a_session_that_fails_in_a_step_costs_its_connection(edge: Edge, logged_failures: list[Any]) -> None:
    edge.factory.protocols = {b"  V9": Factory}
    connection: BrokerConnection
    transport: SpyTransport
    connection, transport = edge.connect()
    connection.dataReceived(b"  V9" + bytes(3 * STEP_BYTES))
    edge.settle()
    assert transport.aborting
    assert [event["log_failure"].type for event in logged_failures] == [ValueError]
    logged_failures.clear()
