"""The job ``replay``: messages of a log or an archive are published again, or a channel is moved back."""

from pyspark_nsq.jobs.replay.command import replay

__all__ = ["replay"]
