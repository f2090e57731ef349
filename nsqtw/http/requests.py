"""Requests by an agent of Twisted: the URL as it travels, with a literal IPv6 address, a zone or a name in Unicode."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

_URL_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"


def send(agent: IAgent, method: str, url: str, headers: Headers, body: Any = None) -> Deferred[Any]:
    """
    Send a request. The result is Twisted's response. `body` is an IBodyProducer, None for none. ValueError for an
    invalid URL.
    """
    wire, host = _wire(url)
    if host:
        headers = headers.copy()
        headers.setRawHeaders(b"Host", [host])
    return agent.request(method.encode("ascii"), wire, headers, body)


@lru_cache(maxsize=1024)
def _wire(url: str) -> tuple[bytes, bytes]:
    """Return a URL as it travels, and the field Host that it needs: a zone has a meaning on this machine only."""
    parts = urlsplit(url)
    if not url.isascii() or " " in url:
        parts = parts._replace(netloc=parts.netloc.encode("idna").decode())
        url = quote(parts.geturl(), _URL_CHARACTERS)
    address, percent, _ = (parts.hostname or "").partition("%")
    if not percent or ":" not in address:
        return url.encode(), b""
    return url.encode(), f"[{address}]{f':{parts.port}' if parts.port else ''}".encode()
