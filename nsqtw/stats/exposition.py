"""
Text of a scrape, as Prometheus and OpenMetrics define it, written by prometheus-client.

Theory of operation. The library writes a whole registry in one call, which for the channels of a large broker takes a
second. So it is given a part of one family at a time, SAMPLES_AT_ONCE samples, and the caller has other work between
two pieces. Each piece of a family but the first loses the lines about the family, and OpenMetrics' mark of the end
moves to the end.

The library is imported with the first scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nsqtw.core.histogram import Histogram
from nsqtw.stats.families import COUNTER, HISTOGRAM, Family, Number, Samples

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SAMPLES_AT_ONCE = 100
"""In one piece: about 1 ms."""
_COMMENT = b"# "
_END = b"# EOF\n"


class Exposition:
    """One scrape by a client that sends the header field Accept `accept`."""

    def __init__(self, accept: str = "") -> None:
        from prometheus_client.exposition import choose_encoder

        self._encode, self.content_type = choose_encoder(accept)

    def pieces(self, collected: Iterable[tuple[Family[Any], Samples]]) -> Iterator[bytes]:
        """Iterate over the text of families with their samples. A family without samples is left out."""
        for family, samples in collected:
            for start in range(0, len(samples.values), SAMPLES_AT_ONCE):
                part = slice(start, start + SAMPLES_AT_ONCE)
                metric = metric_of(family, samples.labels[part], samples.values[part])
                yield self._text([metric], with_comments=start == 0)

    def process(self) -> bytes:
        """Return the figures of this process: CPU, memory, descriptors. Empty where there is no /proc."""
        from prometheus_client import ProcessCollector

        return self._text(ProcessCollector(registry=None).collect())

    def end(self) -> bytes:
        """Return the end of the text."""
        return self._encode(_Registry([]))

    def _text(self, metrics: Iterable[Metric], *, with_comments: bool = True) -> bytes:
        text = self._encode(_Registry(metrics)).removesuffix(_END)
        if with_comments:
            return text
        return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(_COMMENT))


class _Registry:
    """What the library collects from."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def metric_of(family: Family[Any], labels: Sequence[Sequence[str]], values: Sequence[Number]) -> Metric:
    """Return a family with samples as the library's object."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for label_values, value in zip(labels, values, strict=True):
            assert isinstance(value, Histogram), "a histogram has no other values"
            histogram.add_metric(label_values, buckets_of(value), value.sum)
        return histogram
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for label_values, value in zip(labels, values, strict=True):
        assert not isinstance(value, Histogram), f"{family.name} is no histogram"
        metric.add_metric(label_values, value)
    return metric


def buckets_of(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the buckets with their upper bounds as text."""
    from prometheus_client.utils import floatToGoString

    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return list(zip(bounds, histogram.cumulative(), strict=True))
