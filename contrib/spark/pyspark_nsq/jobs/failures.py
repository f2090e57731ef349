"""The text of a failed job: one line with the error, also when Spark raised it."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.logger import PySparkLogger

from pyspark_nsq.errors import NsqSparkError, OptionError
from pyspark_nsq.slow_start import REMEDY, is_slow_start

#: The last line of a Python traceback in the text of an error of Spark's, with the connector's error in it.
_OURS = re.compile(r"^(?:\S*:)?\s*pyspark_nsq\.errors\.\w+: (.+)$", re.MULTILINE)
#: The same with any error.
_ANY = re.compile(r"^(?:\S*:)?\s*([\w.]*(?:Error|Exception): .+)$", re.MULTILINE)
#: Texts in an error of Spark's behind which nothing is about its cause.
_BEHIND = ("\nJVM stacktrace", "\n=== Streaming Query ===", "\n\tat ")
#: The causes of an error of Java; the last one is the first failure.
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*(.+)$", re.MULTILINE)
#: Errors of Spark that say where something failed, and not why.
_SAYS_NO_CAUSE = re.compile(r"\[TASK_WRITE_FAILED\]|Job aborted|Task failed while writing rows|Job \d+ cancelled")
_FULL_DISK = "No space left on device"
#: The beginning of an error of a call of Java.
_CALL = re.compile(r"^An error occurred while calling \S+\.\s*: (?:\w+\.)*")
#: Errors of Java when a folder cannot be made or written to.
_NOT_WRITABLE = re.compile(r"mkdir of|Mkdirs failed|Permission denied|Read-only file system")
#: Errors of a call of Spark's Java when there is none any more. Those of NSQ's connections are the connector's.
_NO_JAVA = (ConnectionRefusedError, ConnectionResetError, Py4JNetworkError)


def explained(error: BaseException) -> str:
    """Return the text of the connector's error, without the stack traces that Spark adds.

    An error that is not the connector's is shown with its class, and without the traceback that is in its text.
    """
    if isinstance(error, NsqSparkError):
        return str(error)
    if isinstance(error, _NO_JAVA):
        return "Spark's Java process has ended: it was killed, or had too little memory; run the command again"
    if is_slow_start(error):
        return REMEDY
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    cause = _cause(text)
    for each in _BEHIND:
        text = text.partition(each)[0]
    others = _ANY.findall(text)
    if _CALL.match(text):
        return with_remedy(_CALL.sub("", text) + cause)
    return with_remedy(f"{type(error).__name__}: {others[-1] if 'Traceback' in text and others else text}{cause}")


def _cause(text: str) -> str:
    """Return the first failure behind an error that does not say it."""
    causes = _CAUSE.findall(text)
    return f"; cause: {causes[-1].strip()}" if causes and _SAYS_NO_CAUSE.search(text) else ""


def with_remedy(text: str) -> str:
    """Return the text of an error of Java, with a remedy if it is about a folder or a disk."""
    if _FULL_DISK in text:
        return f"{text}; free space where the named folder is, and run the command again"
    return f"{text}; name a folder that Spark can write to" if _NOT_WRITABLE.search(text) else text


def first_line(error: BaseException) -> str:
    """Return the sentence that begins an error of Spark's, without its SQLSTATE and the plan that follows."""
    return str(error).strip().partition("\n")[0].partition(" SQLSTATE:")[0]


def quiet_analysis() -> AbstractContextManager[None]:
    """Keep PySpark from logging an error of the analyzer with all stack traces, beside raising it."""
    # PySpark logs with keywords that only a logger of its own class takes: it must not find one of another class.
    return _disabled(PySparkLogger.getLogger("SQLQueryContextLogger"))


def quiet_callbacks() -> AbstractContextManager[None]:
    """Keep Py4J from logging an error in a function that Java has called, beside raising it in the query."""
    return _disabled(logging.getLogger("py4j.clientserver"))


@contextmanager
def _disabled(logger: logging.Logger) -> Iterator[None]:
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def unknown(what: str, name: str, known: Iterable[str], where: str) -> OptionError:
    """Return the error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(names) or 'none'}"
    return OptionError(f'{where} has no {what} "{name}"; {hint}')
