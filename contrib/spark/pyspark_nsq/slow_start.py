"""The repeated start of a streaming query whose process of Python has started too slowly for Spark.

Spark starts a process for the source of a stream in Python, and waits ten seconds for its connection. No setting
changes this limit. The process connects after it has imported PySpark and pyarrow, and before it imports this package.
That takes 0.7 s of processor time, most of it to compile PySpark, which Spark lets it import from a zip file without
bytecode. So the limit is exceeded only on an overloaded machine. The query then ends before it has read a message, and
can be started again.

Processes that plan a batch, and tasks, are forked from a daemon of PySpark, for which Spark waits without a limit.
"""

from __future__ import annotations

from collections.abc import Callable

_FAILURE = "Python worker failed to connect back"
_STARTS = 3

AGAIN = "Spark has not waited longer than ten seconds for a process of Python; trying again"
REMEDY = (
    "Spark waits ten seconds for the process of Python that runs the source of a stream, and it started too slowly; "
    "run it again when the machine is less busy"
)


def is_slow_start(failure: BaseException) -> bool:
    """Return whether Spark has ended a query because its process of Python started too slowly."""
    return _FAILURE in str(failure)


class Starts:
    """The starts of one query. `say` is called with a line before each repeated one."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._left = _STARTS - 1
        self._say = say

    def again(self, failure: BaseException) -> bool:
        """Return whether the query, which has ended with this failure, should be started again."""
        if not is_slow_start(failure) or not self._left:
            return False
        self._left -= 1
        self._say(AGAIN)
        return True
