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
from nsqtw.stats.daemon_families import DAEMON_FAMILIES, DaemonView
from nsqtw.stats.families import COUNTER, HISTOGRAM, Families, Family, Number, Samples

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


class DaemonMetrics:
    """The metrics of the daemon of `view`. `families` are those of its own, whose source is the view."""

    def __init__(self, view: DaemonView, families: Families = ()) -> None:
        self._view = view
        self._families = families

    def scrape(self, accept: str) -> tuple[str, Iterator[bytes]]:
        """Return the content type of the text for a client with the Accept field `accept`, and the text in pieces."""
        exposition = Exposition(accept)
        return exposition.content_type, self._pieces(exposition)

    def own_pieces(self, exposition: Exposition) -> Iterator[bytes]:
        """Iterate over the text of the daemon's own families; a piece may be empty."""
        return self._text(exposition, self._families)

    def _pieces(self, exposition: Exposition) -> Iterator[bytes]:
        yield from self._text(exposition, DAEMON_FAMILIES)
        yield from self.own_pieces(exposition)
        yield exposition.process()
        yield exposition.end()

    def _text(self, exposition: Exposition, families: Families) -> Iterator[bytes]:
        return exposition.pieces((family, family.samples(self._view)) for family in families)


class _Registry:
    """A registry with given metrics."""

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
