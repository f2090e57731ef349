"""The reason for which a query of a pipeline ended."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from pyspark_nsq.jobs.failures import explained, with_remedy

#: An error of Spark's in a line of a text: its class in brackets, the message, and SQLSTATE, which may be there twice.
_ERROR = re.compile(r"\[([A-Z][A-Z_.0-9]+)\] (.+?)(?:\s*SQLSTATE: \w+)*\s*$", re.MULTILINE)
#: An error of Python or Java in a line of a text, without the one in which Py4J wraps an error of Java.
_EXCEPTION = re.compile(r"^(?:Caused by: |: )?(?:\w+\.)*((?!Py4JJavaError)\w+(?:Error|Exception): .+)$", re.MULTILINE)
#: The texts of Spark around the cause.
_BEFORE = re.compile(r"^Query \[.*? terminated with exception: (?:\[[A-Z_.0-9]+\] )?")
_WRAPPED = "An error occurred in the user provided function in foreach batch sink."


def reason_of(error: PySparkException) -> str:
    """Return one line, without stack traces, plans and Spark's classes of errors."""
    ours = explained(error)
    if not ours.startswith(type(error).__name__):
        return ours
    text = str(error)
    errors = [_BEFORE.sub("", message) for _name, message in _ERROR.findall(text)]
    # Of several errors the last one is the cause of the others.
    causes = [each for each in errors if not each.startswith(_WRAPPED)] or _EXCEPTION.findall(text)
    return with_remedy(str(causes[-1] if causes else ours.partition("\n")[0]))
