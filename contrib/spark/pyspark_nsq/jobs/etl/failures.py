"""The reason for which a query of a pipeline ended."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from pyspark_nsq.jobs.failures import explained

#: What Spark puts before and after the cause of the end of a stream.
_BEFORE = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ")
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\] ")
_AFTER = re.compile(r"(?:\s*SQLSTATE: \w+)+\s*$")


def reason_of(error: PySparkException) -> str:
    """Return one line, without stack traces, plans and Spark's classes of errors."""
    ours = explained(error)
    if not ours.startswith(type(error).__name__):
        return ours
    first = _BEFORE.sub("", str(error).partition("\n")[0])
    return _AFTER.sub("", _CONDITION.sub("", first))
