"""The servers of NSQ that a request can reach, and what to do when the wanted one does not answer, in one line.

| wanted     | other servers that answer in its place                                                       |
|------------|----------------------------------------------------------------------------------------------|
| nsqd       | its own TCP port or HTTPS port; nsqlookupd, nsqadmin; a proxy or any other server             |
| nsqlookupd | the same                                                                                      |
"""

from __future__ import annotations

import json
import os
import re

from OpenSSL import SSL
from twisted.internet import error
from twisted.internet.defer import CancelledError
from twisted.web._newclient import ParseError  # twisted.web.client does not export it

from pyspark_nsq.http.tls import told

NSQD, LOOKUPD, ADMIN = "nsqd", "nsqlookupd", "nsqadmin"
#: The remedy for an address of another server, by the wanted one.
GIVE = {
    NSQD: "give the HTTP address of an nsqd, usually with port 4151",
    LOOKUPD: "give the HTTP address of an nsqlookupd, usually with port 4161",
}
_NO_PATH = ("NOT_FOUND", "METHOD_NOT_ALLOWED")
_TITLE = re.compile(rb"<title>\s*(.{1,80}?)\s*</title>", re.DOTALL | re.IGNORECASE)
_SHOWN_BYTES = 100
#: Errors of OpenSSL when the other side does not speak TLS.
_NO_TLS = ("wrong version number", "packet length too long", "http request", "unknown protocol", "record layer failure")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def no_answer(failure: BaseException | None, wanted: str) -> str:
    """Return the reason for which a request has no answer, with the remedy."""
    if isinstance(failure, error.ConnectionRefusedError):
        return f"connection refused: nothing listens there; start the {wanted}, or correct the address{_proxies()}"
    if isinstance(failure, error.DNSLookupError):
        return f"the name of the host does not resolve; correct it{_proxies()}"
    if isinstance(failure, error.ConnectError):
        return f"no connection: {told(failure)}; correct the address, or check the network{_proxies()}"
    if isinstance(failure, SSL.Error):
        said = told(failure)
        if any(text in said for text in _NO_TLS):
            return f"{said}: TLS is not spoken there; write http:// in place of https://"
        if "certificate required" in said or "bad certificate" in said:
            return f'{said}; the option "tls.certFile" names the certificate that is shown'
        return f'{said}; the option "tls.caFile" names the authorities that are trusted'
    if isinstance(failure, error.ConnectionClosed):
        return f"it closed the connection without an answer; if this is a TCP port, {GIVE[wanted]}"
    if isinstance(failure, ParseError):
        return f"it does not answer in HTTP: {failure.args[-1]!r}; {GIVE[wanted]}"
    return "the connection ended" if isinstance(failure, CancelledError) else told(failure)


def _proxies() -> str:
    """Return a hint when the environment names a proxy, which the user may believe to be used."""
    named = [name for name in _PROXIES if os.environ.get(name) or os.environ.get(name.upper())]
    return f" ({named[0]} is set, but no proxy is used)" if named else ""


def answered_instead(body: bytes, wanted: str) -> str:
    """Return the reason for which an answer is not that of the wanted server, with the remedy."""
    page = page_of(body)
    what = page if page is not None else repr(body[:_SHOWN_BYTES])
    return f"it answered with {what}; {GIVE[wanted]}"


def page_of(body: bytes) -> str | None:
    """Return the description of a web page; None for another answer."""
    if not body.lstrip().startswith(b"<"):
        return None
    title = _TITLE.search(body)
    return "a web page" if title is None else f'the web page "{" ".join(title[1].decode("utf-8", "replace").split())}"'


def has_no_path(status: int, body: bytes) -> bool:
    """Return whether a server of NSQ does not know the path of a request, or its method."""
    try:
        return status in (404, 405) and json.loads(body)["message"] in _NO_PATH
    except (ValueError, KeyError, TypeError):
        return False


def server_of(info: bytes, front: bytes) -> str | None:
    """Return the name of a server of NSQ by its answers to /info and to /; None for another server."""
    try:
        found = json.loads(info)
        if isinstance(found, dict) and "version" in found:
            return NSQD if "tcp_port" in found else LOOKUPD
    except ValueError:
        pass
    return ADMIN if ADMIN.encode() in front else None
