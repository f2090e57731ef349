r"""
Lines and packets for statsd, as text.

    line   := <prefix><name>:<integer>|<c or g>\n       c: what was counted since the last push, g: as it is now
    packet := lines, as many as fit into its size; a line that is larger goes alone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nsqtw.stats.document import Numbers
from nsqtw.stats.families import COUNTER, GAUGE
from nsqtw.stats.metrics import CHANNEL_METRICS, MEMORY_METRICS, TOPIC_METRICS, Metrics

_Source = tuple[str, ...]
"""Whose counters they are: a topic, a channel, or () for the process. Names may have dots: a line does not tell."""


class Lines:
    """
    Turns numbers into lines, push after push. What a counter stood at is remembered from one push to the next: a
    topic that is not in a push counts from 0 in the one after.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._last: dict[_Source, list[int]] = {}
        self._current: dict[_Source, list[int]] = {}

    def of(self, numbers: Numbers) -> Iterator[str]:
        """The lines of a topic or a channel, its latencies behind the others."""
        name = f"topic.{numbers.topic}"
        if numbers.channel is None:
            yield from self._lines(name, (numbers.topic,), TOPIC_METRICS, numbers.numbers)
        else:
            name += f".channel.{numbers.channel}"
            yield from self._lines(name, (numbers.topic, numbers.channel), CHANNEL_METRICS, numbers.numbers)
        for percentile in numbers.numbers["e2e_processing_latency"]["percentiles"] or ():
            percent = f"{percentile['quantile'] * 100:.0f}"
            yield self._line(f"{name}.e2e_processing_latency_{percent}", percentile["value"], GAUGE)

    def memory(self, numbers: Mapping[str, int]) -> Iterator[str]:
        """The lines of the `memory` block of /stats."""
        return self._lines("mem", (), MEMORY_METRICS, numbers)

    def end_push(self) -> None:
        """Everything was told; the next push counts from here."""
        self._last, self._current = self._current, {}

    def _lines(self, name: str, source: _Source, table: Metrics[Any], numbers: Mapping[str, Any]) -> Iterator[str]:
        """One line for each number of the table that /stats shows; it leaves out some that are 0."""
        last = iter(self._last.get(source, ()))
        current = self._current[source] = []
        for metric in table.pushed:
            value = numbers.get(metric.name)
            if metric.kind == COUNTER:
                current.append(value or 0)
                previous = next(last, 0)
                value = None if value is None else value - previous
            if value is not None:
                yield self._line(f"{name}.{metric.statsd_name}", value, metric.kind)

    def _line(self, name: str, value: int, kind: str) -> str:
        return f"{self._prefix}{name}:{value}|{kind[0]}\n"


class Packets:
    """Packs lines into packets of at most `size` bytes, in order."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._open = bytearray()
        self._closed: list[bytes] = []

    def add(self, lines: Iterable[str]) -> None:
        for line in lines:
            data = line.encode("utf-8", "surrogateescape")
            if self._open and len(self._open) + len(data) > self._size:
                self._close()
            self._open += data

    def take(self) -> list[bytes]:
        """Return all packets; the last one may be shorter."""
        if self._open:
            self._close()
        closed, self._closed = self._closed, []
        return closed

    def _close(self) -> None:
        self._closed.append(bytes(self._open))
        self._open.clear()
