import click


@click.command()
def archive_files() -> None:
    """x."""
