"""The compaction of an archive: the files of an hour become one file, or a few large ones.

1. The rows of the hour's files are written, sorted by nsqd and position, into a folder of `COMPACTED`.
2. A swap is recorded in `SWAP`, with the sources and the places of the merged files. There is one at a time.
3. The merged files are renamed to their places.
4. When all of them are there, the sources are deleted.
5. Another file tells the readers of the swap, and the record is deleted.

A process that finds a record continues with step 3. Every step can be repeated, also by two processes at the same time.
Micro-batches may add files to the hour meanwhile: they are not among the sources.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.identity import must_exist
from pyspark_nsq.archive.layout import COMPACTED, HOURS, SWAP, SWAPS
from pyspark_nsq.archive.parquet import finish_commits, write_files
from pyspark_nsq.archive.reader import live_files
from pyspark_nsq.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Compacted:
    """The result of an hour's compaction: `folder` had `before` files, and now has `after`."""

    folder: str
    before: int
    after: int


def compact(spark: SparkSession, files: Files, codec: str, min_age: timedelta, file_bytes: int) -> Iterator[Compacted]:
    """Merge the files of each hour that ended at least `min_age` ago, into files of about `file_bytes`.

    Raises ArchiveError.
    """
    recover(files)
    hours: dict[str, list[str]] = {}
    for name in live_files(files):
        hours.setdefault(name.rpartition("/")[0], []).append(name)
    for folder, sources in hours.items():
        if _ended_at(folder) + min_age > datetime.now(UTC):
            continue
        sizes = [files.size(name) or 0 for name in sources]
        small = {name: size for name, size in zip(sources, sizes, strict=True) if size < file_bytes / 2}
        if len(small) > 1:
            count = math.ceil(sum(small.values()) / file_bytes)
            yield Compacted(folder, len(small), _merge(spark, files, folder, list(small), count, codec))


def recover(files: Files) -> None:
    """Finish swaps and commits that another run has begun, and delete files that are part of nothing."""
    finish_commits(files)
    _finish(files)
    files.delete(COMPACTED)


def _merge(spark: SparkSession, files: Files, folder: str, sources: list[str], count: int, codec: str) -> int:
    """Write the rows of the sources into `count` files at most, and swap these in. Return how many they are."""
    name = uuid.uuid4().hex
    staging = f"{COMPACTED}/{name}"
    rows = _rows(spark, files, sources)
    ranges = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, "nsqd", "position")
    write_files(ranges.sortWithinPartitions("nsqd", "position"), files.path(staging), codec)
    staged = files.find(f"{staging}/{HOURS}/*.parquet")
    # Without this, sources would be deleted that no merged file has the rows of.
    if not staged or _rows(spark, files, staged).count() != rows.count():
        raise ArchiveError(f"another compaction of {files.root} has deleted files of this one; run one at a time")
    targets = {one: f"{folder}/compacted-{name}-{number:05d}.parquet" for number, one in enumerate(staged)}
    if not files.create(SWAP, json.dumps({"id": name, "sources": sources, "targets": targets})):
        raise ArchiveError(f"another compaction of {files.root} is under way; run one at a time")
    _finish(files)
    files.delete(staging)
    return len(targets)


def _rows(spark: SparkSession, files: Files, names: list[str]) -> DataFrame:
    return spark.read.schema(must_exist(files).schema).option("basePath", files.root).parquet(*map(files.path, names))


def _finish(files: Files) -> None:
    """Finish the swap that is recorded, if there is one; undo it when its files are missing."""
    text = files.read(SWAP)
    if text is None:
        return
    swap = json.loads(text)
    sources, targets = swap["sources"], swap["targets"]
    if any(map(files.exists, targets.values())) or all(map(files.exists, sources)):
        for staged, target in targets.items():
            files.move(staged, target)
    if all(map(files.exists, targets.values())):
        for source in sources:
            files.delete(source)
    else:  # another run has deleted the merged files, or merged the same sources
        for target in targets.values():
            files.delete(target)
    done = f"{SWAPS}/done-{swap['id']}.json"
    files.create(done, "{}")
    files.delete(SWAP)
    for older in files.find(f"{SWAPS}/done-*.json"):
        if older != done:
            files.delete(older)


def _ended_at(folder: str) -> datetime:
    """Return the end of the hour that a folder has."""
    parts = dict(part.split("=", 1) for part in folder.split("/"))
    return datetime.fromisoformat(f"{parts['date']}T{parts['hour']}:00:00+00:00") + timedelta(hours=1)
