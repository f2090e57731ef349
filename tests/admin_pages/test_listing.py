"""Lists: filter, sort and pages, from the query of a URL."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from nsqtw.admin.pages.links import Links
from nsqtw.admin.pages.listing import PAGE_ROWS, Listing, listing

LINKS = Links.below("/admin")


@attrs.frozen
class Row:
    name: str
    depth: int


ROWS = [Row(f"topic-{number:03}", number % 7) for number in range(120)]
SORTS: Any = {"name": lambda row: row.name, "depth": lambda row: row.depth}


def shown(**query: str) -> Listing[Row]:
    return listing(ROWS, SORTS, query, lambda **more: LINKS.page("topics", **more), name=lambda row: row.name)


def test_the_first_page_is_by_name() -> None:
    page = shown()
    assert [row.name for row in page.rows] == [row.name for row in ROWS[:PAGE_ROWS]]
    assert (page.first, page.last, page.total, page.pages) == (1, 50, 120, 3)


@pytest.mark.parametrize(("wanted", "page"), [("2", 2), ("3", 3), ("99", 3), ("0", 1), ("-1", 1), ("x", 1), ("²", 1)])
def test_a_page_is_one_there_is(wanted: str, page: int) -> None:
    assert shown(page=wanted).page == page


def test_the_last_page_has_the_rest() -> None:
    page = shown(page="3")
    assert (len(page.rows), page.first, page.last) == (20, 101, 120)


def test_numbers_are_sorted_from_the_largest_and_equal_ones_by_name() -> None:
    page = shown(sort="-depth")
    assert [row.depth for row in page.rows[:18]] == [6] * 17 + [5]
    assert [row.name for row in page.rows[:2]] == ["topic-006", "topic-013"]
    assert page.sort_url("depth") == "/admin/topics?sort=depth"
    assert page.sort_url("name") == "/admin/topics?sort=name"
    assert shown().sort_url("depth") == "/admin/topics?sort=-depth"


def test_a_column_that_is_none_is_the_default() -> None:
    assert shown(sort="-password").sort == "name"


def test_a_filter_finds_a_part_of_the_name_in_any_case() -> None:
    page = shown(q="IC-01")
    assert [row.name for row in page.rows] == [f"topic-01{digit}" for digit in range(10)]
    assert page.pages == 1


def test_links_keep_the_filter_and_the_order() -> None:
    page = shown(q="topic", sort="-depth", page="2")
    assert page.page_url(1) == "/admin/topics?q=topic&sort=-depth"
    assert page.page_url(3) == "/admin/topics?q=topic&sort=-depth&page=3"
    assert page.kept_fields == [("sort", "-depth")]
    assert page.list_url("channels") == "/admin/topics?q=topic&list=channels"


@pytest.mark.parametrize(("path", "base"), [("/", "/"), ("", "/"), ("/nsq", "/nsq/"), ("/a/b", "/a/b/")])
def test_links_are_below_the_base_path(path: str, base: str) -> None:
    assert Links.below(path).page("topics") == f"{base}topics"


def test_names_in_links_are_escaped() -> None:
    assert LINKS.channel("a.b", "c#ephemeral") == "/admin/topics/a.b/c%23ephemeral"
    assert LINKS.node("[::1]:4151", span="1h") == "/admin/nodes/%5B::1%5D:4151?span=1h"
