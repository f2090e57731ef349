"""
GET /metrics: the figures of a daemon, in the text format of Prometheus.

The text is made in steps of SLICE_SECONDS, one in a turn, so a scrape of a large broker delays no client by more. A
client that accepts OpenMetrics gets that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from nsqtw.http.bearer_auth import ANY_RIGHT
from nsqtw.http.endpoints import A_TEXT, Section, endpoint
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import binary
from nsqtw.runtime.long_work import LongWork
from nsqtw.runtime.memory import undisturbed

SLICE_SECONDS = 0.002


class MetricsSource(Protocol):
    """The figures of one daemon."""

    def scrape(self, accept: str) -> tuple[str, Iterator[bytes]]:
        """Return the content type for a client with that Accept field, and the text in pieces, one a step."""


class HasMetrics(Protocol):
    """An object that knows the figures of its daemon."""

    @property
    def metrics(self) -> MetricsSource:
        """The figures."""

    @property
    def reactor(self) -> Any:
        """The reactor of the daemon."""

    def now(self) -> float:
        """The time in seconds, from an arbitrary start."""


class Metrics(Section):
    """Answers from the figures of `context`."""

    def __init__(self, context: HasMetrics) -> None:
        self._source = context.metrics
        self._long_work = LongWork(context.reactor, context.now, SLICE_SECONDS)

    @endpoint(
        "GET",
        "/metrics",
        "Metrics in the text format of Prometheus, or OpenMetrics when that is accepted",
        success=A_TEXT,
        needs=ANY_RIGHT,
        broken=None,
        logged=False,
    )
    def metrics(self, request: HttpRequest) -> None:
        """GET /metrics"""
        content_type, pieces = self._source.scrape(request.fields.get(b"Accept", b"").decode("latin-1"))
        self._long_work.add(_gather(request, content_type.encode(), pieces))


def _gather(request: HttpRequest, content_type: bytes, pieces: Iterator[bytes]) -> Iterator[None]:
    """Answer with all the pieces, one at each step, unless the connection is closed meanwhile."""
    gathered: list[bytes] = []
    while request.client:
        with undisturbed():
            piece = next(pieces, None)
        if piece is None:
            request.answer_later(binary(b"".join(gathered), content_type))
            return
        gathered.append(piece)
        yield
