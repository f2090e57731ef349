"""
The archive of one topic: messages into files, and FIN after the fsync.

Theory of operation. `handle` only collects messages. Once a turn of the event loop they are written in one step, which
also does what became due: sync, rotate, close. A step that waits for the disk runs in a thread, one at a time, and the
messages that arrive meanwhile belong to the next step. After the step of a sync the written messages are finished. A
sync is due periodically, after a rotation, when as many messages wait as may be in flight, and when an nsqd waits for
responses. So a crash repeats at most the messages since the last sync, and loses none.

Performance: per message an append here and one to the buffer of the file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from nsqtw.client.message import Message
from nsqtw.tools.file_names import FileNames
from nsqtw.tools.output_file import FileRules, OutputFile

InThread = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Runs a function in a thread."""


class ArchiveLog(Protocol):
    """The log of nsq_to_file. `debug` and `info` are called in threads, too."""

    def debug(self, text: str) -> None:
        """Log a detail."""

    def info(self, text: str) -> None:
        """Log an expected event."""

    def fatal(self, text: str) -> None:
        """Log the reason for the end of the tool, and end it with exit code 1."""


class Source(Protocol):
    """The consumer of the topic."""

    @property
    def is_starved(self) -> bool:
        """Whether an nsqd waits for responses before it sends more messages."""

    def stop(self) -> Any:
        """Get no more messages."""


class TopicArchive:
    """
    The files of a topic. `title` begins its log lines. `clock` is the wall clock, `call_soon` calls a function in the
    next turn of the loop. With `skips_empty` a file is opened with its first message. `source` is set before the first
    message.
    """

    def __init__(
        self,
        title: str,
        rules: FileRules,
        names: FileNames,
        *,
        max_in_flight: int,
        skips_empty: bool,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        in_thread: InThread,
        log: ArchiveLog,
    ) -> None:
        self._title = title
        self._rules = rules
        self._names = names
        self._max_in_flight = max_in_flight
        self._skips_empty = skips_empty
        self._clock = clock
        self._call_soon = call_soon
        self._in_thread = in_thread
        self._log = log
        self.source: Source
        self._file: OutputFile | None = None
        self._last = ("", -1)
        """Name and revision of the file before."""
        self._arrived: list[Message] = []
        """The messages for the next step."""
        self._written: list[Message] = []
        """The messages in files, or in a step, that are not finished."""
        self._has_tick = self._must_close = self._is_stopping = False
        self._is_scheduled = self._is_busy = self._has_failed = False
        self._waiters: list[Deferred[None]] = []

    # -- events, in the thread of the event loop

    def handle(self, message: Message) -> None:
        """Write a message in the next step. It is finished by a sync."""
        message.disable_auto_response()
        if self._has_failed:
            message.requeue(0, backoff=False)
            return
        self._arrived.append(message)
        if not self._is_scheduled:
            self._schedule()

    def tick(self) -> None:
        """The sync interval is over: rotate if it is time, and sync."""
        self._has_tick = True
        self._schedule()

    def close(self) -> None:
        """Sync and close the file. The next message opens another one."""
        self._must_close = True
        self._schedule()

    def stop(self) -> None:
        """The consumer stops: sync at once, and after every message from now on."""
        self._is_stopping = True
        self._schedule()

    async def wait_closed(self) -> None:
        """Write and finish all messages, and close the file."""
        self.close()
        if not self._has_failed:
            done: Deferred[None] = Deferred()
            self._waiters.append(done)
            await done

    # -- steps

    def _schedule(self) -> None:
        if not (self._is_scheduled or self._is_busy or self._has_failed):
            self._is_scheduled = True
            self._call_soon(self._begin_step)

    def _begin_step(self) -> None:
        self._is_scheduled = False
        messages, self._arrived = self._arrived, []
        has_tick, self._has_tick = self._has_tick, False
        must_close, self._must_close = self._must_close, False
        self._written += messages
        must_sync = (
            has_tick
            or must_close
            or self._is_stopping
            or len(self._written) >= self._max_in_flight
            or self.source.is_starved
        )
        now = self._clock()
        step = partial(self._step, messages, now, has_tick, must_close, must_sync)
        self._is_busy = True
        if must_sync or self._may_rotate(messages, now):
            Deferred.fromCoroutine(self._finish_step(self._in_thread, step))
        else:
            Deferred.fromCoroutine(self._finish_step(_at_once, step))

    async def _finish_step(self, run: InThread, step: Callable[[], bool]) -> None:
        try:
            is_synced = await run(step)
        except Exception as error:  # whatever it is, messages that may not be in the file must not be finished
            self._fail(error)
            return
        if is_synced:
            written, self._written = self._written, []
            for message in reversed(written):
                message.finish()
        self._is_busy = False
        if self._arrived or self._has_tick or self._must_close:
            self._schedule()
        else:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)

    def _fail(self, error: Exception) -> None:
        """Give all messages back, and end the tool. The consumer stops first, so none of them comes again."""
        self._has_failed = True
        self.source.stop()
        for message in (*self._written, *self._arrived):
            message.requeue(0, backoff=False)
        self._written, self._arrived = [], []
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            text = f"{where}{(error.strerror or str(error)).lower()}"
        else:
            text = repr(error)
        path = f" {self._file.path}" if self._file is not None else ""
        self._log.fatal(f"[{self._title}] failed to write{path}: {text}")
        self._wake()

    def _may_rotate(self, messages: Sequence[Message], now: float) -> bool:
        file = self._file
        if file is None:
            return True
        size = sum([len(message.body) + 1 for message in messages]) if self._rules.rotate_size > 0 else 0
        return file.needs_rotation(now, size)

    # -- in a thread

    def _step(self, messages: Sequence[Message], now: float, has_tick: bool, must_close: bool, must_sync: bool) -> bool:
        """Write messages, and do what is due. Returns whether all that was ever written is synced. OSError."""
        if messages:
            file = self._file
            rotates_by_size = self._rules.rotate_size > 0
            if file is None or file.needs_rotation(now):
                file, must_sync = self._rotate(now), True
            for message in messages:
                if rotates_by_size and file.needs_rotation(now):
                    file, must_sync = self._rotate(now), True
                file.write(message.body + b"\n")
        if has_tick and (self._file is None or self._file.needs_rotation(now)):
            if self._skips_empty:
                must_close = True
            else:
                self._rotate(now)
        if must_sync and self._written:
            self._log.debug(f"[{self._title}] syncing {len(self._written)} records to disk")
            if self._file is not None:
                self._file.sync()
        if must_close:
            self._close_file()
        return must_sync

    def _rotate(self, now: float) -> OutputFile:
        self._close_file()
        name = self._names.at(now)
        revision = self._last[1] + 1 if name == self._last[0] else 0
        self._file = file = OutputFile(self._rules, self._names, name, revision, now)
        self._last = (name, file.revision)
        self._log.info(f"[{self._title}] opened {file.path}")
        return file

    def _close_file(self) -> None:
        if self._file is not None:
            path = self._file.close()
            self._file = None
            self._log.info(f"[{self._title}] closed {path}")


async def _at_once(step: Callable[[], bool]) -> bool:
    return step()
