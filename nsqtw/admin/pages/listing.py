"""
Lists of topics or channels: filtered, sorted, and one page of them.

The state of a list is in the query of its URL: `q`, `sort` (a column, with `-` in front for the largest first), `page`
and `list`. An unknown value is the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

PAGE_ROWS = 50

Row = TypeVar("Row")
Sorts = Mapping[str, Callable[[Row], "float | str"]]
"""The columns by which a list can be sorted: the value of a row."""


@attrs.frozen
class Listing(Generic[Row]):
    """One page of a list. Rows are counted from 1."""

    rows: Sequence[Row]
    total: int
    text: str
    sort: str
    is_descending: bool
    page: int
    _url: Callable[..., str]
    _query: Mapping[str, str]
    """The query of the URL, as far as it belongs to the list."""

    @property
    def pages(self) -> int:
        return max(1, math.ceil(self.total / PAGE_ROWS))

    @property
    def first(self) -> int:
        """The number of the first row."""
        return (self.page - 1) * PAGE_ROWS + 1

    @property
    def last(self) -> int:
        """The number of the last row."""
        return self.first + len(self.rows) - 1

    @property
    def kept_fields(self) -> list[tuple[str, str]]:
        """The fields that a new filter keeps."""
        return [(name, value) for name, value in self._query.items() if name not in ("q", "page")]

    def sort_url(self, key: str) -> str:
        """
        Return the URL of the list sorted by a column: numbers from the largest, and in the other order the next
        time.
        """
        is_descending = not self.is_descending if key == self.sort else key != "name"
        return self._url(**{**self._query, "sort": f"-{key}" if is_descending else key, "page": ""})

    def page_url(self, page: int) -> str:
        return self._url(**{**self._query, "page": page if page > 1 else ""})

    def list_url(self, name: str) -> str:
        """Return the URL of another list, with the same filter."""
        return self._url(q=self.text, list="" if name == "topics" else name)


def listing(
    rows: Sequence[Row],
    sorts: Sorts[Row],
    query: Mapping[str, str],
    url: Callable[..., str],
    *,
    name: Callable[[Row], str],
    default: str = "name",
) -> Listing[Row]:
    """Return the page that `query` asks for. `url` makes the URL of the list from the fields of a query."""
    text = query.get("q", "").strip()
    if text:
        sought = text.lower()
        rows = [row for row in rows if sought in name(row).lower()]
    wanted = query.get("sort", default)
    if wanted.lstrip("-") not in sorts:
        wanted = default
    key, is_descending = wanted.lstrip("-"), wanted.startswith("-")
    ordered = sorted(rows, key=name)
    if key != "name" or is_descending:
        ordered.sort(key=sorts[key], reverse=is_descending)
    page = _page_in(query, len(ordered))
    start = (page - 1) * PAGE_ROWS
    kept = {field: query[field] for field in ("q", "sort", "page", "list", "span", "view") if query.get(field)}
    return Listing(ordered[start : start + PAGE_ROWS], len(ordered), text, key, is_descending, page, url, kept)


def _page_in(query: Mapping[str, str], total: int) -> int:
    text = query.get("page", "")
    wanted = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1
    return min(max(wanted, 1), max(1, math.ceil(total / PAGE_ROWS)))
