"""
The reasons for which a request to an HTTP server has no answer, in words: Go's for a connection, as NSQ has them.

No reason repeats the request or the answer, which may hold secrets. The connector for Spark has a copy of this module
(contrib/spark/copies.py), which imports nothing of nsqtw.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError, TimeoutError

_OPENSSL, _SERVICE_IDENTITY = "OpenSSL.", "service_identity."
"""Packages of errors of TLS. A program that asks over plain HTTP does not import them."""
_NO_HTTP = ("twisted.web._newclient", "twisted.web.http", "twisted.web._http")
"""Modules of errors about what a server has sent."""
_TELLING = ("twisted.", "nsqtw.")
"""Packages of errors whose texts may be shown."""


def cause_of(error: BaseException) -> BaseException:
    """Return the first of the errors that Twisted has put into one."""
    while reasons := getattr(error, "reasons", None):
        error = reasons[0].value
    return error


def is_unsent(error: BaseException) -> bool:
    """Return whether there was no connection to send a request on."""
    return isinstance(cause_of(error), ConnectError | DNSLookupError)


def reason_of(error: BaseException, url: str = "") -> str:
    """Return why a request has no answer. With the URL of the request, the reason names the server."""
    error = cause_of(error)
    module = f"{type(error).__module__}."
    server = urlsplit(url).netloc.rpartition("@")[2]
    dial = f"dial tcp {server}: " if server else ""
    if isinstance(error, TimeoutError):
        return f"{dial}i/o timeout"
    if isinstance(error, DNSLookupError):
        return f"{dial}lookup {urlsplit(url).hostname or 'of the host'}: no such host"
    if isinstance(error, ConnectError) and isinstance(error.osError, int):
        return f"{dial}connect: {os.strerror(error.osError).lower()}"
    if isinstance(error, ConnectionClosed):
        return "the connection was closed before the end of the answer"
    if module.startswith(_OPENSSL):
        return f"TLS: {_reasons_of_openssl(error) or 'the handshake failed'}"
    if module.startswith(_SERVICE_IDENTITY):
        return "TLS: its certificate is for another host"
    if module.startswith(_NO_HTTP):
        return "the answer is no HTTP"
    if isinstance(error, OSError | ValueError) or module.startswith(_TELLING):
        return str(error) or type(error).__name__
    return type(error).__name__


def _reasons_of_openssl(error: BaseException) -> str:
    entries = error.args[0] if error.args else ()
    if isinstance(entries, list | tuple):
        return "; ".join(str(entry[-1]) for entry in entries)
    return str(error.args[-1])  # of a system call: its number and a text
