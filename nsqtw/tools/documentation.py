"""
Documentation made from tables of the code: in docs/reference/tools.md, metrics.md, docs/architecture.md and man pages.

`python -m nsqtw.tools.documentation` updates them in a checkout.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from nsqtw.admin.health import ADMIN_FAMILIES
from nsqtw.core.place import BULK, TRANSITIONS, Place
from nsqtw.lookupd.metrics import LOOKUPD_FAMILIES
from nsqtw.options.help import DOCS, man_page, options_table, replaced
from nsqtw.printing import write_line
from nsqtw.stats.broker_families import BROKER_FAMILIES
from nsqtw.stats.daemon_families import DAEMON_FAMILIES
from nsqtw.stats.families import Families
from nsqtw.stats.metrics import CHANNEL_METRICS, TOPIC_METRICS
from nsqtw.tools.program import Tool

_HEAD = """
.TH {title} 1 "" nsqtw "User Commands"
.SH NAME
{name} - {summary}
.SH SYNOPSIS
.B {name}
[\\fIoption\\fR]...
.SH DESCRIPTION
A tool of NSQ, for nsqd and nsqtw. The documentation of nsqtw has examples.
"""
_TAIL = """
.SH EXIT STATUS
0 after a clean stop, 1 for an error, 2 for a wrong flag.
.SH SIGNALS
SIGINT and SIGTERM stop the tool: it responds to the messages in hand, and requeues the others.
"""
METRICS_PAGE = DOCS / "metrics.md"
ARCHITECTURE_PAGE = DOCS.parent / "architecture.md"
METRIC_TABLES: dict[str, Families] = {
    "every daemon": DAEMON_FAMILIES,
    "nsqd": BROKER_FAMILIES,
    "topics": TOPIC_METRICS.families,
    "channels": CHANNEL_METRICS.families,
    "nsqlookupd": LOOKUPD_FAMILIES,
    "nsqadmin": ADMIN_FAMILIES,
}
"""The tables of metrics by the names of their markers in the page."""


def tools() -> list[Tool[Any]]:
    """Return all tools, by name."""
    paths = [path for pattern in ("nsq_*.py", "to_nsq.py") for path in Path(__file__).parent.glob(pattern)]
    return [import_module(f"nsqtw.tools.{path.stem}").TOOL for path in sorted(paths)]


def pages() -> dict[Path, str]:
    """Return the current text of every page, by path."""
    page = DOCS / "tools.md"
    text = page.read_text("utf-8")
    made: dict[Path, str] = {}
    for tool in tools():
        reader = tool.reader
        text = replaced(text, f"options of {tool.name}", options_table(reader))
        head = _HEAD.format(title=tool.name.upper(), name=tool.name, summary=tool.summary)
        made[DOCS / f"{tool.name}.1"] = man_page(reader, head, _TAIL)
    made[page] = text
    made[METRICS_PAGE] = metrics_page()
    made[ARCHITECTURE_PAGE] = replaced(ARCHITECTURE_PAGE.read_text("utf-8"), "transitions", _state_diagram())
    return made


def metrics_table(families: Families) -> str:
    """Return metrics as a table in Markdown."""
    lines = ["| metric | type | labels | what |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def _state_diagram() -> str:
    """Return the transitions of single messages as a diagram of Mermaid."""
    events: dict[tuple[Place, Place], list[str]] = {}
    for event, places, after in TRANSITIONS:
        for before in places if event not in BULK else ():
            events.setdefault((before, after), []).append(event.value)
    lines = [
        f"    {before.name.lower()} --> {after.name.lower()}: {' / '.join(of)}"
        for (before, after), of in events.items()
    ]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", "    [*] --> unread: release", *lines, "    finished --> [*]", "```", ""]
    )


def metrics_page() -> str:
    """Return the current text of the page of metrics."""
    text = METRICS_PAGE.read_text("utf-8")
    for name, families in METRIC_TABLES.items():
        text = replaced(text, name, metrics_table(families))
    return text


def main() -> None:
    """Write the pages that changed, and name them."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            write_line(str(path))


if __name__ == "__main__":
    main()
