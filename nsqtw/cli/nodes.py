"""Verbs about nodes: `nsqtw nodes`, `nsqtw drain` and `nsqtw reload`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from typing import Any

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from nsqtw.cli.failures import ExitCode, explained
from nsqtw.cli.output import Column, Document, ProgressBar, Table, age_or_dash, number, size_or_dash
from nsqtw.cli.session import Session
from nsqtw.cli.verb import duration_of
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import DrainState, Node, NodeStats, ReloadReport
from nsqtw.errors import CommandError, NoServerAnswered

_COLUMNS = (
    Column("node", "NODE"),
    Column("tcp_address", "TCP", rank=4),
    Column("version", "VERSION"),
    Column("health", "HEALTH"),
    Column("role", "ROLE", if_used=True),
    number("uptime", "UP", age_or_dash, rank=1),
    number("topics", "TOPICS", rank=3),
    number("channels", "CHANNELS", rank=5),
    number("depth", "DEPTH"),
    number("messages", "MESSAGES", rank=2),
    number("disk_free", "DISK FREE", size_or_dash),
)
_LOOK_SECONDS = 0.25
_CHANGE_COLUMNS = (
    Column("node", "NODE"),
    Column("option", "OPTION"),
    Column("old", "OLD"),
    Column("new", "NEW"),
    Column("effect", "EFFECT"),
)


async def list_nodes(session: Session) -> Table:
    """`nsqtw nodes`."""
    async with session.cluster() as cluster:
        stats = session.value_of(await cluster.stats())
        draining = await _draining(cluster, stats.nodes)
    now = time.time()
    return Table(_COLUMNS, [_node_row(node, now, node.node in draining) for node in stats.nodes], "no nodes")


async def _draining(cluster: Cluster, nodes: Sequence[NodeStats]) -> set[Node]:
    """Return the nodes that drain. Only nsqd of nsqtw can be asked."""

    async def is_draining(node: Node) -> bool:
        try:
            return (await cluster.drain_state(node)).is_draining
        except NoServerAnswered:
            return False

    asked = [stats.node for stats in nodes if stats.nsqtw_version]
    answers = await gatherResults([Deferred.fromCoroutine(is_draining(node)) for node in asked])
    return {node for node, answer in zip(asked, answers, strict=True) if answer}


def _node_row(stats: NodeStats, now: float, is_draining: bool) -> dict[str, Any]:
    node = stats.node
    return {
        "node": node.http_address,
        "tcp_address": node.tcp_address,
        "hostname": node.hostname,
        "version": f"{node.version} (nsqtw {stats.nsqtw_version})" if stats.nsqtw_version else node.version,
        "health": _health(stats, is_draining=is_draining),
        "role": stats.role or None,
        "uptime": max(0.0, now - stats.start_time) if stats.start_time else None,
        "topics": len(stats.topics),
        "channels": sum(len(topic.channels) for topic in stats.topics),
        "depth": sum(topic.total_depth for topic in stats.topics),
        "messages": stats.message_count,
        "disk_free": stats.disk_free,
        "out_of_date": node.is_outdated,
    }


def _health(stats: NodeStats, *, is_draining: bool) -> str:
    """Return what a node says of itself; of a standby, whether it can copy."""
    if is_draining:
        return "draining"
    return stats.error or (stats.replica.error if stats.replica is not None else "") or "OK"


async def drain(session: Session, node: str, timeout: str | None, no_wait: bool) -> Document:
    """`nsqtw drain`. Waits until the node has ended, and says what it left."""
    if timeout is not None:
        duration_of("--timeout", timeout, "a duration such as 5m, or 0")
    async with session.cluster() as cluster:
        target = await cluster.node_named(node)
        session.confirm(f"Drain {target.http_address}: it refuses publishes, delivers what it has, and stops. Go on?")
        state = await cluster.drain(target, timeout or "")
        if no_wait:
            return _document(state, has_ended=False)
        session.say(f"draining {target.http_address}: {_counts(state)}")
        with ProgressBar(f"draining {target.http_address}") as bar:
            state, is_late = await _drained(session, cluster, target, state, bar)
    if is_late and _left(state):
        session.exit_code = ExitCode.FAILED
        session.warn("the timeout ended the drain; the messages that are left stay in the data path")
    return _document(state, has_ended=True)


async def _drained(
    session: Session, cluster: Cluster, node: Node, state: DrainState, bar: ProgressBar
) -> tuple[DrainState, bool]:
    """Wait until the node has ended. Return what it said last, and whether its timeout has passed."""
    most = left = _left(state)
    deadline = _deadline(session, state)
    while True:
        bar.show(most - left, most)
        await deferLater(session.reactor, _LOOK_SECONDS)
        try:
            state = await cluster.drain_state(node)
        except NoServerAnswered:
            return state, session.reactor.seconds() >= deadline
        deadline = _deadline(session, state)
        left = _left(state)
        most = max(most, left)


def _deadline(session: Session, state: DrainState) -> float:
    """Return when the timeout of a drain ends it, by the clock of the reactor."""
    return inf if state.seconds_left is None else session.reactor.seconds() + state.seconds_left


def _counts(state: DrainState) -> str:
    """Return what a node has, in words."""
    return f"{state.depth} waiting, {state.in_flight} in flight, {state.deferred} deferred, {state.staying} staying"


def _left(state: DrainState) -> int:
    return state.depth + state.in_flight + state.deferred


def _document(state: DrainState, *, has_ended: bool) -> Document:
    counts = _counts(state)
    text = f"{state.node} has stopped; last seen: {counts}" if has_ended else f"{state.node} drains: {counts}"
    data: dict[str, Any] = {
        "node": state.node,
        "stopped": has_ended,
        "depth": state.depth,
        "in_flight": state.in_flight,
        "deferred": state.deferred,
        "staying": state.staying,
    }
    return Document(data, [text])


async def reload(session: Session, node: str | None) -> Document:
    """`nsqtw reload`."""
    reports: list[ReloadReport] = []
    failures: list[str] = []
    async with session.cluster() as cluster:
        nodes = [await cluster.node_named(node)] if node else session.value_of(await cluster.nodes())
        for target in nodes:
            try:
                reports.append(await cluster.reload(target))
            except NoServerAnswered as error:
                if len(nodes) == 1:
                    raise
                failures.append(f"{target.http_address}: {explained(error)}")
    for failure in failures:
        session.warn(failure)
    if failures and not reports:
        raise CommandError("no node has reloaded; the warnings above say why")
    if failures:
        session.exit_code = ExitCode.PARTIAL_FAILURE
    rows = [
        {"node": report.node, "effect": effect, **attrs.asdict(change)}
        for report in reports
        for changes, effect in ((report.changed, "now"), (report.restart, "needs a restart"))
        for change in changes
    ]
    lines = [
        f"{report.node}: reloaded, {len(report.changed)} options changed;"
        f" read again: {', '.join(report.files) or 'no files'}"
        for report in reports
    ]
    return Document(
        {"nodes": [attrs.asdict(report) for report in reports]},
        [*lines, *([Table(_CHANGE_COLUMNS, rows)] if rows else [])],
    )
