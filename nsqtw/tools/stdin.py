"""
Messages on stdin.

stdin is read in a thread because a read may block. The thread does not keep the process from ending.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from queue import SimpleQueue
from threading import Thread

from twisted.internet.defer import Deferred

from nsqtw.errors import CommandError
from nsqtw.runtime.reactor import Reactor

MAX_MESSAGE_BYTES = 1 << 30
_READ_BYTES = 64 * 1024


class StdinMessages:
    """The messages between delimiters, without empty ones. With an empty delimiter all of stdin is one message."""

    def __init__(self, reactor: Reactor, delimiter: bytes) -> None:
        self._reactor = reactor
        self._delimiter = delimiter
        self._wanted: SimpleQueue[Deferred[bytes]] = SimpleQueue()
        self._pieces: list[bytes] = []
        self._size = 0
        self._messages: list[tuple[int, bytes]] = []
        self._count = 0
        self.has_delimiter = bool(delimiter)
        self.number = 0
        """The number of the last message that was given out, from 1. Empty messages count: of lines it is the line."""
        self._has_ended = False
        self._is_ending = False
        self._reading: Deferred[bytes] | None = None
        Thread(target=self._work, name="stdin", daemon=True).start()

    @property
    def is_idle(self) -> bool:
        """Whether every message that was read is given out."""
        return not self._messages

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return the next message. CommandError when stdin cannot be read."""
        while not self._messages:
            if self._has_ended:
                raise StopAsyncIteration
            data = await self._read()
            if data:
                found = self._add(data)
            else:
                found, self._has_ended = [b"".join(self._pieces)], True
            numbered = list(enumerate(found, self._count + 1))
            self._count += len(found)
            self._messages = [(number, message) for number, message in reversed(numbered) if message]
        self.number, message = self._messages.pop()
        return message

    def end(self) -> None:
        """Read nothing more: what was read and is not complete is the last message."""
        self._is_ending = True
        if self._reading is not None:
            _answer(self._reading, b"")

    def _add(self, data: bytes) -> list[bytes]:
        """Return the messages that are complete now."""
        self._size += len(data)
        if self._size > MAX_MESSAGE_BYTES:
            raise CommandError(f"a message on stdin has more than {MAX_MESSAGE_BYTES} bytes")
        if not self._delimiter:
            self._pieces.append(data)
            return []
        # The delimiter may begin in the last piece.
        overlap = self._pieces.pop() if self._pieces else b""
        *found, rest = (overlap + data).split(self._delimiter)
        if found:
            found[0] = b"".join([*self._pieces, found[0]])
            self._pieces, self._size = [], len(rest)
        if len(rest) >= _READ_BYTES:
            cut = len(rest) - len(self._delimiter) + 1
            self._pieces += [rest[:cut], rest[cut:]]
        else:
            self._pieces.append(rest)
        return found

    def _read(self) -> Deferred[bytes]:
        done = self._reading = Deferred()
        if self._is_ending:
            done.callback(b"")
        else:
            self._wanted.put(done)
        return done

    def _work(self) -> None:
        while True:
            done = self._wanted.get()
            try:
                data = os.read(sys.stdin.fileno(), _READ_BYTES)
            except OSError as error:
                text = f"stdin cannot be read: {error.strerror}"
                self._reactor.callFromThread(_answer, done, CommandError(text))
            else:
                self._reactor.callFromThread(_answer, done, data)


def _answer(done: Deferred[bytes], outcome: bytes | CommandError) -> None:
    """Answer a read, unless it was cancelled."""
    if done.called:
        return
    if isinstance(outcome, bytes):
        done.callback(outcome)
    else:
        done.errback(outcome)
