"""A request for a page: its viewer, its parameters and what the view needs to answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from nsqtw.admin.history import Subject
from nsqtw.admin.pages.charts import Chart, Line, chart, span_in
from nsqtw.admin.pages.links import Links
from nsqtw.admin.sampler import Sampler
from nsqtw.cluster.model import ClusterStats


@attrs.define
class Visit:
    """One request. `warnings` are shown above the page."""

    cluster: Any
    sampler: Sampler
    links: Links
    viewer: Any
    query: Mapping[str, str]
    path: Mapping[str, str]
    """The parts of the path by name."""
    offset: float
    """Seconds from the sampler's clock to Unix time."""
    is_event: bool = False
    """Only the live part is wanted."""
    warnings: list[str] = attrs.field(factory=list)

    @property
    def now(self) -> float:
        """Unix time."""
        return self.sampler.now + self.offset

    @property
    def span(self) -> str:
        """The length of the charts."""
        return span_in(self.query.get("span", ""))

    def stats(self) -> ClusterStats:
        """Return the newest figures of the cluster, and show the warnings that came with them."""
        latest = self.sampler.latest
        if self.sampler.error:
            self.warn(self.sampler.error)
        if latest is None:
            return ClusterStats()
        for warning in latest.warnings:
            self.warn(warning)
        return latest.value

    def warn(self, text: str) -> None:
        """Show a warning, each of its lines once."""
        self.warnings += [line for line in text.splitlines() if line and line not in self.warnings]

    def chart(self, subject: Subject, name: str, title: str, lines: Iterable[Line]) -> Chart:
        """Return a chart of the wanted length."""
        return chart(self.sampler.history, subject, name, title, tuple(lines), self.span, self.offset)

    def span_url(self, url: Callable[..., str]) -> Callable[[str], str]:
        """Return a function that makes the URL of this page with another length of the charts."""
        kept = {name: value for name, value in self.query.items() if name in ("view", "q", "sort", "list")}
        return lambda span: url(**kept, span=span)
