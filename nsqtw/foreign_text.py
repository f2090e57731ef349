"""
The escapes that make foreign text safe in a terminal and in logs.

Names, addresses, error texts and messages of other programs may hold control characters, which move the cursor, change
the terminal or forge a line of a log, and bidirectional controls, which show text in another order. The Spark package
has a copy of this module, which imports nothing of nsqtw.
"""

from __future__ import annotations

import json
import re
from typing import Any

_C0 = "\x00-\x1f"
_OTHER = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1, bidirectional controls, separators of lines and paragraphs, and surrogates, which no encoding has."""
_ONE_LINE = re.compile(f"[{_C0}{_OTHER}]")
_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_OTHER}]")
_IN_JSON = re.compile(f"[{_OTHER}]")


def one_line(text: str) -> str:
    """Return text as a part of one line: control characters and bidirectional controls are escaped."""
    return text if text.isprintable() else _ONE_LINE.sub(_escaped, text)


def printable(text: str) -> str:
    """Return text that may have several lines: what `one_line` escapes, but tab and newline."""
    return text if text.isprintable() else _LINES.sub(_escaped, text)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON that controls no terminal: what `one_line` escapes is escaped as JSON does."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, indent=indent))


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
