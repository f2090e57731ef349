"""A progress bar on stderr, for what takes longer than a second. Without a terminal there is none."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from nsqtw.cli.output import make_console
from nsqtw.foreign_text import one_line
from nsqtw.printing import is_stderr_terminal

if TYPE_CHECKING:
    from rich.progress import Progress

_DELAY_SECONDS = 1.0


class ProgressBar:
    """A bar with a text before it. Its context, or `close`, ends it."""

    def __init__(self, text: str, *, is_wanted: bool = True) -> None:
        self._text = text
        self._begin = time.monotonic()
        self._is_wanted = is_wanted and is_stderr_terminal()
        self._progress: Progress | None = None

    def show(self, done: int, total: int | None, text: str = "") -> None:
        """Show `done` of `total` steps, None for an unknown number."""
        if not self._is_wanted or time.monotonic() - self._begin < _DELAY_SECONDS:
            return
        if self._progress is None:
            self._progress = _make_bar()
            self._progress.start()
            self._progress.add_task(one_line(self._text), total=total)
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=done, total=total, description=one_line(text or self._text), refresh=True)

    def close(self) -> None:
        """Take the bar off the terminal."""
        if self._progress is not None:
            self._progress.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _make_bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=make_console(is_stderr=True), auto_refresh=False, transient=True)
