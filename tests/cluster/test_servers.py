"""Servers that answer wrongly, late, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from nsqtw.cluster import http
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.credentials import ClusterCredentials
from nsqtw.cluster.http import Timeouts
from nsqtw.errors import NoServerAnswered, Unsupported
from tests.cluster.reactor import run
from tests.process import ReservedPort
from tests.wire import ANSWER_SECONDS, HOST

Answers = Callable[[str], bytes | None]
"""The answer to the head of a request; None for none."""


@contextmanager
def server(answers: Answers) -> Iterator[tuple[str, list[str]]]:
    """Run a server that takes one request a connection; its address, and the heads of the requests."""
    heads: list[str] = []
    kept: list[socket.socket] = []
    listening = socket.create_server((HOST, 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.settimeout(ANSWER_SECONDS)
            head = b""
            while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
                head += piece
            heads.append(head.decode())
            answer = answers(head.decode())
            if answer is None:
                kept.append(connection)
                continue
            with suppress(OSError):
                connection.sendall(answer)
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"{HOST}:{listening.getsockname()[1]}", heads
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for connection in kept:
            connection.close()


def answer(document: object, status: str = "200 OK", *fields: str) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


def ask(address: str, method: str, *arguments: Any, credentials: ClusterCredentials | None = None, **more: Any) -> Any:
    async def test(reactor: Any) -> Any:
        timeouts = more.pop("timeouts", Timeouts(ANSWER_SECONDS, ANSWER_SECONDS))
        cluster = Cluster(reactor, nsqds=[address], credentials=credentials, timeouts=timeouts)
        try:
            return await getattr(cluster, method)(*arguments, **more)
        finally:
            await cluster.close()

    return run(test)


def test_no_answer_in_time() -> None:
    with server(lambda head: None) as (address, _):
        with pytest.raises(NoServerAnswered, match=f'Get "http://{address}/stats": no answer within 0.2s'):
            ask(address, "topics", timeouts=Timeouts(ANSWER_SECONDS, 0.2))


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"", "the connection was closed before the end of the answer"),
        (answer({"topics": []})[:-1], "the connection was closed before the end of the answer"),
        (b"no HTTP\r\n\r\n", "the answer is no HTTP"),
        (answer({}, "500 Internal Server Error"), "got response 500 Internal Server Error"),
        (answer({}, "302 Found", "Location: http://elsewhere.example/"), "got response 302 Found"),
        (answer(b"<html>"), "the answer is no JSON"),
        (answer([]), "the answer is no JSON object"),
        (answer({"topics": 5}), "the answer has another type at 'topics'"),
        (answer({}, "403 Forbidden"), "got response 403 Forbidden"),
        (answer({"https_port": -1}, "403 Forbidden"), "got response 403 Forbidden"),
        (answer({"message": "NOT_FOUND"}, "404 Not Found"), "got response 404 Not Found"),
    ],
)
def test_a_wrong_answer(sent: bytes, text: str) -> None:
    with server(lambda head: sent) as (address, _), pytest.raises(NoServerAnswered) as caught:
        ask(address, "topics")
    assert str(caught.value).startswith("failed to query any nsqd: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("sent", "is_unknown"),
    [(None, True), (b"", True), (b"no HTTP\r\n\r\n", True), (answer({}, "500 Internal Server Error"), False)],
)
def test_a_change_without_an_answer_may_have_been_made(sent: bytes | None, is_unknown: bool) -> None:
    info = {"broadcast_address": HOST, "hostname": "h", "tcp_port": 1, "version": "1.3.0", "topics": []}

    def nsqd(head: str) -> bytes | None:
        if head.startswith("POST "):
            return sent
        return answer({**info, "http_port": int(address.rpartition(":")[2])})

    with server(nsqd) as (address, _):
        with pytest.raises(NoServerAnswered) as caught:
            ask(address, "publish", "t", b"x", timeouts=Timeouts(ANSWER_SECONDS, 1))
        created = ask(address, "create", "t", timeouts=Timeouts(ANSWER_SECONDS, 1))
    assert caught.value.is_outcome_unknown is is_unknown
    assert (created.value, created.is_outcome_unknown) == ((), is_unknown)


def test_a_query_and_a_change_that_is_not_sent_have_a_known_outcome() -> None:
    with server(lambda head: b"") as (address, _), pytest.raises(NoServerAnswered) as caught:
        ask(address, "topics")
    assert not caught.value.is_outcome_unknown
    port = ReservedPort()
    created = ask(f"{HOST}:{port.number}", "create", "t")
    assert (created.value, created.is_outcome_unknown) == ((), False)
    port.release()


def test_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1000)
    with server(lambda head: answer(b"x" * 2000)) as (address, _):
        with pytest.raises(NoServerAnswered, match="the answer has more than 1000 bytes"):
            ask(address, "topics")


def test_the_headers_of_a_request() -> None:
    with server(lambda head: answer({"topics": []})) as (address, heads):
        ask(address, "topics")
    (head,) = heads
    assert head.startswith("GET /stats?format=json&")
    assert "Accept: application/vnd.nsq; version=1.0" in head
    assert "Authorization" not in head


def test_what_another_nsqd_cannot_do() -> None:
    info = {"broadcast_address": HOST, "hostname": "h", "tcp_port": 1, "version": "1.3.0"}

    def original(head: str) -> bytes:
        path = head.split()[1].partition("?")[0]
        port = int(head.partition("Host: ")[2].split("\r\n")[0].rpartition(":")[2])
        known = {"/info": {**info, "http_port": port}, "/stats": {"topics": [{"topic_name": "t"}]}}
        return answer(known[path]) if path in known else answer({"message": "NOT_FOUND"}, "404 Not Found")

    with server(original) as (address, _):
        for method, arguments in (
            ("messages", ("t", "c")),
            ("seek", ("t", "c", "earliest")),
            ("set_durability", ("t", "os")),
        ):
            with pytest.raises(Unsupported, match="only nsqd of nsqtw can do this"):
                ask(address, method, *arguments)
        topic = ask(address, "topic", "t").value
    assert (topic.durability, topic.retention, topic.oldest_message_age) == (None, None, None)


def test_a_dry_run_never_moves_a_channel_of_an_nsqd_that_does_not_know_it() -> None:
    """Such an nsqd of nsqtw would ignore the parameter, and move the channel."""
    info = {"broadcast_address": HOST, "hostname": "h", "tcp_port": 1, "http_port": 1, "version": "1.3.0"}
    parameters = [{"name": name, "in": "query"} for name in ("topic", "channel", "to")]
    description: dict[str, Any] = {"paths": {"/v2/channel/seek": {"post": {"parameters": parameters}}}}
    known = {
        "/info": info,
        "/stats": {"topics": [{"topic_name": "t"}]},
        "/v2/openapi.json": description,
        "/v2/channel/seek": {"position": 1, "skipped": 2, "replayed": 3, "depth": 4},
    }

    def seek(address: str) -> Any:
        return ask(address, "seek", "t", "c", "earliest", is_dry_run=True)

    with server(lambda head: answer(known[head.split()[1].partition("?")[0]])) as (address, heads):
        with pytest.raises(Unsupported):
            seek(address)
        description["paths"] = "nonsense"
        with pytest.raises(Unsupported):
            seek(address)
        assert not any(head.startswith("POST") for head in heads)
        description["paths"] = {"/v2/channel/seek": {"post": {"parameters": [*parameters, {"name": "dry_run"}]}}}
        assert [move.replayed for move in seek(address).value] == [3]
        assert sum(head.startswith("POST /v2/channel/seek?") and "dry_run=true" in head for head in heads) == 1


# -- secrets

SECRET = ClusterCredentials(nsqd_secret="word")


def wants_a_secret(head: str) -> bytes:
    if "Authorization: Bearer word" in head:
        return answer({"topics": []})
    return answer({"message": "CREDENTIAL_REQUIRED"}, "401 Unauthorized")


def test_a_secret_is_sent_only_when_it_is_asked_for() -> None:
    with server(wants_a_secret) as (address, heads):
        assert ask(address, "topics", credentials=SECRET).value == ()
    assert ["word" in head for head in heads] == [False, True]
    with server(lambda head: answer({"topics": []})) as (address, heads):
        ask(address, "topics", credentials=SECRET)
    assert ["word" in head for head in heads] == [False]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_secret_is_not_sent_to_an_address_that_only_an_nsqlookupd_names(
    monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """As if the address of the nsqd were one of another machine."""
    monkeypatch.setattr(http, "is_loopback", lambda host: False)
    nsqd: list[str] = []

    def lookupd(head: str) -> bytes:
        port = int(nsqd[0].rpartition(":")[2])
        return answer({"producers": [{"broadcast_address": HOST, "http_port": port, "tcp_port": 1, "hostname": "h"}]})

    with server(wants_a_secret) as (address, heads), server(lookupd) as (lookupd_address, _):
        nsqd.append(address)

        async def test(reactor: Any) -> None:
            credentials = ClusterCredentials(nsqd_secret="word", sends_secrets_in_plain=is_open)
            cluster = Cluster(reactor, lookupds=[lookupd_address], credentials=credentials)
            with suppress(NoServerAnswered):
                await cluster.counter()
            await cluster.close()

        run(test)
    assert any("word" in head for head in heads) == is_open
