"""The tables of a profile, and their output on a terminal: by rich where it is installed, or else as plain text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark_nsq.jobs.profile.report import Document

_BAR_WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉"
#: More hours are in the page and in ``--json``.
_MAX_HOURS = 48


@dataclass(frozen=True)
class Table:
    """A table. `right`: the columns with numbers, which are aligned to the right."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[int] = frozenset()
    note: str = ""


def overview(documents: Sequence[Document]) -> Table:
    """Return a table with a row for each topic."""
    heads = (
        "topic",
        "messages",
        "bytes",
        "mean/s",
        "max/s",
        "p50",
        "p90",
        "p99",
        "max",
        "JSON",
        "duplicates",
        "same id",
    )
    return Table("Topics", heads, [_overview_row(document) for document in documents], frozenset(range(1, len(heads))))


def _overview_row(document: Document) -> tuple[str, ...]:
    size, repeats = document["size"], document["duplicates"]
    return (
        document["topic"],
        f"{document['messages']:,}",
        size_text(document["bytes"]),
        rate_text(document["mean_per_second"]),
        rate_text(document["max_per_second"]),
        *(size_text(size[name]) for name in ("p50", "p90", "p99", "max")),
        share_text(document["json"]["messages"] / document["messages"]),
        *(f"{repeats[name]['messages']:,}" if repeats else "-" for name in ("by_value", "by_id")),
    )


def tables_of(document: Document) -> Iterator[Table]:
    """Yield the tables of one topic."""
    topic = document["topic"]
    shown = document["hours"][-_MAX_HOURS:]
    most = max(hour["messages"] for hour in shown)
    rows = [
        (
            hour["hour"],
            f"{hour['messages']:,}",
            rate_text(hour["mean_per_second"]),
            rate_text(hour["max_per_second"]),
            _bar(hour["messages"] / most if most else 0.0),
        )
        for hour in shown
    ]
    note = "" if len(shown) == len(document["hours"]) else f"the last {_MAX_HOURS} of {len(document['hours'])} hours"
    yield Table(f"{topic}: hours", ("hour", "messages", "mean/s", "max/s", ""), rows, frozenset({1, 2, 3}), note)
    yield fields_table(document)
    yield times_table(document)


def fields_table(document: Document) -> Table:
    """Return the fields of the JSON messages, and notes on messages that are not JSON."""
    found = document["json"]
    rows = [
        (field["field"], share_text(field["present"]), types_text(field), "conflict" if field["conflict"] else "")
        for field in found["fields"]
    ]
    notes = []
    if found["not_json"]:
        example = found["not_json_example"]
        notes.append(f"{found['not_json']:,} messages are not JSON, for example {example_text(example)}")
    if found["more_fields"]:
        notes.append("there are more fields, perhaps names that are data")
    heads = ("field", "present", "types", "")
    return Table(f"{document['topic']}: JSON fields", heads, rows, frozenset({1}), "; ".join(notes))


def times_table(document: Document) -> Table:
    """Return the delays, the latencies, the longest gaps and the repeats."""
    rows: list[tuple[str, ...]] = []
    for title, found in (("delay asked for", document["delay"]), ("event to publish", document["event_time"])):
        if found and found["messages"]:
            percentiles = (duration_text(found[name]) for name in ("p50", "p90", "p99", "max"))
            rows.append((title, f"{found['messages']:,}", *percentiles))
    notes = [
        f"no message for {duration_text(gap['seconds'])} from {gap['from']} to {gap['to']}" for gap in document["gaps"]
    ]
    events = document["event_time"]
    if events:
        words = {"missing": "without event time", "unreadable": "unreadable", "in_future": "later than the publish"}
        notes += [f"{events[name]:,} {text}" for name, text in words.items() if events[name]]
    for name, text in (("by_value", "messages"), ("by_id", "ids")):
        found = (document["duplicates"] or {}).get(name)
        if found and found["messages"]:
            notes.append(
                f"{found['messages']:,} duplicates of {found['distinct']:,} {text}, one of them {found['most']:,} times"
            )
    heads = ("time", "messages", "p50", "p90", "p99", "max")
    return Table(f"{document['topic']}: times", heads, rows, frozenset(range(1, 6)), "; ".join(notes))


def types_text(field: Document) -> str:
    """Return the types of a field; those of a conflict with their counts and a message each."""
    if not field["conflict"]:
        return ", ".join(each["type"] for each in field["types"])
    return ", ".join(f"{each['type']} {each['count']:,} ({example_text(each['example'])})" for each in field["types"])


def example_text(example: Document) -> str:
    return f"{example['nsqd']} {example['position']}"


def share_text(share: float) -> str:
    """Return a share in percent, which is 0 or 100 only when the share is exactly that."""
    percent = 100 * share
    return f"{percent:.0f}%" if percent in (0, 100) else f"{min(max(percent, 0.01), 99.99):.4g}%"


def rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def duration_text(seconds: float) -> str:
    for limit, unit, length in ((1e-3, "µs", 1e-6), (1.0, "ms", 1e-3), (120.0, "s", 1.0), (7200.0, "min", 60.0)):
        if seconds < limit:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 3600:,.1f} h"


def _bar(share: float) -> str:
    full, rest = divmod(round(share * _BAR_WIDTH * 8), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables on stdout."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        for table in tables:
            print(plain(table))
        return
    # Without a terminal there is no width to keep to.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for table in tables:
        console.print(_rich(table))


def _rich(table: Table) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, head in enumerate(table.heads):
        made.add_column(head, justify="right" if index in table.right else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(cell) for cell in row), style="bold red" if "conflict" in row else "")
    parts = [made if table.rows else Text(table.title, style="italic")]
    return Group(*parts, Text(table.note)) if table.note else Group(*parts)


def plain(table: Table) -> str:
    """Return a table in plain text."""
    lines = [table.title]
    if table.rows:
        widths = [max(map(len, column)) for column in zip(table.heads, *table.rows, strict=True)]
        for row in (table.heads, *table.rows):
            cells = [
                cell.rjust(width) if index in table.right else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, *([table.note] if table.note else []), ""])
