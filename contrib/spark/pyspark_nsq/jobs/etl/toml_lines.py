"""Line numbers of the keys in a TOML file, which the parser of the standard library does not report."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.-]+)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*(?:\.|=)")
_QUOTES = ('"""', "'''")

#: The line of a section's header is under the key None.
Lines = dict[tuple[str, int, str | None], int]


def key_lines(text: str) -> Lines:
    """Return the line of each key by section, number of the section among those of its name, and key."""
    lines: Lines = {}
    section, number = "", 0
    seen: dict[str, int] = {}
    quotes = ""
    for at, line in enumerate(text.splitlines(), 1):
        if quotes:
            if quotes in line:
                quotes = ""
            continue
        if header := _HEADER.match(line):
            section = header[1]
            number = seen.get(section, -1) + 1
            seen[section] = number
            lines[section, number, None] = at
        elif found := _KEY.match(line):
            lines.setdefault((section, number, found[1]), at)
            quotes = next((each for each in _QUOTES if line.count(each) == 1), "")
    return lines
