"""
Requests by treq, and what all of them share: the URL as it travels, with a literal IPv6 address, a zone or a name in
Unicode; no redirects, no compressed bodies, no cookies.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote, unquote, urlsplit

from hyperlink import EncodedURL
from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent
from zope.interface import implementer

_ACCEPT_ENCODING = b"Accept-Encoding"
_URL_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"


class Requests:
    """Sends requests by an agent."""

    def __init__(self, agent: IAgent) -> None:
        from treq.client import HTTPClient  # a broker without auth servers does not need it

        self._client = HTTPClient(_PlainAgent(agent))

    def send(self, method: str, url: str, headers: Headers, body: Any = None) -> Deferred[Any]:
        """
        Send a request. The result is Twisted's response, whose body is to be read. `body` is an IBodyProducer, None for
        none. ValueError for an invalid URL; any error of the connection.
        """
        prepared = _prepared(url)
        for name, value in prepared.fields.items():
            if not headers.hasHeader(name):
                headers = headers.copy()
                headers.setRawHeaders(name, [value])
        return self._client.request(
            method,
            prepared,
            headers=headers,
            data=body,
            allow_redirects=False,
            unbuffered=True,
            reactor=cast(Any, self),  # treq asks it for the time limit of a request only, and there is none
        )


class _PreparedUrl(EncodedURL):
    """
    A URL that was encoded before. treq encodes it for each request, a fifth of its work, and refuses literal IPv6
    addresses, because it encodes them as names.
    """

    wire: str
    fields: dict[str, str]
    """
    The fields that the URL needs: Host without a zone, which has a meaning on this machine only, and Authorization for
    a name and password, which are no part of the URL on the wire, nor of an error.
    """

    def to_uri(self) -> EncodedURL:
        return self

    def to_text(self, with_password: bool = False) -> str:
        return self.wire


@lru_cache(maxsize=1024)
def _prepared(url: str) -> _PreparedUrl:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        parts = parts._replace(netloc=host)
        url = parts.geturl()
    if not url.isascii() or " " in url:
        parts = parts._replace(netloc=parts.netloc.encode("idna").decode())
        url = quote(parts.geturl(), _URL_CHARACTERS)
    address, percent, _ = (parts.hostname or "").partition("%")
    prepared = _PreparedUrl(scheme=parts.scheme, host=address)
    prepared.wire, prepared.fields = url, {}
    if percent and ":" in address:
        prepared.fields["Host"] = f"[{address}]{f':{parts.port}' if parts.port else ''}"
    if at:
        prepared.fields["Authorization"] = f"Basic {b64encode(unquote(user).encode()).decode()}"
    return prepared


@implementer(IAgent)
class _PlainAgent:
    """
    An agent without what treq would do by itself: unpack bodies, of which few bytes could become very many, and send
    cookies of one answer with later requests.
    """

    def __init__(self, agent: IAgent) -> None:
        self._agent = agent

    def request(self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: Any = None) -> Any:
        """IAgent API."""
        headers = Headers() if headers is None else headers.copy()
        *own, _ = headers.getRawHeaders(_ACCEPT_ENCODING, [b""])  # the last one is treq's
        if own:
            headers.setRawHeaders(_ACCEPT_ENCODING, own)
        else:
            headers.removeHeader(_ACCEPT_ENCODING)
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(_plain)


def _plain(response: Any) -> Any:
    for name in (b"Content-Encoding", b"Set-Cookie"):
        response.headers.removeHeader(name)
    return response
