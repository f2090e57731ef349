"""The table of pages. A page is one declaration: its path, its template, and the view that finds what is shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from nsqtw.admin.pages.page_request import PageRequest

Content = Mapping[str, Any]
View = Callable[[PageRequest], Awaitable[Content]]

OVERVIEW, TOPICS, NODES, CONNECTIONS, LOOKUP, COUNTER = SECTIONS = (
    *("Overview", "Topics", "Nodes"),
    *("Connections", "Lookup", "Counter"),
)
NAVIGATION = tuple(zip(SECTIONS, ("", "topics", "nodes", "connections", "lookup", "counter"), strict=True))
"""The entries of the navigation, and their paths."""


@attrs.frozen
class Page:
    """A page. `path` is a pattern below the base path. The content has a "title"."""

    path: str
    template: str
    section: str
    view: View


PAGES: list[Page] = []


def page(path: str, template: str, section: str) -> Callable[[View], View]:
    """Add the decorated view to the table of pages."""

    def add(view: View) -> View:
        PAGES.append(Page(path, template, section, view))
        return view

    return add
