"""The page of a profile: one HTML file that loads nothing, in light and dark, for desktops and phones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from pyspark_nsq.jobs.profile.report import Document
from pyspark_nsq.jobs.profile.tables import (
    Table,
    duration_text,
    example_text,
    overview,
    rate_text,
    share_text,
    size_text,
    times_table,
)

_HEIGHT = 100
#: Least number of bars in the width of the chart, so that few bars do not fill it.
_FEWEST_BARS = 12
_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2430; --faint: #5b6675; --line: #dfe4ea; --bar: #2f6fb3;
  --good: #2f8f5b; --bad: #b3261e; --bad-back: #fdeceb; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e4e8ed; --faint: #98a3b1; --line: #2d353f;
  --bar: #6aa9e9; --good: #5cc48b; --bad: #ff9d94; --bad-back: #3a2220; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.25rem; overflow-wrap: anywhere; }
h3 { margin: 0 0 .5rem; font-size: 1rem; } p { margin: .25rem 0; color: var(--faint); overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .charts { display: grid; gap: 1.5rem 2rem; margin: 1rem 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--faint); font-weight: 500; white-space: nowrap; } .n { text-align: right; white-space: nowrap; }
.conflict { background: var(--bad-back); } .conflict b { color: var(--bad); } .name { white-space: nowrap; }
code { font: .9em ui-monospace, monospace; }
svg { display: block; width: 100%; height: 8rem; border-bottom: 1px solid var(--line); fill: var(--bar); }
.axis { display: flex; justify-content: space-between; color: var(--faint); font-size: .85rem; }
.share { display: inline-block; width: 5rem; height: .6rem; margin-right: .5rem; background: var(--line); }
.share i { display: block; height: 100%; background: var(--good); }
@media (max-width: 40rem) { .share { display: none; } }
"""


def page(documents: Sequence[Document], place: str) -> str:
    """Return the page for the topics of a source."""
    parts = [_table(overview(documents)), *(_topic(document) for document in documents)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Profile of {escape(place)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>Profile</h1><p>{escape(place)}</p>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _topic(document: Document) -> str:
    hours = document["hours"]
    bars = [(hour["messages"], f"{hour['hour']}: {hour['messages']:,} messages, {_rates(hour)}") for hour in hours]
    axis = [hours[0]["hour"], *([hours[-1]["hour"]] if len(hours) > 1 else [])]
    charts = [_chart("Messages by hour", bars, axis)]
    charts.append(_histogram("Size", document["size"]["histogram"], size_text))
    for title, found in (("Event to publish", document["event_time"]), ("Delay asked for", document["delay"])):
        if found and found["histogram"]:
            charts.append(_histogram(title, found["histogram"], duration_text))
    times = times_table(document)
    return (
        f"<h2>{escape(document['topic'])}</h2><p>{document['messages']:,} messages from {document['first']} "
        f"to {document['last']}</p><div class=charts>{''.join(charts)}</div>{_fields(document)}"
        + (_table(times) if times.rows else "")
        + "".join(f"<p>{escape(note)}</p>" for note in times.note.split("; ") if note)
    )


def _rates(hour: Document) -> str:
    return f"{rate_text(hour['mean_per_second'])}/s, in the busiest minute {rate_text(hour['max_per_second'])}/s"


def _histogram(title: str, histogram: Sequence[Document], text: Callable[[float], str]) -> str:
    bars = [(bar["messages"], f"from {text(bar['from'])}: {bar['messages']:,} messages") for bar in histogram]
    starts = [bar["from"] for bar in histogram]
    return _chart(title, bars, [text(starts[0]), text(starts[len(starts) // 2]), text(starts[-1])])


def _chart(title: str, bars: Sequence[tuple[int, str]], axis: Sequence[str]) -> str:
    """Return a bar chart. Its texts are HTML, because a stretched drawing would stretch them, too."""
    most = max(count for count, _ in bars) or 1
    drawn = "".join(
        f'<rect x="{index + 0.08:.2f}" y="{_HEIGHT - _HEIGHT * count / most:.2f}" width="0.84" '
        f'height="{_HEIGHT * count / most:.2f}"><title>{escape(text)}</title></rect>'
        for index, (count, text) in enumerate(bars)
    )
    labels = "".join(f"<span>{escape(label)}</span>" for label in axis)
    return (
        f"<section><h3>{escape(title)}</h3><div class=axis><span>{most:,}</span></div>"
        f'<svg viewBox="0 0 {max(len(bars), _FEWEST_BARS)} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">'
        f"{drawn}</svg><div class=axis>{labels}</div></section>"
    )


def _fields(document: Document) -> str:
    found = document["json"]
    rows = []
    for field in found["fields"]:
        kinds = []
        for each in field["types"]:
            text = f"<b>{escape(each['type'])}</b>" if field["conflict"] else escape(each["type"])
            if field["conflict"]:
                text += f" {each['count']:,}, for example <code>{escape(example_text(each['example']))}</code>"
            kinds.append(text)
        share = f'<span class=share><i style="width:{100 * field["present"]:.1f}%"></i></span>'
        rows.append(
            f"<tr{' class=conflict' if field['conflict'] else ''}>"
            f"<td class=name><code>{escape(field['field'])}</code></td>"
            f"<td class=name>{share}{share_text(field['present'])}</td>"
            f"<td>{('<br>' if field['conflict'] else ', ').join(kinds)}</td></tr>"
        )
    notes = []
    if found["not_json"]:
        example = escape(example_text(found["not_json_example"]))
        notes.append(f"<p>{found['not_json']:,} messages are not JSON, for example <code>{example}</code></p>")
    if found["more_fields"]:
        notes.append("<p>There are more fields, perhaps names that are data.</p>")
    if not rows:
        return "".join(notes)
    head = "<tr><th>field</th><th>present</th><th>types</th></tr>"
    return f"<h3>JSON fields</h3><div class=wide><table>{head}{''.join(rows)}</table></div>{''.join(notes)}"


def _table(table: Table) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        marks = (" class=n" if index in table.right else "" for index in range(len(cells)))
        made = (f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    rows = "".join(row("td", cells) for cells in table.rows)
    return f"<div class=wide><table>{row('th', table.heads)}{rows}</table></div>"
