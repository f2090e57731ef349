"""The commit messages of tasks, and the sum of a job or a micro-batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_nsq.monitoring import receiver
from pyspark_nsq.progress import tell
from pyspark_nsq.sink.tally import Tally


@dataclass(kw_only=True)
class NsqCommit(Tally, WriterCommitMessage):
    """The figures that one task has published."""

    partition: int
    attempt: int
    origin: receiver.Origin = field(default_factory=receiver.Origin)


def tell_sum(event: str, batch_id: int | None, messages: Sequence[WriterCommitMessage | None], *, show: bool) -> None:
    """Report the sum of the tasks' figures, by `progress.tell`. `event`: "published", or "failed"."""
    done = [message for message in messages if isinstance(message, NsqCommit)]
    total = Tally()
    for task in done:
        total.add(task)
    figures = total.figures()
    level = logging.INFO if event == "published" else logging.WARNING
    tell(event, show, level, batch=batch_id, **figures, tasks=len(done))
    if done:
        receiver.report(event, done[-1].origin, figures)
