"""The plan of a replay: the number of messages in each hour, and the sections that are published one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import click

from pyspark_nsq.jobs.messages import Section
from pyspark_nsq.jobs.moments import rfc3339

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
from pyspark_nsq.options.kinds import HOUR_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALIGNED = (str.ljust, str.ljust, str.rjust, str.rjust)


class Hour(NamedTuple):
    """The messages of an hour that one nsqd has. `first` and `last` are the lowest and the highest position."""

    topic: str
    nsqd: str
    since_ms: int
    until_ms: int
    messages: int
    bytes: int
    first: int
    last: int


def count_by_hour(messages: DataFrame) -> list[Hour]:
    """Count messages by topic, nsqd and hour. Reads all of them."""
    from pyspark.sql import functions as f

    counted = (
        messages.groupBy("topic", "nsqd", f.floor(f.unix_millis("timestamp") / HOUR_MS).alias("hour"))
        .agg(
            f.min(f.unix_millis("timestamp")).alias("since_ms"),
            f.max(f.unix_millis("timestamp")).alias("until_ms"),
            f.count(f.lit(1)).alias("messages"),
            f.sum(f.length("value")).alias("bytes"),
            f.min("position").alias("first"),
            f.max("position").alias("last"),
        )
        .drop("hour")
    )
    return [Hour(*row) for row in counted.collect()]


def sections(hours: Iterable[Hour], size: int) -> Iterator[Section]:
    """Divide the messages into sections of about `size` messages, by nsqd and then by position.

    Each message is in exactly one of them. Within an hour the positions are taken to be evenly distributed.
    """
    ordered = sorted(hours, key=lambda hour: (hour.topic, hour.nsqd, hour.first))
    for (topic, nsqd), group in groupby(ordered, key=lambda hour: (hour.topic, hour.nsqd)):
        of_log = list(group)
        edges = [*sorted(set(_edges(of_log, size))), max(hour.last for hour in of_log) + 1]
        for start, end in pairwise(edges):
            inside = [hour for hour in of_log if hour.first < end and hour.last >= start]
            if inside:
                since, until = min(hour.since_ms for hour in inside), max(hour.until_ms for hour in inside)
                yield Section(topic, nsqd, start, end, since, until)


def _edges(hours: list[Hour], size: int) -> Iterator[int]:
    """Return positions between which `size` messages are expected, the first one before all messages."""
    before = 0
    for hour in hours:
        width = hour.last + 1 - hour.first
        upto = before + hour.messages
        for multiple in range(-(-before // size) * size, upto, size):
            yield hour.first + (multiple - before) * width // hour.messages
        before = upto


def print_counts(hours: Iterable[Hour], limit: int | None = None) -> None:
    """Print the messages and bytes of each topic and hour, their sum, and how many of them a limit allows."""
    total: dict[tuple[str, int], tuple[int, int]] = {}
    for hour in hours:
        key = (hour.topic, hour.since_ms // HOUR_MS * HOUR_MS)
        messages, size = total.get(key, (0, 0))
        total[key] = (messages + hour.messages, size + hour.bytes)
    lines = [(topic, rfc3339(at), f"{n:,}", f"{size:,}") for (topic, at), (n, size) in sorted(total.items())]
    counts = [sum(column) for column in zip(*total.values(), strict=True)] or [0, 0]
    lines.append(("total", "", f"{counts[0]:,}", f"{counts[1]:,}"))
    heads = ("topic", "hour", "messages", "bytes")
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    for line in (heads, *lines):
        cells = [pad(cell, width) for pad, cell, width in zip(_ALIGNED, line, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())
    if limit is not None and limit < counts[0]:
        click.echo(f"{limit:,} of these messages would be published, by --limit")
