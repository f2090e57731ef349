"""``nsqtw-spark archive-files``: the files of an archive, for readers that take a list of files."""

from __future__ import annotations

import click

from pyspark_nsq.jobs.spark import SparkChoice, spark_options


@click.command()
@click.option("--output", required=True, metavar="FOLDER", help="The archive.")
@spark_options
def archive_files(spark: SparkChoice, output: str) -> None:
    """Print the URIs of the data files of the archive in --output that have each row once, one a line.

    While a compaction replaces files, a list of the folders has rows twice. This list does not.
    """
    from pyspark_nsq.archive.files import Files
    from pyspark_nsq.archive.reader import archived_files

    with spark.session() as session:
        for uri in archived_files(Files(session, output)):
            click.echo(uri)
