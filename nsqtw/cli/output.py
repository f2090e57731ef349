"""
Output of the verbs: a verb returns a result, which becomes a rich table on a terminal, aligned text elsewhere, or JSON.
What takes longer than a second has a progress bar on stderr, if that is a terminal.

JSON is stable: keys are added and never renamed. Numbers are plain, in the unit of their key.
"""

from __future__ import annotations

import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from nsqtw.foreign_text import json_text, one_line, printable
from nsqtw.options.texts import brief_duration, readable_size
from nsqtw.printing import is_stderr_terminal, is_stdout_terminal, write_line, write_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table as RichTable
    from rich.text import Text  # noqa: TID251


TABLE, JSON = FORMATS = ("table", "json")
_GAP = "  "
_DELAY_SECONDS = 1.0


def _shown(value: Any) -> str:
    """Return the text of a value in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def size_or_dash(count: int | None) -> str:
    """Return bytes as people read them, a dash for None."""
    return "-" if count is None else readable_size(count)


def age_or_dash(seconds: float | None) -> str:
    """Return a duration as people read it, a dash for None."""
    return "-" if seconds is None else brief_duration(seconds)


def body_fields(body: bytes) -> dict[str, str]:
    """Return the body of a message for JSON. `encoding` is text, or base64 for a body that is no UTF-8."""
    try:
        return {"body": body.decode(), "encoding": "text"}
    except UnicodeDecodeError:
        return {"body": b64encode(body).decode(), "encoding": "base64"}


@attrs.frozen
class Column:
    """
    A column of a table: the key of its value in the rows, its title, and the text of a value. A table that is wider
    than its terminal leaves out the column with the highest `rank`, then the next one. Columns of rank 0 stay. A column
    with `if_used` is in a table only if one of its rows has a value there that is neither 0 nor empty.
    """

    key: str
    title: str
    show: Callable[[Any], str] = _shown
    is_number: bool = False
    rank: int = 0
    if_used: bool = False


def number(
    key: str, title: str, show: Callable[[Any], str] = _shown, rank: int = 0, *, if_used: bool = False
) -> Column:
    """Return a column that is aligned to the right."""
    return Column(key, title, show, is_number=True, rank=rank, if_used=if_used)


@attrs.frozen
class Table:
    """Rows of equal form. JSON has every key of a row, a table only its columns. `empty` replaces an empty table."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    empty: str = ""

    def with_used_columns(self) -> Table:
        """Return the table without the columns that none of its rows uses."""
        used = [
            column for column in self.columns if not column.if_used or any(row.get(column.key) for row in self.rows)
        ]
        return attrs.evolve(self, columns=used)

    def cells(self) -> list[list[str]]:
        """Return the texts of all rows, as they come."""
        return [[column.show(row.get(column.key)) for column in self.columns] for row in self.rows]


@attrs.frozen
class Document:
    """An object in JSON; lines of text and tables in text."""

    data: Mapping[str, Any]
    parts: Sequence[str | Table] = ()


Result = Table | Document


class Output:
    """Prints results to stdout, in one of FORMATS."""

    def __init__(self, format: str) -> None:
        self.format = format

    @property
    def is_json(self) -> bool:
        """Whether results are printed as JSON."""
        return self.format == JSON

    def show(self, result: Result) -> None:
        if self.is_json:
            data = [dict(row) for row in result.rows] if isinstance(result, Table) else result.data
            write_lines(json_text(data, indent=2))
            return
        for part in [result] if isinstance(result, Table) else result.parts:
            if isinstance(part, str):
                write_lines(part)
            else:
                self._show_table(part)

    def _show_table(self, table: Table) -> None:
        if not table.rows:
            if table.empty:
                write_line(table.empty)
        elif is_stdout_terminal():
            console = make_console()
            console.print(rich_table(table, console))
        else:
            write_lines("\n".join(text_table(table)))


def make_console(*, is_stderr: bool = False) -> Console:
    """Return a rich console. It has no colours when NO_COLOR is set."""
    from rich.console import Console  # slow to import, and only terminals need it

    return Console(stderr=is_stderr, highlight=False)


def console_text(text: str, *, must_fit: bool = False) -> Text:
    """Return text for a console, which prints nothing else. Text that must fit has one line, and is cut off."""
    from rich.text import Text  # noqa: TID251

    if must_fit:
        return Text(one_line(text), overflow="ellipsis", no_wrap=True)
    return Text(printable(text))


def rich_table(table: Table, console: Console) -> RichTable:
    """Return the table of a terminal, with the columns for which it is wide enough."""
    any_width = console.options.update_width(sys.maxsize)
    table = table.with_used_columns()
    while True:
        shown = _whole_rich_table(table)
        last = max(table.columns, key=lambda column: column.rank)
        if not last.rank or console.measure(shown, options=any_width).maximum <= console.width:
            return shown
        table = attrs.evolve(table, columns=[column for column in table.columns if column is not last])


def _whole_rich_table(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.is_number else "left", overflow="fold")
    for cells in table.cells():
        shown.add_row(*map(console_text, cells))
    return shown


def text_table(table: Table) -> list[str]:
    """Return the lines of a table for a file or pipe. Columns are at least two spaces apart."""
    table = table.with_used_columns()
    rows = [[column.title for column in table.columns], *([*map(one_line, cells)] for cells in table.cells())]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column.is_number else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return lines


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
