"""The positions up to which a stream has read, as Spark keeps them in its checkpoint."""

from __future__ import annotations

import json

from pyspark_nsq.archive.files import Files
from pyspark_nsq.errors import ArchiveError


def reached(checkpoint: Files) -> dict[tuple[str, str], int]:
    """Return the positions behind the last committed micro-batch, by topic and nsqd. Raises ArchiveError.

    The nsqd is named as in the column `nsqd`.
    """
    numbers = [int(number) for name in checkpoint.find("commits/*") if (number := name.rpartition("/")[2]).isdigit()]
    if not numbers:
        raise ArchiveError(f"the checkpoint {checkpoint.root} has no committed micro-batch; archive first")
    text = checkpoint.read(f"offsets/{max(numbers)}")
    if text is None:
        raise ArchiveError(f"the checkpoint {checkpoint.root} is damaged: it has no offsets/{max(numbers)}")
    # A line with the version, one with metadata, and one for each source.
    offset = json.loads(text.splitlines()[2])
    return {
        (topic, address.partition("://")[2]): int(position)
        for topic, positions in offset.items()
        for address, position in positions.items()
    }
