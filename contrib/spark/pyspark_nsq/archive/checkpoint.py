"""The positions up to which a stream has read, as Spark keeps them in its checkpoint."""

from __future__ import annotations

import json
from typing import Any

from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.source import Subscription
from pyspark_nsq.errors import ArchiveError


def reached(checkpoint: Files, subscription: Subscription) -> dict[tuple[str, str], int]:
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
    offsets: list[Any] = [json.loads(line) for line in text.splitlines()[2:]]
    found = {}
    for topic, positions in zip(subscription.topics, offsets, strict=True):
        for address, position in positions.items():
            found[topic, address.partition("://")[2]] = int(position)
    return found
