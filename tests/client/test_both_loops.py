"""Consumers and producers with a real broker, on each event loop."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from nsqtw.client import Message
from nsqtw.client.producer_policy import Batching
from nsqtw.errors import ConnectFailed, InvalidName, LookupFailed, NotConnected, OptionError, Refused, Stopped
from nsqtw.testing import Broker, broker
from tests.certificates import Certificates
from tests.cli.serving import serving
from tests.client.loops import Loop, OnAsyncio
from tests.process import LookupdProcess

GRANTS = """
[[client]]
identity = "me"
secret = "scrypt:16384:8:1:10QvvNh5QRwt5lp4EiG7Kw==:zftCkokh26MyVnusmSHSPXGjey09yE6+SqxuNIQ1UDs="

[[client.grant]]
topic = ".*"
channels = [".*"]
permissions = ["publish", "subscribe"]
"""
"""The grants of the secret s3cret."""


def counts(nsqd: Broker, topic: str, channel: str = "c") -> tuple[int, int, int]:
    """Return depth, messages in flight, and deferred messages of a channel."""
    url = f"http://{nsqd.http_address}/stats?format=json&topic={topic}&channel={channel}"
    with urllib.request.urlopen(url) as answer:
        found = json.load(answer)["topics"][0]["channels"][0]
    return found["depth"], found["in_flight_count"], found["deferred_count"]


async def consume(loop: Loop, nsqd: Broker, topic: str, count: int, **options: Any) -> list[bytes]:
    """Return the bodies of `count` messages, which are finished."""
    bodies: list[bytes] = []
    async with loop.consumer(topic, "c", nsqd=nsqd.tcp_address, max_in_flight=100, **options) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            await message.finish()
            if len(bodies) == count:
                break
    return bodies


def test_messages_arrive_in_order_and_once(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        wanted = [b"%d" % number for number in range(5000)]
        async with loop.producer(nsqd.tcp_address) as producer:
            futures = [producer.publish(topic, body) for body in wanted]
            for future in futures:
                await future
        assert await consume(loop, nsqd, topic, len(wanted)) == wanted
        assert counts(nsqd, topic) == (0, 0, 0)

    loop.run(test)


def test_an_iteration_waits_for_chunks_of_messages(
    loop: Loop, nsqd: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2000

    async def test() -> None:
        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.multi_publish(topic, [b"x"] * count)
        waits = 0
        async with loop.consumer(topic, "c", nsqd=nsqd.tcp_address, max_in_flight=count) as consumer:
            wait = consumer._wait

            def counted() -> Any:
                nonlocal waits
                waits += 1
                return wait()

            monkeypatch.setattr(consumer, "_wait", counted)
            received = 0
            async for message in consumer:
                message.finish()
                received += 1
                if received == count:
                    break
        assert waits < count / 10

    loop.run(test)


@pytest.mark.parametrize("options", [{"snappy": True}, {"deflate": True}])
def test_compressed_connections(loop: Loop, nsqd: Broker, topic: str, options: dict[str, Any]) -> None:
    async def test() -> None:
        wanted = [b"%d" % number * 100 for number in range(500)]
        async with loop.producer(nsqd.tcp_address, **options) as producer:
            await producer.multi_publish(topic, wanted)
        assert await consume(loop, nsqd, topic, len(wanted), **options) == wanted

    loop.run(test)


def test_handlers_of_every_kind(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        handled: list[bytes] = []

        def function(message: Message) -> None:
            handled.append(message.body)

        async def coroutine(message: Message) -> None:
            await loop.sleep(0)
            handled.append(message.body)

        def future(message: Message) -> Any:
            return loop.spawn(coroutine(message))

        async with loop.producer(nsqd.tcp_address) as producer:
            for handler in (function, coroutine, future):
                handled.clear()
                await producer.multi_publish(topic, [b"1", b"2", b"3"])
                consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address, max_in_flight=10)
                await consumer.start()
                await loop.until(lambda: len(handled) == 3, "three messages")
                assert await consumer.stop() == 0
                assert counts(nsqd, topic) == (0, 0, 0)

    loop.run(test)


def test_no_more_handlers_run_than_allowed(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        running = most = done = 0

        async def handler(message: Message) -> None:
            nonlocal running, most, done
            running += 1
            most = max(most, running)
            await loop.sleep(0.01)
            running -= 1
            done += 1

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.multi_publish(topic, [b"x"] * 30)
        consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address, max_in_flight=30, concurrency=5)
        await consumer.start()
        await loop.until(lambda: done == 30, "all messages")
        await consumer.stop()
        assert most == 5

    loop.run(test)


def test_a_handler_that_raises_requeues_and_backs_off(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        attempts: list[int] = []

        def handler(message: Message) -> None:
            attempts.append(message.attempts)
            if message.attempts < 3:
                raise ValueError("not yet")

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.publish(topic, b"x")
        options = {"default_requeue_delay": 0.0, "backoff_multiplier": 0.01, "max_backoff_duration": 1.0}
        consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address, **options)
        await consumer.start()
        await loop.until(lambda: attempts == [1, 2, 3], "three attempts")
        await consumer.stop()
        assert counts(nsqd, topic) == (0, 0, 0)

    loop.run(test)


def test_a_message_that_failed_too_often_is_given_up(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        attempts: list[int] = []
        given_up: list[bytes] = []

        def handler(message: Message) -> None:
            attempts.append(message.attempts)
            raise ValueError("never")

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.publish(topic, b"x")
        options = {"default_requeue_delay": 0.0, "max_backoff_duration": 0.0, "max_attempts": 2}
        consumer = loop.consumer(
            topic,
            "c",
            handler,
            nsqd=nsqd.tcp_address,
            on_give_up=lambda message: given_up.append(message.body),
            **options,
        )
        await consumer.start()
        await loop.until(lambda: given_up, "the message is given up")
        await consumer.stop()
        assert (attempts, given_up) == ([1, 2], [b"x"])
        assert counts(nsqd, topic) == (0, 0, 0)

    loop.run(test)


def test_a_response_after_the_handler(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        kept: list[Message] = []

        def handler(message: Message) -> None:
            message.disable_auto_response()
            kept.append(message)

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.publish(topic, b"x")
        consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address)
        await consumer.start()
        await loop.until(lambda: kept, "the message")
        assert counts(nsqd, topic) == (0, 1, 0)
        kept[0].finish()
        kept[0].finish()
        await loop.until(lambda: counts(nsqd, topic) == (0, 0, 0), "the FIN")
        await consumer.stop()

    loop.run(test)


def test_a_stop_waits_for_the_handler(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        begun = finished = 0

        async def handler(message: Message) -> None:
            nonlocal begun, finished
            begun += 1
            await loop.sleep(0.2)
            finished += 1

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.multi_publish(topic, [b"x"] * 10)
        consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address, max_in_flight=10)
        await consumer.start()
        await loop.until(lambda: begun == 1 and consumer.in_flight == 10, "messages in flight")
        assert await consumer.stop() == 9, "those that no handler has are requeued"
        assert finished == 1
        await loop.until(lambda: counts(nsqd, topic) == (9, 0, 0), "the last FIN and the REQs")

    loop.run(test)


def test_a_stop_does_not_wait_for_ever(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async def handler(message: Message) -> None:
            await loop.sleep(60)

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.publish(topic, b"x")
        consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address)
        await consumer.start()
        await loop.until(lambda: consumer.in_flight, "the message")
        assert await consumer.stop(0.05) == 1
        await loop.until(lambda: counts(nsqd, topic) == (1, 0, 0), "the message is back")

    loop.run(test)


def test_auto_touch_keeps_a_slow_message(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        attempts: list[int] = []

        async def handler(message: Message) -> None:
            attempts.append(message.attempts)
            await loop.sleep(1.5)

        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.publish(topic, b"x")
        consumer = loop.consumer(topic, "c", handler, nsqd=nsqd.tcp_address, auto_touch=True, msg_timeout=1.0)
        await consumer.start()
        await loop.until(lambda: attempts, "the message")
        await consumer.stop()
        assert attempts == [1]
        assert counts(nsqd, topic) == (0, 0, 0)

    loop.run(test)


def test_a_cancelled_wait_loses_nothing(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async with loop.producer(nsqd.tcp_address) as producer:
            consumer = loop.consumer(topic, "c", nsqd=nsqd.tcp_address)
            async with consumer:
                cancelled, waiting = loop.spawn(consumer.__anext__()), loop.spawn(consumer.__anext__())
                await loop.sleep(0.01)
                cancelled.cancel()
                with pytest.raises((asyncio.CancelledError, CancelledError)):
                    await cancelled
                await producer.publish(topic, b"x")
                message = await waiting
                assert message.body == b"x"
                await message.finish()

    loop.run(test)


def test_refusals_fail_one_publish_each(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async with loop.producer(nsqd.tcp_address) as producer:
            futures = [producer.publish(name, body) for name, body in ((topic, b"1"), ("b d", b"2"), (topic, b"3"))]
            await futures[0]
            with pytest.raises(Refused, match=r'^E_BAD_TOPIC PUB topic name "b d" is not valid$') as refused:
                await futures[1]
            assert refused.value.code == "E_BAD_TOPIC"
            await futures[2]
            with pytest.raises(Refused, match=r"^E_BAD_MESSAGE"):
                await producer.publish(topic, b"")
        with pytest.raises(Stopped):
            await producer.publish(topic, b"late")
        assert await consume(loop, nsqd, topic, 2) == [b"1", b"3"]

    loop.run(test)


def test_deferred_and_collected_publishes(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async with loop.producer(nsqd.tcp_address, batching=Batching(messages=10, seconds=0.05)) as producer:
            late = producer.publish(topic, b"late", delay=0.3)
            futures = [producer.publish(topic, b"%d" % number) for number in range(25)]
            for future in [late, *futures]:
                await future
        assert sorted(await consume(loop, nsqd, topic, 26)) == sorted([b"late", *(b"%d" % n for n in range(25))])

    loop.run(test)


def test_nobody_listens(loop: Loop, topic: str) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    async def test() -> None:
        with pytest.raises(ConnectFailed, match=f"^dial tcp {address}: connect: connection refused$"):
            await loop.consumer(topic, "c", nsqd=address).start()
        producer = loop.producer(address)
        with pytest.raises(ConnectFailed, match="connection refused"):
            await producer.publish(topic, b"x")
        await producer.stop()

    loop.run(test)


def test_a_start_that_fails_stops_the_consumer(loop: Loop, topic: str) -> None:
    async def test() -> None:
        consumer = loop.consumer(topic, "c", nsqd="127.0.0.1:1", lookupd_poll_interval=0.01)
        with pytest.raises(ConnectFailed):
            await consumer.start()
        assert await consumer.wait_stopped() == 0
        with pytest.raises(StopAsyncIteration):
            await consumer.__anext__()

    loop.run(test)


def test_a_value_that_a_handler_returns_is_ignored(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.publish(topic, b"x")
        async with loop.consumer(topic, "c", lambda message: True, nsqd=nsqd.tcp_address) as consumer:
            await loop.until(lambda: consumer.stats["finished"] == 1, "the message is finished")

    loop.run(test)


def test_a_producer_uses_another_nsqd(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        with broker() as first:
            async with loop.producer([first.tcp_address, nsqd.tcp_address]) as producer:
                await producer.publish(topic, b"1")
                first.kill()
                await loop.until(lambda: producer._link is None, "the loss of the connection")
                await producer.publish(topic, b"2")
        assert await consume(loop, nsqd, topic, 1) == [b"2"]

    loop.run(test)


def test_a_lost_connection_fails_the_publishes_without_an_answer(loop: Loop, topic: str) -> None:
    async def test() -> None:
        with broker() as nsqd:
            producer = loop.producer(nsqd.tcp_address)
            await producer.publish(topic, b"1")
            nsqd.kill()
            future = producer.publish(topic, b"2")
            with pytest.raises((NotConnected, ConnectFailed)):
                await future
            nsqd.restart()
            await producer.publish(topic, b"3")
            await producer.stop()
            assert await consume(loop, nsqd, topic, 2) == [b"1", b"3"]

    loop.run(test)


def test_a_consumer_comes_back_after_a_restart(loop: Loop, topic: str) -> None:
    async def test() -> None:
        bodies: set[bytes] = set()
        with broker() as nsqd:
            consumer = loop.consumer(
                topic, "c", lambda message: bodies.add(message.body), nsqd=nsqd.tcp_address, max_in_flight=10
            )
            await consumer.start()
            async with loop.producer(nsqd.tcp_address) as producer:
                await producer.publish(topic, b"1")
                await loop.until(lambda: bodies == {b"1"}, "the first message")
            nsqd.kill()
            nsqd.restart()
            async with loop.producer(nsqd.tcp_address) as producer:
                await producer.publish(topic, b"2")
            await loop.until(lambda: bodies == {b"1", b"2"}, "the second message")
            await consumer.stop()

    loop.run(test)


def test_tls_auth_and_snappy(loop: Loop, topic: str, certificates: Certificates, tmp_path: Path) -> None:
    grants = tmp_path / "grants.toml"
    grants.write_text(GRANTS)
    grants.chmod(0o600)
    flags = (*certificates.server.flags(), "--tls-required=true", f"--auth=static:{grants}")

    async def test() -> None:
        with broker(*flags) as nsqd:
            options = {
                "tls_v1": True,
                "tls_root_ca_file": certificates.authority.certificate,
                "snappy": True,
                "auth_secret": "s3cret",
            }
            address = nsqd.tcp_address.replace("127.0.0.1", "localhost")
            async with loop.producer(address, **options) as producer:
                await producer.multi_publish(topic, [b"1", b"2"])
            assert await consume(loop, nsqd, topic, 2, **options) == [b"1", b"2"]
            with pytest.raises(ConnectFailed, match="certificate verify failed"):
                await loop.producer(address, tls_v1=True).start()
            with pytest.raises(ConnectFailed, match="Auth Required"):
                await loop.producer(address, **{**options, "auth_secret": ""}).start()

    loop.run(test)


def test_discovery_with_an_nsqlookupd_that_is_down(loop: Loop, topic: str, tmp_path: Path) -> None:
    lookupd = LookupdProcess(tmp_path)
    lookupd.start()

    async def test() -> None:
        addresses = ["127.0.0.1:1", f"127.0.0.1:{lookupd.http_port}"]
        flag = f"127.0.0.1:{lookupd.tcp_port}"
        found: list[bytes] = []
        with broker(lookupd_tcp_address=flag) as first, broker(lookupd_tcp_address=flag) as second:
            consumer = loop.consumer(
                topic,
                "c",
                lambda message: found.append(message.body),
                lookupd=addresses,
                lookupd_poll_interval=0.1,
                max_in_flight=10,
            )
            await consumer.start()
            for nsqd, body in ((first, b"1"), (second, b"2")):
                async with loop.producer(nsqd.tcp_address) as producer:
                    await producer.publish(topic, body)
            await loop.until(lambda: sorted(found) == [b"1", b"2"], "messages of both")
            assert consumer.stats["connections"] == 2
            await consumer.stop()

    try:
        loop.run(test)
    finally:
        lookupd.close()


def test_the_http_api(loop: Loop, nsqd: Broker, topic: str) -> None:
    async def test() -> None:
        api = loop.api(nsqd.http_address)
        await api.ping()
        await api.change("topic", "create", topic)
        await api.change("channel", "create", topic, "c")
        async with loop.producer(nsqd.tcp_address) as producer:
            await producer.multi_publish(topic, [b"1", b"2"])
        stats = await api.stats(topic)
        assert stats["topics"][0]["message_count"] == 2
        peeked = await api.peek(topic, "c")
        assert len(peeked["messages"]) == 2
        part = await api.read_log(topic)
        assert (part.bodies, part.headers) == ([b"1", b"2"], [{}, {}])
        assert await api.read_log(topic, headers=True) == part
        assert (await api.read_log(topic, part.next)).bodies == []
        assert (await api.seek(topic, "c", "latest", dry_run=True))["skipped"] == 2
        assert counts(nsqd, topic) == (2, 0, 0)
        await api.seek(topic, "c", "latest")
        assert counts(nsqd, topic) == (0, 0, 0)
        assert (await api.reload())["changed"] == []
        assert (await api.drain_state())["draining"] is False
        with pytest.raises(LookupFailed, match="404"):
            await api.change("topic", "delete", "unknown")

    loop.run(test)


def test_mistakes_of_the_application(loop: Loop) -> None:
    with pytest.raises(InvalidName):
        loop.consumer("a b", "c", nsqd="127.0.0.1:4150")
    with pytest.raises(OptionError, match="needs the address"):
        loop.consumer("t", "c")
    with pytest.raises(OptionError, match="missing port"):
        loop.consumer("t", "c", lookupd="127.0.0.1")
    with pytest.raises(OptionError, match="max_attempts"):
        loop.consumer("t", "c", nsqd="127.0.0.1:4150", max_attempts=-1)


def test_awaiting_works_with_callbacks_of_twisted(nsqd: Broker, topic: str) -> None:
    from tests.client.loops import OnTwisted

    loop = OnTwisted()

    async def test() -> None:
        producer = loop.producer(nsqd.tcp_address)
        results: list[object] = []
        published = producer.publish(topic, b"x")
        assert isinstance(published, Deferred)
        published.addCallback(results.append)
        await loop.until(lambda: results == [None], "the callback")
        await producer.stop()

    loop.run(test)


def test_futures_of_asyncio_can_be_gathered(nsqd: Broker, topic: str) -> None:
    loop = OnAsyncio()

    async def test() -> None:
        async with loop.producer(nsqd.tcp_address) as producer:
            await asyncio.gather(*[producer.publish(topic, b"x") for _ in range(10)])

    loop.run(test)


def test_a_dry_run_is_not_sent_to_an_nsqd_that_would_move_the_channel(loop: Loop) -> None:
    requests: list[str] = []
    moved = {"/v2/channel/seek": (200, b'{"position": 1, "skipped": 0, "replayed": 0, "depth": 0}')}
    with serving("/v2/openapi.json", b'{"paths": {}}', more=moved, secrets=requests) as address:

        async def test() -> None:
            with pytest.raises(LookupFailed, match="does not know dry_run"):
                await loop.api(address).seek("t", "c", "latest", dry_run=True)

        loop.run(test)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("secret", "sent"), [("word", "Bearer word"), ("basic user:word", "Basic dXNlcjp3b3Jk"), ("", "")]
)
def test_the_form_of_a_secret(loop: Loop, secret: str, sent: str) -> None:
    seen: list[str] = []
    with serving("/ping", b"OK", secrets=seen) as address:

        async def test() -> None:
            await loop.api(address, secret=secret).ping()

        loop.run(test)
    assert seen == [sent]
