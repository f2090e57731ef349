"""Servers that answer wrongly, late, or not at all."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nsqtw.cluster import http
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.http import Timeouts
from nsqtw.errors import NoServerAnswered, Unsupported
from tests.cluster.answering import answer, ask, server
from tests.cluster.reactor import run
from tests.process import ReservedPort
from tests.wire import ANSWER_SECONDS, HOST


def test_no_answer_in_time() -> None:
    with (
        server(lambda head: None) as (address, _),
        pytest.raises(NoServerAnswered, match=f'Get "http://{address}/stats": no answer within 0.2s'),
    ):
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
    with (
        server(lambda head: answer(b"x" * 2000)) as (address, _),
        pytest.raises(NoServerAnswered, match="the answer has more than 1000 bytes"),
    ):
        ask(address, "topics")


def test_large_answers_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LARGE_BYTES", 0)
    reading: list[int] = []
    at_once: list[int] = []

    def read(document: object) -> None:
        reading.append(1)
        at_once.append(len(reading))
        time.sleep(0.01)
        reading.pop()

    async def test(reactor: Any) -> None:
        requests = Cluster(reactor, nsqds=["127.0.0.1:1"]).requests
        answers = [http.ServerAnswer("nsqd", "", b"{}") for _ in range(8)]
        await http.ask_all([requests.read(each, read) for each in answers])
        await requests.close()

    run(test)
    assert at_once == [1] * 8


def test_the_bytes_of_answers_that_were_read_count_no_more() -> None:
    with server(lambda head: answer({"topics": [], "pad": "x" * 60_000})) as (address, _):

        async def test(reactor: Any) -> None:
            cluster = Cluster(reactor, nsqds=[address])
            for _ in range(5):
                await cluster.topics()
            assert cluster.requests.budget.used == 0
            await cluster.close()

        run(test)


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
            ("cancel", ("t", "0" * 16)),
            ("set_durability", ("t", "os")),
            ("policy", ("t",)),
        ):
            with pytest.raises(Unsupported, match="only nsqd of nsqtw can do this"):
                ask(address, method, *arguments)
        [refused] = ask(address, "policy_answers", "t", "", {"message_ttl": "1h"}, is_dry_run=True).value
        assert refused.refusal == "has no policies; only nsqd of nsqtw has them"
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


@pytest.mark.parametrize(
    "host", ["[", "]", "[::1", "a b", "a\n", "\x00", "é", "a/../b", "a?b", "a#b", "u@b", "%", "", ":"]
)
@pytest.mark.parametrize("port", [-1, 0, 70000, 2**62])
def test_a_node_with_an_address_that_is_none_is_a_warning(host: str, port: int) -> None:
    with server(lambda head: answer({"topics": []})) as (good, _):
        fields = {"tcp_port": 1, "hostname": "h", "version": "1.3.0"}
        named = [
            {**fields, "broadcast_address": host, "http_port": port},
            {**fields, "broadcast_address": HOST, "http_port": int(good.rpartition(":")[2])},
        ]
        with server(lambda head: answer({"producers": named})) as (lookupd, _):

            async def test(reactor: Any) -> Any:
                cluster = Cluster(reactor, lookupds=[lookupd])
                try:
                    return await cluster.stats()
                finally:
                    await cluster.close()

            found = run(test)
    assert [node.node.http_address for node in found.value.nodes] == [good]
    assert len(found.warnings) == 1
