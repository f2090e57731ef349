"""
Documentation of the metrics: the tables of docs/reference/metrics.md.

`python -m nsqtw.tools.metrics_page` updates them in a checkout.
"""

from __future__ import annotations

from nsqtw.admin.health import ADMIN_FAMILIES
from nsqtw.lookupd.metrics import LOOKUPD_FAMILIES
from nsqtw.options.help import DOCS, replaced
from nsqtw.printing import write_line
from nsqtw.stats.broker_families import BROKER_FAMILIES, CHANNEL_FAMILIES, TOPIC_FAMILIES
from nsqtw.stats.daemon_families import DAEMON_FAMILIES
from nsqtw.stats.families import Families

PAGE = DOCS / "metrics.md"
TABLES: dict[str, Families] = {
    "every daemon": DAEMON_FAMILIES,
    "nsqd": BROKER_FAMILIES,
    "topics": TOPIC_FAMILIES,
    "channels": CHANNEL_FAMILIES,
    "nsqlookupd": LOOKUPD_FAMILIES,
    "nsqadmin": ADMIN_FAMILIES,
}
"""The tables of metrics by the names of their markers in the page."""


def table(families: Families) -> str:
    """Return metrics as a table in Markdown."""
    lines = ["| metric | type | labels | what |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the current text of the page."""
    text = PAGE.read_text("utf-8")
    for name, families in TABLES.items():
        text = replaced(text, name, table(families))
    return text


def main() -> None:
    """Write the page if it changed, and name it."""
    if PAGE.read_text("utf-8") != page():
        PAGE.write_text(page(), "utf-8")
        write_line(str(PAGE))


if __name__ == "__main__":
    main()
