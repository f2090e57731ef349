"""
Discovery of the nsqds of a topic through nsqlookupds: addresses, answers, and when to ask which.

The first poll asks all nsqlookupds, so a topic that only one of them knows is found at once. Later polls ask one each,
in turn, and the next one when it fails, three in all.
"""

from __future__ import annotations

import json
from http.client import responses
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from nsqtw.errors import LookupFailed, OptionError
from nsqtw.gocompat.values import quoted
from nsqtw.options.addresses import MAX_PORT, is_node_address, join_host_port

ACCEPT = "application/vnd.nsq; version=1.0"
CONTENT_TYPE = "nsq; version=1.0"
_MAX_TRIES = 3
_SHOWN_BYTES = 200
_PORT_DIGITS = 5


def lookup_url(address: str, topic: str) -> str:
    """Return the URL to ask for a topic. `address` is host:port or a URL. OptionError."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        port = parts.port
    except ValueError as error:
        raise OptionError(f"nsqlookupd address {address!r}: {error}") from error
    if not parts.hostname:
        raise OptionError(f"nsqlookupd address {address!r}: missing host")
    if port is None:
        raise OptionError(
            f"nsqlookupd address {address!r}: missing port, give it as 127.0.0.1:4161 or http://127.0.0.1:4161"
        )
    path = parts.path if parts.path not in ("", "/") else "/lookup"
    query = sorted([*parse_qsl(parts.query, keep_blank_values=True), ("topic", topic)])
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(query, quote_via=quote), ""))


def answer_of(status: int, content_type: str, body: bytes) -> dict[str, Any]:
    """Return the object in an answer of an nsqlookupd or nsqd, old (in an envelope) or new. LookupFailed."""
    if status != 200:
        raise LookupFailed(refusal(status, body))
    try:
        answer = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise LookupFailed(f"the answer is no JSON: {error}") from error
    if isinstance(answer, dict) and content_type != CONTENT_TYPE and "status_code" in answer and "data" in answer:
        answer = answer["data"]
    if not isinstance(answer, dict):
        raise LookupFailed("the answer is no JSON object")
    return answer


def refusal(status: int, body: bytes) -> str:
    """Return the text of an error for an answer with another status than 200."""
    phrase = responses.get(status, "")
    return f"got response {status} {phrase} {quoted(body[:_SHOWN_BYTES].decode('utf-8', 'replace'))}"


class Producers(NamedTuple):
    """The nsqds in an answer to /lookup: their addresses as host:port, and a text for each that has no usable one."""

    addresses: list[str]
    refused: list[str]


def producers_of(answer: dict[str, Any]) -> Producers:
    """Return the nsqds in an answer to /lookup. LookupFailed when it has no list of them."""
    found = Producers([], [])
    producers = answer.get("producers") or []
    if not isinstance(producers, list):
        raise LookupFailed("the answer has no producers")
    for producer in producers:
        fields = producer if isinstance(producer, dict) else {}
        host, port = fields.get("broadcast_address"), fields.get("tcp_port")
        if isinstance(host, str) and isinstance(port, int) and is_node_address(host, port):
            found.addresses.append(join_host_port(host, port))
        else:
            shown = f"broadcast_address {host!r} and tcp_port {port!r}"
            found.refused.append(f"an nsqd is registered with {shown[:_SHOWN_BYTES]}, which are no host and port")
    return found


def base_url(address: str) -> str:
    """Return the start of the URLs of the server at an address, which is host:port or a URL."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def host_and_port(address: str) -> tuple[str, int]:
    """Split host:port, an IPv6 address in brackets. OptionError."""
    host, _, port = address.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if in_brackets else host
    is_port = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS and int(port) <= MAX_PORT
    if not host or not is_port or (":" in host and not in_brackets):
        raise OptionError(f"address {address!r} must be host:port, as 127.0.0.1:4150 or [::1]:4150")
    return host, int(port)


class Lookup:
    """Which of the nsqlookupds at `urls` is asked next."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._next = 0
        self._is_first = True
        self._tries = 0

    def poll(self) -> list[str]:
        """Return the URLs of a new poll."""
        if self._is_first:
            self._is_first = False
            return list(self._urls)
        self._tries = 1
        return [self._take()]

    def failed(self) -> list[str]:
        """A query of a later poll failed: return the URL to ask instead, if any."""
        if not 0 < self._tries < min(_MAX_TRIES, len(self._urls)):
            return []
        self._tries += 1
        return [self._take()]

    def _take(self) -> str:
        url = self._urls[self._next % len(self._urls)]
        self._next += 1
        return url
