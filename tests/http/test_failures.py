"""The reasons for which a request to an HTTP server has no answer."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from OpenSSL import SSL
from service_identity import VerificationError
from twisted.internet.error import ConnectError, ConnectingCancelledError, ConnectionLost, DNSLookupError, TimeoutError
from twisted.python.failure import Failure
from twisted.web._newclient import ParseError
from twisted.web.client import RequestTransmissionFailed, ResponseFailed
from twisted.web.error import SchemeNotSupported

from nsqtw.errors import OptionError
from nsqtw.http.failures import cause_of, is_unsent, reason_of

URL = "http://ann:word@a.example:4151/pub?secret=x"
REFUSED = ConnectError(errno.ECONNREFUSED, "no")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (REFUSED, "dial tcp a.example:4151: connect: connection refused"),
        (TimeoutError(), "dial tcp a.example:4151: i/o timeout"),
        (DNSLookupError(), "dial tcp a.example:4151: lookup a.example: no such host"),
        (ConnectionLost(), "the connection was closed before the end of the answer"),
        (ParseError("what was received", b"secret"), "the answer is no HTTP"),
        (SchemeNotSupported("Unsupported scheme: b'ftp'"), "Unsupported scheme: b'ftp'"),
        (SSL.Error([("SSL routines", "", "certificate verify failed")]), "TLS: certificate verify failed"),
        (SSL.Error([]), "TLS: the handshake failed"),
        (SSL.Error(), "TLS: the handshake failed"),
        (SSL.SysCallError(-1, "Unexpected EOF"), "TLS: Unexpected EOF"),
        (VerificationError([]), "TLS: its certificate is for another host"),
        (OptionError("no file"), "no file"),
        (ValueError("no port"), "no port"),
        (OSError(errno.EACCES, "permission denied", "/ca.pem"), "[Errno 13] permission denied: '/ca.pem'"),
        (RuntimeError("secret"), "RuntimeError"),
        (ConnectingCancelledError(None), "None"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_failure_has_a_reason_that_names_no_secret(error: Exception, reason: str) -> None:
    wrapped = ResponseFailed([Failure(RequestTransmissionFailed([Failure(error)]))])
    assert reason_of(error, URL) == reason_of(wrapped, URL) == reason
    assert cause_of(wrapped) is error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (REFUSED, "connect: connection refused"),
        (TimeoutError(), "i/o timeout"),
        (DNSLookupError(), "lookup of the host: no such host"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_server_is_named_by_the_url_only(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize(("error", "is_it"), [(REFUSED, True), (DNSLookupError(), True), (ConnectionLost(), False)])
def test_a_request_without_a_connection_was_not_sent(error: Any, is_it: bool) -> None:
    assert is_unsent(RequestTransmissionFailed([Failure(error)])) is is_it
