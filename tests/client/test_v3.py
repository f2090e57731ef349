"""The client library in protocol V3, and headers over V2: on each event loop with a broker, and without IO."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest

from nsqtw.client.connection import Notice
from nsqtw.client.frames import Frame
from nsqtw.client.message import Message
from nsqtw.client.options import ClientOptions
from nsqtw.client.v3_commands import V3Commands
from nsqtw.client.v3_connection import V3Connection
from nsqtw.errors import ConnectFailed, OptionError, Refused
from nsqtw.protocols.v3 import codec
from nsqtw.protocols.v3.factory import V3Factory
from nsqtw.testing import Broker, broker
from nsqtw.testing.protocols import SECRET, Connection, SessionHarness
from tests.certificates import Certificates
from tests.client.loops import Loop
from tests.client.test_both_loops import counts
from tests.client.test_connection import Owner

HEADERS = {"traceparent": "00-1-2-01", "who": "Zoë"}


@pytest.fixture(scope="module")
def nsqd() -> Iterator[Broker]:
    """A broker that speaks both."""
    with broker(protocol="V2,V3") as running:
        yield running


def create(nsqd: Broker, topic: str, channel: str) -> None:
    """Make a channel before anything is published."""
    for words in (f"topic/create?topic={topic}", f"channel/create?topic={topic}&channel={channel}"):
        urllib.request.urlopen(f"http://{nsqd.http_address}/{words}", data=b"").close()


def set_policy(nsqd: Broker, topic: str, channel: str, settings: dict[str, object]) -> None:
    """Set policies of a channel."""
    url = f"http://{nsqd.http_address}/v2/channel/policy?topic={topic}&channel={channel}"
    request = urllib.request.Request(url, json.dumps(settings).encode(), method="PUT")
    urllib.request.urlopen(request).close()


def test_it_speaks_v3_like_v2(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        wanted = [b"%d" % number for number in range(3000)]
        async with loop.producer(nsqd.tcp_address, protocol="V3") as producer:
            futures = [producer.publish(topic, body) for body in wanted]
            futures.append(producer.multi_publish(topic, [b"a", b"b"]))
            for future in futures:
                await future
            with pytest.raises(Refused, match="E_BAD_MESSAGE"):
                await producer.publish(topic, b"x" * 2_000_000)
            await producer.publish(topic, b"c")  # the connection is still there
        wanted += [b"a", b"b", b"c"]
        bodies = []
        async with loop.consumer(topic, "c", nsqd=nsqd.tcp_address, protocol="V3", max_in_flight=100) as consumer:
            async for message in consumer:
                if message.body == b"1" and message.attempts == 1:
                    await message.requeue(0, backoff=False)
                    continue
                bodies.append(message.body)
                message.touch()
                await message.finish()
                if len(bodies) == len(wanted):
                    break
        assert sorted(bodies) == sorted(wanted)
        assert counts(nsqd, topic) == (0, 0, 0)

    loop.run(test)


def test_headers_reach_consumers_of_both_protocols(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        for channel in ("v3", "v2", "none"):
            create(nsqd, topic, channel)
        async with loop.producer(nsqd.tcp_address, protocol="V3") as producer:
            await producer.publish(topic, b"one", headers=HEADERS)
            await producer.publish(topic, b"two", delay=0.01)
            await producer.multi_publish(topic, [b"three", b"four"], headers=[{}, HEADERS])
            with pytest.raises(Refused, match="E_BAD_HEADERS"):
                await producer.publish(topic, b"x", headers={"nsq-x": "y"})
        wanted = {b"one": HEADERS, b"two": {}, b"three": {}, b"four": HEADERS}
        for channel, options in (("v3", {"protocol": "V3"}), ("v2", {"headers": True}), ("none", {})):
            found = {}
            async with loop.consumer(topic, channel, nsqd=nsqd.tcp_address, max_in_flight=9, **options) as consumer:
                async for message in consumer:
                    found[message.body] = dict(message.headers)
                    await message.finish()
                    if len(found) == len(wanted):
                        break
            assert found == (wanted if options else {body: {} for body in wanted})

    loop.run(test)


@pytest.mark.parametrize("protocol", ["V3", "V2"])
def test_a_dead_letter_has_the_last_reason(loop: Loop, nsqd: Broker, topic: str, protocol: str) -> None:
    async def test() -> None:
        create(nsqd, topic, "c")
        set_policy(nsqd, topic, "c", {"max_attempts": 2})
        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.multi_publish(topic, [b"raises", b"requeued"])

        def handle(message: Message) -> None:
            if message.body == b"raises":
                raise ValueError(f"attempt {message.attempts}")
            message.requeue(0, backoff=False, reason=f"Zoë said no\n{message.attempts} times")

        options = {"protocol": protocol, "default_requeue_delay": 0.0, "max_backoff_duration": 0.0}
        reasons = {}
        async with (
            loop.consumer(topic, "c", handle, nsqd=nsqd.tcp_address, **options),
            loop.consumer(f"{topic}.dead", "c", nsqd=nsqd.tcp_address, protocol="V3") as letters,
        ):
            async for message in letters:
                reasons[message.body] = message.headers.get("nsq-dead-detail")
                await message.finish()
                if len(reasons) == 2:
                    break
        told = {b"raises": "ValueError('attempt 2')", b"requeued": "Zoë said no 2 times"}
        assert reasons == (told if protocol == "V3" else dict.fromkeys(told))

    loop.run(test)


def test_a_reason_is_cut_between_characters() -> None:
    written = V3Commands(ClientOptions()).req(b"0" * 15 + b"1", 7, "é" + "x" * 997 + "éé")
    size = 2 + 997
    assert written[4] == codec.NACK and len(written) == codec.HEAD_BYTES + 4 + 2 + size + codec.RANGE_BYTES
    frame = codec.Frame(codec.NACK, 0, 1, written, codec.HEAD_BYTES, len(written))
    assert codec.read_ranges(frame, 10) == ([(1, 1)], 0.007, "é" + "x" * 997)


def test_v2_cannot_publish_headers(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async with loop.producer(nsqd.tcp_address) as producer:
            with pytest.raises(OptionError, match="protocol='V3'"):
                producer.publish(topic, b"x", headers=HEADERS)

    loop.run(test)


def test_a_broker_without_v3_is_named(loop: Loop, topic: str) -> None:
    async def test() -> None:
        with broker() as other, pytest.raises(ConnectFailed, match="E_BAD_PROTOCOL"):
            await loop.producer(other.tcp_address, protocol="V3").start()

    loop.run(test)


def test_tls_is_spoken_from_the_first_byte(loop: Loop, topic: str, certificates: Certificates) -> None:
    async def test() -> None:
        with broker(*certificates.server.flags(), protocol="V2,V3", tls_required=True) as secured:
            options = {"protocol": "V3", "tls_v1": True, "tls_root_ca_file": certificates.authority.certificate}
            address = secured.tcp_address.replace("127.0.0.1", "localhost")
            async with loop.producer(address, **options) as producer:
                await producer.publish(topic, b"x")
            async with loop.consumer(topic, "c", nsqd=address, **options) as consumer:
                async for message in consumer:
                    await message.finish()
                    break

    loop.run(test)


@pytest.mark.parametrize("wrong", [{"protocol": "V4"}, {"protocol": "V3", "snappy": True}])
def test_options_of_the_protocol(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="protocol"):
        ClientOptions(**wrong)  # type: ignore[arg-type]


# -- without IO


class Dialogue:
    """A connection of the library with a session of the broker."""

    def __init__(self, **options: object) -> None:
        self.stage = SessionHarness()
        self.stage.guard()
        named = ClientOptions(protocol="V3", auth_secret=SECRET.decode(), **options)  # type: ignore[arg-type]
        self.commands = V3Commands(named)
        self.connection = V3Connection("n:1", named)
        self.session = Connection(self.stage, V3Factory())
        sent = self.connection.data_to_send()
        assert sent.startswith(b"  V3")
        self.hears(self.session.send(sent[4:]))

    def says(self, *commands: bytes) -> tuple[list[Message], list[Frame]]:
        for command in commands:
            self.connection.send(command)
        return self.hears(self.session.send(self.connection.data_to_send()))

    def hears(self, data: bytes) -> tuple[list[Message], list[Frame]]:
        return self.connection.receive(data, Owner())


def test_the_secret_goes_with_the_handshake() -> None:
    dialogue = Dialogue()
    assert dialogue.connection.is_ready
    assert dialogue.connection.server.auth == ("ann", "", 0)
    assert dialogue.connection.server.max_rdy_count == 2500
    with pytest.raises(ConnectFailed, match="E_AUTH_FAILED"):
        other = V3Connection("n:1", ClientOptions(protocol="V3", auth_secret="guess"))
        other.receive(Connection(dialogue.stage, V3Factory()).send(other.data_to_send()[4:]), Owner())
    with pytest.raises(ConnectFailed, match="Auth Required"):
        other = V3Connection("n:1", ClientOptions(protocol="V3"))
        other.receive(Connection(dialogue.stage, V3Factory()).send(other.data_to_send()[4:]), Owner())


def test_each_answer_names_its_publish() -> None:
    """The refusal is known at once, the others when they are stored."""
    dialogue = Dialogue()
    commands = dialogue.commands
    sent = [commands.pub("t", b"a"), commands.pub("other", b"b"), commands.pub("t", b"c")]
    _, frames = dialogue.says(*sent)
    assert [(frame.is_error, frame.at) for frame in frames] == [(True, 1), (False, 0), (False, 0)]
    assert frames[0].data.startswith(b"E_UNAUTHORIZED AUTH failed for PUB")
    dialogue.hears(b"\0\0\0\x10\x21\0\0\0\0\0\0\0\0\0\0\1\0\0\0\1")
    assert dialogue.connection.failure is None
    dialogue.says(commands.pub("t", b"d"))
    dialogue.connection.send(commands.pub("t", b"e"))
    dialogue.hears(b"\0\0\0\x10\x21\0\0\0\0\0\0\0\0\0\0\1\0\0\0\1")
    assert str(dialogue.connection.failure) == "the nsqd answered publish 1, which was not sent"


def test_fins_of_a_turn_are_one_frame() -> None:
    dialogue = Dialogue()
    commands = dialogue.commands
    dialogue.says(commands.publish("t", [b"a", b"b", b"c", b"d"]))
    messages, frames = dialogue.says(commands.sub("t", "c#ephemeral"), commands.rdy(10))
    assert frames == [Frame(False, b"OK")] and [message.body for message in messages] == [b"a", b"b", b"c", b"d"]
    for at in (0, 1, 3):
        dialogue.connection.send(commands.fin(messages[at].id))
    written = dialogue.connection.data_to_send()
    assert len(written) == 12 + 2 * 12
    assert dialogue.hears(dialogue.session.send(written)) == ([], [])
    _, frames = dialogue.says(commands.fin(messages[0].id))
    assert frames[0].is_error and frames[0].data.startswith(b"E_FIN_FAILED FIN")
    assert dialogue.says(commands.close())[1] == [Frame(False, b"CLOSE_WAIT")]


def test_damage_after_the_handshake_is_a_failure() -> None:
    dialogue = Dialogue()
    dialogue.hears(b"\0\0\0\x10\x25\x01\0\0\0\0\0\x01\0\0\0\x05\0\0\0\0")
    assert dialogue.connection.failure is not None


def test_ids_of_a_confirm_belong_to_their_publish() -> None:
    dialogue = Dialogue(message_ids=True)
    commands = dialogue.commands
    messages, frames = dialogue.says(
        commands.sub("t", "c#ephemeral"), commands.rdy(10), commands.publish("t", [b"a", b"b"]), commands.pub("t", b"c")
    )
    assert [message.body for message in messages] == [b"a", b"b", b"c"]
    ids = [message.id for message in messages]
    assert [frame.ids for frame in frames] == [(), tuple(ids[:2]), tuple(ids[2:])]


def test_notices_are_told_apart_from_answers() -> None:
    dialogue = Dialogue()
    dialogue.says(dialogue.commands.sub("t", "c#ephemeral"))
    (channel,) = dialogue.stage.broker.topics["t"].channels.values()
    channel.pause()
    channel.unpause()
    dialogue.stage.broker.begin_drain()
    assert not dialogue.connection.is_draining
    assert dialogue.hears(dialogue.session.read()) == ([], [])
    assert dialogue.connection.take_notices() == [Notice.PAUSED, Notice.RESUMED, Notice.DRAINING]
    assert dialogue.connection.take_notices() == [] and dialogue.connection.is_draining


# -- with brokers


def test_a_producer_learns_the_ids(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async with loop.producer(nsqd.tcp_address, protocol="V3", message_ids=True) as producer:
            ids = await producer.publish_with_ids(topic, [b"a", b"b"])
            await producer.publish(topic, b"c")
            with pytest.raises(Refused, match="E_BAD_HEADERS"):
                await producer.publish_with_ids(topic, [b"d"], headers=[{"ttl": "never"}])
            with pytest.raises(Refused, match="header 'x' has a value of type int"):
                await producer.publish(topic, b"d", headers={"x": 5})  # type: ignore[dict-item]
        found = []
        async with loop.consumer(topic, "c", nsqd=nsqd.tcp_address, protocol="V3", max_in_flight=9) as consumer:
            async for message in consumer:
                found.append((message.body, message.id))
                await message.finish()
                if len(found) == 3:
                    break
        assert dict(found)[b"a"] == ids[0] and dict(found)[b"b"] == ids[1] and len(ids) == 2
        async with loop.producer(nsqd.tcp_address, protocol="V3") as producer:
            with pytest.raises(OptionError, match="message_ids=True"):
                producer.publish_with_ids(topic, [b"a"])

    loop.run(test)


def drain(nsqd: Broker) -> None:
    urllib.request.urlopen(f"http://{nsqd.http_address}/v2/drain?timeout=0", data=b"").close()


def depth(nsqd: Broker, topic: str) -> int:
    return sum(counts(nsqd, topic))


def test_a_draining_nsqd_is_left_for_another_one(loop: Loop, nsqd: Broker, topic: str) -> None:
    with broker(protocol="V2,V3") as draining:
        create(draining, topic, "c")
        create(nsqd, topic, "c")

        async def test() -> None:
            addresses = [draining.tcp_address, nsqd.tcp_address]
            async with loop.producer(addresses, protocol="V3") as producer:
                await producer.publish(topic, b"before")
                drain(draining)
                for number in range(20):
                    with suppress(Refused):  # what was sent before the notice came
                        await producer.publish(topic, b"%d" % number)
                await producer.publish(topic, b"last")
            async with loop.producer(addresses, protocol="V3") as producer:  # which drains from the beginning
                await producer.publish(topic, b"another")
            async with loop.producer(draining.tcp_address, protocol="V3") as producer:
                with pytest.raises(Refused, match="E_PUB_FAILED"):
                    await producer.publish(topic, b"nowhere else")

        loop.run(test)
        assert depth(nsqd, topic) >= 20
