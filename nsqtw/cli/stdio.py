"""
Messages on stdin, and the pipe that stdout is.

stdin is read in a thread because a read may block. The thread does not keep the process from ending.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import stat
import struct
import sys
from collections.abc import AsyncIterator, Callable
from fcntl import ioctl
from queue import SimpleQueue
from termios import FIONREAD
from threading import Thread
from typing import Self

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.internet.task import deferLater
from zope.interface import implementer

from nsqtw.errors import CommandError, OptionError
from nsqtw.runtime.reactor import Reactor

MAX_MESSAGE_BYTES = 1 << 30
_READ_BYTES = 64 * 1024
_STDOUT = 1
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.0001, 0.05


def delimiter_of(text: str) -> bytes:
    r"""Return the bytes of a delimiter as it is typed: \n, \t, \r, \0, \\ and \xHH are replaced. OptionError."""
    try:
        return codecs.escape_decode(text.replace("\\0", "\\x00").encode("utf-8", "surrogateescape"))[0]
    except ValueError as error:
        raise OptionError(rf"delimiter {text!r} must be a text, with \n, \t, \0 or \xHH") from error


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
        done: Deferred[bytes] = Deferred()
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


class Pipe:
    """A pipe, at its end for writing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, 0)

    @classmethod
    def of_stdout(cls) -> Self | None:
        """Return the pipe that stdout is, None for a file or a terminal."""
        return cls(_STDOUT) if stat.S_ISFIFO(os.fstat(_STDOUT).st_mode) else None

    async def read_by_other(self, reactor: Reactor) -> None:
        """Wait until all that was written has been read. BrokenPipeError when the reader is gone before."""
        wait = _FIRST_LOOK_SECONDS
        while struct.unpack("i", ioctl(self._fd, FIONREAD, bytes(4)))[0]:
            if self._poll.poll(0):
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            await deferLater(reactor, wait)
            wait = min(2 * wait, _LAST_LOOK_SECONDS)


@implementer(IReadDescriptor)
class PipeWatcher:
    """Calls `on_closed` when nobody reads the pipe that stdout is: there may be no more message to notice it by."""

    def __init__(self, reactor: Reactor, on_closed: Callable[[], object]) -> None:
        self._reactor = IReactorFDSet(reactor)
        self._on_closed = on_closed
        self._is_watching = stat.S_ISFIFO(os.fstat(self.fileno()).st_mode)
        if self._is_watching:
            self._reactor.addReader(self)

    def stop(self) -> None:
        """Watch no more."""
        if self._is_watching:
            self._is_watching = False
            self._reactor.removeReader(self)

    def fileno(self) -> int:
        """IReadDescriptor API"""
        return _STDOUT

    def doRead(self) -> None:
        """IReadDescriptor API: the end that is written to is never readable."""

    def connectionLost(self, reason: object) -> None:
        """IReadDescriptor API"""
        self._is_watching = False
        self._on_closed()

    def logPrefix(self) -> str:
        """IReadDescriptor API"""
        return "stdout"
