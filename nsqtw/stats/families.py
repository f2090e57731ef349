"""
Metric families of Prometheus: the type of a row in the tables, and the values of a row.

    Family("nsq_topic_depth", GAUGE, "Messages that no channel was given yet.", attrgetter("depth"), ("topic",))

`value` computes the family's value from a source: a broker, a topic, a channel. For a source without the label names,
such as a topic, what walks over the sources adds the label values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

from nsqtw.core.histogram import Histogram

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

Source = TypeVar("Source")
Number = float | int | Histogram


@define
class Samples:
    """
    The samples of a family: the label values of each, in the order of the family's label names, and its value. Two
    lists, because the garbage collector would look at a hundred thousand pairs.
    """

    labels: list[Sequence[str]] = field(factory=list)
    values: list[Number] = field(factory=list)

    def add(self, labels: Sequence[str], value: Number) -> None:
        self.labels.append(labels)
        self.values.append(value)


@frozen
class Family(Generic[Source]):
    """
    One metric, or several with the same name and other label values. The name of a COUNTER ends with "_total".

    `value` returns a number; or a mapping from label values, a text where there is one label, to numbers; or None for
    no sample.
    """

    name: str
    kind: str
    help: str
    value: Callable[[Source], Number | Mapping[Any, Number] | None]
    labels: tuple[str, ...] = ()
    rank: float = 0
    """Place in a scrape, where the order of its table is another one."""

    def samples(self, source: Source) -> Samples:
        """Return the samples of a source whose `value` has all the labels."""
        value, samples = self.value(source), Samples()
        if isinstance(value, Mapping):
            for key, number in value.items():
                samples.add((key,) if isinstance(key, str) else key, number)
        elif value is not None:
            samples.add((), value)
        return samples


Families = Sequence[Family[Any]]
