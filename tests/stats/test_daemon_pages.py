"""/metrics, /livez and /readyz for another HTTP server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from twisted.internet.task import Clock

from nsqtw.daemon.readiness import Readiness
from nsqtw.runtime.reactor_lag import ReactorLag
from nsqtw.stats.daemon_families import DaemonView
from nsqtw.stats.daemon_pages import OPEN_PATHS, PATHS, DaemonPages, Page
from nsqtw.stats.families import GAUGE, Family

NODES: Family[Any] = Family("nsq_admin_nodes", GAUGE, "Nodes.", lambda view: 3)


def pages(readiness: Readiness | None = None) -> DaemonPages:
    view = DaemonView(
        program="nsqadmin",
        readiness=readiness or Readiness(),
        lag=ReactorLag(Clock()),
        connections=lambda: {"http": 2},
        rejections=lambda: {"max-connections": 1},
        certificates=lambda: {"server.pem": 1e9},
    )
    return DaemonPages(view, [NODES])


def test_it_is_alive() -> None:
    assert pages().page("/livez") == Page(200, "text/plain; charset=utf-8", b"OK")


def test_it_is_ready_when_every_check_passes() -> None:
    readiness = Readiness()
    readiness.add("cluster", lambda: "")
    page = pages(readiness).page("/readyz")
    assert page is not None
    assert (page.status, json.loads(page.body)) == (200, {"ready": True, "checks": ["cluster"], "reasons": {}})


def test_it_is_not_ready_when_a_check_has_a_reason() -> None:
    readiness = Readiness()
    readiness.add("cluster", lambda: "no node answers")
    page = pages(readiness).page("/readyz")
    assert page is not None
    assert page.status == 503
    assert json.loads(page.body)["reasons"] == {"cluster": "no node answers"}


def test_metrics_are_those_of_every_daemon_and_its_own() -> None:
    page = pages().page("/metrics", "application/openmetrics-text; version=1.0.0")
    assert page is not None
    assert page.content_type.startswith("application/openmetrics-text")
    metrics = {metric.name: metric.samples for metric in text_string_to_metric_families(page.body.decode())}
    assert metrics["nsq_build_info"][0].labels["program"] == "nsqadmin"
    assert metrics["nsq_connections"][0].value == 2
    assert metrics["nsq_connections_rejected"][0].labels == {"reason": "max-connections"}
    assert metrics["nsq_cert_expiry_timestamp_seconds"][0].value == 1e9
    assert metrics["nsq_admin_nodes"][0].value == 3
    assert "process_resident_memory_bytes" in metrics


@pytest.mark.parametrize("path", ["/", "/metrics/", "/stats"])
def test_other_paths_are_none_of_its_pages(path: str) -> None:
    assert pages().page(path) is None


def test_every_page_is_named() -> None:
    assert [path for path in PATHS if pages().page(path) is None] == []
    assert set(OPEN_PATHS) < set(PATHS)
