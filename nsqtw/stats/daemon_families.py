"""Metrics that nsqd, nsqlookupd and nsqadmin have in common: one row each."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping

import attrs

import twisted
from nsqtw import NSQ_VERSION, __version__
from nsqtw.daemon.readiness import DRAINING, Readiness
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.stats.families import COUNTER, GAUGE, Family


@attrs.frozen(kw_only=True)
class DaemonView:
    """A daemon, as its metrics see it."""

    program: str
    readiness: Readiness
    lag: ReactorLag
    connections: Callable[[], Mapping[str, int]] = dict
    """Open connections by listener."""
    rejections: Callable[[], Mapping[str, int]] = dict
    """Refused and closed connections by the option that sets the limit."""
    certificates: Callable[[], Mapping[str, float]] = dict
    """When each certificate in use expires, as a unix time, by its file."""


def _build_info(view: DaemonView) -> Mapping[tuple[str, ...], int]:
    return {(view.program, __version__, NSQ_VERSION, platform.python_version(), twisted.__version__): 1}


def _ready(view: DaemonView) -> Mapping[str, int]:
    reasons = view.readiness.reasons()
    return {name: int(name not in reasons) for name in view.readiness.names}


DAEMON_FAMILIES: tuple[Family[DaemonView], ...] = (
    Family(
        "nsq_build_info",
        GAUGE,
        "Always 1. The versions of nsqtw, of the NSQ that it is compatible with, of Python and of Twisted.",
        _build_info,
        ("program", "version", "nsq_version", "python", "twisted"),
    ),
    Family("nsq_ready", GAUGE, "1 if a readiness check passes, 0 if /readyz has a reason for it.", _ready, ("check",)),
    Family(
        "nsq_draining",
        GAUGE,
        "1 while the daemon takes no new work because it is about to stop, else 0.",
        lambda view: int(DRAINING in view.readiness.reasons()),
    ),
    Family(
        "nsq_reactor_lag_seconds",
        GAUGE,
        "Worst delay of a timed call in the last 15 to 30 seconds: how long the event loop was busy or stopped.",
        lambda view: view.lag.worst,
    ),
    Family(
        "nsq_connections",
        GAUGE,
        "Open connections. Those of HTTP and HTTPS are counted together.",
        lambda view: view.connections(),
        ("listener",),
    ),
    Family(
        "nsq_connections_rejected_total",
        COUNTER,
        "Connections and requests that were refused or closed, by the option that limits them.",
        lambda view: view.rejections(),
        ("reason",),
    ),
    Family(
        "nsq_cert_expiry_timestamp_seconds",
        GAUGE,
        "Unix time at which the certificate in use expires, the first of its chain to do so.",
        lambda view: view.certificates(),
        ("file",),
    ),
)
