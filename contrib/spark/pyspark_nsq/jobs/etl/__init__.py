"""The command ``nsqtw-spark etl``: runs a pipeline that a TOML file declares."""

from __future__ import annotations

from pathlib import Path

import click

from pyspark_nsq.jobs.etl.config import load
from pyspark_nsq.jobs.failures import quiet_analysis, quiet_callbacks
from pyspark_nsq.jobs.signals import stopping
from pyspark_nsq.jobs.spark import SparkChoice, spark_options


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check the file and its SQL only, and read no message.")
@click.option("--once", is_flag=True, help="End when all present messages are written, whatever the trigger.")
@spark_options
def etl(spark: SparkChoice, config: Path, check: bool, once: bool) -> None:
    """Run the pipeline of the file CONFIG, from topics with SQL into a topic or a table.

    Each start continues from the checkpoint. The keys of CONFIG are in docs/reference/spark-etl.md.
    """
    declared = load(config)
    if once:
        declared = declared.until_caught_up()
    with spark.session() as session:
        from pyspark_nsq.jobs.etl.pipeline import ROWS, build
        from pyspark_nsq.jobs.etl.source import unknown_topics

        with quiet_analysis():
            pipeline = build(session, declared)
        if check:
            click.echo(f"{config}: no mistake found; columns of the query: {pipeline.columns()}")
            return
        for topic in unknown_topics(declared):
            click.echo(f'warning: no nsqd has the topic "{topic}" yet; it is read once it exists', err=True)
        with stopping(pipeline.stop), quiet_callbacks():
            pipeline.run()
        totals = pipeline.totals[ROWS]
        click.echo(f"{totals.messages:,} messages read, {totals.dead_letters:,} of them dead letters")
