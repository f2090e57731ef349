"""`nsqtw stat`: depths and rates of all channels, live on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from nsqtw.cli.failures import ExitCode
from nsqtw.cli.output import Column, Document, Table, age_or_dash, console_text, make_console, number, rich_table
from nsqtw.cli.session import Session
from nsqtw.cli.topics import CHANNEL_COLUMNS, channel_row
from nsqtw.cli.verb import SORTS
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import ClusterStats, TopicStats
from nsqtw.cluster.rates import RateMeter, Rates, Subject
from nsqtw.errors import NsqtwError
from nsqtw.foreign_text import json_text
from nsqtw.printing import is_stdout_terminal, write_line

Row = dict[str, Any]


def _rate_text(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}" if 0 < rate < 10 else f"{rate:.0f}"


COLUMNS = (
    Column("topic", "TOPIC"),
    Column("channel", "CHANNEL"),
    number("depth", "DEPTH"),
    number("in_flight", "IN FLIGHT"),
    number("deferred", "DEFERRED", rank=4),
    number("in_rate", "IN/s", _rate_text),
    number("out_rate", "OUT/s", _rate_text),
    number("requeue_rate", "REQUEUED/s", _rate_text, rank=5),
    number("timeout_rate", "TIMED OUT/s", _rate_text, rank=6),
    *(column for column in CHANNEL_COLUMNS if column.if_used),
    number("oldest_message_age", "OLDEST", age_or_dash, rank=1),
    number("consumers", "CONSUMERS", rank=2),
    Column("paused", "PAUSED", rank=3),
)
_OTHER_LINES = 5


async def stat(
    session: Session, topic: str | None, channel: str | None, interval: float, n: int | None, sort: str
) -> Document | int:
    """`nsqtw stat`. Without -n it is live on a terminal until Ctrl-C, and one table elsewhere."""
    is_live = is_stdout_terminal() and not session.output.is_json and n != 1
    polls = n or (0 if is_live else 1)
    meter = Meter(topic, channel, sort)
    async with session.cluster() as cluster:
        try:
            if is_live:
                await _run_live(session, cluster, meter, interval, polls)
                return session.exit_code
            for number_of_poll in range(polls):
                if number_of_poll:
                    await deferLater(session.reactor, interval)
                rows = meter.rows(session.value_of(await cluster.stats()), time.monotonic())
                document = Document({"time": time.time(), "channels": rows}, [Table(COLUMNS, rows, "no topics")])
                if polls == 1:
                    return document
                if session.output.is_json:
                    write_line(json_text(document.data))
                else:
                    session.output.show(document)
        except CancelledError:
            return ExitCode.DONE if n is None else ExitCode.INTERRUPTED
    return session.exit_code


async def _run_live(session: Session, cluster: Cluster, meter: Meter, interval: float, polls: int) -> None:
    from rich.console import Group
    from rich.live import Live

    console = make_console()
    done = 0
    with Live(console=console, auto_refresh=False, screen=not polls) as live:
        while not polls or done < polls:
            if done:
                await deferLater(session.reactor, interval)
            note = ""
            try:
                partial = await cluster.stats()
            except NsqtwError as error:
                if not done:
                    raise
                note = f"no answer: {error}"  # what was seen last stays on the screen
            else:
                note = "; ".join(partial.warnings)
                rows = meter.rows(partial.value, time.monotonic())
            left = max(1, console.size.height - _OTHER_LINES)
            more = f"{len(rows) - left} more; name a topic, or --sort" if len(rows) > left else ""
            status = "   ".join(filter(None, (time.strftime("%H:%M:%S"), f"{len(rows)} rows", more, note)))
            table = rich_table(Table(COLUMNS, rows[:left]), console)
            live.update(Group(console_text(status, must_fit=True), table), refresh=True)
            done += 1


class Meter:
    """Makes rows of the counts of the cluster, with rates since the rows before."""

    def __init__(self, topic: str | None, channel: str | None, sort: str) -> None:
        self._topic = topic
        self._channel = channel
        self._key, self._is_descending = SORTS[sort]
        self._meter = RateMeter()

    def rows(self, stats: ClusterStats, now: float) -> list[Row]:
        """Return a row for each channel, and for each topic without channels. `now` is in seconds."""
        rates: dict[Subject, Rates] = {}
        for node in stats.nodes:
            for subject, found in self._meter.rates(node, now):
                if found is not None:
                    rates[subject] = rates.get(subject, Rates()) + found
        rows = [
            {**row, **_rates_row(rates.get(subject))}
            for topic in stats.topics.values()
            for subject, row in _rows_of(topic)
            if self._topic in (None, row["topic"]) and self._channel in (None, row["channel"])
        ]
        return self._sorted(rows)

    def _sorted(self, rows: Sequence[Row]) -> list[Row]:
        by_name = sorted(rows, key=lambda row: (row["topic"], row["channel"]))
        if not self._is_descending:
            return by_name
        return sorted(by_name, key=lambda row: -(row[self._key] or 0))


def _rows_of(topic: TopicStats) -> list[tuple[Subject, Row]]:
    name = topic.topic_name
    if topic.channels:
        return [(("channel", name, channel.channel_name), channel_row(channel)) for channel in topic.channels]
    row = {"topic": name, "channel": "", "depth": topic.own_ready_count, "backend_depth": topic.backend_depth}
    zeros = dict.fromkeys(("in_flight", "requeued", "timed_out", "consumers"), 0)
    rest = {
        "deferred": topic.own_deferred_count,
        **dict.fromkeys(column.key for column in CHANNEL_COLUMNS if column.if_used),
        "messages": topic.message_count,
        "oldest_message_age": topic.oldest_message_age,
        "paused": topic.is_paused,
    }
    return [(("topic", name), {**row, **zeros, **rest})]


def _rates_row(rates: Rates | None) -> dict[str, float | None]:
    if rates is None:
        return dict.fromkeys(("in_rate", "out_rate", "requeue_rate", "timeout_rate"))
    return {
        "in_rate": rates.incoming,
        "out_rate": rates.outgoing,
        "requeue_rate": rates.requeued,
        "timeout_rate": rates.timed_out,
    }
