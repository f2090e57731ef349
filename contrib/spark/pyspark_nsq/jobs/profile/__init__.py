"""The job ``profile``: rates, sizes, JSON fields, duplicates and latencies of topics."""

from pyspark_nsq.jobs.profile.command import profile

__all__ = ["profile"]
