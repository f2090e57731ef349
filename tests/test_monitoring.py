"""The metrics in the documentation, the dashboard and the alerts are those of the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark_nsq.monitoring.metrics import METRICS as SPARK_METRICS

from contrib.monitoring import dashboard
from nsqtw.tools.documentation import METRIC_TABLES, METRICS_PAGE, metrics_page
from tests.system import __main__ as system_tests

ROOT = Path(__file__).parent.parent
_NAME = re.compile(r"\bnsq_[a-z0-9_]+\b")
_SUFFIX = re.compile(r"_(bucket|count|sum)$")
NAMES = {family.name for families in METRIC_TABLES.values() for family in families} | {
    one.name for one in SPARK_METRICS
}
NOT_METRICS = {"nsq_version"}
"""The name of a label."""


@pytest.mark.plain  # the page lies beside the tree's modules
def test_the_page_in_the_docs_is_up_to_date() -> None:
    """Brought up to date by: python -m nsqtw.tools.documentation"""
    assert metrics_page() == METRICS_PAGE.read_text("utf-8")


def test_the_dashboard_is_up_to_date() -> None:
    """Brought up to date by: python -m contrib.monitoring.dashboard"""
    assert dashboard.text() == dashboard.FILE.read_text("utf-8")


@pytest.mark.parametrize(
    "path",
    [
        *("contrib/monitoring/dashboard.json", "contrib/monitoring/alerts.yml", "contrib/monitoring/alerts_test.yml"),
        *("contrib/monitoring/README.md", "docs/how-to/monitoring.md", "docs/reference/metrics.md"),
        "docs/how-to/spark-monitoring.md",
    ],
)
def test_every_metric_that_is_named_is_in_a_table(path: str) -> None:
    used = set(_NAME.findall((ROOT / path).read_text("utf-8"))) - NOT_METRICS
    assert {name for name in used if _SUFFIX.sub("", name) not in NAMES} == set()


def test_the_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in dashboard.dashboard()["panels"]]
    cells = [
        (column, row)
        for place in places
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) == 23


def test_every_metric_of_a_channel_is_on_the_dashboard() -> None:
    shown = dashboard.text()
    assert {
        family.name for family in (*METRIC_TABLES["topics"], *METRIC_TABLES["channels"]) if family.name not in shown
    } == set()


def test_every_metric_of_a_replica_store_is_on_the_dashboard() -> None:
    shown = dashboard.text()
    names = {name for name in NAMES if name.startswith("nsq_replica_")}
    assert len(names) > 5
    assert {name for name in names if name not in shown} == set()


def test_every_lag_and_state_of_spark_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = dashboard.text() + (ROOT / "contrib/monitoring/alerts.yml").read_text("utf-8")
    gauges = {one.name for one in SPARK_METRICS if one.kind == "gauge" and "rows_per_second" not in one.name}
    assert {name for name in gauges if name not in shown} == set()


def test_missing_programs_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_tests.shutil, "which", lambda program: None)
    line = system_tests.missing()
    assert line.startswith("make test-system needs prometheus, promtool")
    assert "apt-get install prometheus" in line
    monkeypatch.setattr(system_tests.shutil, "which", lambda program: f"/usr/bin/{program}")
    assert system_tests.missing() == ""
