"""A change of a topic or channel on all nodes, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nsqtw.cli.failures import failure_of
from nsqtw.cli.output import Document
from nsqtw.cli.session import Session
from nsqtw.cluster.changes import Done
from nsqtw.cluster.cluster import Cluster
from nsqtw.errors import NotFound, OptionError
from nsqtw.names import is_valid_name


def check_name(name: str) -> None:
    """Check the name of a topic or channel. OptionError."""
    if not is_valid_name(name):
        raise OptionError(f"no topic or channel can have the name {name!r}: 1 to 64 of a-z A-Z 0-9 . _ -")


async def run_change(
    session: Session,
    what: str,
    change: Callable[[Cluster], Awaitable[Done]],
    topic: str,
    channel: str = "",
    *,
    must_exist: bool = True,
) -> Document:
    """
    Have the cluster make a change, and return the nodes that made it. `what` is the past tense of the action. Nodes
    that failed are warnings. NotFound when no node has the topic; the error of the nodes when none made the change.
    """
    async with session.cluster() as cluster:
        if must_exist and not (await cluster.topic_nodes(topic)).value and not cluster.lookupds:
            raise NotFound(f"no node has a topic {topic!r}; 'nsqtw topic list' shows them")
        done = await change(cluster)
    if not done.value:
        if not done.warnings:
            raise NotFound(f"no node has a topic {topic!r}; 'nsqtw topic list' shows them")
        raise failure_of(done.warnings)
    done_by = session.value_of(done)
    nodes = list(done_by)
    data: dict[str, Any] = {"action": what, "topic": topic}
    if channel:
        data["channel"] = channel
    name = f"{topic}/{channel}" if channel else topic
    return Document({**data, "nodes": nodes}, [f"{what} {name} on {', '.join(nodes)}"])
