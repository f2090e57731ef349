"""Metrics of nsqlookupd: one row each, beside those that all daemons have."""

from __future__ import annotations

from operator import attrgetter

import attrs

from nsqtw.lookupd.registrations import Registrations
from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.families import GAUGE, Family


@attrs.frozen(kw_only=True)
class LookupView(DaemonView):
    """An nsqlookupd, as its metrics see it."""

    registrations: Registrations


LOOKUPD_FAMILIES: tuple[Family[LookupView], ...] = (
    Family(
        "nsq_lookupd_producers",
        GAUGE,
        "Connected nsqds, and nsqds loaded from a snapshot.",
        attrgetter("registrations.producer_count"),
    ),
    Family("nsq_lookupd_topics", GAUGE, "Number of known topics.", attrgetter("registrations.topic_count")),
    Family("nsq_lookupd_channels", GAUGE, "Number of known channels.", attrgetter("registrations.channel_count")),
    Family(
        "nsq_lookupd_registrations",
        GAUGE,
        "Topics and channels of all connected nsqds together.",
        attrgetter("registrations.registration_count"),
    ),
)
