"""V2 passes the contract of protocols, a wrong protocol does not, and what the guarded broker does besides."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from zope.interface import implementer
from zope.interface.verify import verifyObject

from nsqtw.errors import AuthRefused, ClientError
from nsqtw.interfaces import IBroker, IChannel, IConsumer, IProtocol, IProtocolFactory
from nsqtw.protocols.guarded import MAX_WAITING, ClientBroker
from nsqtw.protocols.session import PublishAnswer, SessionAdapter
from nsqtw.protocols.v2 import V2Factory
from nsqtw.testing.protocols import IDENTITY, SECRET, Connection, ProtocolContract, SessionHarness
from tests.protocols.dialogue import cut_frames, pub, sized


class TestV2(ProtocolContract):
    factory = V2Factory

    def auth(self, secret: bytes) -> bytes:
        return b"AUTH\n" + sized(secret)

    def put(self, topic: bytes, body: bytes) -> bytes:
        return pub(body, topic=topic)

    def get(self, topic: bytes, channel: bytes) -> bytes:
        return b"SUB %s %s\nRDY 1\n" % (topic, channel)

    def done(self, message_id: bytes) -> bytes:
        return b"FIN " + message_id + b"\n"

    def is_ok(self, written: bytes) -> bool:
        return any(frame[8:] == b"OK" for frame in cut_frames(written))

    def is_refused(self, written: bytes) -> bool:
        return any(frame[7] == 1 for frame in cut_frames(written))

    def messages(self, written: bytes) -> list[tuple[bytes, bytes]]:
        return [(frame[18:34], frame[34:]) for frame in cut_frames(written) if frame[7] == 2]


@implementer(IProtocol)
class Careless:
    """PUT TOPIC BODY with a space after each; it reaches behind the guard and asks nobody."""

    closing = False
    wants_data = True

    def __init__(self, broker: Any) -> None:
        self._broker = broker._broker
        self._out: list[bytes] = []
        self._rest = b""

    def receive_data(self, chunk: bytes, now: float) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            verb, topic, body = line.split(b" ", 2)
            if verb == b"PUT":
                self._broker.topic(topic.decode()).put([body], 0, lambda error: self._out.append(b"OK\n"))

    def receive_end(self, now: float) -> None: ...

    def data_to_send(self) -> list[Any]:
        out, self._out = self._out, []
        return list(out)

    def pause_delivery(self) -> None: ...

    def resume_delivery(self, now: float) -> None: ...

    def connection_lost(self, now: float) -> None: ...


@implementer(IProtocolFactory)
class CarelessFactory:
    name, summary, magic, broker_api = "CARELESS", "asks nobody", b"CARE", 1

    def session(self, broker: Any, remote_address: str, changed: Any, now: float) -> Careless:
        return Careless(broker)


class CarelessContract(ProtocolContract):
    """Not collected: what a careless author would run."""

    factory = CarelessFactory()

    def put(self, topic: bytes, body: bytes) -> bytes:
        return b"PUT " + topic + b" " + body + b"\n"

    def is_ok(self, written: bytes) -> bool:
        return written.startswith(b"OK")

    def is_refused(self, written: bytes) -> bool:
        return b"ERROR" in written


@pytest.mark.parametrize(
    "duty",
    [
        "test_an_empty_body_is_refused",
        "test_the_largest_body_is_stored_and_a_larger_one_refused",
        "test_without_a_secret_nothing_may_be_done",
    ],
)
def test_a_careless_protocol_fails(duty: str) -> None:
    with pytest.raises(AssertionError):
        getattr(CarelessContract(), duty)(SessionHarness())


# -- the guarded broker


class Guarded:
    """One connection's IBroker, with what was answered."""

    def __init__(self, stage: SessionHarness) -> None:
        self.stage = stage
        self.answers: list[str] = []
        self.messages: list[Any] = []
        self.ended = 0
        self.broker = ClientBroker(stage.broker, "10.0.0.1:5", "TEST", lambda: None, stage.now)

    def answered(self, error: Exception | None) -> None:
        self.answers.append("OK" if error is None else str(error))

    def end(self) -> None:
        self.ended += 1

    def put(self, *bodies: bytes, topic: str = "t", delay: float = 0) -> None:
        self.broker.publish(topic, bodies, delay, self.answered, self.stage.now)

    def get(self, topic: str = "t", channel: str = "c#ephemeral", msg_timeout: float | None = None) -> Any:
        return self.broker.subscribe(
            topic, channel, self.messages.extend, self.end, self.answered, self.stage.now, msg_timeout
        )

    def turn(self) -> None:
        broker, now = self.stage.broker, self.stage.now
        broker.tick(now)
        broker.commit(now)
        broker.serve(now)


@pytest.fixture
def guarded() -> Guarded:
    return Guarded(SessionHarness())


def test_it_provides_what_the_interfaces_promise(guarded: Guarded) -> None:
    verifyObject(IBroker, guarded.broker)
    consumer = guarded.get()
    verifyObject(IConsumer, consumer)
    verifyObject(IChannel, consumer.channel)
    assert (consumer.channel.topic, consumer.channel.name, consumer.channel.depth) == ("t", "c#ephemeral", 0)


@pytest.mark.parametrize(
    ("bodies", "delay", "code"),
    [
        ([], 0, "E_BAD_BODY MPUB invalid message count 0"),
        ([b"a", b""], 0, "E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
        ([b"x" * 100] * 10, 0, "E_BAD_BODY MPUB body too big 1044 > 1000"),
        ([b"a"], -1, "E_INVALID DPUB timeout -1000 out of range 0-3600000"),
        ([b"a"], float("nan"), "E_INVALID DPUB timeout nan out of range 0-3600000"),
        ([b"a"], 3601, "E_INVALID DPUB timeout 3601000 out of range 0-3600000"),
        ([b"x" * 101], 1, "E_BAD_MESSAGE DPUB message too big 101 > 100"),
    ],
)
def test_a_publish_outside_the_limits_is_refused(
    guarded: Guarded, bodies: list[bytes], delay: float, code: str
) -> None:
    guarded.put(*bodies, delay=delay)
    guarded.turn()
    assert guarded.answers == [code]
    assert not guarded.stage.broker.topics


def test_a_publish_to_a_full_channel_is_refused(guarded: Guarded) -> None:
    guarded.stage.broker.topic("t").channel("c", guarded.stage.now).policies.set({"max_depth": 1})
    guarded.put(b"a")
    guarded.put(b"b")
    guarded.turn()
    refusal = "E_PUB_FAILED PUB failed channel c has reached its max_depth"
    assert guarded.answers == [refusal, "OK"]


def packed(*bodies: bytes) -> bytes:
    """Messages, behind two bytes and before one that do not belong to them."""
    return b"--" + b"".join([sized(body) for body in bodies]) + b"-"


@pytest.mark.parametrize(
    ("bodies", "answer"),
    [
        ([b"one"], "OK"),
        ([b"one", b"two"], "OK"),
        ([b"one", b"seven", b"two"], "OK"),
        ([], "E_BAD_BODY MPUB invalid message count 0"),
        ([b""], "E_BAD_MESSAGE PUB invalid message body size 0"),
        ([b"", b""], "E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
        ([b"x" * 101], "E_BAD_MESSAGE PUB message too big 101 > 100"),
        ([b"x" * 101] * 2, "E_BAD_MESSAGE MPUB message too big 101 > 100"),
        ([b"x" * 100] * 10, "E_BAD_BODY MPUB body too big 1044 > 1000"),
        ([b"x" * 100] * 9, "OK"),
    ],
)
@pytest.mark.parametrize("like", [bytes, memoryview])
def test_packed_messages_are_published_as_others(guarded: Guarded, bodies: list[bytes], answer: str, like: Any) -> None:
    consumer = guarded.get()
    consumer.ready(100)
    given = packed(*bodies)
    for _ in range(2):  # the second time the topic is known
        guarded.broker.publish_packed("t", like(given), 2, len(given) - 1, guarded.answered, guarded.stage.now)
        guarded.turn()
    assert guarded.answers == ["OK", answer, answer]
    assert [message.body for message in guarded.messages] == (bodies * 2 if answer == "OK" else [])


@pytest.mark.parametrize("given", [b"\0\0\0", b"\0\0\0\5four", b"\0\0\0\1xx", b"\xff\xff\xff\xff", b"\x80\0\0\0xxxx"])
def test_bytes_that_are_no_messages_are_a_mistake_of_the_author(guarded: Guarded, given: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(the size of a message is incomplete|a message is larger than)"):
        guarded.broker.publish_packed("t", given, 0, len(given), guarded.answered, guarded.stage.now)
    assert guarded.answers == []


class Told(PublishAnswer):
    """An answer of a third party."""

    def __init__(self, answers: list[str]) -> None:
        self._answers = answers

    def answer(self, error: ClientError | None) -> None:
        self._answers.append("OK" if error is None else str(error))


def test_a_publish_is_answered_by_an_object_of_a_class_of_others(guarded: Guarded) -> None:
    def told() -> Told:
        return Told(guarded.answers)

    now, messages = guarded.stage.now, packed(b"one", b"two")
    for _ in range(2):  # the second time the topic is known
        guarded.broker.publish("t", [b"one"], 0, told(), now)
        guarded.broker.publish_packed("t", messages, 2, len(messages) - 1, told(), now)
        guarded.turn()
    guarded.broker.publish("t", [b""], 0, told(), now)
    guarded.stage.broker.topic("t").channel("c", now).policies.set({"max_depth": 1})
    guarded.broker.publish("t", [b"one"], 0, told(), now)
    refusal = "E_PUB_FAILED PUB failed channel c has reached its max_depth"
    assert guarded.answers == [*["OK"] * 4, "E_BAD_MESSAGE PUB invalid message body size 0", refusal]
    assert guarded.broker.published.by_topic() == {"t": 6}


def test_what_is_no_bytes_is_a_mistake_of_the_author(guarded: Guarded) -> None:
    with pytest.raises(TypeError, match="must be bytes, not str"):
        guarded.put("text")  # type: ignore[arg-type]


@pytest.mark.parametrize("like", [bytes, bytearray, memoryview])
def test_anything_like_bytes_is_taken_and_copied(guarded: Guarded, like: Any) -> None:
    body = bytearray(b"one")
    consumer = guarded.get()
    consumer.ready(3)
    guarded.put(like(body))
    guarded.put(like(b"two"), like(b"three"))
    body[:] = b"ONE"
    guarded.turn()
    assert [message.body for message in guarded.messages] == [b"one", b"two", b"three"]
    first, second, third = (like(message.id) for message in guarded.messages)
    consumer.finish(first, guarded.stage.now)
    consumer.touch(second, guarded.stage.now)
    consumer.requeue(third, 0, guarded.stage.now)
    assert guarded.answers == ["OK"] * 3


def test_a_session_may_return_anything_like_bytes() -> None:
    class Session:
        def data_to_send(self) -> list[Any]:
            return [bytearray(b"a"), memoryview(b"b"), b"c"]

    assert SessionAdapter(Session(), None).data_to_send() == [b"a", b"b", b"c"]  # type: ignore[arg-type]


def test_a_message_has_its_fields_and_goes_the_way_of_one(guarded: Guarded) -> None:
    consumer = guarded.get()
    consumer.ready(2)
    guarded.put(b"a", b"b")
    guarded.turn()
    first, second = guarded.messages
    assert (first.body, first.attempts, second.body) == (b"a", 1, b"b")
    consumer.finish(first.id, guarded.stage.now)
    consumer.touch(second.id, guarded.stage.now)
    consumer.requeue(second.id, -5, guarded.stage.now)
    guarded.turn()
    assert guarded.messages[2][2:] == (2, b"b")
    with pytest.raises(ClientError, match="E_FIN_FAILED"):
        consumer.finish(first.id, guarded.stage.now)
    with pytest.raises(ClientError, match="invalid message ID"):
        consumer.touch(b"short", guarded.stage.now)
    for count in (-1, guarded.broker.max_ready_count + 1):
        with pytest.raises(ClientError, match="out of range"):
            consumer.ready(count)
    consumer.pause()
    guarded.put(b"c")
    guarded.turn()
    assert len(guarded.messages) == 3
    consumer.resume()
    guarded.turn()
    assert guarded.messages[-1].body == b"c"
    assert guarded.answers == ["OK"] * 3
    consumer.leave()
    with pytest.raises(ClientError, match="not subscribed"):
        consumer.ready(1)
    assert consumer.channel is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_timeout_out_of_bounds_is_refused(guarded: Guarded, seconds: float) -> None:
    guarded.get(msg_timeout=seconds)
    assert guarded.answers[0].startswith("E_BAD_BODY SUB msg timeout")
    assert not guarded.stage.broker.topics


def test_a_connection_subscribes_once(guarded: Guarded) -> None:
    guarded.get()
    guarded.get(channel="d#ephemeral")
    assert guarded.answers == ["OK", "E_INVALID cannot SUB in current state"]


def test_the_identity_is_set_once(guarded: Guarded) -> None:
    guarded.stage.guard()
    other = Guarded(guarded.stage)
    assert other.broker.needs_authorization and other.broker.identity == ""
    for secret in (SECRET, SECRET, b"x" * 70_000):
        other.broker.authorize(secret, other.answered, other.stage.now)
    assert (other.broker.identity, other.broker.needs_authorization) == (IDENTITY, False)
    assert other.answers[:2] == ["OK", "E_INVALID AUTH already set"]
    assert other.answers[2].startswith("E_BAD_BODY")


def test_there_is_nothing_to_show_where_nobody_asks(guarded: Guarded) -> None:
    guarded.broker.authorize(SECRET, guarded.answered, guarded.stage.now)
    assert guarded.answers == ["E_AUTH_DISABLED AUTH disabled"]


def test_publishes_that_are_not_stored_yet_are_bounded(guarded: Guarded) -> None:
    guarded.stage.options.max_msg_size = 10_000_000
    guarded.stage.broker.topic("t").set_durability("fsync")
    guarded.put(b"x" * 8_000_000)
    assert not guarded.broker.is_waiting
    guarded.put(b"x" * 1_000_000)
    assert guarded.broker.is_waiting and guarded.answers == []


def test_headers_that_are_not_stored_yet_are_bounded_too(guarded: Guarded) -> None:
    guarded.stage.broker.topic("t").set_durability("fsync")
    guarded.stage.options.max_body_size = 10_000
    headers = [{"k": "x" * 16_000}] * 500
    guarded.broker.publish("t", [b"x"] * 500, 0.0, guarded.answered, guarded.stage.now, headers)
    assert not guarded.broker.is_waiting
    guarded.broker.publish("t", [b"x"] * 500, 0.0, guarded.answered, guarded.stage.now, headers)
    assert guarded.broker.is_waiting and guarded.answers == []


def test_what_waits_for_rights_is_bounded(guarded: Guarded) -> None:
    authorizations = guarded.stage.guard()
    authorizations.is_slow = True
    other = Guarded(guarded.stage)
    other.broker.authorize(SECRET, other.answered, other.stage.now)
    for _ in range(MAX_WAITING + 1):
        other.put(b"a")
    assert other.answers == ["E_INVALID too many commands wait"]
    authorizations.answer()
    other.turn()
    assert other.answers[1:] == ["OK"] * (MAX_WAITING + 1)
    assert other.stage.stored() == MAX_WAITING


def test_rights_that_are_not_renewed_refuse_all_that_waits(guarded: Guarded) -> None:
    authorizations = guarded.stage.guard()
    authorizations.ttl = 10.0
    other = Guarded(guarded.stage)
    other.broker.authorize(SECRET, other.answered, other.stage.now)
    other.stage.now += 11
    authorizations.is_slow = True
    other.put(b"a")
    other.put(b"b")
    authorizations._worth = lambda secret: AuthRefused("gone")  # type: ignore[assignment]
    authorizations.answer()
    other.turn()
    assert other.answers == ["OK", "E_AUTH_FAILED AUTH failed", "E_AUTH_FAILED AUTH failed"]
    assert other.stage.stored() == 0


def test_a_connection_that_is_gone_is_freed_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        stage = SessionHarness()
        stage.guard()
        guarded = Guarded(stage)
        guarded.broker.authorize(SECRET, guarded.answered, stage.now)
        guarded.get()
        guarded.put(b"a")
        guarded.turn()
        gone = weakref.ref(guarded.broker._client)  # a compiled ClientBroker has no weak references
        guarded.broker.leave()
        assert not stage.broker.clients
        del guarded
        assert gone() is None
    finally:
        gc.enable()


def test_new_topics_leave_other_connections_their_turn(guarded: Guarded) -> None:
    for number in range(100):
        guarded.put(b"a", topic=f"t{number}")
    topics = guarded.stage.broker.topics
    assert len(topics) == 32 and guarded.broker.is_waiting
    guarded.turn()
    assert len(topics) == 64
    for _ in range(3):
        guarded.turn()
    assert not guarded.broker.is_waiting
    assert [*topics] == [f"t{number}" for number in range(100)]
    assert guarded.answers == ["OK"] * 100


def test_one_that_leaves_while_it_rests_makes_no_more_topics(guarded: Guarded) -> None:
    for number in range(100):
        guarded.put(b"a", topic=f"t{number}")
    guarded.broker.leave()
    guarded.turn()
    assert len(guarded.stage.broker.topics) == 32


def test_after_the_end_nothing_is_done(guarded: Guarded) -> None:
    guarded.broker.leave()
    guarded.put(b"a")
    assert guarded.answers == ["E_INVALID the connection has ended"]
    assert not guarded.stage.broker.topics
    assert Connection(guarded.stage, CarelessFactory()).session.wants_data
