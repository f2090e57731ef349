"""The verb `nsqtw channel redrive`: puts dead letters back."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater

from nsqtw.cli.exit_codes import ExitCode
from nsqtw.cli.failures import topic_not_found
from nsqtw.cli.output import Column, Table, number
from nsqtw.cli.progress import ProgressBar
from nsqtw.cli.session import Session
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import RedriveProgress
from nsqtw.errors import NoServerAnswered, NotFound

_LOOK_SECONDS = 0.25
_COLUMNS = (
    Column("node", "NODE"),
    Column("state", "STATE"),
    number("total", "MESSAGES"),
    number("redriven", "PUT BACK"),
    number("others", "OF OTHERS"),
    Column("error", "ERROR"),
)

Redrives = tuple[RedriveProgress, ...]


async def redrive(
    session: Session,
    topic: str,
    channel: str,
    rate: int | None,
    max: int | None,
    dry_run: bool,
    stop: bool,
    no_wait: bool,
) -> Table:
    """`nsqtw channel redrive`. Waits until the redrive has ended on all nodes."""
    given = {"rate": rate, "max": max, "dry_run": dry_run and "true", "stop": stop and "true"}
    parameters = {name: str(value) for name, value in given.items() if value}
    async with session.cluster() as cluster:
        try:
            found = session.value_of(await cluster.redrive(topic, channel, parameters))
        except NoServerAnswered as error:
            if error.errors:
                raise
            raise topic_not_found(topic) from error
        if not found:
            raise NotFound(f"no node has dead letters of channel {channel!r} of topic {topic!r}")
        if not (dry_run or no_wait):
            found = await _ended(session, cluster, topic, channel, found)
    if any(one.state == "failed" for one in found):
        session.exit_code = ExitCode.FAILED
    return Table(_COLUMNS, [_row(one) for one in found])


async def _ended(session: Session, cluster: Cluster, topic: str, channel: str, found: Redrives) -> Redrives:
    """Wait until no node goes on. Return how far all came."""
    with ProgressBar(f"redrive of {topic}/{channel}") as bar:
        while any(one.is_running for one in found):
            bar.show(sum(one.redriven + one.others for one in found), sum(one.total for one in found))
            await deferLater(session.reactor, _LOOK_SECONDS)
            found = session.value_of(await cluster.redrive_progress(topic, channel))
    return found


def _row(one: RedriveProgress) -> dict[str, Any]:
    return {
        "node": one.node,
        "state": one.state,
        "total": one.total,
        "redriven": one.redriven,
        "others": one.others,
        "error": one.error,
    }
