"""What the tasks of a job or a micro-batch have published, summed up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_nsq.monitoring import receiver
from pyspark_nsq.progress import tell


@dataclass
class NsqCommit(WriterCommitMessage):
    """What one task has published."""

    partition: int
    attempt: int
    rows: int
    requests: int
    retried: int
    body_bytes: int
    origin: receiver.Origin = field(default_factory=receiver.Origin)


def tell_sum(event: str, batch_id: int | None, messages: Sequence[WriterCommitMessage | None], *, show: bool) -> None:
    """`event`: "published", or "failed". As `progress.tell`."""
    done = [message for message in messages if isinstance(message, NsqCommit)]
    tell(
        event,
        show,
        logging.INFO if event == "published" else logging.WARNING,
        batch=batch_id,
        rows=sum(task.rows for task in done),
        requests=sum(task.requests for task in done),
        retried=sum(task.retried for task in done),
        bytes=sum(task.body_bytes for task in done),
        tasks=len(done),
    )
    receiver.report(event, done)
