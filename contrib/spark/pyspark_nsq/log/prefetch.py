"""Requests for the content of a log in advance, within a limit of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition

from pyspark_nsq.log.client import Part

Read = Callable[[int], "Future[Part]"]


class Prefetch:
    """Parts of a log from `start` to before `end`, in order, one request at a time.

    The next request is sent if the waiting answers, and `fetch_bytes` for that request, have at most `most_bytes`. With
    a lower limit it is sent when the consumer asks. An answer may exceed `fetch_bytes` by one segment of the log.
    """

    def __init__(self, read: Read, start: int, end: int, fetch_bytes: int, most_bytes: int) -> None:
        self._read, self._next, self._end = read, start, end
        self._fetch_bytes, self._most_bytes = fetch_bytes, most_bytes
        self._ready: deque[Part] = deque()
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._is_asking = self._is_over = False
        self._changed = Condition()

    def take(self) -> Part:
        """Wait for the next part, and return it. Raises ReadError."""
        with self._changed:
            if not self._ready and not self._is_asking:
                self._ask()
            self._changed.wait_for(lambda: self._ready or self._error is not None)
            if not self._ready:
                assert self._error is not None
                raise self._error
            part = self._ready.popleft()
            self._waiting_bytes -= part.body_bytes
            self._ask_ahead()
            return part

    def _ask_ahead(self) -> None:
        has_room = self._waiting_bytes + self._fetch_bytes <= self._most_bytes
        if has_room and not (self._is_asking or self._is_over or self._error):
            self._ask()

    def _ask(self) -> None:
        if not self._error:
            self._is_asking = True
            self._read(self._next).add_done_callback(self._came)

    def _came(self, coming: Future[Part]) -> None:
        """Keep an answer. For the reactor's thread."""
        with self._changed:
            self._is_asking = False
            self._error = coming.exception()
            if self._error is None:
                part = coming.result()
                self._is_over = part.next <= self._next or part.next >= self._end
                self._next = part.next
                self._ready.append(part)
                self._waiting_bytes += part.body_bytes
                self._ask_ahead()
            self._changed.notify_all()
