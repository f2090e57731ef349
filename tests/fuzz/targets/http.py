"""The HTTP API, in process: the bytes of one connection, and a broker behind it."""

from __future__ import annotations

import re
from random import Random

from nsqtw.http.routes import Routes
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.codec import pieces
from tests.fuzz.targets.requests import TOKENS, request
from tests.http.broker_fixture import LIMITS, Browser, Web

_HEAD = re.compile(
    rb"HTTP/1\.[01] ([1-5][0-9]{2}) [A-Za-z ]+\r\n((?:[A-Za-z0-9-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n)*)\r\n"
)
_FIELDS = {
    *(b"Content-Type", b"X-Nsq-Content-Type", b"X-Content-Type-Options", b"X-Nsqtw-Durability", b"Content-Length"),
    *(b"Date", b"Connection", b"Allow", b"Location", b"WWW-Authenticate", b"X-Nsqtw-Detail", b"X-Nsqtw-Version"),
}
_SLOW = (b"/debug/pprof/heap", b"/debug/pprof/profile", b"/debug/pprof/block")
"""They look at the process, which is the tests' here, and take long for it."""


class Http(Target):
    name = "http"
    kind = "bytes of an HTTP client, to the API in process"
    examples = 700
    tokens = TOKENS
    steps = Bound(60_000, 200)
    memory = Bound(4 << 20, 400)

    def make(self, chance: Random) -> bytes:
        return b"".join(request(chance) for _ in range(chance.choice((1, 1, 2, 3))))

    def run(self, data: bytes) -> str:
        chance = chance_of(data)
        web = Web(**LIMITS)
        routes = web.site.routes
        assert isinstance(routes, Routes)
        for path in _SLOW:
            routes._routes.pop((b"GET", path))
        browser = web.connect()
        cuts = [chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 5)))]
        for piece in pieces(data, cuts):
            if not browser.is_closed:
                browser.send(piece)
                web.turn()
        if not browser.is_closed and chance.random() < 0.7:
            browser.connection.readConnectionLost()
            web.turn()
        statuses = _statuses(browser.transport.value(), has_head=b"HEAD" in data)
        was_closed = browser.is_closed
        browser.lose()
        web.turn()
        _check_others(web)
        if not statuses:
            return "closed without an answer" if was_closed else "waits for more"
        return "refused" if max(statuses) >= 400 else "answered"


def _statuses(written: bytes, *, has_head: bool) -> list[int]:
    """The statuses of the answers, which are all there is. A client that sent HEAD may be answered without a body."""
    found = []
    while written:
        head = _HEAD.match(written)
        if head is None:
            raise Broken(f"no answer: {written[:300]!r}")
        fields = dict(line.split(b": ", 1) for line in head[2].splitlines())
        if not fields.keys() <= _FIELDS:
            raise Broken(f"unknown header fields: {head[0]!r}")
        status = int(head[1])
        length = int(fields[b"Content-Length"]) if status >= 200 else 0
        rest = written[head.end() :]
        is_whole = len(rest) >= length and rest[length : length + 5] in (b"", b"HTTP/")
        if not is_whole and not (has_head and rest[:5] in (b"", b"HTTP/")):
            raise Broken(f"the body of an answer is not {length} bytes: {written[:300]!r}")
        written = rest[length:] if is_whole else rest
        found.append(status)
    return found


def _check_others(web: Web) -> None:
    other: Browser = web.connect()
    reply = other.ask("POST", "/pub?topic=witness", b"there")
    if reply.outcome != (200, "OK"):
        raise Broken(f"another client is answered {reply.outcome}")
    if web.bodies("witness") not in ([], [b"there"]):
        raise Broken("another topic has messages that nobody sent")
