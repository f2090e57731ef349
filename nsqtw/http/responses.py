"""
Responses of the HTTP server, as bytes.

    HTTP/1.1 200 OK                                status: all but the version is prepared with the Answer
    Content-Type: text/plain; charset=utf-8        none for an empty body
    X-Nsq-Content-Type: nsq; version=1.0           not on plain answers
    Content-Length: 2
    Date: Sat, 21 Nov 2026 09:00:00 GMT            made once a second
    Connection: close                              where it is not what the version does by itself

    OK

Every answer has its length, so a connection can always be kept.
"""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

from nsqtw.errors import CapReached, Draining, Exiting, HeadersRefused, LargerThanBound, NsqtwError, Overflow
from nsqtw.gocompat.text import json_text
from nsqtw.http.errors import DETAILS

_TEXT = (b"Content-Type", b"text/plain; charset=utf-8")
_HTML = (b"Content-Type", b"text/html; charset=utf-8")
_JSON = (b"Content-Type", b"application/json; charset=utf-8")
_NO_SNIFF = (b"X-Content-Type-Options", b"nosniff")
_NSQ = (b"X-Nsq-Content-Type", b"nsq; version=1.0")

_REASONS = {
    101: b"Switching Protocols",
    200: b"OK",
    301: b"Moved Permanently",
    307: b"Temporary Redirect",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    413: b"Request Entity Too Large",
    417: b"Expectation Failed",
    426: b"Upgrade Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    503: b"Service Unavailable",
}

_KEEP_ALIVE = b"\r\nConnection: keep-alive"
_CLOSE = b"\r\nConnection: close"


class Answer:
    """A whole response, except for what depends on the request and the time. It can be sent any number of times."""

    __slots__ = ("_head", "_usual", "_usual_second", "body", "status", "word")

    def __init__(self, status: int, body: bytes = b"", *headers: tuple[bytes, bytes], word: str = "") -> None:
        self.status = status
        self.word = word
        """NSQ's word for the error; empty for a success."""
        self.body = body
        lines = [b" %d %s" % (status, _REASONS[status])]
        lines += [b"%s: %s" % header for header in headers]
        lines += [b"Content-Length: %d" % len(body), b"Date: "]
        self._head = b"\r\n".join(lines)
        self._usual, self._usual_second = b"", 0

    def encode(self, version: bytes, kept: bool, headless: bool = False) -> bytes:
        """
        The bytes to send for a request of that HTTP version. `kept`: more requests may follow on the connection;
        `headless`: the request was HEAD, which gets no body.
        """
        if kept and not headless and version == b"HTTP/1.1":
            second = int(time.time())
            if second != self._usual_second:
                self._usual = b"".join((version, self._head, _date(), b"\r\n\r\n", self.body))
                self._usual_second = second
            return self._usual
        connection = b""
        if version == b"HTTP/1.0":
            connection = _KEEP_ALIVE if kept else b""
        elif not kept:
            connection = _CLOSE
        body = b"" if headless else self.body
        return b"".join((version, self._head, _date(), connection, b"\r\n\r\n", body))


class Refused(NsqtwError):
    """A request cannot be served; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status, answer.body)
        self.answer = answer


def stream_head(version: bytes, content_type: bytes, *, is_chunked: bool = False) -> bytes:
    """
    The head of an answer whose length is not known, in that HTTP version. It ends with its connection, or if
    `is_chunked` with its last chunk. Nobody on the way is to keep it.
    """
    lines = (
        version + b" 200 OK",
        b"Content-Type: " + content_type,
        b"Cache-Control: no-store",
        b"%b: %b" % _NSQ,
        *([b"Transfer-Encoding: chunked"] if is_chunked else []),
        b"Date: " + _date(),
    )
    return b"\r\n".join(lines) + _CLOSE + b"\r\n\r\n"


def text(body: bytes, *headers: tuple[bytes, bytes]) -> Answer:
    """Success, as text."""
    return Answer(200, body, *([_TEXT] if body else []), _NSQ, *headers)


def document(value: Any, *headers: tuple[bytes, bytes], status: int = 200) -> Answer:
    """A JSON document, by default of a success."""
    return Answer(status, json_text(value), _JSON, _NSQ, *headers)


def written(body: bytes) -> Answer:
    """Success, as JSON that is there already."""
    return Answer(200, body, _JSON, _NSQ)


def binary(body: bytes, content_type: bytes, *headers: tuple[bytes, bytes]) -> Answer:
    """Success, as bytes of some format."""
    return Answer(200, body, (b"Content-Type", content_type), _NSQ, *headers)


def failure(status: int, message: str, *headers: tuple[bytes, bytes], detail: str = "") -> Answer:
    """
    An error that is one word: `{"message":"..."}`. A header field has its sentence of `DETAILS`, unless `detail` is
    given. KeyError for a word without a sentence.
    """
    sentence = _detail(message, detail)
    return Answer(status, json_text({"message": message}), *headers, _JSON, _NSQ, sentence, word=message)


def _detail(word: str, sentence: str = "") -> tuple[bytes, bytes]:
    """The header field with a sentence for people."""
    return (b"X-Nsqtw-Detail", (sentence or DETAILS[word]).encode())


def cap_reached(error: CapReached) -> Answer:
    """A cap of the broker is reached."""
    return failure(503, f"TOO_MANY_{error.what.upper()}")


def exiting(error: Exiting) -> Answer:
    """The broker takes nothing more, or the topic is going away."""
    return DRAINING if isinstance(error, Draining) else EXITING


def not_stored(error: Exception, otherwise: Answer) -> Answer:
    """A publish was refused by its topic, or could not be stored: what has no word of its own is `otherwise`."""
    if isinstance(error, LargerThanBound):
        return failure(413, "PUBLISH_TOO_BIG", detail=str(error))
    if isinstance(error, Overflow):
        return failure(429, "CHANNEL_FULL", (b"Retry-After", b"1"), detail=f"{error}: repeat the request later")
    return HEADERS_NOT_STORED if isinstance(error, HeadersRefused) else otherwise


def plain(status: int, message: str) -> Answer:
    """A text without a sign of NSQ, success or error."""
    return Answer(status, message.encode("utf-8", "replace"), _TEXT)


def report(shown: str, status: int = 200) -> Answer:
    """A text about the process, which a browser shows as one."""
    return Answer(status, shown.encode("utf-8", "replace"), _TEXT, _NO_SNIFF)


def page(shown: str) -> Answer:
    """HTML about the process."""
    return Answer(200, shown.encode(), _HTML, _NO_SNIFF)


def tls_required(https_port: int) -> Answer:
    """TLS is required. The only document of nsqd with spaces in its JSON."""
    body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % https_port
    return Answer(403, body, _JSON, _NSQ, _detail("TLS_REQUIRED"), word="TLS_REQUIRED")


def not_allowed(methods: bytes) -> Answer:
    """The path is known, the method is not one of `methods`."""
    return failure(405, "METHOD_NOT_ALLOWED", (b"Allow", methods))


def allowed(methods: bytes) -> Answer:
    """The answer to OPTIONS."""
    return Answer(200, b"", (b"Allow", methods))


def moved(location: bytes, *, is_get: bool) -> Answer:
    """The path is known under another spelling. A body only for GET."""
    where = (b"Location", location)
    if not is_get:
        return Answer(307, b"", where)
    shown = location.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;").replace(b'"', b"&#34;")
    return Answer(301, b'<a href="%s">Moved Permanently</a>.\n\n' % shown, _HTML, where)


OK = text(b"OK")
DONE = text(b"")
EMPTY = Answer(200)
SWITCHED = Answer(101)
EXITING = failure(503, "EXITING")
DRAINING = failure(503, "DRAINING")
HEADERS_NOT_STORED = failure(501, "HEADERS_NOT_STORED")
INTERNAL_ERROR = failure(500, "INTERNAL_ERROR")
INVALID_REQUEST = failure(400, "INVALID_REQUEST")
NOT_FOUND = failure(404, "NOT_FOUND")
MALFORMED = plain(400, "400 Bad Request")
NO_HOST = plain(400, "400 Bad Request: missing required Host header")
BAD_HOST = plain(400, "400 Bad Request: malformed Host header")
UNEXPECTED = Answer(417)
TIMED_OUT = failure(408, "REQUEST_TIMEOUT")
TOO_MUCH_PARTIAL_INPUT = failure(503, "TOO_MANY_UNFINISHED_REQUESTS")
TOO_MANY_CONNECTIONS = failure(503, "TOO_MANY_CONNECTIONS")
HEADERS_TOO_LARGE = plain(431, "431 Request Header Fields Too Large")

_date_second = 0
_date_text = b""


def _date() -> bytes:
    """The time of day as HTTP writes it. Writing it takes longer than all the rest of an answer."""
    global _date_second, _date_text
    second = int(time.time())
    if second != _date_second:
        _date_second, _date_text = second, formatdate(second, usegmt=True).encode()
    return _date_text
