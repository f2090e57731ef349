"""
/metrics, /livez and /readyz of a daemon whose HTTP server is not ours, as nsqadmin's: paths in, bytes out.

    pages = DaemonPages(DaemonView(program="nsqadmin", readiness=readiness, lag=lag))
    page = pages.page("/readyz", accept)         Page(status, content_type, body); None for any other path

The samples of such a daemon are few, and written at once. /livez and /readyz are for anybody; /metrics needs what other
pages need.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.exposition import DaemonMetrics
from nsqtw.stats.families import Families

OPEN_PATHS = ("/livez", "/readyz")
"""The pages that need no credential."""
PATHS = ("/metrics", *OPEN_PATHS)


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


class DaemonPages:
    """The pages of the daemon of `view`. `families` are metrics of its own, whose source is the view."""

    def __init__(self, view: DaemonView, families: Families = ()) -> None:
        self._view = view
        self._metrics = DaemonMetrics(view, families)

    def page(self, path: str, accept: str = "") -> Page | None:
        """Return the page at `path` for a client with the header field Accept `accept`; None when there is none."""
        match path:
            case "/livez":
                return Page(200, "text/plain; charset=utf-8", b"OK")
            case "/readyz":
                document = self._view.readiness.document()
                body = json.dumps(document, separators=(",", ":")).encode()
                return Page(200 if document["ready"] else 503, "application/json; charset=utf-8", body)
            case "/metrics":
                content_type, pieces = self._metrics.scrape(accept)
                return Page(200, content_type, b"".join(pieces))
        return None
