import click


@click.command()
def archive_compact() -> None:
    """x."""
