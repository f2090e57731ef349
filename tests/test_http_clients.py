"""
Every HTTP client with every server that closes connections: each request has an answer, none without one counts as
done, and none is processed twice where that is not the contract.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import trustme
from pyspark_nsq.http.attempt import Requester
from pyspark_nsq.http.connections import shared_connections
from pyspark_nsq.options.security import Security
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.task import deferLater

from nsqtw.auth.http import HttpAuthorizer
from nsqtw.cli import stdlib_http
from nsqtw.cli.contexts import ClusterAccess
from nsqtw.client.asyncio import AsyncioLoop
from nsqtw.client.http import HttpQuery
from nsqtw.client.message import Message
from nsqtw.client.twisted import TwistedLoop
from nsqtw.cluster.credentials import ClusterCredentials
from nsqtw.cluster.http import NSQD, ServerRequests, Timeouts
from nsqtw.discovery.channels import ChannelQuery
from nsqtw.http.client import make_client, read_body
from nsqtw.http.kept_connections import IDEMPOTENT, KeptConnections
from nsqtw.options.broker import Options
from nsqtw.rights import Credentials
from nsqtw.tools.backup.hold import Hold
from nsqtw.tools.nsq_to_http import RequestFailed, Sender, ToHttpOptions
from nsqtw.tools.program import Run
from tests.closing_servers import FAILING, SERVERS, ClosingServer, closing_server
from tests.cluster.answering import answer
from tests.cluster.answering import server as answering_server
from tests.cluster.reactor import run
from tests.process import wait_until
from tests.wire import ANSWER_SECONDS

AT_ONCE = 3
COUNT = 4 * AT_ONCE


class Client(NamedTuple):
    """
    A client of one server. `ask` makes a request that has a name in its target or body, and raises any error when it
    has no good answer.
    """

    ask: Callable[[str], Awaitable[object]]
    close: Callable[[], Any] = lambda: None


class Kind(NamedTuple):
    """
    A kind of client. `make` makes one on a reactor for a server, host:port, that answers with `body`. With `repeats`,
    a server may get a request again that it has processed.
    """

    make: Callable[[Any, str], Client]
    body: bytes
    repeats: bool


KINDS: dict[str, Kind] = {}


def kind(
    name: str, *, body: bytes = b"OK", repeats: bool = True
) -> Callable[[Callable[[Any, str], Client]], Callable[[Any, str], Client]]:
    def add(make: Callable[[Any, str], Client]) -> Callable[[Any, str], Client]:
        KINDS[name] = Kind(make, body, repeats)
        return make

    return add


def to_http(reactor: Any, **named: Any) -> Client:
    sender = Sender(ToHttpOptions(n=AT_ONCE, status_every=0, **named), Run("nsq_to_http", reactor))

    async def ask(name: str) -> None:
        await sender.handle(Message(None, 0, 1, b"0" * 16, name.encode()))  # type: ignore[arg-type]

    return Client(ask, sender.close)


@kind("nsq_to_http --post")
def to_http_post(reactor: Any, address: str) -> Client:
    return to_http(reactor, post=(f"http://{address}/",))


@kind("nsq_to_http --get")
def to_http_get(reactor: Any, address: str) -> Client:
    return to_http(reactor, get=(f"http://{address}/?name=%s",))


def to_servers(reactor: Any) -> ServerRequests:
    return ServerRequests(reactor, ClusterCredentials(), Timeouts(ANSWER_SECONDS, ANSWER_SECONDS))


@kind("queries of the cluster")
def cluster_get(reactor: Any, address: str) -> Client:
    requests = to_servers(reactor)
    return Client(lambda name: requests.get(NSQD, address, "/stats", {"topic": name}), requests.close)


@kind("changes of the cluster", repeats=False)
def cluster_post(reactor: Any, address: str) -> Client:
    requests = to_servers(reactor)
    return Client(lambda name: requests.post(NSQD, address, "/pub", {"topic": "t"}, name.encode()), requests.close)


@kind("notifications and graphite", repeats=False)
def plain_client(reactor: Any, address: str) -> Client:
    made = make_client(reactor, ANSWER_SECONDS)

    async def ask(name: str) -> None:
        response = await made.request("POST", f"http://{address}/", body=name.encode())
        await read_body(response, 1000, ValueError)

    return Client(ask)


@kind("nsqd of nsqlookupd", body=b'{"channels": []}')
def channel_query(reactor: Any, address: str) -> Client:
    query = ChannelQuery(reactor, Options(http_client_connect_timeout=ANSWER_SECONDS))
    return Client(lambda name: query.ask(address, name, "", ""))


@kind("auth servers", body=b'{"ttl": 1, "authorizations": [{"topic": ".*"}]}')
def auth_servers(reactor: Any, address: str) -> Client:
    options = Options(http_client_request_timeout=ANSWER_SECONDS)
    authorizer = HttpAuthorizer(reactor, [address], options, make_client(reactor, ANSWER_SECONDS))
    return Client(lambda name: authorizer.authorize(Credentials(name.encode()), lambda *_: None))


@kind("the client on Twisted", repeats=False)
def query_on_twisted(reactor: Any, address: str) -> Client:
    async def ask(name: str) -> None:
        query = HttpQuery(TwistedLoop(reactor), f"http://{address}/", method="POST", body=name.encode())
        await query.run(ANSWER_SECONDS, ANSWER_SECONDS)

    return Client(ask)


@kind("the client on asyncio", repeats=False)
def query_on_asyncio(reactor: Any, address: str) -> Client:
    def ask(name: str) -> Deferred[None]:
        async def run_query() -> None:
            query = HttpQuery(AsyncioLoop(), f"http://{address}/", method="POST", body=name.encode())
            await query.run(ANSWER_SECONDS, ANSWER_SECONDS)

        asyncio.run(run_query())
        return succeed(None)

    return Client(ask)


@kind("the command line", repeats=False)
def command_line(reactor: Any, address: str) -> Client:
    access = ClusterAccess(nsqd_http_addresses=(address,))

    def ask(name: str) -> Deferred[None]:
        stdlib_http.get(access, address, f"/{name}", ANSWER_SECONDS)
        return succeed(None)

    return Client(ask)


HELD = json.dumps({"hold": 1, "data_path": "/"}).encode()


@kind("nsqtw backup", body=HELD, repeats=False)
def backup(reactor: Any, address: str) -> Client:
    def ask(name: str) -> Deferred[None]:
        Hold(address)._ask(name, "")
        return succeed(None)

    return Client(ask)


def spark(reactor: Any, address: str, ask: Callable[[Requester, str], Awaitable[object]]) -> Client:
    # Connections are shared by all with the same secret.
    security = Security(auth_secret=address, verify=False)
    requester = Requester(reactor, security, int(ANSWER_SECONDS * 1000), AT_ONCE)
    pool, _ = shared_connections(reactor, security)
    return Client(lambda name: ask(requester, name), pool.closeCachedConnections)


@kind("the sink of Spark")
def spark_post(reactor: Any, address: str, scheme: str = "http") -> Client:
    return spark(reactor, address, lambda requester, name: requester.post(f"{scheme}://{address}/mpub", name.encode()))


@kind("the readers of Spark")
def spark_get(reactor: Any, address: str) -> Client:
    return spark(reactor, address, lambda requester, name: requester.get(f"http://{address}/{name}"))


def ask_all(kind: Kind, server: ClosingServer) -> dict[str, Exception | None]:
    """Make COUNT requests, AT_ONCE at the same time. Returns the error of each, by its name."""
    names = [f"m{number:02}" for number in range(COUNT)]
    outcomes: dict[str, Exception | None] = {}

    async def test(reactor: Any) -> None:
        own = reactor.getReaders()
        client = kind.make(reactor, server.address)

        async def use(some: list[str]) -> None:
            for name in some:
                try:
                    await client.ask(name)
                    outcomes[name] = None
                except Exception as error:
                    outcomes[name] = error

        await gatherResults([Deferred.fromCoroutine(use(names[first::AT_ONCE])) for first in range(AT_ONCE)])
        ended = client.close()
        if ended is not None:
            await ended
        while len(reactor.getReaders()) > len(own) or reactor.getWriters():  # connections that are being closed
            await deferLater(reactor, 0.001)

    run(test)
    assert sorted(outcomes) == names
    return outcomes


def count_of(name: str, requests: list[tuple[str, bytes]]) -> int:
    return sum(name in target or name.encode() in body for target, body in requests)


def assert_all_answered(kind: Kind, server: ClosingServer) -> None:
    outcomes = ask_all(kind, server)
    assert {name: error for name, error in outcomes.items() if error is not None} == {}
    assert all(count_of(name, server.answered) == 1 for name in outcomes), server.answered
    if not kind.repeats:
        assert len(server.received) == COUNT


@pytest.mark.parametrize("behaviour", SERVERS)
@pytest.mark.parametrize("name", KINDS)
def test_every_request_has_an_answer(name: str, behaviour: str) -> None:
    with closing_server(SERVERS[behaviour], KINDS[name].body) as server:
        assert_all_answered(KINDS[name], server)


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("behaviour", SERVERS)
def test_every_request_has_an_answer_over_tls(tls: ssl.SSLContext, behaviour: str) -> None:
    with closing_server(SERVERS[behaviour], b"OK", tls) as server:
        assert_all_answered(Kind(partial(spark_post, scheme="https"), b"OK", repeats=True), server)


@pytest.mark.parametrize("over_tls", [False, True])
def test_connections_are_kept(tls: ssl.SSLContext, over_tls: bool) -> None:
    """The servers above answer one request a connection as well as many."""
    with closing_server(SERVERS["keeps connections"], b"OK", tls if over_tls else None) as server:
        ask_all(Kind(partial(spark_post, scheme="https" if over_tls else "http"), b"OK", repeats=True), server)
    assert server.connections == AT_ONCE


def test_a_connection_whose_end_was_not_read_yet_is_not_used() -> None:
    """So it does not matter that a POST is not repeated."""

    async def test(reactor: Any) -> None:
        pool = KeptConnections(reactor, 1, ANSWER_SECONDS, IDEMPOTENT)
        made = make_client(reactor, ANSWER_SECONDS, pool=pool)
        for _ in range(3):
            response = await made.request("POST", f"http://{server.address}/", body=b"x")
            await read_body(response, 1000, ValueError)
            wait_until(lambda: server.closed == server.connections, "the server has closed")  # the reactor waits, too
        await pool.closeCachedConnections()  # type: ignore[no-untyped-call]

    with closing_server(SERVERS["closes in silence"]) as server:
        run(test)
    assert (len(server.received), server.connections) == (3, 3)


@pytest.mark.parametrize("behaviour", FAILING)
@pytest.mark.parametrize("name", KINDS)
def test_no_request_without_an_answer_counts_as_done(name: str, behaviour: str) -> None:
    kind = KINDS[name]
    with closing_server(FAILING[behaviour], kind.body) as server:
        outcomes = ask_all(kind, server)
    assert {type(error).__name__ for error in outcomes.values()} <= EXPECTED, outcomes
    assert len(server.received) <= COUNT, "a request on a new connection was not repeated"


EXPECTED = {
    *("AttemptFailed", "AuthError", "BackendError", "ConnectFailed", "LookupFailed", "OutcomeUnknown"),
    *("RequestFailed", "ServerFailed"),
    *("ConnectionDone", "ConnectionLost", "ResponseFailed", "ResponseNeverReceived", "ValueError"),
}
"""What clients raise: their own errors, and those of Twisted where the caller converts them."""


@pytest.mark.parametrize("is_followed", [True, False])
def test_headers_of_nsq_to_http_do_not_follow_a_redirect_to_another_host(is_followed: bool) -> None:
    heads: list[str] = []

    def answers(head: str) -> bytes:
        heads.append(head)
        return answer({}) if "/there" in head else answer({}, "307 Away", f"Location: http://{address}/there")

    async def test(reactor: Any) -> None:
        post = f"http://localhost:{address.rpartition(':')[2]}/here"
        made = to_http(reactor, post=(post,), header=("X-Key: secret",), no_redirect=not is_followed)
        try:
            await made.ask("m")
        except RequestFailed as error:
            assert not is_followed and str(error) == "got status code 307"
        await made.close()

    with answering_server(answers) as (address, _):
        run(test)
    assert ["X-Key: secret" in head for head in heads] == [True, False][: 1 + is_followed]
