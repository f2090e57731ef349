"""Nsqds that misbehave, and applications that cancel and stop at the wrong time, on each event loop."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
import warnings
from contextlib import closing
from threading import Event
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from nsqtw.client import Message
from nsqtw.client.producer_policy import Batching
from nsqtw.errors import ClientLibraryError, ConnectFailed, NotConnected, OptionError, Refused, Stopped
from tests.client.fake_nsqd import HEARTBEAT, OK, FakeNsqd, Peer, Script, frame, message
from tests.client.loops import Loop, OnAsyncio, OnTwisted

CANCELLED = (asyncio.CancelledError, CancelledError)


def never(loop: Loop) -> Any:
    """Return a future without a result."""
    return asyncio.get_running_loop().create_future() if isinstance(loop, OnAsyncio) else Deferred()


def served(peer: Peer) -> None:
    """An nsqd that answers every publish."""
    peer.identify()
    while line := peer.command():
        if line.startswith((b"PUB", b"MPUB", b"DPUB")):
            peer.send(OK)


def subscribed(*data: bytes) -> Script:
    """An nsqd with some data for its consumer, which ends CLS as it should."""

    def script(peer: Peer) -> None:
        peer.subscribe()
        for piece in data:
            peer.send(piece)
        peer.expect(b"CLS")
        peer.send(frame(b"CLOSE_WAIT"))
        peer.wait_closed()

    return script


def says(*data: bytes) -> Script:
    """An nsqd that answers IDENTIFY with this, and then nothing."""

    def script(peer: Peer) -> None:
        peer.expect(b"IDENTIFY")
        for piece in data:
            peer.send(piece)
        peer.wait_closed()

    return script


NESTED = frame(b'{"a":' + b"[" * 100_000)


@pytest.mark.parametrize(
    "answer",
    [
        frame(b"{}") + b"\xff" * 8,
        frame(b"{}") + message(1),
        frame(b'{"max_rdy_count":null}'),
        frame(b'{"msg_timeout":1e999}'),
        frame(b'{"tls_v1":true}'),
        frame(b'{"snappy":true}') + b"garbage!",
        frame(b'{"deflate":true}') + b"\xff" * 20,
        frame(b'{"auth_required":true}'),
        NESTED,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_garbage_in_a_handshake_is_an_error_and_another_connection_follows(loop: Loop, answer: bytes) -> None:
    async def test() -> None:
        with FakeNsqd(says(answer), served) as nsqd:
            producer = loop.producer(nsqd.address)
            with pytest.raises((ConnectFailed, NotConnected)):
                await producer.publish("t", b"x")
            await producer.publish("t", b"x")
            await producer.stop()
        with FakeNsqd(says(answer), subscribed()) as nsqd, FakeNsqd(subscribed()) as other:
            consumer = loop.consumer("t", "c", nsqd=[nsqd.address, other.address], max_in_flight=2)
            await consumer.start()
            await loop.until(lambda: nsqd.connection_count == 2, "another connection")
            await loop.until(lambda: consumer.stats["connections"] == 2, "a consumer on it")
            assert await consumer.stop() == 0

    loop.run(test)


def test_a_connection_lost_in_its_handshake(loop: Loop) -> None:
    def at_identify(peer: Peer) -> None:
        peer.expect(b"IDENTIFY")

    def at_auth(peer: Peer) -> None:
        peer.identify(b'{"auth_required":true}')
        peer.expect(b"AUTH")

    async def test() -> None:
        with FakeNsqd(at_identify, at_auth, served) as nsqd:
            producer = loop.producer(nsqd.address, auth_secret="s")
            for _ in range(2):
                with pytest.raises(ConnectFailed):
                    await producer.publish("t", b"x")
            await producer.publish("t", b"x")
            await producer.stop()

    loop.run(test)


def test_a_connection_lost_in_tls(loop: Loop) -> None:
    def at_tls(peer: Peer) -> None:
        peer.expect(b"IDENTIFY")
        peer.send(HEARTBEAT + frame(b'{"tls_v1":true}'))  # the answer to the heartbeat waits for TLS
        peer.command()

    async def test() -> None:
        with FakeNsqd(at_tls) as nsqd, pytest.raises(ConnectFailed):
            await loop.producer(nsqd.address, tls_v1=True, tls_insecure_skip_verify=True).start()

    loop.run(test)


def test_a_silent_nsqd_is_given_up(loop: Loop) -> None:
    async def test() -> None:
        options = {"read_timeout": 0.1, "heartbeat_interval": 0.1}
        with FakeNsqd(lambda peer: peer.wait_closed(), subscribed()) as nsqd:
            producer = loop.producer(nsqd.address, **options)
            with pytest.raises(ClientLibraryError, match="nothing was received"):
                await producer.publish("t", b"x")
            await producer.stop()
            consumer = loop.consumer("t", "c", nsqd=nsqd.address, **options)
            await consumer.start()
            await loop.until(lambda: nsqd.connection_count > 3, "it is connected to again")
            await consumer.stop(0)

    loop.run(test)


def test_a_stop_that_gets_no_answers_ends(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(says(frame(b"{}"))) as nsqd:
            producer = loop.producer(nsqd.address)
            future = producer.publish("t", b"x")
            stopped, again = producer.stop(0.05), producer.stop()
            with pytest.raises(Stopped):
                await future
            await stopped
            await again
            with pytest.raises(Stopped):
                await producer.start()

    loop.run(test)


def test_a_stop_while_a_connection_is_opened(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(lambda peer: peer.wait_closed()) as nsqd:
            producer = loop.producer(nsqd.address)
            started = producer.start()
            await producer.stop()
            with pytest.raises(Stopped):
                await started
            consumer = loop.consumer("t", "c", nsqd=nsqd.address)
            begun = consumer.start()
            assert await consumer.stop() == 0
            with pytest.raises(Stopped):
                await begun
            consumer, before = loop.consumer("t", "c", nsqd=nsqd.address), nsqd.connection_count
            assert await consumer.stop() == 0
            assert await consumer.stop() == 0
            with pytest.raises(Stopped):
                await consumer.start()
            assert nsqd.connection_count == before, "a consumer that was never started opens nothing"

    loop.run(test)


def test_a_context_that_is_cancelled_while_it_is_entered_is_stopped(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(lambda peer: peer.wait_closed()) as nsqd:
            for made in (loop.producer(nsqd.address), loop.consumer("t", "c", nsqd=nsqd.address)):
                entering = loop.spawn(made.__aenter__())
                await loop.sleep(0.02)
                entering.cancel()
                with pytest.raises(CANCELLED):
                    await entering
                await made.stop()

    loop.run(test)


def test_answers_before_garbage_count(loop: Loop) -> None:
    def script(peer: Peer) -> None:
        peer.identify()
        for _ in range(3):
            peer.expect(b"PUB")
        peer.send(OK + frame(b"E_PUB_FAILED PUB failed", 1) + b"\xff" * 8)
        peer.wait_closed()

    async def test() -> None:
        with FakeNsqd(script) as nsqd:
            producer = loop.producer(nsqd.address)
            futures = [producer.publish("t", b"x") for _ in range(3)]
            await futures[0]
            with pytest.raises(Refused):
                await futures[1]
            with pytest.raises(NotConnected, match="negative"):
                await futures[2]
            await producer.stop()

    loop.run(test)


def test_exactly_the_unanswered_fail_and_the_next_nsqd_takes_over(loop: Loop) -> None:
    def dies(peer: Peer) -> None:
        peer.identify()
        for _ in range(10):
            peer.expect(b"PUB")
        peer.send(OK * 4)

    async def test() -> None:
        with FakeNsqd(dies) as first, FakeNsqd(served) as second:
            producer = loop.producer([first.address, second.address])
            futures = [producer.publish("t", b"x") for _ in range(10)]
            for future in futures[:4]:
                await future
            for future in futures[4:]:
                with pytest.raises(NotConnected):
                    await future
            later = [producer.publish(f"t{number}", b"x") for number in range(5)]
            for future in later:
                await future
            await producer.stop()
            wanted = [b"PUB t%d" % number for number in range(5)]
            assert [line for line in second.received if line.startswith(b"PUB")] == wanted

    loop.run(test)


def test_a_cancelled_publish_is_not_sent_later(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(served) as nsqd:
            for options in ({}, {"batching": Batching(messages=100, seconds=0.05)}):
                nsqd.received.clear()
                producer = loop.producer(nsqd.address, **options)
                cancelled = [producer.publish("t", b"1"), producer.publish("only", b"2")]
                kept = producer.publish("t", b"3")
                for future in cancelled:
                    future.cancel()
                    with pytest.raises(CANCELLED):
                        await future
                await kept
                await producer.stop()
                assert nsqd.received[1:] == [b"PUB t"]

    loop.run(test)


def test_commands_of_a_topic_do_not_overtake_its_batch(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(served) as nsqd:
            async with loop.producer(nsqd.address, batching=Batching(seconds=10.0, bytes=1000)) as producer:
                futures = [producer.publish("t", b"1"), producer.publish("t", b"2")]
                futures += [producer.multi_publish("t", [b"3", b"4"]), producer.publish("t", b"5", delay=1.0)]
                futures += [
                    producer.publish("t", b"6"),
                    producer.publish("t", bytes(1000)),
                    producer.publish("u", b"7"),
                ]
                stopped = producer.stop()
                for future in futures:
                    await future
                await stopped
            wanted = [b"MPUB t", b"MPUB t", b"DPUB t 1000", b"PUB t", b"PUB t", b"PUB u"]
            assert nsqd.received[1:] == wanted

    loop.run(test)


def test_a_wrong_body_harms_no_other(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(served) as nsqd:
            producer = loop.producer(nsqd.address, batching=Batching(seconds=0.01))
            good = producer.publish("t", b"1")
            for wrong in ("text", 5, None):
                with pytest.raises(TypeError, match="must be bytes"):
                    producer.publish("t", wrong)
                with pytest.raises(TypeError, match="must be bytes"):
                    producer.multi_publish("t", [b"1", wrong])
            await good
            with pytest.raises(Refused, match=r"^E_INVALID DPUB could not parse timeout -1000$"):
                await producer.publish("t", b"1", delay=-1.0)
            await producer.publish("t", bytearray(b"2"))
            await producer.stop()

    loop.run(test)


def test_a_cancelled_handler_is_a_failed_one(loop: Loop) -> None:
    async def test() -> None:
        handled: list[bytes] = []

        async def handler(received: Message) -> None:
            handled.append(received.body)
            if received.body == b"1":
                waiting = never(loop)
                waiting.cancel()
                await waiting
            if received.body == b"2" and isinstance(loop, OnTwisted):
                raise SystemExit  # a reactor logs it and goes on, and so does a consumer

        with FakeNsqd(subscribed(message(1, b"1") + message(2, b"2") + message(3, b"3"))) as nsqd:
            consumer = loop.consumer("t", "c", handler, nsqd=nsqd.address, max_backoff_duration=0.0)
            await consumer.start()
            await loop.until(lambda: handled == [b"1", b"2", b"3"], "the handler goes on")
            await consumer.stop()
            assert b"REQ 0000000000000001 90000" in nsqd.received

    loop.run(test)


def test_a_stop_waits_for_what_a_handler_does_after_its_response(loop: Loop) -> None:
    async def test() -> None:
        outcome: list[str] = []
        go_on = never(loop)

        async def handler(received: Message) -> None:
            await received.finish()
            await go_on
            outcome.append("complete")

        with FakeNsqd(subscribed(message(1))) as nsqd:
            consumer = loop.consumer("t", "c", handler, nsqd=nsqd.address)
            await consumer.start()
            await loop.until(lambda: consumer.stats["finished"] == 1, "the FIN")
            stopped = consumer.stop()
            await loop.until(lambda: consumer.stats["connections"] == 0, "the close")
            assert outcome == []
            complete(go_on)
            assert await stopped == 0
            assert outcome == ["complete"]

    loop.run(test)


def complete(future: Any) -> None:
    """Complete a future of either loop."""
    future.set_result(None) if isinstance(future, asyncio.Future) else future.callback(None)


def test_a_handler_that_returns_after_its_connection_was_lost(loop: Loop) -> None:
    def dies(peer: Peer) -> None:
        peer.subscribe()
        peer.send(message(1))
        lost.wait(20)

    lost = Event()

    async def test() -> None:
        go_on = never(loop)
        held: list[Message] = []

        async def handler(received: Message) -> None:
            held.append(received)
            await go_on

        with FakeNsqd(dies, subscribed()) as nsqd:
            consumer = loop.consumer("t", "c", handler, nsqd=nsqd.address)
            await consumer.start()
            await loop.until(lambda: held, "the message")
            lost.set()
            await loop.until(lambda: held[0].has_responded, "the loss")
            stopped = consumer.stop()  # waits for the handler also when there is no connection
            held[0].touch()
            complete(go_on)
            assert await stopped == 0
            assert consumer.stats["finished"] == 0
            assert not [line for line in nsqd.received if line.startswith((b"FIN", b"TOUCH"))]

    loop.run(test)


def test_a_handler_that_never_ends_is_cancelled(loop: Loop) -> None:
    async def test() -> None:
        events: list[str] = []

        async def handler(received: Message) -> None:
            await received.finish()
            try:
                await never(loop)
            finally:
                events.append("cancelled")

        with FakeNsqd(subscribed(message(1))) as nsqd:
            consumer = loop.consumer("t", "c", handler, nsqd=nsqd.address)
            await consumer.start()
            await loop.until(lambda: consumer.stats["finished"] == 1, "the FIN")
            assert await consumer.stop(0.1) == 0
            await loop.until(lambda: events == ["cancelled"], "the cancellation")

    loop.run(test)


def test_an_error_in_an_iteration_gives_its_message_back_at_once(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(subscribed(message(1) + message(2))) as nsqd:
            with pytest.raises(ZeroDivisionError):
                async with loop.consumer("t", "c", nsqd=nsqd.address, max_in_flight=2) as consumer:
                    async for _ in consumer:
                        raise ZeroDivisionError
            await loop.until(lambda: len([line for line in nsqd.received if line[:3] == b"REQ"]) == 2, "both are back")

    loop.run(test)


def test_a_cancelled_wait_passes_its_message_on() -> None:
    loop = OnAsyncio()

    async def test() -> None:
        with FakeNsqd(subscribed()) as nsqd:
            async with loop.consumer("t", "c", nsqd=nsqd.address) as consumer:
                first, second = (loop.spawn(consumer.__anext__()) for _ in range(2))
                await loop.until(lambda: consumer.stats["connections"] == 1, "the connection")
                (link,) = consumer._links.values()
                link.received(message(1))  # wakes the first
                first.cancel()
                got = await second
                assert got.id == b"0000000000000001"
                await got.finish()
                with pytest.raises(asyncio.CancelledError):
                    await first

    loop.run(test)


def test_the_end_of_asyncio_requeues_and_does_not_hang() -> None:
    async def main() -> list[Message]:
        held: list[Message] = []

        async def handler(received: Message) -> None:
            held.append(received)
            await asyncio.get_running_loop().create_future()

        consumer = OnAsyncio.consumer("t", "c", handler, nsqd=nsqd.address)
        await consumer.start()
        await OnAsyncio().until(lambda: held, "the message")
        return held  # without a stop

    with FakeNsqd(subscribed(message(1))) as nsqd:
        assert asyncio.run(main())[0].has_responded
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # Python warns of the connection that was left open, as it should


def test_heartbeats_are_answered_between_slow_handlers(loop: Loop) -> None:
    answered: list[int] = []

    def script(peer: Peer) -> None:
        peer.subscribe()
        peer.send(b"".join(map(message, range(30))) + HEARTBEAT)
        peer.expect(b"FIN")
        answered.append(len(handled))
        peer.expect(b"CLS")
        peer.send(frame(b"CLOSE_WAIT"))
        peer.wait_closed()

    handled: list[bytes] = []

    def handler(received: Message) -> None:
        time.sleep(0.03)
        handled.append(received.id)

    async def test() -> None:
        with FakeNsqd(script) as nsqd:
            consumer = loop.consumer("t", "c", handler, nsqd=nsqd.address, max_in_flight=30)
            await consumer.start()
            await loop.until(lambda: len(handled) == 30, "all")
            await consumer.stop()
        assert answered[0] < 30, "the first FIN is written before the last handler"

    loop.run(test)


def test_an_nsqd_that_refuses_sub_is_not_stormed(loop: Loop) -> None:
    def refuses(peer: Peer) -> None:
        peer.identify()
        peer.expect(b"SUB")
        peer.send(frame(b"E_SUB_FAILED SUB failed", 1))

    async def test() -> None:
        with FakeNsqd(refuses) as nsqd:
            consumer = loop.consumer("t", "c", nsqd=nsqd.address)
            await consumer.start()
            await loop.until(lambda: nsqd.connection_count == 3, "three connections")
            assert consumer._policy._failures[nsqd.address] >= 2
            await consumer.stop()

    loop.run(test)


def test_errors_that_are_not_fatal(loop: Loop) -> None:
    error = frame(b"E_FIN_FAILED FIN 0000000000000001 failed ID not in flight", 1)

    async def test() -> None:
        with FakeNsqd(subscribed(message(1) + error + message(2))) as nsqd:
            consumer = loop.consumer("t", "c", lambda received: None, nsqd=nsqd.address)
            await consumer.start()
            await loop.until(lambda: consumer.stats["finished"] == 2, "both messages")
            assert nsqd.connection_count == 1
            await consumer.stop()

    loop.run(test)


def test_a_start_is_not_failed_by_the_retries_of_another(loop: Loop) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"

    late = Event()

    def slow(peer: Peer) -> None:
        late.wait(20)
        subscribed()(peer)

    async def test() -> None:
        with FakeNsqd(slow) as nsqd:
            consumer = loop.consumer("t", "c", nsqd=[nobody, nsqd.address])
            started = consumer.start()
            await loop.until(lambda: consumer._policy._failures.get(nobody, 0) >= 2, "two failures")
            late.set()
            await started
            await consumer.stop()

    loop.run(test)


class FakeLookup:
    """An nsqlookupd with one answer to everything."""

    def __init__(self, answer: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nX-NSQ-Content-Type: nsq; version=1.0\r\nContent-Length: %d\r\n\r\n" % len(answer)
        self.answer = head + answer

    def __call__(self, peer: Peer) -> None:
        while line := peer.command():
            if line.startswith(b"User-Agent"):
                break
        peer.send(self.answer)


def test_garbage_of_an_nsqlookupd(loop: Loop) -> None:
    answers = [
        b"[" * 100_000,
        b'{"producers":[{"broadcast_address":"x","tcp_port":1e999}]}',
        b"\xff\xfe",
        b'{"producers":7}',
    ]

    async def test() -> None:
        with FakeNsqd(subscribed()) as nsqd:
            port = int(nsqd.address.rpartition(":")[2])
            good = {"broadcast_address": "127.0.0.1", "tcp_port": port}
            odd = [{"broadcast_address": name, "tcp_port": 1} for name in ("", "a..b", "x" * 300, "[")]
            answers.append(json.dumps({"producers": [*odd, good]}).encode())
            with FakeNsqd(*map(FakeLookup, answers)) as lookupd:
                consumer = loop.consumer("t", "c", lookupd=lookupd.address, lookupd_poll_interval=0.02)
                await consumer.start()
                await loop.until(lambda: consumer.stats["connections"] == 1, "the good one")
                await consumer.stop()

    loop.run(test)


def test_a_stop_during_a_query(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(lambda peer: peer.wait_closed()) as lookupd:
            consumer = loop.consumer("t", "c", lookupd=lookupd.address)
            await consumer.start()
            await loop.until(lambda: lookupd.connection_count, "the query")
            assert await consumer.stop() == 0

    loop.run(test)


def test_a_query_without_an_answer_times_out(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(lambda peer: peer.wait_closed()) as lookupd:
            options = {"lookupd_poll_timeout": 0.05, "lookupd_poll_interval": 0.05}
            consumer = loop.consumer("t", "c", lookupd=lookupd.address, **options)
            await consumer.start()
            await loop.until(lambda: lookupd.connection_count >= 3, "further queries")
            await consumer.stop()

    loop.run(test)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "::1:4150", "localhost:", ":4150", "h:99999", "h:-1", "[]:1", ""]
)
def test_addresses_without_a_port(loop: Loop, address: str) -> None:
    remedy = "must be host:port, as 127.0.0.1:4150 or"
    with pytest.raises(OptionError, match=remedy):
        loop.consumer("t", "c", nsqd=address)
    with pytest.raises(OptionError, match=remedy):
        loop.producer([address])
    with pytest.raises(OptionError):
        loop.consumer("t", "c", lookupd=address)


def test_ipv6(loop: Loop) -> None:
    async def test() -> None:
        with FakeNsqd(served, host="::1") as nsqd:
            assert nsqd.address.startswith("[::1]:")
            async with loop.producer(nsqd.address) as producer:
                await producer.publish("t", b"x")

    loop.run(test)


def test_a_large_message(loop: Loop) -> None:
    body = bytes(range(256)) * 100_000

    async def test() -> None:
        with FakeNsqd(subscribed(message(1, body))) as nsqd:
            async with loop.consumer("t", "c", nsqd=nsqd.address) as consumer:
                received = await consumer.__anext__()
                assert received.body == body
                await received.finish()

    loop.run(test)
