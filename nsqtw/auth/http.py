"""
The authorizer `http`, which asks auth servers over HTTP as nsqd does.

    GET /auth?common_name=&remote_ip=10.0.0.1&secret=...&tls=false          or POST, the same as JSON

    {"ttl": 60, "identity": "mail", "identity_url": "https://...",
     "authorizations": [{"topic": "^orders$", "channels": [".*"], "permissions": ["subscribe", "publish"]}]}

Theory of operation. The servers are asked one after the other, from a random one on, until one gives rights; each has
`--http-client-request-timeout` for its whole answer. The answer of a server is bounded: it is cut off at a size, never
unpacked, and its contents are limited (`grants`). Redirects are followed as nsqd does, but not from HTTPS to HTTP,
which would show the secret to the network. Over HTTPS a server needs a certificate of `--tls-root-ca-file`, or of the
system's authorities.

JSON is read as nsqd reads it: keys match in any case, null or a missing key is empty, and types are exact.

No secret is logged: the log has the configured URL without a password, and not the URL that was asked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import SplitResult, quote_plus, urljoin, urlsplit

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.web.http_headers import Headers
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer, provider

from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.http.client import HttpClient, make_client, read_body
from nsqtw.http.failures import reason_of
from nsqtw.interfaces import IAuthorizer, IAuthorizerFactory, OperatorLog
from nsqtw.net.tls_client import authorities_in, tls_to
from nsqtw.options.addresses import MAX_PORT, join_host_port
from nsqtw.options.broker import Options
from nsqtw.options.redaction import without_password
from nsqtw.rights import Answer, Credentials
from nsqtw.runtime.reactor import Reactor

MAX_REQUESTS = 256
"""Applicants that are asked about at the same time; more wait for their turn."""

_ACCEPT = "application/vnd.nsq; version=1.0"
_SCHEMES = ("http", "https")
_MAX_REDIRECTS = 10
_AS_IT_WAS = (307, 308)
_AS_GET = (301, 302, 303)
_REFUSALS = (401, 403)


@attrs.frozen
class Request:
    """A request: a method, a URL and perhaps a body."""

    method: str
    url: str = attrs.field(repr=False)
    body: bytes | None = attrs.field(default=None, repr=False)


@implementer(IAuthorizer)
class HttpAuthorizer:
    """Asks one of `addresses` of the auth servers. `client` sends the requests."""

    def __init__(self, reactor: Reactor, addresses: Iterable[str], options: Options, client: HttpClient) -> None:
        self._reactor = reactor
        self._addresses = list(addresses)
        self._method = options.auth_http_request_method
        self._timeout = options.http_client_request_timeout
        self._client = client
        self._turns = DeferredSemaphore(MAX_REQUESTS)
        self._random = random.SystemRandom()

    async def authorize(self, credentials: Credentials, answer: Answer) -> Grants:
        """IAuthorizer API."""
        await self._turns.acquire()
        try:
            return await self._ask_any(credentials)
        finally:
            self._turns.release()

    def reload(self) -> bool:
        """IAuthorizer API. The servers say themselves, by the TTL, how long what they say holds."""
        return False

    def close(self) -> None:
        """IAuthorizer API."""

    # -- inside

    async def _ask_any(self, credentials: Credentials) -> Grants:
        errors: list[str] = []
        is_refused = True
        start = self._random.randrange(len(self._addresses))
        for address in self._addresses[start:] + self._addresses[:start]:
            try:
                return await self._ask(address, credentials)
            except AuthError as error:
                errors.append(f"failed to auth against {without_password(address)} - {error}")
                is_refused = is_refused and isinstance(error, AuthRefused)
        raise (AuthRefused if is_refused else AuthError)("; ".join(errors))

    async def _ask(self, address: str, credentials: Credentials) -> Grants:
        """Return the answer of one server. AuthError."""
        request = first_request(address, self._method, credentials)
        asking = Deferred.fromCoroutine(self._exchange(request))
        asking.addTimeout(self._timeout, self._reactor, _on_timeout)
        try:
            return grants_in(await asking)
        except (AuthError, CancelledError):
            raise
        except Exception as failure:  # any failure of the connection
            raise AuthError(reason_of(failure, request.url)) from None

    async def _exchange(self, request: Request) -> bytes:
        """The body of the answer, which is a good one."""
        for _ in range(_MAX_REDIRECTS + 1):
            status, headers, body = await self._send(request)
            if status == 200:
                return body
            location = headers.getRawHeaders("Location", [""])[0]
            if status in _AS_IT_WAS + _AS_GET and location:
                request = redirected(request, location, status)
            elif status == 403 and request.url.startswith("http:") and (port := https_port_in(body)):
                request = over_https(request, port)
            else:
                raise (AuthRefused if status in _REFUSALS else AuthError)(f"got response {status}")
        raise AuthError(f"stopped after {_MAX_REDIRECTS} redirects")

    async def _send(self, request: Request) -> tuple[int, Headers, bytes]:
        headers = {"Accept": _ACCEPT}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        response = await self._client.request(request.method, request.url, headers, request.body)
        return response.code, response.headers, await read_body(response, MAX_ANSWER_BYTES, AuthError)


def first_request(address: str, method: str, credentials: Credentials) -> Request:
    """Return the first request about a client. An address with `://` is a URL, any other a host and perhaps a port."""
    url = address if "://" in address else f"http://{address}/auth"
    fields: dict[str, str | bytes] = {
        "common_name": credentials.common_name,
        "remote_ip": credentials.remote_ip,
        "secret": credentials.secret,
        "tls": "true" if credentials.is_tls else "false",
    }
    if method == "post":
        values = {k: [v.decode("utf-8", "replace") if isinstance(v, bytes) else v] for k, v in fields.items()}
        return Request("POST", url, json.dumps(values).encode())
    return Request("GET", url + "?" + "&".join(f"{key}={quote_plus(value)}" for key, value in fields.items()))


def redirected(request: Request, location: str, status: int) -> Request:
    """Return the request that follows a redirect. AuthError when it is not allowed."""
    try:
        url = urljoin(request.url, location)
    except ValueError:
        raise AuthError("redirected to what is no URL") from None
    parts = _split(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise AuthError("redirected to what is no URL of HTTP")
    if request.url.startswith("https:") and parts.scheme == "http":
        raise AuthError("redirected from HTTPS to HTTP")
    if status in _AS_GET:
        return Request("GET", url)
    return attrs.evolve(request, url=url)


def over_https(request: Request, port: int) -> Request:
    """Return the same request on another port, with HTTPS."""
    parts = _split(request.url)
    user, at, _ = parts.netloc.rpartition("@")
    netloc = f"{user}{at}{join_host_port(parts.hostname or '', port)}"
    return attrs.evolve(request, url=parts._replace(scheme="https", netloc=netloc).geturl())


def _on_timeout(outcome: object, seconds: float) -> None:
    """Whatever a connection says when it is given up."""
    raise AuthError(f"no answer in {seconds:g} s")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for one that is none
    except ValueError:
        raise AuthError("is no URL") from None
    return parts


@provider(IAuthorizerFactory)
class HttpFactory:
    """Makes it."""

    name = "http"
    summary = "asks auth servers over HTTP, nsqd's way"
    argument_format = "host:port or URL of an auth server, several with commas; --auth-http-address adds more"

    @staticmethod
    def open(argument: str, options: Options, log: OperatorLog) -> HttpAuthorizer:
        """IAuthorizerFactory API."""
        from twisted.internet import reactor

        addresses = [item.strip() for item in argument.split(",") if item.strip()] + list(options.auth_http_address)
        if not addresses:
            raise AuthError("--auth=http needs the address of an auth server: --auth=http:HOST:PORT")
        for address in addresses:
            parts = _split(first_request(address, "post", Credentials(b"")).url)
            if parts.scheme not in _SCHEMES or not parts.hostname:
                raise AuthError(f"{without_password(address)!r} is no address of an auth server")
        policy = TrustedServers(options.tls_root_ca_file, options.tls_min_version)
        client = make_client(reactor, options.http_client_connect_timeout, policy)
        return HttpAuthorizer(cast(Reactor, reactor), addresses, options, client)


MAX_ANSWER_BYTES = 256 * 1024
_MAX_IDENTITY = 1024


def grants_in(body: bytes) -> Grants:
    """The rights that an answer gives. AuthError when it is none."""
    fields = _object(_document(body), "the answer")
    ttl = _typed(fields.get("ttl"), int, 0, "ttl")
    listed = _typed(fields.get("authorizations"), list, [], "authorizations")
    grants = Grants(
        [_grant(entry) for entry in listed],
        identity=_typed(fields.get("identity"), str, "", "identity")[:_MAX_IDENTITY],
        identity_url=_typed(fields.get("identity_url"), str, "", "identity_url")[:_MAX_IDENTITY],
        ttl=float(min(ttl, 2**53)),
    )
    if ttl <= 0:
        raise AuthError(f"invalid TTL {str(ttl)[:20]} (must be >0)")
    return grants


def https_port_in(body: bytes) -> int:
    """The port that an answer 403 says HTTPS is on; 0 when it says none."""
    try:
        port = _typed(_object(_document(body), "the answer").get("https_port"), int, 0, "https_port")
    except AuthError:
        return 0
    return port if 0 < port <= MAX_PORT else 0


def _grant(entry: Any) -> Grant:
    fields = _object(entry, "an authorization")
    return Grant(
        _typed(fields.get("topic"), str, "", "topic"),
        _texts(fields.get("channels"), "channels"),
        _texts(fields.get("permissions"), "permissions"),
    )


def _document(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "replace"), parse_constant=_no_value)
    except (ValueError, RecursionError):
        raise AuthError("the answer is no JSON") from None


def _no_value(text: str) -> None:
    raise ValueError(text)


def _object(value: Any, what: str) -> dict[str, Any]:
    return {key.lower(): item for key, item in _typed(value, dict, {}, what).items()}


def _texts(value: Any, what: str) -> list[str]:
    return [_typed(item, str, "", f"one of {what}") for item in _typed(value, list, [], what)]


def _typed(value: Any, kind: type, absent: Any, what: str) -> Any:
    if value is None:
        return absent
    if not isinstance(value, kind) or isinstance(value, bool):
        raise AuthError(f"{what} is no {kind.__name__}")
    return value


@implementer(IPolicyForHTTPS)
class TrustedServers:
    """Name and certificate of a server must be right. TLS 1.2 or later, or what `lowest` says if that is later."""

    def __init__(self, authorities: str, lowest: int) -> None:
        self._authorities = authorities
        self._lowest = lowest
        self._roots: list[Any] | None = None

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
        """IPolicyForHTTPS API."""
        if self._roots is None:
            self._roots = authorities_in(self._authorities) if self._authorities else []
        return tls_to(hostname.decode("ascii"), self._roots, lowest=self._lowest)
