"""
Output to stdout and stderr, with foreign text escaped.

Nothing else in nsqtw writes to stdout or stderr: ruff refuses `print`, `sys.stdout` and `sys.stderr` elsewhere
(pyproject.toml).
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from nsqtw.errors import CommandError
from nsqtw.foreign_text import one_line, printable


def write_line(text: str = "") -> None:
    """Write one line to stdout. BrokenPipeError when nobody reads, CommandError when it cannot be written."""
    _write(one_line(text))


def write_lines(text: str) -> None:
    """Write text of several lines to stdout, with a newline at its end. The errors of `write_line`."""
    _write(printable(text))


def write_message(body: bytes, end: bytes = b"\n") -> None:
    """
    Write a message and `end` to stdout: as it is, and on a terminal as `printable` text. OSError: call
    `discard_stdout` before the program ends.
    """
    if sys.stdout.isatty():
        body = printable(body.decode("utf-8", "backslashreplace")).encode()
    sys.stdout.buffer.write(body + end)
    sys.stdout.buffer.flush()


def complain(text: str = "", end: str = "\n") -> None:
    """Write one line to stderr. When it cannot be written, there is no place to say so."""
    _complain(one_line(text), end)


def complain_lines(text: str) -> None:
    """Write text of several lines to stderr, with a newline at its end."""
    _complain(printable(text))


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person is at the other end of a stream."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def is_stdout_terminal() -> bool:
    """Return whether a person reads stdout."""
    return is_terminal(sys.stdout)


def is_stderr_terminal() -> bool:
    """Return whether a person reads stderr."""
    return is_terminal(sys.stderr)


def cannot_write(error: OSError) -> CommandError:
    """Return the error for a stdout that cannot be written, and write nothing more there."""
    discard_stdout()
    return CommandError(f"stdout cannot be written: {(error.strerror or str(error)).lower()}")


def discard_stdout() -> None:
    """Let stdout lead nowhere: Python flushes once more at its end, and would complain."""
    _discard(sys.stdout)


def _write(text: str) -> None:
    try:
        _put(sys.stdout, text, "\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(error) from error


def _complain(text: str, end: str = "\n") -> None:
    stream = sys.stderr
    if type(stream).__module__.startswith("twisted."):  # twistd's log
        stream = sys.__stderr__ or stream
    try:
        _put(stream, text, end)
    except OSError:
        _discard(stream)


def _put(stream: TextIO | None, text: str, end: str) -> None:
    """Write text; to nothing when the stream was closed before Python began. OSError."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.removesuffix("\n").encode(encoding, "backslashreplace").decode(encoding) + end)
    stream.flush()


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
