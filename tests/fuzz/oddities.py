"""
The values that parsers stumble over: numbers at their bounds, texts that are none, JSON that is hardly any. A grammar
mixes them with good ones: an input with one fault in it gets further than one with ten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS: list[bytes] = (
    b"0 1 2 -0 -1 +1 007 1.0 1e3 1e999 -1e999 0x10 0b1 0o7 1_000 NaN nan Infinity -Infinity 99 100 999 1000 65535 "
    b"2147483647 2147483648 -2147483648 -2147483649 4294967295 4294967296 9007199254740993 9223372036854775807 "
    b"9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 "
    b"0.1 .5 5. 1e-400 9223372036854.775807".split()
    + [b"", b" 1", b"1 ", b"1\0", b"9" * 400, b"9" * 5000, b"0" * 5000 + b"1", b"0." + b"0" * 400 + b"1"]
    # Digits that int() takes and no protocol means: Arabic, full width, superscript.
    + ["\u0661\u0662".encode(), "\uff11\uff12".encode(), "\u00b2".encode()]
)
TEXTS: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\r\n",
    b"x\r\nX-Injected: 1\r\n\r\n",
    b"..",
    b"../../etc/passwd",
    b"/",
    b"%00",
    b"%s%n{0}{client}",
    b"\"'\\`$(x)",
    "\u2028\u202e\ufeff\U0001f600".encode(),
    "\u0130\u017f\u212a".encode(),
    b"a" * 65,
    b"a" * 5000,
)
NAMES: tuple[bytes, ...] = (
    *(b"t", b"t", b"t", b"u", b"c", b"t#ephemeral", b"c#ephemeral"),
    *(b".", b"..", b"a.deleted.1", b"#ephemeral", b"t#Ephemeral", b"a" * 64, b"a" * 65),
    *(
        b"a" * 54 + b"#ephemeral",
        b"a" * 55 + b"#ephemeral",
        b"t\n",
        b"t t",
        b"\xc3\xa9",
        b"\xff",
        b"",
        b"a:b",
        b"nsqd.dat",
    ),
)
BODIES: tuple[bytes, ...] = (b"x", b"hello", b"\0", b"\n", b"\xf5NSQ" * 5, b"{}", b"FIN 0123456789abcdef\n", b"b" * 30)


def mostly(chance: Random, usual: Sequence[Any], odd: Sequence[Any], part: float = 0.2) -> Any:
    """One of the usual, and in `part` of the cases one of the odd."""
    return chance.choice(odd if chance.random() < part else usual)


def json_text(chance: Random, document: Any) -> bytes:
    """
    A document as JSON, sometimes not quite. Texts and numbers in it that are bytes stand there as they are, so that a
    document can have what `json` would never write.
    """
    text = plain_json(document)
    fault = chance.randrange(12)
    if fault == 0:
        text = chance.choice((b" \n\t", b"\xef\xbb\xbf", b"[", b"\0")) + text
    elif fault == 1:
        text += chance.choice((b" ", b"]", b"{}", b",", b"\0", b"null"))
    elif fault == 2:
        text = text[: chance.randrange(len(text) + 1)]
    elif fault == 3:
        opening = chance.choice((b"[", b'{"a":', b'{"topics":['))
        text = opening * chance.choice((10, 900, 5000, 20_000)) + text
    return text


def json_value(chance: Random) -> Any:
    """Any value, for `json_text`: odd ones above all."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind == 1:
        return chance.choice((-1, 0, 1, 1000, 2**31, 2**63, -(2**63) - 1, 10**30))
    if kind == 2:
        return chance.choice(NUMBERS)
    if kind == 3:
        return chance.choice(("", "t", "\u0000", "\ud800", "\udfff\ud800", "\U0001f600", "x" * 300))
    if kind == 4:
        return b'"%s"' % chance.choice((*TEXTS, b"\\ud800", b"\\u0000", b"\\x", b"\\ud83d\\ude00", b"\\u00"))
    if kind == 5:
        return [json_value(chance) for _ in range(chance.randrange(3))]
    if kind == 6:
        return [(chance.choice(("a", "a", "\ud800")), json_value(chance)) for _ in range(chance.randrange(1, 3))]
    return chance.choice((1, "t", True))


def respelled(chance: Random, key: str) -> str:
    """A key in another case, as Go's JSON takes it, or in letters that only look so."""
    return chance.choice(
        (key, key, key, key.upper(), key.title(), key.replace("s", "\u017f"), key.replace("k", "\u212a"))
    )


def plain_json(value: Any) -> bytes:
    """The same without a fault. Lists of pairs are objects: keys may come twice."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return b"{%s}" % b",".join(json.dumps(key).encode() + b":" + plain_json(item) for key, item in value)
    if isinstance(value, list):
        return b"[%s]" % b",".join(map(plain_json, value))
    return json.dumps(value).encode()
