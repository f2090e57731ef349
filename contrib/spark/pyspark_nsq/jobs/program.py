"""``nsqtw-spark program``: the path of the program that ``spark-submit`` runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
def program() -> None:
    """Print the path of the program for spark-submit; its arguments are those of nsqtw-spark."""
    click.echo(Path(__file__).with_name("__main__.py"))
