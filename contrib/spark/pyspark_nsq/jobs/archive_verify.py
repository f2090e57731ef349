"""``nsqtw-spark archive-verify``: the positions of an archive against those of the brokers' logs."""

from __future__ import annotations

import click

from pyspark_nsq.jobs.connection import Connection, connection_options
from pyspark_nsq.jobs.spark import SparkChoice, spark_options


@click.command()
@connection_options
@click.option("--output", required=True, metavar="FOLDER", help="The archive.")
@click.option("--checkpoint", metavar="FOLDER", help="Its checkpoint, if it is not inside of the archive.")
@spark_options
def archive_verify(connection: Connection, spark: SparkChoice, output: str, checkpoint: str | None) -> None:
    """Compare the archive in --output with the logs of its topics, message by message.

    Each message that a log still has, up to the position of the checkpoint, has to be in the archive once. The exit
    code is 1 if one is missing or exists twice. Rows that the logs do not keep any more are only searched for repeats.
    """
    from pyspark_nsq.archive.verify import verify
    from pyspark_nsq.errors import ArchiveError

    with spark.session() as session:
        verdict = verify(session, connection.options, output, checkpoint)
    click.echo(f"in the logs          {verdict.logged:,}")
    click.echo(f"in the archive       {verdict.archived:,}")
    click.echo(f"no longer in a log   {verdict.only_archived:,}")
    click.echo(f"not yet archived     {verdict.waiting:,}")
    click.echo(f"missing              {verdict.missing:,}")
    click.echo(f"twice                {verdict.twice:,}")
    for one in verdict.differences:
        click.echo(f"{one.kind}: {one.topic} {one.nsqd} positions {one.first} to {one.last}, {one.count:,} rows")
    if not verdict.is_good:
        raise ArchiveError(f"{verdict.missing:,} rows are missing and {verdict.twice:,} are there twice in {output}")
