"""Texts as NSQ's clients and tools know them: quoted names, JSON, and Go's JSON's escapes."""

from __future__ import annotations

import json
from typing import Any

_ESCAPES = {7: r"\a", 8: r"\b", 12: r"\f", 10: r"\n", 13: r"\r", 9: r"\t", 11: r"\v", 34: r"\"", 92: r"\\"}
_JSON_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def quoted(raw: bytes) -> str:
    """A name in quotes, what cannot be printed escaped."""
    return '"' + "".join(map(_quoted_character, raw.decode("utf-8", "surrogateescape"))) + '"'


def _quoted_character(character: str) -> str:
    code = ord(character)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_text(value: Any) -> bytes:
    """Compact JSON with the escapes nsqd writes: `<`, `>`, `&` and the two line separators."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_JSON_ESCAPES).encode("utf-8", "replace")
