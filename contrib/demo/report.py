"""The table at the end of the demo: records published, received and lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Outcome:
    """What became of the messages for one reader: a channel, or a job."""

    reader: str
    program: str
    published: int
    #: Different messages that arrived, of those published.
    delivered: int
    #: Deliveries of a message that had arrived before.
    repeats: int
    #: Published and never delivered.
    lost: int
    #: Delivered and never published. There is no way this could happen.
    unknown: int

    @classmethod
    def of(cls, reader: str, program: str, published: set[str], arrived: set[str], deliveries: int) -> Self:
        return cls(
            reader=reader,
            program=program,
            published=len(published),
            delivered=len(arrived & published),
            repeats=deliveries - len(arrived),
            lost=len(published - arrived),
            unknown=len(arrived - published),
        )

    @classmethod
    def of_kinds(cls, reader: str, program: str, published: set[str], kinds: Sequence["Kind"]) -> Self:
        """Compare what SQL has counted with what was published."""
        records = sum(kind.records for kind in kinds)
        messages = sum(kind.messages for kind in kinds)
        lost, unknown = max(0, len(published) - records), max(0, records - len(published))
        return cls(reader, program, len(published), records - unknown, messages - records, lost, unknown)

    @property
    def good(self) -> bool:
        return self.published > 0 and self.lost == 0 and self.unknown == 0


@dataclass(frozen=True)
class Kind:
    """What SQL has counted of one kind of records."""

    kind: str
    messages: int
    records: int


#: The meaning of the columns of `table`.
LEGEND = """\
in       records that Spark has published
out      different records of these that the reader has got
repeats  deliveries of a record that the reader had got before: after a crash the broker delivers again what was not
         finished, and Spark publishes again what was not answered
lost     records that the reader has never got"""
_HEADINGS = ("reader", "program", "in", "out", "repeats", "lost")


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [(o.reader, o.program, o.published, o.delivered, o.repeats, o.lost) for o in outcomes]
    return _table(_HEADINGS, rows)


def kinds_table(kinds: Sequence[Kind]) -> str:
    return _table(("kind", "records", "messages"), [(kind.kind, kind.records, kind.messages) for kind in kinds])


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str | int, ...]]) -> str:
    lines = [headings, *rows]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(headings))]
    # Words to the left, numbers to the right.
    is_number = [isinstance(cell, int) for cell in rows[0]] if rows else [False] * len(headings)
    return "\n".join(
        "  ".join(
            str(cell).rjust(width) if right else str(cell).ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in lines
    )


def verdict(outcomes: Sequence[Outcome]) -> str:
    lost = sum(outcome.lost for outcome in outcomes)
    unknown = sum(outcome.unknown for outcome in outcomes)
    if all(outcome.good for outcome in outcomes):
        return "lost = 0"
    return f"NOT GOOD: {lost} lost, {unknown} that nobody published"
