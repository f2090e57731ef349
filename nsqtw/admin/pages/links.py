"""URLs of the pages, below the base path."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import attrs


def _segment(name: str) -> str:
    return quote(name, safe=":")


@attrs.frozen
class Links:
    """Makes URLs. `base` begins and ends with a slash."""

    base: str

    @classmethod
    def below(cls, base_path: str) -> Links:
        """Return the URLs below --base-path."""
        return cls(f"/{base_path.strip('/')}/".replace("//", "/"))

    def page(self, path: str, **query: str | int) -> str:
        """Return the URL of a path below the base. Empty values of the query are left out."""
        given = {name: value for name, value in query.items() if value != ""}
        return f"{self.base}{path}" + (f"?{urlencode(given)}" if given else "")

    def topic(self, topic: str, **query: str | int) -> str:
        """Return the URL of a topic's page."""
        return self.page(f"topics/{_segment(topic)}", **query)

    def channel(self, topic: str, channel: str, **query: str | int) -> str:
        """Return the URL of a channel's page."""
        return self.page(f"topics/{_segment(topic)}/{_segment(channel)}", **query)

    def node(self, node: str, **query: str | int) -> str:
        """Return the URL of a node's page."""
        return self.page(f"nodes/{_segment(node)}", **query)

    def action(self, name: str, **query: str | int) -> str:
        """Return the URL of an action: a form for GET, the action for POST."""
        return self.page(f"actions/{name}", **query)
