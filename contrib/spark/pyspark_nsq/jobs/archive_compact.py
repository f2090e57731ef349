"""``nsqtw-spark archive-compact``: one file, or a few large ones, for each hour of an archive."""

from __future__ import annotations

import click

from pyspark_nsq.jobs.compaction_options import CompactionChoice, compaction_options
from pyspark_nsq.jobs.spark import SparkChoice, spark_options


@click.command()
@click.option("--output", required=True, metavar="FOLDER", help="The archive.")
@compaction_options
@spark_options
def archive_compact(spark: SparkChoice, compaction: CompactionChoice, output: str) -> None:
    """Merge the small files of each hour that is over, of the archive in --output.

    An interrupted compaction is finished by the next one. It may run beside the job that writes the archive.
    """
    from pyspark_nsq.archive.files import Files
    from pyspark_nsq.archive.parquet import configure

    with spark.session() as session:
        configure(session)
        for line in compaction.run(session, Files(session, output)):
            click.echo(line)
