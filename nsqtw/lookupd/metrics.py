"""Metrics of nsqlookupd: one row each, beside those that all daemons have."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import attrs

from nsqtw.lookupd.registrations import Registrations
from nsqtw.stats.daemon_families import DAEMON_FAMILIES, DaemonView
from nsqtw.stats.exposition import Exposition
from nsqtw.stats.families import GAUGE, Families, Family


@attrs.frozen(kw_only=True)
class LookupView(DaemonView):
    """An nsqlookupd, as its metrics see it."""

    registrations: Registrations


LOOKUPD_FAMILIES: tuple[Family[LookupView], ...] = (
    Family(
        "nsq_lookupd_producers",
        GAUGE,
        "nsqds that are connected, and those that a snapshot brought.",
        attrgetter("registrations.producer_count"),
    ),
    Family("nsq_lookupd_topics", GAUGE, "Topics that are known.", attrgetter("registrations.topic_count")),
    Family("nsq_lookupd_channels", GAUGE, "Channels that are known.", attrgetter("registrations.channel_count")),
    Family(
        "nsq_lookupd_registrations",
        GAUGE,
        "Topics and channels of all connected nsqds together.",
        attrgetter("registrations.registration_count"),
    ),
)


class LookupMetrics:
    """The metrics of the nsqlookupd of `view`."""

    def __init__(self, view: LookupView) -> None:
        self._view = view

    def scrape(self, accept: str) -> tuple[str, Iterator[bytes]]:
        """Return the content type of the text, and its pieces."""
        exposition = Exposition(accept)
        return exposition.content_type, self._pieces(exposition)

    def _pieces(self, exposition: Exposition) -> Iterator[bytes]:
        families: Families = [*DAEMON_FAMILIES, *LOOKUPD_FAMILIES]
        yield from exposition.pieces((family, family.samples(self._view)) for family in families)
        yield exposition.process()
        yield exposition.end()
