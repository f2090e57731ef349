"""The text of a failed job: one line that names what went wrong, also when Spark raised it."""

from __future__ import annotations

import re

from pyspark_nsq.errors import NsqSparkError

#: The last line of a Python traceback in the text of an error of Spark's, with the connector's error in it.
_OURS = re.compile(r"^(?:\S*:)?\s*pyspark_nsq\.errors\.\w+: (.+)$", re.MULTILINE)
#: The same with any error.
_ANY = re.compile(r"^(?:\S*:)?\s*([\w.]*(?:Error|Exception): .+)$", re.MULTILINE)
_JVM = "\nJVM stacktrace"


def explained(error: BaseException) -> str:
    """Return the text of the connector's error, without the stack traces that Spark puts around it.

    An error that is not the connector's is shown with its class, and without the traceback that is in its text.
    """
    if isinstance(error, NsqSparkError):
        return str(error)
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    text = text.partition(_JVM)[0]
    others = _ANY.findall(text)
    return f"{type(error).__name__}: {others[-1] if 'Traceback' in text and others else text}"
