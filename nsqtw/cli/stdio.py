"""The pipe that stdout is, and delimiters as they are typed."""

from __future__ import annotations

import codecs
import errno
import os
import select
import stat
import struct
from collections.abc import Callable
from fcntl import ioctl
from termios import FIONREAD
from typing import Self

from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.internet.task import deferLater
from zope.interface import implementer

from nsqtw.errors import OptionError
from nsqtw.runtime.reactor import Reactor

_STDOUT = 1
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.0001, 0.05


def delimiter_of(text: str) -> bytes:
    r"""Return the bytes of a delimiter as it is typed: \n, \t, \r, \0, \\ and \xHH are replaced. OptionError."""
    try:
        return codecs.escape_decode(text.replace("\\0", "\\x00").encode("utf-8", "surrogateescape"))[0]
    except ValueError as error:
        raise OptionError(rf"delimiter {text!r} must be a text, with \n, \t, \0 or \xHH") from error


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
