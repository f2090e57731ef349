"""The options of a job that compacts an archive, and the compaction itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pyspark_nsq.jobs.parameters import is_given, passing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_nsq.archive.files import Files

F = TypeVar("F", bound=Callable[..., Any])

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class CompactionChoice:
    """The hours that are compacted, and the files that they become."""

    min_age_minutes: float
    file_mib: int
    compression: str

    def run(self, session: SparkSession, files: Files) -> Iterator[str]:
        """Compact an archive, and yield a line for each hour. Raises ArchiveError."""
        from pyspark_nsq.archive.compaction import compact
        from pyspark_nsq.archive.delta import compact_delta
        from pyspark_nsq.archive.identity import must_exist

        file_bytes = self.file_mib * _MEBIBYTE
        if must_exist(files).format == "delta":
            if is_given("min_age"):
                raise click.UsageError("--min-age is of no use with a Delta table; leave it out")
            removed, added = compact_delta(session, files, file_bytes)
            yield f"{removed} files became {added}"
            return
        for one in compact(session, files, self.compression, timedelta(minutes=self.min_age_minutes), file_bytes):
            yield f"{one.folder}: {one.before} files became {one.after}"


def compaction_options(function: F) -> F:
    """Give a command the options of a compaction; its function gets a `CompactionChoice` as `compaction`."""

    def build(min_age: float, file_size: int, compression: str) -> CompactionChoice:
        return CompactionChoice(min_age, file_size, compression)

    wrapped = passing(function, "compaction", build, ("min_age", "file_size", "compression"))
    for option in (
        click.option(
            "--compression", type=click.Choice(("zstd", "snappy", "gzip", "none")), default="zstd", show_default=True
        ),
        click.option(
            "--file-size",
            type=click.IntRange(1),
            default=256,
            show_default=True,
            metavar="MIB",
            help="The size of a compacted file. Files of at least half that size stay as they are.",
        ),
        click.option(
            "--min-age",
            type=float,
            default=10.0,
            show_default=True,
            metavar="MINUTES",
            help="Compact hours that ended at least so long ago; -60 compacts all hours.",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped
