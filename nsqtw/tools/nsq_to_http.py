"""
`nsq_to_http`: sends the messages of a topic to HTTP servers.

Beyond the original: a POST that is answered with 301 or 302 failed. The original goes on with a GET there, and finishes
a message that nobody got.
"""

from __future__ import annotations

import random
import re
from http import HTTPStatus
from urllib.parse import quote_plus, urljoin, urlsplit

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.web.client import RequestTransmissionFailed, ResponseFailed, ResponseNeverReceived
from twisted.web.error import SchemeNotSupported

from nsqtw import NSQ_VERSION
from nsqtw.client.message import Message
from nsqtw.errors import NsqtwError
from nsqtw.gocompat.json import parse_float
from nsqtw.http.client import make_client, skip_body
from nsqtw.http.failures import reason_of
from nsqtw.http.kept_connections import AT_LEAST_ONCE, KeptConnections
from nsqtw.options.fields import option
from nsqtw.options.types import BOOLEAN, DURATION, INTEGER, TEXT, TEXTS, Kind
from nsqtw.tools.destinations import EPSILON_GREEDY, HOSTPOOL, ROUND_ROBIN, Status, make_pool, status_warning
from nsqtw.tools.program import Run, Tool
from nsqtw.tools.sources import SourceOptions, consume, make_consumer, source_mistake

_DEFAULT_TYPE = "application/octet-stream"
_MOST_REQUESTS = 10
"""Requests for one message, of which all but the first follow redirects."""
_IDLE_SECONDS = 60.0
_REPEATED = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
_SEEN = (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER)
_PLACE = re.compile("%%|%s")
_MODES = (HOSTPOOL, EPSILON_GREEDY, ROUND_ROBIN)
_REQUEST_FAILURES = (
    ConnectError,
    ConnectTimeout,
    DNSLookupError,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
    SchemeNotSupported,
    TimeoutError,
    ValueError,  # of a URL that is none
)
SHARE = Kind(
    word="number", form="a number between 0.0 and 1.0", parse=parse_float, coerce=lambda value: parse_float(str(value))
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
    no_redirect: bool = option(BOOLEAN, False, "take an answer that redirects for a failure")
    content_type: str = option(TEXT, _DEFAULT_TYPE, "the Content-Type used for POST requests")
    n: int = option(INTEGER, 100, "number of concurrent publishers")
    max_in_flight: int = option(INTEGER, 200, "max number of messages to allow in flight")
    mode: str = option(
        TEXT, HOSTPOOL, "the upstream request mode options: round-robin, hostpool (default), epsilon-greedy, multicast"
    )
    sample: float = option(SHARE, 1.0, "% of messages to publish (float b/w 0.0 -> 1.0)")
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


def url_parts(template: str) -> list[str]:
    """Return what stands around the `%s` of a GET address, where `%%` is `%`: two parts, if it has one `%s`."""
    parts = [""]
    end = 0
    for match in _PLACE.finditer(template):
        parts[-1] += template[end : match.start()]
        end = match.end()
        if match[0] == "%s":
            parts.append("")
        else:
            parts[-1] += "%"
    parts[-1] += template[end:]
    return parts


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
    if any(len(url_parts(address)) != 2 for address in options.get):
        return "invalid GET address - must be a printf string"
    if not 0.0 <= options.sample <= 1.0:
        return "ERROR: --sample must be between 0.0 and 1.0"
    if options.n <= 0:  # the original finds no handlers later
        return "--n should be positive"
    return ""


class Sender:
    """Sends messages to the destinations that the mode chooses."""

    def __init__(self, options: ToHttpOptions, run: Run) -> None:
        self._options = options
        self._run = run
        self._addresses = options.post or options.get
        self._pool = make_pool(options.mode, self._addresses, random.Random())
        self._sends_to_all = options.mode not in _MODES
        self._status = Status(options.status_every, list(self._addresses), run.say)
        self._connections = KeptConnections(run.reactor, options.n, _IDLE_SECONDS, AT_LEAST_ONCE)
        self._client = make_client(run.reactor, options.http_client_connect_timeout, pool=self._connections)
        self._url_parts = {address: url_parts(address) for address in options.get}
        self._headers = {"User-Agent": f"{run.name} v{NSQ_VERSION}", "Accept-Encoding": "gzip"}
        if options.post:
            self._headers["Content-Type"] = options.content_type
        self._own_headers = headers_of(options.header) or {}
        """Those of --header, for the hosts that the user has named."""
        self._headers.update(self._own_headers)

    async def handle(self, message: Message) -> None:
        """Send a message. RequestFailed, which requeues it."""
        share = self._options.sample
        if share < 1.0 and random.random() > share:
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
        if self._options.post:
            method, url = "POST", address
        else:
            method, url = "GET", quote_plus(body).join(self._url_parts[address])
        done: Deferred[int] = Deferred.fromCoroutine(self._request(method, url, body if method == "POST" else None))
        timeout = self._options.http_client_request_timeout
        done.addTimeout(timeout, self._run.reactor, onTimeoutCancel=_timed_out)
        try:
            status = await done
        except _REQUEST_FAILURES as error:
            raise RequestFailed(f"{url}: {reason_of(error)}") from error
        if (method == "POST" and not 200 <= status < 300) or (method == "GET" and status != 200):
            raise RequestFailed(f"got status code {status}")

    async def _request(self, method: str, url: str, body: bytes | None) -> int:
        """Make a request, and those that it is redirected to. Returns the last status."""
        headers = dict(self._headers)
        host = urlsplit(url).netloc
        for _ in range(_MOST_REQUESTS):
            response = await self._client.request(method, url, headers, body)
            await skip_body(response)
            status = int(response.code)
            location = response.headers.getRawHeaders("Location")
            if self._options.no_redirect or not location or status not in (*_REPEATED, *_SEEN):
                return status
            if status in _SEEN and method == "POST":
                if status != HTTPStatus.SEE_OTHER:
                    raise RequestFailed(f"{url}: got status code {status}: the message belongs to {location[0]}")
                method, body = "GET", None
            url = urljoin(url, location[0])
            if urlsplit(url).netloc != host:
                headers = {name: value for name, value in headers.items() if name not in self._own_headers}
        raise RequestFailed(f"{url}: more than {_MOST_REQUESTS} redirects")

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.closeCachedConnections()  # type: ignore[no-untyped-call]


def _timed_out(result: object, timeout: float) -> object:
    raise TimeoutError(f"no answer in {timeout:g}s")


async def _run(options: ToHttpOptions, run: Run) -> None:
    if text := status_warning(options.status_every):
        run.say(text)
    sender = Sender(options, run)
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
