"""The table of rights of docs/how-to/auth.md has all endpoints, with the rights that they declare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from nsqtw.api.site import endpoints
from nsqtw.http.bearer_auth import ANY_RIGHT, FREE
from nsqtw.http.endpoints import Endpoint

PAGE = Path(__file__).parent.parent / "docs/how-to/auth.md"
_ABOUT = {"the topic": ("topic",), "the channel": ("channel",), "empty": (), "": ()}


class Row(NamedTuple):
    """A row of the table: what is needed, the path that a text stands for, and what the permission is about."""

    needs: str
    path: str
    about: tuple[str, ...]

    def is_of(self, endpoint: Endpoint) -> bool:
        prefix = self.path.removesuffix("...")
        return endpoint.path.startswith(prefix) if prefix != self.path else endpoint.path == self.path


def rows() -> list[Row]:
    text = PAGE.read_text("utf-8")
    table = text[text.index("## Rights") : text.index("Patterns are")]
    words = {"any": ANY_RIGHT, "none": FREE}
    found: list[Row] = []
    for line in table.splitlines():
        if not line.startswith("|"):
            continue
        needs, allowed, topic, channel = [cell.strip(" `") for cell in line.strip("|").split("|")]
        found += [
            Row(words.get(needs, needs), path, _ABOUT[topic] + _ABOUT[channel])
            for path in re.findall(r"(?:[A-Z]+ )?(/[^`\s]*)`", f"{allowed}`")
        ]
    return found


@pytest.mark.parametrize("endpoint", endpoints(), ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_an_endpoint_is_in_the_table_with_its_rights(endpoint: Endpoint) -> None:
    found = [row for row in rows() if row.is_of(endpoint)]
    assert [(row.needs, row.about) for row in found] == [(endpoint.needs, endpoint.about)]


def test_the_table_has_no_other_path() -> None:
    assert [row.path for row in rows() if not any(row.is_of(endpoint) for endpoint in endpoints())] == []
