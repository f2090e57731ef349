"""A broker that ends its consumers' connections does not count that as their failure, however they consume."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from tests.crash.policies.clients import V3Consumer
from tests.process import NOTHING, Counts, NsqdProcess, Start, starting, wait_until
from tests.wire import ANSWER_SECONDS, HOST

BODIES = [b"1", b"2"]
Consume = Callable[[NsqdProcess], AbstractContextManager[object]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


@contextmanager
def v2(broker: NsqdProcess) -> Iterator[object]:
    with broker.client() as consumer:
        consumer.sub("t", "c", ready=2)
        yield consumer.take(2)


@contextmanager
def v3(broker: NsqdProcess) -> Iterator[object]:
    with closing(V3Consumer(broker, "t", "c", 2)) as consumer:  # type: ignore[arg-type]  # it needs the port only
        yield [consumer.next(), consumer.next()]


@contextmanager
def events(broker: NsqdProcess) -> Iterator[object]:
    request = b"GET /v2/subscribe/events?topic=t&channel=c&max_in_flight=2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection((HOST, broker.http_port), ANSWER_SECONDS) as stream:
        stream.sendall(request)
        yield stream


@contextmanager
def poll(broker: NsqdProcess) -> Iterator[object]:
    yield broker.http("POST", "/v2/subscribe/poll?topic=t&channel=c&max=2")


@pytest.mark.parametrize("end", ["stop", "drain"])
@pytest.mark.parametrize("consume", [v2, v3, events, poll])
def test_what_is_in_flight_at_a_stop_is_delivered_once_more(start: Start, consume: Consume, end: str) -> None:
    flags = ("--requeue-on-disconnect", "--protocol=V2,V3", "--http-subscribe", "--msg-timeout=900s")
    broker = start(*flags, "--max-msg-timeout=900s")
    broker.create("t", "c")
    assert broker.http("PUT", "/v2/channel/policy?topic=t&channel=c", b'{"max_attempts": 1}').status == 200
    broker.publish("t", BODIES)
    with consume(broker):
        wait_until(lambda: broker.counts("t", "c") == Counts(0, 2, 0), "both messages are in flight")
        if end == "stop":
            broker.end_with(signal.SIGTERM)
        else:
            assert broker.http("POST", "/v2/drain?timeout=1ms").status == 200
            broker.await_end()
    broker.start()
    assert [topic["topic_name"] for topic in broker.stats() if topic["topic_name"] != "t"] == []
    messages = broker.drain("t", "c", 2)
    assert sorted((message.body, message.attempts) for message in messages) == [(body, 2) for body in BODIES]
    assert broker.counts("t", "c") == NOTHING
    assert [topic["topic_name"] for topic in broker.stats()] == ["t"]
