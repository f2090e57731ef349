"""The publishing of a planned replay, one section after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pyspark_nsq.jobs.messages import Messages, Section
from pyspark_nsq.jobs.replay.checkpoint import Checkpoint, Progress
from pyspark_nsq.jobs.replay.plan import count_by_hour, sections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECTION_MESSAGES = 500_000
"""Messages of a section, which a crash can repeat."""

#: Time of a section with a rate. The pause between two sections is less than a second.
_SECTION_SECONDS = 30
_REQUESTS_PER_SECOND = 10
_MAX_BATCH_SIZE = 5000
#: Longest pause between sections for which a replay with a rate makes up.
_MAX_LAG_SECONDS = 2.0


def section_size(rate: int | None) -> int:
    """Return the number of messages that a section should have."""
    return SECTION_MESSAGES if rate is None else min(SECTION_MESSAGES, max(1000, rate * _SECTION_SECONDS))


@dataclass(frozen=True)
class Target:
    """The topic that is published to. `connection`: the options of ``format("nsq")`` for its nsqds."""

    connection: dict[str, str]
    topic: str
    rate: int | None = None
    is_ordered: bool = False
    channel: str = ""
    """The only channel that gets the messages; all channels without one."""
    max_message_bytes: int | None = None

    def options(self, burst: int) -> dict[str, str]:
        """Return the options of the sink for the next section, which may begin with a burst of `burst` messages."""
        options = self.connection | {"topic": self.topic}
        if self.channel:
            options["channel"] = self.channel
        if self.max_message_bytes is not None:
            options["maxMessageBytes"] = str(self.max_message_bytes)
        if self.is_ordered:
            options["maxInFlight"] = "1"
        if self.rate is not None:
            options["maxRowsPerSecond"] = str(self.rate)
            options["burstRows"] = str(burst)
            options["batchSize"] = str(max(1, min(_MAX_BATCH_SIZE, self.rate // _REQUESTS_PER_SECOND)))
        return options


class Schedule:
    """The delay of a replay with a rate, and its lines of progress."""

    def __init__(self, rate: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._started_at = clock()
        self.published = 0

    def burst(self) -> int:
        """Return the number of messages that the rate has allowed by now, less the published ones."""
        if self._rate is None:
            return 0
        behind = self._rate * (self._clock() - self._started_at) - self.published
        most = self._rate * _MAX_LAG_SECONDS
        if behind > most:
            self._started_at += (behind - most) / self._rate
        return int(max(0, min(behind, most)))

    def per_second(self) -> float:
        """Return the rate so far."""
        return self.published / max(self._clock() - self._started_at, 1e-9)


class Replay:
    """Publishes messages, at most `limit` over all runs with the same checkpoint."""

    def __init__(
        self, spark: SparkSession, messages: Messages, target: Target, limit: int | None, checkpoint: Checkpoint
    ) -> None:
        self._spark = spark
        self._messages = messages
        self._target = target
        self._limit = limit
        self._checkpoint = checkpoint

    def run(self, request: Mapping[str, Any], progress: Progress | None) -> None:
        """Publish the sections that `progress` has left, or all. The checkpoint is written after each section.

        Raises PublishError, ReadError and DataLossError.
        """
        if progress is None:
            progress = self._plan(request)
            self._checkpoint.write(progress)
        elif progress.published:
            click.echo(f"going on after {progress.published:,} of {progress.messages:,} messages", err=True)
        schedule = Schedule(self._target.rate)
        for section in progress.sections[progress.sections_done :]:
            count = self._publish(section, progress.published, schedule.burst())
            schedule.published += count
            progress.published += count
            progress.sections_done += 1
            if progress.published == self._limit:
                progress.sections_done = len(progress.sections)
            self._checkpoint.write(progress)
            _tell(progress, schedule)
            if progress.is_done:
                break
        click.echo(
            f'replayed {progress.published:,} messages into topic "{self._target.topic}", '
            f"{schedule.published:,} of them in this run, {schedule.per_second():,.0f}/s"
        )
        if not progress.messages and not self._messages.archive:
            click.echo("a topic keeps messages that are finished only with a retention", err=True)

    def _plan(self, request: Mapping[str, Any]) -> Progress:
        hours = count_by_hour(self._messages.frame(self._spark))
        total = sum(hour.messages for hour in hours)
        planned = list(sections(hours, section_size(self._target.rate)))
        return Progress(dict(request), total if self._limit is None else min(total, self._limit), planned)

    def _publish(self, section: Section, before: int, burst: int) -> int:
        """Publish a section. Return the number of its messages."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        rows = self._arranged(self._messages.section(self._spark, section), before)
        rows = rows.observe(seen, f.count(f.lit(1)).alias("messages"))
        rows.select("value", "headers").write.format("nsq").mode("append").options(**self._target.options(burst)).save()
        return int(seen.get["messages"])

    def _arranged(self, rows: DataFrame, before: int) -> DataFrame:
        from pyspark.sql import functions as f

        # Headers that begin with "nsq-" are the broker's: nsqd refuses them from others.
        own = f.map_filter("headers", lambda name, _: ~name.startswith("nsq-"))
        rows = rows.select("position", "value", own.alias("headers"))
        if self._limit is not None:
            rows = rows.orderBy("position").limit(self._limit - before)
        if self._target.rate is not None or self._target.is_ordered:
            # One task: order and rate apply to all messages.
            rows = rows.coalesce(1)
        return rows.sortWithinPartitions("position") if self._target.is_ordered else rows


def _tell(progress: Progress, schedule: Schedule) -> None:
    share = progress.published / max(progress.messages, 1)
    rate = schedule.per_second()
    left = max(progress.messages - progress.published, 0) / max(rate, 1e-9)
    click.echo(
        f"{progress.published:,} of {progress.messages:,} messages ({share:.0%}), {rate:,.0f}/s, {left:,.0f} s left",
        err=True,
    )
