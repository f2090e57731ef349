"""The grammar of HTTP as people and attackers send it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from urllib.parse import quote_from_bytes

from tests.fuzz.oddities import NAMES, NUMBERS, TEXTS, json_text, json_value, mostly

ROUTES: tuple[tuple[bytes, bytes], ...] = (
    *((b"GET", path) for path in (b"/ping", b"/info", b"/stats", b"/v2/openapi.json")),
    *((b"GET", path) for path in (b"/config/id", b"/config/log_level", b"/config/x")),
    *((b"POST", path) for path in (b"/pub", b"/pub", b"/mpub", b"/mpub", b"/v2/topic/durability")),
    *((b"POST", b"/topic/" + what) for what in (b"create", b"delete", b"empty", b"pause", b"unpause")),
    *((b"POST", b"/channel/" + what) for what in (b"create", b"delete", b"empty", b"pause", b"unpause")),
    *((b"PUT", path) for path in (b"/config/log_level", b"/config/nsqlookupd_tcp_addresses", b"/debug/setblockrate")),
    *((b"GET", b"/debug/pprof/" + what) for what in (b"", b"cmdline", b"symbol", b"threadcreate", b"goroutine")),
)
_PARAMETERS = {
    b"/pub": (b"topic", b"topic", b"defer", b"ttl", b"id", b"priority"),
    b"/mpub": (b"topic", b"topic", b"binary", b"headers", b"ttl"),
    b"/stats": (b"format", b"topic", b"channel", b"include_clients", b"include_mem"),
    b"/topic": (b"topic",),
    b"/channel": (b"topic", b"topic", b"channel", b"channel"),
    b"/v2": (b"topic", b"class"),
    b"/debug": (b"rate", b"seconds"),
}
_ANY_PARAMETER = (*(name for names in _PARAMETERS.values() for name in names), b"unknown", b"%74opic")
_VALUES = {
    b"topic": (b"t", b"t", b"u", b"t#ephemeral"),
    b"%74opic": (b"t",),
    b"channel": (b"c", b"c", b"d", b"c#ephemeral"),
    b"defer": (b"0", b"5", b"60000"),
    b"ttl": (b"60s", b"5", b"1h"),
    b"id": (b"7", b"o-17"),
    b"priority": (b"high", b"normal", b"low"),
    b"format": (b"json", b"text"),
    b"class": (b"memory", b"os", b"fsync", b"default"),
}
_FIELDS = (
    *(b"Connection: close", b"Connection: keep-alive", b"Expect: 100-continue", b"Accept: */*", b"Cookie: a=b; c"),
    *(b"Content-Type: application/x-www-form-urlencoded", b"X-Forwarded-For: 1.2.3.4", b"Upgrade: h2c"),
    *(b"X-NSQ-Tenant: acme", b"X-NSQ-TTL: 5000", b"X-NSQ-Content-Type: nsq; version=1.0", b"traceparent: 00-0-0-01"),
)
_ODD_FIELDS = (
    *(
        b"Content-Length: 5",
        b"Content-Length: -1",
        b"Content-Length: +3",
        b"Content-Length: 1_0",
        b"Content-Length: 3, 3",
    ),
    *(b"Content-Length: 99999999999999999999", b"Content-Length: 0x3", b"Content-Length: " + b"9" * 5000),
    *(
        b"Content-Length: \xd9\xa1",
        b"Content-Length:",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
    ),
    *(b"Transfer-Encoding: xchunked", b"Transfer-Encoding : chunked", b"Host: other", b"Host: a b", b"Host: a\0b"),
    *(b"Expect: 200-ok", b" folded: yes", b"no colon", b": no name", b"X: " + b"x" * 20_000, b"X: \r X-Injected: 1"),
    *(b"X-NSQ-: x", b"X-NSQ-a!: x", b"X-NSQ-a: \xff", b"X-NSQ-a: \t", b"X-NSQ-nsq-x: y", b"X-NSQ-id: " + b"i" * 300),
    *(b"X: \x0b\x7f", b"Connection: " + b"close," * 500, b'Content-Type: multipart/form-data; boundary="\0'),
)
_ODD_ENDS = (b"", b"/", b"%0d%0aX-Injected:%201", b"%0a", b"/..", b"%2f", b"?", b"%e2%80%a8", b"//")
_ODD_METHODS = (b"GET", b"HEAD", b"OPTIONS", b"PUT", b"TRACE", b"CONNECT", b"pOST", b"", b"G\xffT", b"A" * 300)
_ODD_VERSIONS = (b"HTTP/2.0", b"HTTP/1.10", b"HTTP/", b"", b"http/1.1")
_ODD_ENDINGS = (b"", b"0\r\nX: y\r\n\r\n", b"-1\r\n", b"zz\r\n", b"0" * 3000, b"ffffffffffffffffff\r\n")
_ODD_PATHS = (
    *(
        b"/",
        b"*",
        b"",
        b"//",
        b"/%",
        b"/%zz",
        b"/%00",
        b"/..%2f..%2fetc/passwd",
        b"/PING",
        b"/ping/",
        b"//ping//",
        b"/./pub",
    ),
    *(b"http://h/ping", b"http://", b"ftp://x/../ping", b"/config/", b"/config//", b"/config/%0d%0aX-Injected:%201"),
    *(
        b"/topic/create%0d%0aX-Injected:%201",
        b"/TOPIC/CREATE\xff",
        b"/" + b"a" * 5000,
        b"/%2e%2e/ping",
        b"/ping%20",
        b"\xff",
    ),
    *(b"/Config/%0d%0a", b"/config/<script>", b"/pub#x", b"/\xe2\x80\xa8", b"/topic/create;x"),
)
TOKENS = (
    *(
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b" HTTP/2.0",
        b"?",
        b"&",
        b"=",
        b"%",
        b"%0d%0a",
        b";",
        b"+",
    ),
    *(
        b"GET ",
        b"POST ",
        b"HEAD ",
        b"OPTIONS ",
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"Content-Length: 3\r\n",
        b"Host: h\r\n",
    ),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01",
        *(path for _, path in ROUTES),
    ),
)


def request(chance: Random) -> bytes:
    """One request."""
    method, path = chance.choice(ROUTES)
    if chance.random() < 0.08:
        method = chance.choice(
            (b"GET", b"HEAD", b"OPTIONS", b"PUT", b"TRACE", b"CONNECT", b"pOST", b"", b"G\xffT", b"A" * 300)
        )
    target = mostly(chance, (path,), (*_ODD_PATHS, path.title() + chance.choice(_ODD_ENDS)), 0.1)
    query = _query(chance, path)
    version = mostly(
        chance, (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"), (b"HTTP/2.0", b"HTTP/1.10", b"HTTP/", b"", b"http/1.1"), 0.03
    )
    fields = [b"Host: localhost"] if chance.random() < 0.97 else []
    fields += [chance.choice(_FIELDS) for _ in range(chance.randrange(2))]
    if chance.random() < 0.1:
        fields += [chance.choice(_ODD_FIELDS) for _ in range(chance.randint(1, 2))]
    body = b""
    if method in (b"POST", b"PUT") or chance.random() < 0.05:
        body, length = _body(chance, path)
        fields += length
    end = b"\n" if chance.random() < 0.05 else b"\r\n"
    return end.join([b" ".join((method, target + query, version)), *fields, b"", body])


def _query(chance: Random, path: bytes) -> bytes:
    usual = next((names for start, names in _PARAMETERS.items() if path.startswith(start)), _ANY_PARAMETER)
    pairs = []
    for _ in range(chance.choice((0, 1, 2, 2, 3))):
        name = mostly(chance, usual, _ANY_PARAMETER, 0.1)
        odd = chance.choice((NUMBERS, TEXTS) if name in (b"defer", b"rate", b"seconds", b"binary") else (NAMES, TEXTS))
        value = mostly(chance, _VALUES.get(name, (b"true", b"false", b"0", b"1")), odd, 0.15)
        pairs.append(name + b"=" + (quote_from_bytes(value).encode() if chance.random() < 0.9 else value[:300]))
    if chance.random() < 0.05:
        pairs.append(chance.choice((b"", b"&&", b"=", b"%", b"%zz", b"a;b", b"topic=t;x=1", b"topic", b"topic=%ff%00")))
    return b"?" + b"&".join(pairs) if pairs else b""


def _body(chance: Random, path: bytes) -> tuple[bytes, Sequence[bytes]]:
    """A body, and the fields that announce it."""
    body = _content(chance, path)
    if chance.random() < 0.75:
        length = len(body) if chance.random() < 0.95 else max(0, len(body) + chance.choice((-1, 1, 1000)))
        return body, [b"Content-Length: %d" % length]
    ending = mostly(
        chance,
        (b"0\r\n\r\n",),
        (b"", b"0\r\nX: y\r\n\r\n", b"-1\r\n", b"zz\r\n", b"0" * 3000, b"ffffffffffffffffff\r\n"),
        0.1,
    )
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:3], body[3:]) if part)
    return chunks + ending, [b"Transfer-Encoding: chunked"]


def _content(chance: Random, path: bytes) -> bytes:
    if path.startswith(b"/config"):
        usual = (b"debug", b"error", b'["a:1"]', b"null", b"[]")
        return chance.choice(usual) if chance.random() < 0.5 else json_text(chance, json_value(chance))
    if path == b"/mpub" and chance.random() < 0.5:
        count = chance.choice((0, 1, 2, 2, 3, 0x7FFFFFFF, 0xFFFFFFFF))
        messages = [chance.choice((b"", b"x", b"hello", b"y" * 11)) for _ in range(chance.randrange(4))]
        parts = [count.to_bytes(4, "big"), *(len(body).to_bytes(4, "big") + body for body in messages)]
        if chance.random() < 0.3:
            headers = chance.choice((b"", b"\x01k\x00\x01v", b"\x01k\x00", b"\x01B\x00\x00", b"\x02id\x00\x00"))
            parts[1:] = [len(headers).to_bytes(4, "big") + headers + part for part in parts[1:]]
            parts.insert(0, b"NSQH")
        return b"".join(parts)
    return chance.choice((b"x", b"hello", b"a\nb\n\nc", b"y" * 10, b"y" * 11, b"z" * 41, b"", b"\0", b"\n" * 20))
