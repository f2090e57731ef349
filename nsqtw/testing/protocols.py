"""
Contract of protocols, as tests. Run them like this, with pytest:

    from nsqtw.testing.protocols import ProtocolContract

    class TestMine(ProtocolContract):
        factory = MyFactory()

        def put(self, topic, body): ...

For readable failures put `pytest.register_assert_rewrite("nsqtw.testing.protocols")` into a conftest.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from nsqtw.auth.grants import Grant, Grants
from nsqtw.backends.dummy import DummyBackend
from nsqtw.core.broker import Broker
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.interfaces import IProtocol, IProtocolFactory
from nsqtw.options.broker import Options
from nsqtw.protocols.guarded import ClientBroker
from nsqtw.protocols.session import Session, adapted
from nsqtw.rights import Answer, Credentials, Rights, RightsListener
from nsqtw.testing.memory import MemoryPositions

V2_MAGIC = b"  V2"
"""The protocol that is given the broker itself, and asks the same questions of it."""
SECRET = b"sesame"
IDENTITY = "ann"
MAX_MSG_SIZE = 100
EPHEMERAL_CHANNEL = b"c#ephemeral"


class TestAuthorizations:
    """An authorizer that knows one secret, and answers at once or when `answer` is called."""

    __test__ = False

    def __init__(self, stage: SessionHarness) -> None:
        self._stage = stage
        self.is_slow = False
        self.ttl: float | None = None
        self.grants = [Grant("^t$", [".*"], ["publish", "subscribe"])]
        self.guests: list[RightsListener] = []
        self._asked: list[tuple[Credentials, Answer]] = []

    def now(self) -> float:
        """Authorizations API."""
        return self._stage.now

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """Authorizations API."""
        asked = (credentials, answer)
        self._asked.append(asked)
        if not self.is_slow:
            self.answer()

        def forget() -> None:
            if asked in self._asked:
                self._asked.remove(asked)

        return forget

    def answer(self) -> None:
        """Answer all that was asked."""
        asked, self._asked = self._asked, []
        for credentials, answer in asked:
            answer(self._worth(credentials.secret))

    def allows(self, rights: Rights, permission: str, topic: str, channel: str) -> bool:
        """Authorizations API."""
        return rights.allows(permission, topic, channel)

    def enter(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self.guests.append(listener)

    def leave(self, listener: RightsListener) -> None:
        """Authorizations API."""
        if listener in self.guests:
            self.guests.remove(listener)

    def _worth(self, secret: bytes) -> Rights | AuthError:
        return (
            Grants(self.grants, identity=IDENTITY, ttl=self.ttl) if secret == SECRET else AuthRefused("unknown secret")
        )


class SessionHarness:
    """A broker without an edge, for sessions of one protocol. A turn commits, delivers and writes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lines: list[tuple[str, str]] = []
        self.options = Options(max_msg_size=MAX_MSG_SIZE, max_body_size=10 * MAX_MSG_SIZE)
        self.broker = Broker(
            self.options,
            DummyBackend(),
            DummyBackend(),
            positions=MemoryPositions(),
            log=self._log,
            start_time=0,
        )
        self.broker.sequences.start(None, 0)

    def guard(self) -> TestAuthorizations:
        """Have the broker ask for rights from now on."""
        authorizations = TestAuthorizations(self)
        self.broker.authorizations = authorizations
        return authorizations

    def stored(self, topic: str = "t") -> int:
        """Return how many messages the topic was given."""
        topic_object = self.broker.topics.get(topic)
        return 0 if topic_object is None else topic_object.message_count

    def _log(self, level: str, text: str, /, **fields: object) -> None:
        self.lines.append((level, text.format(**fields)))


class Connection:
    """One client's connection to `stage`."""

    def __init__(self, stage: SessionHarness, factory: Any, address: str = "10.0.0.1:5") -> None:
        self._stage = stage
        self.written = b""
        """Everything that was written since the last call."""
        self.made: Any
        self.session: Session
        if factory.magic == V2_MAGIC:
            self.made = self.session = factory.session(stage.broker, address, self._changed, stage.now)
        else:
            guarded = ClientBroker(stage.broker, address, factory.name, self._changed, stage.now)
            self.made = factory.session(guarded, address, self._changed, stage.now)
            self.session = adapted(self.made, guarded)

    def send(self, data: bytes) -> bytes:
        """Send, and return what is answered after a few turns."""
        self.session.receive_data(data, self._stage.now)
        return self.read()

    def read(self) -> bytes:
        """Return what is written in a few turns."""
        for _ in range(4):
            if self.session.is_behind:
                self.session.receive_data(b"", self._stage.now)
            broker = self._stage.broker
            broker.tick(self._stage.now)
            broker.commit(self._stage.now)
            broker.serve(self._stage.now)
            self.written += b"".join(item for item in self.session.data_to_send() if isinstance(item, bytes))
        written, self.written = self.written, b""
        return written

    def close(self) -> None:
        """The connection is gone."""
        self.session.connection_lost(self._stage.now)

    def _changed(self) -> None:
        """Everything is looked at in each turn."""


class ProtocolContract:
    """The duties of `IProtocol` and of what it makes of `IBroker`."""

    factory: Any = None
    """An IProtocolFactory."""

    def hello(self) -> bytes:
        """The bytes that a client sends first, after the magic; none by default."""
        return b""

    def auth(self, secret: bytes) -> bytes:
        """The bytes that a client sends with its secret."""
        raise NotImplementedError

    def put(self, topic: bytes, body: bytes) -> bytes:
        """The bytes of a publish."""
        raise NotImplementedError

    def get(self, topic: bytes, channel: bytes) -> bytes:
        """The bytes of a subscription to at least one message."""
        raise NotImplementedError

    def done(self, message_id: bytes) -> bytes:
        """The bytes of a finish."""
        raise NotImplementedError

    def is_ok(self, written: bytes) -> bool:
        """Return whether the answer to one thing says that it was done."""
        raise NotImplementedError

    def is_refused(self, written: bytes) -> bool:
        """Return whether the answer to one thing says that it was not done."""
        raise NotImplementedError

    def messages(self, written: bytes) -> list[tuple[bytes, bytes]]:
        """The ids and bodies of the messages in what was written."""
        raise NotImplementedError

    @pytest.fixture
    def stage(self) -> SessionHarness:
        """A broker without an authorizer."""
        return SessionHarness()

    def connect(self, stage: SessionHarness) -> Connection:
        """A new connection that has said hello."""
        connection = Connection(stage, self.factory)
        if hello := self.hello():
            connection.send(hello)
        return connection

    def accepted(self, connection: Connection, data: bytes) -> None:
        """Send something that must be done."""
        written = connection.send(data)
        assert self.is_ok(written), written

    def refused(self, stage: SessionHarness, connection: Connection, data: bytes, code: str) -> None:
        """Send something that must be refused, stores nothing and leaves one line of V2's in the log."""
        before = stage.stored()
        del stage.lines[:]
        written = connection.send(data)
        assert self.is_refused(written) and not self.is_ok(written), written
        assert stage.stored() == before, "a refused message was stored"
        lines = [line for level, line in stage.lines if level == "error" and line.startswith("[10.0.0.1:5] - ")]
        assert len(lines) == 1 and code in lines[0], stage.lines

    def test_it_is_one(self, stage: SessionHarness) -> None:
        verifyObject(IProtocolFactory, self.factory)
        verifyObject(IProtocol, self.connect(stage).made)

    def test_what_is_put_is_delivered_and_finished(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        self.accepted(connection, self.put(b"t", b"hello"))
        assert stage.stored() == 1
        written = connection.send(self.get(b"t", EPHEMERAL_CHANNEL))
        written += connection.send(self.put(b"t", b"world"))
        written += connection.send(b"")
        ((message_id, body), *_) = self.messages(written)
        assert body in (b"hello", b"world")
        connection.send(self.done(message_id))
        (client,) = stage.broker.clients.values()
        assert (client.finish_count, client.published.by_topic()) == (1, {"t": 2})

    def test_pieces_of_any_size_mean_the_same(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        written = b"".join(connection.send(bytes([byte])) for byte in self.put(b"t", b"hello"))
        assert self.is_ok(written), written
        assert stage.stored() == 1

    def test_an_empty_body_is_refused(self, stage: SessionHarness) -> None:
        self.refused(stage, self.connect(stage), self.put(b"t", b""), "E_BAD_MESSAGE")

    def test_the_largest_body_is_stored_and_a_larger_one_refused(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        self.accepted(connection, self.put(b"t", b"x" * MAX_MSG_SIZE))
        self.refused(stage, connection, self.put(b"t", b"x" * (MAX_MSG_SIZE + 1)), "E_BAD_MESSAGE")

    def test_a_bad_name_is_refused(self, stage: SessionHarness) -> None:
        self.refused(stage, self.connect(stage), self.put(b"b@d", b"hello"), "E_BAD_TOPIC")
        self.refused(stage, self.connect(stage), self.get(b"t", b"b@d"), "E_BAD_CHANNEL")
        assert not stage.broker.topics

    def test_the_cap_of_topics_holds(self, stage: SessionHarness) -> None:
        self.accepted(self.connect(stage), self.put(b"t", b"hello"))
        stage.options.max_topics = 1
        stage.broker.quotas.are_on = True
        self.refused(stage, self.connect(stage), self.put(b"other", b"hello"), "E_")
        assert list(stage.broker.topics) == ["t"]

    def test_without_a_secret_nothing_may_be_done(self, stage: SessionHarness) -> None:
        stage.guard()
        self.refused(stage, self.connect(stage), self.put(b"t", b"hello"), "E_AUTH_FIRST")
        self.refused(stage, self.connect(stage), self.get(b"t", EPHEMERAL_CHANNEL), "E_AUTH_FIRST")
        assert not stage.broker.topics

    def test_with_a_secret_only_what_was_granted_may_be_done(self, stage: SessionHarness) -> None:
        stage.guard()
        connection = self.connect(stage)
        connection.send(self.auth(SECRET))
        assert [client.auth_identity for client in stage.broker.clients.values()] == [IDENTITY]
        self.accepted(connection, self.put(b"t", b"hello"))
        self.refused(stage, connection, self.put(b"other", b"hello"), "E_UNAUTHORIZED")
        assert list(stage.broker.topics) == ["t"]
        other = self.connect(stage)
        other.send(self.auth(SECRET))
        self.refused(stage, other, self.get(b"other", EPHEMERAL_CHANNEL), "E_UNAUTHORIZED")
        assert list(stage.broker.topics) == ["t"]

    def test_a_wrong_secret_is_refused(self, stage: SessionHarness) -> None:
        stage.guard()
        self.refused(stage, self.connect(stage), self.auth(b"guess"), "E_AUTH_FAILED")

    def test_what_comes_before_a_late_answer_keeps_its_order(self, stage: SessionHarness) -> None:
        authorizations = stage.guard()
        authorizations.is_slow = True
        connection = self.connect(stage)
        assert not self.is_ok(connection.send(self.auth(SECRET) + self.put(b"t", b"hello")))
        assert stage.stored() == 0 and not connection.session.wants_data
        authorizations.answer()
        connection.read()
        assert stage.stored() == 1 and connection.session.wants_data

    def test_rights_that_have_ended_are_asked_for_again(self, stage: SessionHarness) -> None:
        authorizations = stage.guard()
        authorizations.ttl = 10.0
        connection = self.connect(stage)
        connection.send(self.auth(SECRET))
        stage.now += 11
        authorizations.is_slow = True
        connection.send(self.put(b"t", b"first") + self.put(b"t", b"second"))
        assert stage.stored() == 0
        authorizations.answer()
        connection.read()
        assert stage.stored() == 2

    def test_a_subscription_that_is_withdrawn_gets_nothing_more(self, stage: SessionHarness) -> None:
        authorizations = stage.guard()
        connection = self.connect(stage)
        connection.send(self.auth(SECRET))
        connection.send(self.get(b"t", EPHEMERAL_CHANNEL))
        authorizations.grants = [Grant("^other$", [".*"], ["subscribe"])]
        for listener in list(authorizations.guests):
            listener.reconsider()
        stage.broker.topic("t").put([b"secret"], 0, lambda error: None)
        assert not self.messages(connection.read())
        assert connection.session.closing

    def test_a_connection_that_is_gone_leaves_nothing(self, stage: SessionHarness) -> None:
        authorizations = stage.guard()
        connection = self.connect(stage)
        connection.send(self.auth(SECRET))
        connection.send(self.get(b"t", EPHEMERAL_CHANNEL))
        connection.close()
        assert not stage.broker.clients and not authorizations.guests
        assert not any(
            channel.consumers for topic in stage.broker.topics.values() for channel in topic.channels.values()
        )


class ProtocolContract2(ProtocolContract):
    """The duties of a protocol whose sessions use version 2 of IBroker, besides those of version 1."""

    def put_headers(self, topic: bytes, body: bytes, headers: dict[str, str]) -> bytes:
        """The bytes of a publish with headers."""
        raise NotImplementedError

    def get_again(self, topic: bytes, channel: bytes) -> bytes:
        """The bytes of another subscription on the same connection, to at least four messages."""
        raise NotImplementedError

    def done_with(self, message_ids: list[bytes]) -> bytes:
        """The bytes that finish messages of the subscription of `get_again` together."""
        raise NotImplementedError

    def refuse(self, message_id: bytes, reason: str) -> bytes:
        """The bytes that give a message of `get_again` back at once, with a reason."""
        raise NotImplementedError

    def headers(self, written: bytes) -> list[dict[str, str]]:
        """The headers of the messages in what was written."""
        raise NotImplementedError

    def says_paused(self, written: bytes) -> bool:
        """Return whether the client is told of a pause."""
        raise NotImplementedError

    def says_draining(self, written: bytes) -> bool:
        """Return whether the client is told that the broker drains."""
        raise NotImplementedError

    def test_headers_are_delivered(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        connection.send(self.get(b"t", EPHEMERAL_CHANNEL))
        written = connection.send(self.put_headers(b"t", b"hello", {"k": "v"}))
        assert self.headers(written) == [{"k": "v"}]

    def test_headers_of_the_broker_are_refused(self, stage: SessionHarness) -> None:
        sent = self.put_headers(b"t", b"hello", {"nsq-reason": "v"})
        self.refused(stage, self.connect(stage), sent, "E_BAD_HEADERS")

    def test_headers_that_the_broker_reads_have_values_that_it_knows(self, stage: SessionHarness) -> None:
        sent = self.put_headers(b"t", b"hello", {"priority": "urgent"})
        self.refused(stage, self.connect(stage), sent, "E_BAD_HEADERS")

    def test_a_connection_has_several_subscriptions(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        connection.send(self.get(b"t", EPHEMERAL_CHANNEL))
        connection.send(self.get_again(b"t", b"d#ephemeral"))
        written = connection.send(self.put(b"t", b"hello"))
        assert [body for _, body in self.messages(written)] == [b"hello", b"hello"]
        connection.close()
        assert not stage.broker.clients
        assert not any(channel.consumers for channel in stage.broker.topics["t"].channels.values())

    def test_many_messages_are_answered_together(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        connection.send(self.get_again(b"t", b"d#ephemeral"))
        written = b"".join(connection.send(self.put(b"t", b"%d" % number)) for number in range(4))
        ids = [message_id for message_id, _ in self.messages(written)]
        assert len(ids) == 4
        written = connection.send(self.done_with([ids[0], ids[1], ids[3]]))
        assert not self.is_refused(written), written
        written = connection.send(self.refuse(ids[2], "not today"))
        assert self.messages(written) == [(ids[2], b"2")]
        assert any('"not today"' in line for _, line in stage.lines), stage.lines
        (channel,) = stage.broker.topics["t"].channels.values()
        assert (channel.finish_count, channel.requeue_count, channel.in_flight_count) == (3, 1, 1)
        assert self.is_refused(connection.send(self.done_with([ids[0]])))

    def test_it_passes_notices_on(self, stage: SessionHarness) -> None:
        connection = self.connect(stage)
        connection.send(self.get(b"t", EPHEMERAL_CHANNEL))
        (channel,) = stage.broker.topics["t"].channels.values()
        channel.pause()
        assert self.says_paused(connection.read())
        stage.broker.begin_drain()
        assert self.says_draining(connection.read())

    def test_it_does_a_bounded_amount_of_work_at_once(self, stage: SessionHarness) -> None:
        """Other connections have their turn before all of very many commands are done."""
        connection = self.connect(stage)
        commands = [self.put_headers(b"t", b"hello", {"k": "v"})] * 2000
        connection.session.receive_data(b"".join(commands), stage.now)
        stage.broker.commit(stage.now)
        assert 0 < stage.stored() < 2000 and connection.session.is_behind
        while connection.session.is_behind:
            connection.read()
        assert stage.stored() == 2000
