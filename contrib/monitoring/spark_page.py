"""``python -m contrib.monitoring.spark_page``: the table of docs/reference/spark-metrics.md, from the connector's."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_nsq.monitoring.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs/reference/spark-metrics.md"
_BEGIN, _END = "<!-- metrics -->\n", "<!-- end of metrics -->"


def table() -> str:
    """Return the metrics as a table in Markdown."""
    lines = ["| metric | type | labels | what | from |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(
            f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {metric.origin}: `{metric.key}` |"
        )
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the current text of the page."""
    head, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
    return head + _BEGIN + table() + _END + rest.partition(_END)[2]


def main() -> None:
    """Write the page if it changed, and name it."""
    text = page()
    if PAGE.read_text("utf-8") != text:
        PAGE.write_text(text, "utf-8")
        sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
