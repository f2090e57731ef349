"""``nsqtw-spark program``: the path of the program that ``spark-submit`` runs."""

from __future__ import annotations

from pathlib import Path

import click

from pyspark_nsq.errors import NotSupportedError


@click.command()
def program() -> None:
    """Print the path of the program for spark-submit; its arguments are those of nsqtw-spark."""
    path = Path(__file__).with_name("__main__.py")
    if not path.is_file():
        raise NotSupportedError(f"{path} is in a zip of PYTHONPATH; run: PYTHONPATH= nsqtw-spark program")
    click.echo(path)
