"""
The archive of one topic: messages into files, and FIN after the fsync (suite specification 3.1, main loop).

Messages are finished when the file with them is synced: periodically, when as many wait as may be in flight, and when
an nsqd waits for responses. So a crash repeats at most the messages since the last sync, and loses none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nsqtw.client.message import Message
from nsqtw.client.twisted import Consumer
from nsqtw.tools.file_names import FileNames
from nsqtw.tools.output_file import FileRules, OutputFile, move_leftovers


class ArchiveLog(Protocol):
    """The log of nsq_to_file."""

    def info(self, text: str) -> None:
        """Log an expected event."""

    def fatal(self, text: str) -> None:
        """Log the reason for the end of the tool, and end it with exit code 1."""


class TopicArchive:
    """
    The files of `topic`. `clock` is the wall clock, `call_soon` calls a function in the next turn of the loop. With
    `skips_empty` a file is opened with its first message.
    """

    def __init__(
        self,
        topic: str,
        rules: FileRules,
        names: FileNames,
        *,
        max_in_flight: int,
        skips_empty: bool,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        log: ArchiveLog,
    ) -> None:
        self._topic = topic
        self._rules = rules
        self._names = names
        self._max_in_flight = max_in_flight
        self._skips_empty = skips_empty
        self._clock = clock
        self._call_soon = call_soon
        self._log = log
        self._file: OutputFile | None = None
        self._last = ("", -1)
        """Name and revision of the file before."""
        self._pending: list[Message] = []
        self._is_scheduled = False
        self._has_failed = False
        self.consumer: Consumer | None = None

    def begin(self) -> None:
        """Take over the files that a killed process left. OSError."""
        for path in move_leftovers(self._rules, self._names):
            self._log.info(f"[{self._topic}] moved {path}, which another process left")

    def handle(self, message: Message) -> None:
        """Write a message. It is finished by a later sync."""
        message.disable_auto_response()
        if self._has_failed:
            message.requeue(0, backoff=False)
            return
        self._pending.append(message)
        try:
            file = self._file
            if file is None or file.needs_rotation(self._clock()):
                file = self._rotate()
            file.write(message.body + b"\n")
        except OSError as error:
            self._fail(error)
            return
        is_full = len(self._pending) >= self._max_in_flight
        if (is_full or (self.consumer is not None and self.consumer.is_starved)) and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.sync)  # after the other messages of this turn

    def tick(self) -> None:
        """The sync interval is over: rotate if it is time, and sync."""
        try:
            if self._file is None or self._file.needs_rotation(self._clock()):
                if self._skips_empty:
                    self._close_file()
                else:
                    self._rotate()
        except OSError as error:
            self._fail(error)
        self.sync()

    def sync(self) -> None:
        """Sync the file, and finish the messages in it."""
        self._is_scheduled = False
        if self._has_failed:
            return
        try:
            if self._file is not None:
                self._file.sync()
        except OSError as error:
            self._fail(error)
            return
        pending, self._pending = self._pending, []
        for message in reversed(pending):
            message.finish()

    def close(self) -> None:
        """Sync and close the file; the next message opens another one."""
        if self._has_failed:
            return
        try:
            self._close_file()
        except OSError as error:
            self._fail(error)
            return
        self.sync()

    # -- inside

    def _rotate(self) -> OutputFile:
        self._close_file()
        now = self._clock()
        name = self._names.at(now)
        revision = self._last[1] + 1 if name == self._last[0] else 0
        self._file = file = OutputFile(self._rules, self._names, name, revision, now)
        self._last = (name, file.revision)
        path = self._names.with_revision(name, file.revision)
        self._log.info(f"[{self._topic}/{self._channel}] opened {path}")
        return file

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            path = file.close()
            self._log.info(f"[{self._topic}/{self._channel}] closed {path}")

    @property
    def _channel(self) -> str:
        return self.consumer.channel if self.consumer is not None else ""

    def _fail(self, error: OSError) -> None:
        """Give all messages back, and end the tool."""
        self._has_failed = True
        pending, self._pending = self._pending, []
        for message in pending:
            message.requeue(0, backoff=False)
        where = f" {error.filename}" if error.filename else ""
        self._log.fatal(
            f"[{self._topic}/{self._channel}] writing failed:{where} {(error.strerror or str(error)).lower()}"
        )
