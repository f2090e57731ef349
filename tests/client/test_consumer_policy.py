"""A consumer without IO: connections, backoff, stops, and a model of all of it."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nsqtw.client.connection import Connection
from nsqtw.client.consumer_policy import (
    Connect,
    ConsumerConnection,
    ConsumerPolicy,
    Disconnect,
    Finished,
    Phase,
    Query,
)
from nsqtw.client.frames import Frame
from nsqtw.client.lookup import Lookup
from nsqtw.client.message import Message
from nsqtw.client.options import ClientOptions
from nsqtw.errors import ClientLibraryError, ConnectFailed, LookupFailed

CLOSE_WAIT = b"\0\0\0\x0e\0\0\0\0CLOSE_WAIT"
READY = b"\0\0\0\x06\0\0\0\0OK"


def message(number: int, attempts: int = 1) -> bytes:
    data = struct.pack(">qH16s", 0, attempts, b"%016d" % number) + b"body"
    return struct.pack(">II", len(data) + 4, 2) + data


class Log:
    """Lines that nobody reads."""

    def info(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...


class Harness:
    """A policy whose clock and connections belong to the test."""

    def __init__(self, nsqds: tuple[str, ...] = ("a:1",), lookups: tuple[str, ...] = (), **options: Any) -> None:
        self.now = 100.0
        self.given_up: list[bytes] = []
        self.problems: list[tuple[str, str]] = []
        self.policy = ConsumerPolicy(
            "t",
            "c",
            ClientOptions(**{"max_in_flight": 10, **options}),
            nsqds=nsqds,
            lookup=Lookup(list(lookups)) if lookups else None,
            changed=lambda connection: None,
            clock=lambda: self.now,
            log=Log(),
            random=Random(1),
            on_give_up=lambda given_up: self.given_up.append(given_up.id),
            on_problem=self._add_problem,
        )
        self.policy.start(self.now)

    def _add_problem(self, address: str, error: ClientLibraryError) -> None:
        self.problems.append((address, f"{type(error).__name__}: {error}"))

    def actions(self) -> list[Any]:
        return self.policy.take_actions()

    def connect(self, address: str = "a:1") -> ConsumerConnection:
        connection = Connection(address, ClientOptions())
        connection.data_to_send()
        made = self.policy.connected(connection, self.now)
        connection.receive(READY, made)
        return made

    def written(self, connection: ConsumerConnection) -> bytes:
        return connection.connection.data_to_send()

    def receive(self, connection: ConsumerConnection, data: bytes) -> list[Message]:
        messages, frames = connection.connection.receive(data, connection)
        return self.policy.received(connection, messages, frames, self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass, with everything that becomes due."""
        end = self.now + seconds
        while (due := self.policy.timers.next) is not None and due <= end:
            self.now = max(self.now, due)
            self.policy.on_timer(self.now)
        self.now = end


def test_a_connection_subscribes_and_gets_its_rdy() -> None:
    harness = Harness()
    assert harness.actions() == [Connect("a:1")]
    assert harness.written(harness.connect()) == b"SUB t c\nRDY 10\n"


def test_a_message_is_finished_once() -> None:
    harness = Harness()
    connection = harness.connect()
    harness.written(connection)
    (one,) = harness.receive(connection, message(1))
    one.finish()
    one.finish()
    one.requeue()
    assert harness.written(connection) == b"FIN 0000000000000001\n"


def test_requeues_are_delayed_by_the_attempts() -> None:
    harness = Harness(max_backoff_duration=0.0)
    connection = harness.connect()
    harness.written(connection)
    delays = []
    for attempts in (1, 2, 3, 5):
        (one,) = harness.receive(connection, message(1, attempts))
        one.requeue()
        delays.append(int(harness.written(connection).split()[2]))
    assert delays == [90_000, 180_000, 270_000, 450_000]


def test_the_sixth_attempt_is_given_up() -> None:
    harness = Harness()
    connection = harness.connect()
    harness.written(connection)
    assert harness.receive(connection, message(1, 6)) == []
    assert harness.given_up == [b"0000000000000001"]
    assert harness.written(connection) == b"FIN 0000000000000001\n"


def test_a_failing_callback_does_not_harm_the_connection() -> None:
    harness = Harness()
    connection = harness.connect()
    harness.written(connection)
    harness.given_up = None  # type: ignore[assignment]
    assert harness.receive(connection, message(1, 6)) == []
    assert harness.written(connection) == b"FIN 0000000000000001\n"


def test_backoff_stops_all_and_tests_with_one_message() -> None:
    harness = Harness()
    connection = harness.connect()
    harness.written(connection)
    (one,) = harness.receive(connection, message(1))
    one.requeue(0)
    assert harness.written(connection) == b"RDY 0\nREQ 0000000000000001 0\n"
    harness.wait(2)
    assert harness.written(connection) == b"RDY 1\n"
    (one,) = harness.receive(connection, message(1, 2))
    one.finish()
    assert harness.written(connection) == b"RDY 10\nFIN 0000000000000001\n"


def test_a_stop_ends_with_the_last_fin() -> None:
    harness = Harness()
    connection = harness.connect()
    first, second = harness.receive(connection, message(1) + message(2))
    harness.written(connection)
    harness.policy.stop(harness.now)
    assert harness.written(connection) == b"CLS\n"
    first.finish()
    harness.receive(connection, CLOSE_WAIT)
    harness.actions()
    second.finish()
    assert harness.written(connection) == b"FIN 0000000000000001\nFIN 0000000000000002\n"
    assert harness.actions() == [Disconnect(connection)]
    harness.policy.lost(connection, "EOF", harness.now)
    assert harness.actions() == [Finished(0)]


def test_a_stop_gives_messages_back_after_its_time() -> None:
    harness = Harness()
    connection = harness.connect()
    harness.receive(connection, message(1) + CLOSE_WAIT)
    harness.policy.stop(harness.now, 30)
    harness.written(connection)
    harness.wait(31)
    assert harness.written(connection) == b"REQ 0000000000000001 0\n"
    harness.policy.lost(connection, "EOF", harness.now)
    assert harness.actions()[-1] == Finished(1)


def test_a_lost_nsqd_is_connected_to_again_ever_later() -> None:
    harness = Harness()
    harness.actions()
    harness.policy.lost(harness.connect(), "EOF", harness.now)
    waits = []
    for _ in range(4):
        due = harness.policy.timers.next
        assert due is not None
        waits.append(due - harness.now)
        harness.wait(due - harness.now)
        assert harness.actions() == [Connect("a:1")]
        harness.policy.connect_failed("a:1", ConnectFailed("a:1", "no"), harness.now)
    assert waits == [0.25, 0.5, 1.0, 2.0]


def test_problems_are_told_while_the_consumer_runs() -> None:
    harness = Harness()
    made = harness.connect()
    harness.policy.received(made, [], [Frame(True, b"E_UNAUTHORIZED no")], harness.now)
    harness.policy.lost(made, "EOF", harness.now)
    harness.policy.connect_failed("a:1", ConnectFailed("a:1", "no"), harness.now)
    harness.policy.query_failed("http://x:1/lookup", LookupFailed("no answer"), harness.now)
    told = [
        ("a:1", "Refused: E_UNAUTHORIZED no"),
        ("a:1", "NotConnected: connection lost - EOF"),
        ("a:1", "ConnectFailed: no"),
        ("http://x:1/lookup", "LookupFailed: no answer"),
    ]
    assert harness.problems == told
    harness.policy.stop(harness.now)
    harness.policy.query_failed("http://x:1/lookup", LookupFailed("no answer"), harness.now)
    assert harness.problems == told


def test_an_nsqd_that_is_left_out_is_told() -> None:
    harness = Harness((), ("http://x:1/lookup",))
    harness.policy.left_out("http://x:1/lookup", "no host and port")
    assert harness.problems == [("http://x:1/lookup", "LookupFailed: no host and port")]


def test_discovery_connects_to_what_is_found() -> None:
    harness = Harness((), ("http://x:1/lookup", "http://y:1/lookup"))
    assert harness.actions() == [Query("http://x:1/lookup"), Query("http://y:1/lookup")]
    harness.policy.query_failed("http://x:1/lookup", LookupFailed("no"), harness.now)
    harness.policy.found(["a:1", "b:1"], harness.now)
    harness.policy.found(["b:1"], harness.now)
    assert harness.actions() == [Connect("a:1"), Connect("b:1")]
    connection = harness.connect("b:1")
    harness.policy.lost(connection, "EOF", harness.now)
    harness.wait(0.25 * 1.3)
    assert harness.actions() == [Query("http://x:1/lookup")], "soon, and not in a minute"
    harness.policy.found(["b:1"], harness.now)
    assert harness.actions() == [Connect("b:1")]


class ConsumerModel(RuleBasedStateMachine):
    """Connections come and go, messages are finished and requeued, time passes, and in the end all is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(("a:1", "b:1", "c:1"), max_in_flight=2, default_requeue_delay=0.0)
        self.wanted: list[str] = []
        self.held: list[Message] = []
        self.number = 0
        self.is_finished = False
        self.take()

    def take(self) -> None:
        """Carry out actions, except for connects, which a rule does."""
        for action in self.harness.actions():
            if isinstance(action, Connect):
                self.wanted.append(action.address)
            elif isinstance(action, Disconnect):
                if action.connection in self.harness.policy.connections:
                    self.harness.policy.lost(action.connection, "closed", self.harness.now)
                    self.take()
            elif isinstance(action, Finished):
                self.is_finished = True

    @precondition(lambda self: self.wanted)
    @rule(works=st.booleans())
    def connect(self, works: bool) -> None:
        address = self.wanted.pop()
        if works:
            self.harness.connect(address)
        else:
            self.harness.policy.connect_failed(address, ConnectFailed(address, "no"), self.harness.now)
        self.take()

    @precondition(lambda self: self.harness.policy.connections)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        connection = data.draw(st.sampled_from(self.harness.policy.connections))
        self.harness.policy.lost(connection, "EOF", self.harness.now)
        self.take()

    @precondition(lambda self: self.harness.policy.connections)
    @rule(data=st.data(), count=st.integers(1, 3))
    def deliver(self, data: st.DataObject, count: int) -> None:
        connection = data.draw(st.sampled_from(self.harness.policy.connections))
        if connection.is_closing:
            return
        for _ in range(min(count, connection.last_rdy)):
            self.number += 1
            self.held += self.harness.receive(connection, message(self.number))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_good=st.booleans())
    def respond(self, data: st.DataObject, is_good: bool) -> None:
        chosen = data.draw(st.sampled_from(self.held))
        self.held.remove(chosen)
        if is_good:
            chosen.finish()
        else:
            chosen.requeue()
        assert chosen.has_responded
        self.take()

    @rule(seconds=st.floats(0, 20))
    def pass_time(self, seconds: float) -> None:
        self.harness.wait(seconds)
        self.take()

    @precondition(lambda self: self.harness.policy.phase is Phase.RUNNING)
    @rule(count=st.integers(0, 5))
    def change(self, count: int) -> None:
        self.harness.policy.change_max_in_flight(count, self.harness.now)

    @invariant()
    def rdy_is_within_max_in_flight(self) -> None:
        policy = self.harness.policy
        if policy.phase is Phase.RUNNING and not policy.backoff.is_on and policy.ready.max_in_flight:
            share = max(1, policy.ready.share) * len(policy.connections)
            assert policy.ready.total <= max(policy.ready.max_in_flight, share)

    @invariant()
    def backoff_lets_one_message_through(self) -> None:
        if self.harness.policy.backoff.is_paused:
            assert self.harness.policy.ready.total == 0

    def teardown(self) -> None:
        policy = self.harness.policy
        policy.stop(self.harness.now)
        for connection in list(policy.connections):
            if not connection.is_closing:
                self.harness.receive(connection, CLOSE_WAIT)
        self.take()
        self.harness.wait(31)
        self.take()
        assert self.is_finished
        assert policy.phase is Phase.STOPPED
        assert policy.timers.next is None


TestConsumerModel = ConsumerModel.TestCase
TestConsumerModel.settings = settings(max_examples=60, stateful_step_count=40)
