"""What the tasks of a job or a micro-batch have published, told in one line of JSON.

    {"event": "published", "batch": 7, "rows": 50000, "requests": 52, "retried": 1, "bytes": 10600208, "tasks": 2}

`event` is "failed" when the job has failed: what the tasks published stays. `batch` is null outside of streams.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

_log = logging.getLogger("pyspark_nsq")


@dataclass
class NsqCommit(WriterCommitMessage):
    """What one task has published."""

    partition: int
    attempt: int
    rows: int
    requests: int
    retried: int
    body_bytes: int


def tell(event: str, batch_id: int | None, messages: Sequence[WriterCommitMessage | None], *, show: bool) -> None:
    """Log what `messages` sum up to; also print it, where `show` says so, to the error output of this process."""
    done = [message for message in messages if isinstance(message, NsqCommit)]
    line = json.dumps(
        {
            "event": event,
            "batch": batch_id,
            "rows": sum(task.rows for task in done),
            "requests": sum(task.requests for task in done),
            "retried": sum(task.retried for task in done),
            "bytes": sum(task.body_bytes for task in done),
            "tasks": len(done),
        }
    )
    _log.log(logging.INFO if event == "published" else logging.WARNING, "%s", line)
    if show:
        print(line, file=sys.stderr, flush=True)
