"""The list of nodes, and the page of one."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from nsqtw.admin.history import History, Points
from nsqtw.admin.pages import formats
from nsqtw.admin.pages.action_forms import release_url
from nsqtw.admin.pages.charts import Line
from nsqtw.admin.pages.listing import listing
from nsqtw.admin.pages.page import NODES, Content, page
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.pages.rows import TOPIC_SORTS, topic_name, topic_rows
from nsqtw.admin.sampler import NodeState, waiting
from nsqtw.admin.viewer import Role
from nsqtw.cluster.model import NodeStats
from nsqtw.replication.status import StandbyStatus

LITTLE_BYTES, LITTLE_PART = 1_000_000_000, 0.1
"""Less disk space than this, or than this part of the disk, is little."""
_MEMORY = (
    ("heap_in_use_bytes", "Memory in use", formats.size),
    ("gc_total_runs", "Garbage collections", formats.count),
)
RATES = (Line("in", "published", "in"), Line("out", "finished", "out"))
LEVELS = (Line("depth", "waiting", "depth"), Line("in_flight", "in flight", "out"))


@attrs.frozen
class NodeRow:
    name: str
    state: NodeState
    _history: History
    _now: float

    @property
    def stats(self) -> NodeStats:
        """The last answer of the node."""
        return self.state.stats

    @property
    def is_gone(self) -> bool:
        """True when the node did not answer."""
        return self.state.is_gone

    @property
    def is_well(self) -> bool:
        """True when the node reports no error."""
        return not self.stats.error

    @property
    def disk_state(self) -> str:
        return disk_state(self.stats)

    @property
    def gone_for(self) -> float:
        """Seconds since the last answer."""
        return self._now - self.state.seen

    @property
    def waiting(self) -> int:
        """Messages that wait on the node."""
        return sum(waiting(topic) for topic in self.stats.topics)

    @property
    def rate_in(self) -> float:
        """Messages published in a second."""
        return self._history.last(("node", self.name), "in")

    @property
    def recent(self) -> Points:
        """The rate of publishing in the last minutes."""
        return self._history.recent(("node", self.name), "in")


def disk_state(stats: NodeStats) -> str:
    """Return the state of the disk of a node: "warning" when there is little left, else nothing."""
    free, capacity = stats.disk_free, stats.disk_capacity
    if free is None:
        return ""
    return "warning" if free < LITTLE_BYTES or (capacity and free < capacity * LITTLE_PART) else ""


@attrs.frozen
class StandbyRow:
    """A standby of an owner. `url` is that of its page, empty for a node that is not known."""

    standby: StandbyStatus
    url: str


def _standbys(page_request: PageRequest, stats: NodeStats) -> list[StandbyRow]:
    known = page_request.sampler.nodes
    return [
        StandbyRow(standby, page_request.links.node(standby.address) if standby.address in known else "")
        for standby in (stats.replica.standbys if stats.replica is not None else ())
    ]


def node_content(page_request: PageRequest) -> dict[str, Any]:
    """Return what a table of nodes needs."""
    sampler = page_request.sampler
    rows = [NodeRow(name, state, sampler.history, sampler.now) for name, state in sampler.nodes.items()]
    lookupds = page_request.cluster.lookupds
    return {
        "nodes": rows,
        "nodes_up": sum(not row.is_gone for row in rows),
        "has_lookupds": bool(lookupds),
        "lookupd_count": len(lookupds),
        "has_disk": any(row.stats.disk_free is not None for row in rows),
        "has_roles": any(row.stats.role for row in rows),
        "unprotected": [row for row in rows if row.stats.is_unprotected and not row.is_gone],
        "has_topology": any(row.stats.node.topology_region or row.stats.node.topology_zone for row in rows),
    }


@page("nodes", "nodes.html", NODES)
async def nodes(page_request: PageRequest) -> Content:
    page_request.stats()
    return {"title": "Nodes", **node_content(page_request)}


@page("nodes/<node>", "node.html", NODES)
async def node(page_request: PageRequest) -> Content:
    """Return the content of the page of one node. UnknownObject."""
    page_request.stats()
    name = page_request.path["node"]
    state = page_request.sampler.nodes.get(name)
    if state is None:
        state = NodeState((await page_request.cluster.node(name)).value, page_request.sampler.now)
    stats, subject = state.stats, ("node", name)
    url = partial(page_request.links.node, name)
    memory = [(label, form(stats.memory[key])) for key, label, form in _MEMORY if key in stats.memory]
    return {
        "title": name,
        "state": state,
        "node": stats,
        "now": page_request.now,
        "offset": page_request.offset,
        "span": page_request.span,
        "span_url": page_request.span_url(url),
        **page_request.figures(subject, "in", "out", "depth"),
        "depth": sum(waiting(topic) for topic in stats.topics),
        "consumers": sum(channel.client_count for topic in stats.topics for channel in topic.channels),
        "charts": [
            page_request.chart(subject, "rates", "Messages a second", RATES),
            page_request.chart(subject, "levels", "Messages on the node", LEVELS),
        ],
        "disk_state": disk_state(stats),
        "memory": memory,
        "standbys": _standbys(page_request, stats),
        "release_url": "" if state.is_gone else release_url(page_request, stats),
        "listing": listing(
            topic_rows(stats.topics, page_request.sampler.history),
            TOPIC_SORTS,
            page_request.query,
            url,
            name=topic_name,
        ),
        "tombstones": {topic.topic for topic in stats.node.topics if topic.is_tombstoned},
        "may_tombstone": page_request.viewer.may(Role.ADMIN)
        and bool(page_request.cluster.lookupds)
        and not state.is_gone,
    }
