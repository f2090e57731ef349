"""The table at the end: what went in, what came out, and what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Outcome:
    """What became of the messages on one channel."""

    channel: str
    client: str
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
    def of(cls, channel: str, client: str, published: set[str], arrived: set[str], deliveries: int) -> Self:
        return cls(
            channel=channel,
            client=client,
            published=len(published),
            delivered=len(arrived & published),
            repeats=deliveries - len(arrived),
            lost=len(published - arrived),
            unknown=len(arrived - published),
        )

    @property
    def good(self) -> bool:
        return self.published > 0 and self.lost == 0 and self.unknown == 0


_HEADINGS = ("channel", "client", "in", "out", "repeats", "lost")


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [_HEADINGS] + [
        (o.channel, o.client, str(o.published), str(o.delivered), str(o.repeats), str(o.lost)) for o in outcomes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    # Words to the left, numbers to the right.
    cells = [
        cell.ljust(width) if i < 2 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def verdict(outcomes: Sequence[Outcome]) -> str:
    lost = sum(outcome.lost for outcome in outcomes)
    unknown = sum(outcome.unknown for outcome in outcomes)
    if all(outcome.good for outcome in outcomes):
        return "lost = 0"
    return f"NOT GOOD: {lost} lost, {unknown} that nobody published"
