import click


@click.command()
def archive_verify() -> None:
    """x."""
