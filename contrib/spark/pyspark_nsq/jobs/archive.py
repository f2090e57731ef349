"""``nsqtw-spark archive``: the logs of topics into a data lake, each message once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from pyspark_nsq.errors import DataLossError
from pyspark_nsq.foreign_text import one_line
from pyspark_nsq.jobs.compaction_options import CompactionChoice, compaction_options
from pyspark_nsq.jobs.connection import Connection, connection_options
from pyspark_nsq.jobs.failures import explained
from pyspark_nsq.jobs.parameters import is_given
from pyspark_nsq.jobs.signals import stopping
from pyspark_nsq.jobs.spark import SparkChoice, spark_options

#: The text in which the connector names its option for data loss.
_ON_DATA_LOSS = 'set the option "failOnDataLoss" to "false"'
_FORMATS = ("parquet", "delta")


@click.command()
@connection_options
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; may be given several times.")
@click.option(
    "--topic-pattern",
    metavar="REGEX",
    help="In place of --topic: all topics whose whole name matches, also topics that are created later.",
)
@click.option("--output", required=True, metavar="FOLDER", help="The archive: a folder, or a URI that Spark can write.")
@click.option("--checkpoint", metavar="FOLDER", help="The checkpoint; the default is a folder of the archive.")
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="parquet", show_default=True)
@click.option("--once", is_flag=True, help="Stop when all present messages are archived.")
@click.option(
    "--trigger",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two searches for new messages.",
)
@click.option(
    "--max-rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Most rows of a micro-batch."
)
@click.option(
    "--tasks", type=click.IntRange(1), default=2, show_default=True, help="Least number of tasks of a micro-batch."
)
@click.option("--compact", is_flag=True, help="Also merge the small files of past hours.")
@compaction_options
@click.option("--headers", is_flag=True, help="Also archive the headers of messages, in a column of maps.")
@click.option("--allow-data-loss", is_flag=True, help="Go on without messages that a log no longer keeps.")
@click.option("--quiet", is_flag=True, help="Print no line for each micro-batch.")
@spark_options
def archive(
    connection: Connection,
    spark: SparkChoice,
    compaction: CompactionChoice,
    topics: tuple[str, ...],
    topic_pattern: str | None,
    output: str,
    checkpoint: str | None,
    format_: str,
    once: bool,
    trigger: float,
    max_rows: int,
    tasks: int,
    compact: bool,
    headers: bool,
    allow_data_loss: bool,
    quiet: bool,
) -> None:
    """Copy the logs of topics to --output, each message once, until stopped.

    SIGINT and SIGTERM end it after the running micro-batch. The next run continues where this one ended.
    """
    from pyspark_nsq.archive.files import Files
    from pyspark_nsq.archive.identity import claim
    from pyspark_nsq.archive.layout import CHECKPOINT
    from pyspark_nsq.archive.parquet import configure
    from pyspark_nsq.archive.run import Run
    from pyspark_nsq.archive.source import Subscription
    from pyspark_nsq.archive.table import open_table

    _check_usage(topics, topic_pattern, once=once, compact=compact)
    subscription = Subscription(topics, topic_pattern, connection.options, max_rows, tasks, allow_data_loss, headers)
    for warning in subscription.check():
        _say(warning)
    say = _quiet if quiet else _say
    began = time.monotonic()
    stop = threading.Event()
    with stopping(stop.set), spark.session() as session:
        configure(session)
        files = Files(session, output)
        files.must_be_writable()
        place = checkpoint or files.path(CHECKPOINT)
        identity = claim(files, Files(session, place), format_, subscription.text, has_headers=headers)
        table = open_table(session, files, identity, compaction.compression)
        rows = subscription.stream(session, with_attempts=identity.has_attempts)
        run = Run(rows, table, place, say, stop)

        def compact_now() -> None:
            for line in compaction.run(session, files):
                say(line)

        with _named_options():
            if once:
                run.once()
                if compact:
                    compact_now()
            else:
                run.for_ever(trigger, explained, compact_now if compact else None)
    say(f"archived {run.rows:,} rows in {time.monotonic() - began:,.1f} s to {output}")


def _check_usage(topics: tuple[str, ...], topic_pattern: str | None, *, once: bool, compact: bool) -> None:
    """Raise UsageError or OptionError for options that are contradictory or have a bad value."""
    from pyspark_nsq.options.kinds import Name, TopicPattern

    if bool(topics) == bool(topic_pattern):
        raise click.UsageError("give either --topic or --topic-pattern")
    for topic in topics:
        Name("topic").read("--topic", topic)
    if topic_pattern:
        TopicPattern().read("--topic-pattern", topic_pattern)
    if once and is_given("trigger"):
        raise click.UsageError("--trigger is of no use with --once; leave one out")
    for name in ("min_age", "file_size"):
        if not compact and is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')} needs --compact")


@contextmanager
def _named_options() -> Iterator[None]:
    """Replace the connector's option for data loss in an error by the option of this job."""
    try:
        yield
    except Exception as error:
        text = explained(error)
        if _ON_DATA_LOSS not in text:
            raise
        raise DataLossError(text.replace(_ON_DATA_LOSS, "use --allow-data-loss")) from error


def _say(line: str) -> None:
    print(one_line(line), file=sys.stderr, flush=True)


def _quiet(line: str) -> None:
    """Ignore a line."""
