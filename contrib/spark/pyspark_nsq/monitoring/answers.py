"""Answers of nsqds about a lag, which neither delay nor fail a micro-batch.

All nsqds are asked at the same time. One that does not answer in time counts as unanswered, and is not asked again
until its request has ended. So does one whose answer cannot be used; an error that is no ReadError is also logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from pyspark_nsq.errors import ReadError

_log = logging.getLogger("pyspark_nsq")

#: Time that a trigger waits for the answers.
PATIENCE_SECONDS = 1.0
#: Least time between equal questions: an idle query has a trigger every 10 ms.
SAME_SECONDS = 1.0

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class Answers(Generic[K, A]):
    """The last answers, each by the key of its question."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic, patience: float = PATIENCE_SECONDS) -> None:
        self._seconds = seconds
        self._patience = patience
        self._pending: dict[K, Future[A]] = {}
        self._asked: dict[K, object] = {}
        self._asked_at = float("-inf")
        self._answers: dict[K, A] = {}

    def get(self, questions: Mapping[K, object], ask: Callable[[K], Future[A]]) -> dict[K, A]:
        """Return the answers by the keys of `questions`, whose values are the subjects. A key may have no answer.

        The same questions are not asked again within a second.
        """
        now = self._seconds()
        if questions == self._asked and now - self._asked_at < SAME_SECONDS:
            return self._answers
        self._asked, self._asked_at = dict(questions), now
        fresh = {key: ask(key) for key in questions if key not in self._pending}
        self._pending |= fresh
        wait(fresh.values(), self._patience)
        self._answers = {}
        for key, future in [(key, future) for key, future in self._pending.items() if future.done()]:
            del self._pending[key]
            error = future.exception()
            if error is not None:
                if not isinstance(error, ReadError):  # a mistake in the connector
                    _log.error("the lag at %s is unknown: %r", key, error, exc_info=error)
            elif key in fresh:  # the answer to an earlier question came too late
                self._answers[key] = future.result()
        return self._answers
