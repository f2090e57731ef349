"""The command ``nsqtw-spark profile``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from pyspark_nsq.errors import OptionError
from pyspark_nsq.jobs.connection import Connection, optional_connection_options
from pyspark_nsq.jobs.messages import Messages, message_options
from pyspark_nsq.jobs.profile.page import page
from pyspark_nsq.jobs.profile.report import document_of
from pyspark_nsq.jobs.profile.scan import count_repeats, scan
from pyspark_nsq.jobs.profile.tables import overview, print_tables, tables_of
from pyspark_nsq.jobs.spark import SparkChoice, spark_options


@click.command(short_help="Show rates, sizes, JSON fields and duplicates of topics.")
@click.option("--topic", "topics", multiple=True, help="A topic; may be given several times.")
@click.option("--topic-pattern", default="", metavar="REGEX", help="All topics whose whole name matches.")
@message_options
@click.option(
    "--event-time-field",
    default="",
    metavar="FIELD",
    help="A JSON field with a time, for the latency: created, meta.ts.",
)
@click.option("--duplicates/--no-duplicates", default=True, help="Whether to count duplicates, in a second reading.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", default="", metavar="FILE", help="Also write a page with charts.")
@optional_connection_options
@spark_options
def profile(
    spark: SparkChoice,
    connection: Connection,
    topics: tuple[str, ...],
    topic_pattern: str,
    event_time_field: str,
    duplicates: bool,
    as_json: bool,
    html: str,
    **given: Any,
) -> None:
    """Show rates by hour, sizes, JSON fields with their types, duplicates and latencies of topics."""
    if bool(topics) == bool(topic_pattern):
        raise click.UsageError("give either --topic or --topic-pattern")
    messages = Messages(connection, topics=topics, pattern=topic_pattern, **given)
    if html and not Path(html).absolute().parent.is_dir():
        raise click.UsageError(f'--html "{html}": its folder does not exist')
    started = time.monotonic()
    with spark.session() as session:
        frame = messages.frame(session)
        figures = scan(frame, event_time_field)
        repeats = count_repeats(frame) if duplicates and figures else None
        seconds = time.monotonic() - started
    documents = [document_of(topic, figures[topic], repeats) for topic in sorted(figures)]
    if html:
        try:
            Path(html).write_text(page(documents, messages.place), "utf-8")
        except OSError as error:
            raise OptionError(f'--html "{html}": {error.strerror}') from error
    if as_json:
        click.echo(json.dumps({"place": messages.place, "topics": documents}, indent=2))
    else:
        print_tables([overview(documents), *(table for document in documents for table in tables_of(document))])
    count = sum(document["messages"] for document in documents)
    click.echo(f"read {count:,} messages in {seconds:.1f} s, {count / seconds:,.0f}/s", err=True)
