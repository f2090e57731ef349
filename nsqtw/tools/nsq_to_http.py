"""`nsq_to_http`: sends the messages of a topic to HTTP servers (suite specification 3.2)."""

from __future__ import annotations

import random
import re
from typing import Any
from urllib.parse import quote_plus

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.web.client import (
    Agent,
    HTTPConnectionPool,
    RedirectAgent,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)

from nsqtw import NSQ_VERSION
from nsqtw.client.message import Message
from nsqtw.errors import NsqtwError
from nsqtw.options.fields import option
from nsqtw.options.types import DURATION, INTEGER, TEXT, TEXTS
from nsqtw.tools.host_pool import EPSILON_GREEDY, HOSTPOOL, ROUND_ROBIN, make_pool
from nsqtw.tools.program import Run, Tool
from nsqtw.tools.sources import SourceOptions, consume, make_consumer, source_mistake
from nsqtw.tools.status import Status, warning

_DEFAULT_TYPE = "application/octet-stream"
_MOST_REDIRECTS = 10
_MODES = (HOSTPOOL, EPSILON_GREEDY, ROUND_ROBIN)
_REQUEST_FAILURES = (
    ConnectError,
    ConnectTimeout,
    DNSLookupError,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
    TimeoutError,
)


class RequestFailed(NsqtwError):
    """A destination did not take a message: the text says why."""


@attrs.define(kw_only=True)
class ToHttpOptions(SourceOptions):
    """The options of nsq_to_http."""

    topic: str = option(TEXT, "", "nsq topic")
    channel: str = option(TEXT, "nsq_to_http", "nsq channel")
    post: tuple[str, ...] = option(
        TEXTS, (), "HTTP address to make a POST request to. data will be in the body (may be given multiple times)"
    )
    get: tuple[str, ...] = option(
        TEXTS,
        (),
        "HTTP address to make a GET request to. '%s' will be printf replaced with data (may be given multiple times)",
    )
    header: tuple[str, ...] = option(
        TEXTS, (), "Custom header for HTTP requests, as 'Name: value' (may be given multiple times)"
    )
    content_type: str = option(TEXT, _DEFAULT_TYPE, "the Content-Type used for POST requests")
    n: int = option(INTEGER, 100, "number of concurrent publishers")
    max_in_flight: int = option(INTEGER, 200, "max number of messages to allow in flight")
    mode: str = option(
        TEXT, HOSTPOOL, "the upstream request mode options: round-robin, hostpool (default), epsilon-greedy, multicast"
    )
    sample: str = option(TEXT, "1.0", "% of messages to publish (float b/w 0.0 -> 1.0)")
    http_client_connect_timeout: float = option(DURATION, 2.0, "timeout for HTTP connect")
    http_client_request_timeout: float = option(DURATION, 20.0, "timeout for HTTP request")
    status_every: int = option(INTEGER, 250, "the # of requests between logging status (per handler), 0 disables")


def headers_of(texts: tuple[str, ...]) -> dict[str, str] | None:
    """Return the headers of `Name: value` texts, None if one is no header."""
    headers: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition(":"))
        if not name or not value:
            return None
        headers[name.title()] = value
    return headers


def share_of(text: str) -> float | None:
    """Return the number of --sample, None if it is none between 0 and 1."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None


def _mistake(options: ToHttpOptions) -> str:
    if headers_of(options.header) is None:
        return "--header value format should be 'key=value'"
    if not options.topic or not options.channel:
        return "--topic and --channel are required"
    if options.content_type != _DEFAULT_TYPE:
        if not options.post:
            return "--content-type only used with --post"
        if not options.content_type:
            return "--content-type requires a value when used"
    if found := source_mistake(options):
        return found
    if not options.get and not options.post:
        return "--get or --post required"
    if options.get and options.post:
        return "use --get or --post not both"
    if any(len(re.findall("%s", address)) != 1 for address in options.get):
        return "invalid GET address - must be a printf string"
    if share_of(options.sample) is None:
        return "ERROR: --sample must be between 0.0 and 1.0"
    return ""


class _Sender:
    """Sends messages to the destinations that the mode chooses."""

    def __init__(self, options: ToHttpOptions, run: Run) -> None:
        self._options = options
        self._run = run
        self._addresses = options.post or options.get
        self._pool = make_pool(options.mode, self._addresses, random.Random())
        self._sends_to_all = options.mode not in _MODES
        self._share = share_of(options.sample) or 0.0
        self._status = Status(options.status_every, list(self._addresses), run.say)
        self._connections = HTTPConnectionPool(run.reactor)  # type: ignore[no-untyped-call]
        self._connections.maxPersistentPerHost = options.n
        agent = Agent(  # type: ignore[no-untyped-call]
            run.reactor, connectTimeout=options.http_client_connect_timeout, pool=self._connections
        )
        from treq.client import HTTPClient

        self._client: Any = HTTPClient(RedirectAgent(agent, _MOST_REDIRECTS))
        self._headers = {"User-Agent": f"{run.name} v{NSQ_VERSION}", "Accept-Encoding": "gzip"}
        if options.post:
            self._headers["Content-Type"] = options.content_type
        self._headers.update(headers_of(options.header) or {})

    async def handle(self, message: Message) -> None:
        """Send a message. RequestFailed, which requeues it."""
        if self._share < 1.0 and random.random() > self._share:  # noqa: S311
            return
        began = self._run.reactor.seconds()
        if self._sends_to_all:
            for address in self._addresses:
                await self._send(address, message.body)
                self._status.add(address, self._run.reactor.seconds() - began)
            return
        address = self._pool.pick(began)
        try:
            await self._send(address, message.body)
        except RequestFailed:
            self._pool.failed(address, self._run.reactor.seconds())
            raise
        seconds = self._run.reactor.seconds() - began
        self._pool.succeeded(address, seconds)
        self._status.add(address, seconds)

    async def _send(self, address: str, body: bytes) -> None:
        """Make a request and read the whole answer. RequestFailed."""
        is_post = bool(self._options.post)
        url = address if is_post else address.replace("%s", quote_plus(body), 1)
        timeout = self._options.http_client_request_timeout
        done: Deferred[int] = Deferred.fromCoroutine(self._request("POST" if is_post else "GET", url, body, is_post))
        done.addTimeout(timeout, self._run.reactor, onTimeoutCancel=_timed_out)
        try:
            status = await done
        except _REQUEST_FAILURES as error:
            raise RequestFailed(f"{url}: {error}") from error
        if (is_post and not 200 <= status < 300) or (not is_post and status != 200):
            raise RequestFailed(f"got status code {status}")

    async def _request(self, method: str, url: str, body: bytes, is_post: bool) -> int:
        response = await self._client.request(method, url, headers=self._headers, data=body if is_post else None)
        await response.content()
        status: int = response.code
        return status

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.closeCachedConnections()  # type: ignore[no-untyped-call]


def _timed_out(result: object, timeout: float) -> object:
    raise TimeoutError(f"no answer in {timeout:g}s")


async def _run(options: ToHttpOptions, run: Run) -> None:
    if text := warning(options.status_every):
        run.say(text)
    sender = _Sender(options, run)
    consumer = make_consumer(
        run,
        options,
        options.topic,
        options.channel,
        sender.handle,
        max_in_flight=options.max_in_flight,
        concurrency=options.n,
    )
    try:
        await consume(run, [consumer])
    finally:
        await sender.close()


TOOL = Tool("nsq_to_http", "send the messages of a topic to HTTP servers", ToHttpOptions, _mistake, _run)
main = TOOL.main
