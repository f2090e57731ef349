"""A request for a page: its viewer, its parameters, and the figures that its view needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from nsqtw.admin.history import Subject
from nsqtw.admin.pages.charts import Chart, Line, chart, span_in
from nsqtw.admin.pages.links import Links
from nsqtw.admin.sampler import Sampler
from nsqtw.admin.viewer import Viewer
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import ChannelStats, ClusterStats, TopicStats
from nsqtw.errors import ClusterError, NoServerAnswered, PageNotFound, UnknownObject


@attrs.define
class PageRequest:
    """One request. `warnings` are shown above the page."""

    cluster: Cluster
    sampler: Sampler
    links: Links
    viewer: Viewer
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

    async def topic(self, name: str) -> TopicStats:
        """Return a topic, from the newest figures if it is there. PageNotFound, ClusterError."""
        known = self.stats().topics.get(name)
        if known is not None:
            return known
        try:
            found = await self.cluster.topic(name)
        except NoServerAnswered as error:
            raise PageNotFound("topic", name) if self.sampler.latest is not None else error from error
        if not found.value.nodes:
            raise PageNotFound("topic", name)
        self._warn_all(found.warnings)
        return found.value

    async def channel(self, topic: str, name: str) -> ChannelStats:
        """Return a channel with its consumers; without them when no node answers. PageNotFound, ClusterError."""
        try:
            found = await self.cluster.channel(topic, name)
        except UnknownObject as error:
            raise PageNotFound("channel", name) from error
        except ClusterError as error:
            for channel in (await self.topic(topic)).channels:
                if channel.channel_name == name:
                    self.warn(str(error))
                    return channel
            raise PageNotFound("channel", name) from error
        self._warn_all(found.warnings)
        return found.value

    def overview_url(self, **query: str) -> str:
        return self.links.page("", **query)

    def _warn_all(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self.warn(warning)

    def warn(self, text: str) -> None:
        """Show a warning, each of its lines once."""
        self.warnings += [line for line in text.splitlines() if line and line not in self.warnings]

    def figures(self, subject: Subject, *names: str) -> dict[str, Any]:
        """Return `rates`, the newest figures of a subject by name, and `recent`, those of the last minutes."""
        history = self.sampler.history
        return {
            "rates": {name: history.last(subject, name) for name in names},
            "recent": {name: history.recent(subject, name) for name in names},
        }

    def chart(self, subject: Subject, name: str, title: str, lines: Iterable[Line]) -> Chart:
        """Return a chart of the wanted length."""
        return chart(self.sampler.history, subject, name, title, tuple(lines), self.span, self.offset)

    def span_url(self, url: Callable[..., str]) -> Callable[[str], str]:
        """Return a function that makes the URL of this page with another length of the charts."""
        kept = {name: value for name, value in self.query.items() if name in ("view", "q", "sort", "list")}
        return lambda span: url(**kept, span=span)
