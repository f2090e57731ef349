"""The reason for which a query of a pipeline ended."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from pyspark_nsq.jobs.failures import explained

#: The message of `raise_error` in a statement, or of ours about a message that cannot be used.
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
#: Any other error of Spark's with an error class. The last is the cause of those before.
_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


def reason_of(error: PySparkException) -> str:
    """Return one line, without stack traces and plans."""
    text = str(error)
    raised = _RAISED.findall(text)
    if raised:
        return str(raised[-1])
    ours = explained(error)
    if not ours.startswith(type(error).__name__):
        return ours
    conditions = [found for name, found in _CONDITION.findall(text) if name != "STREAM_FAILED"]
    return str(conditions[-1]) if conditions else ours
