"""The metrics, the dashboard and the alerts, with a real Prometheus that scrapes a real cluster."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.admin.process import AdminProcess
from tests.certificates import Certificates
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.system.prometheus import PrometheusProcess, promtool
from tests.wire import HOST, Closed, Refused

MONITORING = Path(__file__).parents[2] / "contrib/monitoring"
ALERTS = MONITORING / "alerts.yml"
DASHBOARD = MONITORING / "dashboard.json"
SCRAPE_SECONDS = 30.0
_NAME = re.compile(r"\b(?:nsq|process)_[a-z0-9_]+\b")
_VARIABLES = {"$instance": ".*", "$topic": ".*", "$channel": ".*", "$__rate_interval": "10s"}


class Scraped(NamedTuple):
    """A cluster with some traffic behind it, and the Prometheus that scrapes it."""

    nsqd: NsqdProcess
    lookupd: LookupdProcess
    admin: AdminProcess
    prometheus: PrometheusProcess


def expressions() -> list[str]:
    """All expressions of the dashboard, for all instances, topics and channels."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    for variable, value in _VARIABLES.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


def cause_traffic(nsqd: NsqdProcess) -> None:
    """Have something of everything that is counted only once it has happened."""
    nsqd.create("orders", "billing")
    nsqd.publish("orders", [b"one", b"two", b"three"])
    with nsqd.client() as consumer:
        consumer.sub("orders", "billing", ready=2)
        first, second = consumer.take(2)
        consumer.rdy(0)  # what is requeued is to wait
        consumer.fin([first])
        consumer.req(second, 0)
    with nsqd.client() as stranger, suppress(Closed, Refused):
        stranger.ask(b"NONSENSE\n")
    with socket.create_connection((HOST, nsqd.tcp_port)) as silent:  # over --magic-timeout
        while silent.recv(100):
            pass
    cause_traffic_of_policies(nsqd)


def cause_traffic_of_policies(nsqd: NsqdProcess) -> None:
    """
    Have a message of a channel in order by key and with a rate delivered over HTTP, a redrive that finds nothing, and a
    channel with priorities.
    """
    about = "topic=payments&channel=ledger"
    nsqd.create("payments", "ledger")
    nsqd.create("payments.dead", "ledger")
    asked = [
        nsqd.http("PUT", f"/v2/channel/policy?{about}", b'{"ordered_by": "json:customer", "max_rate": 100}'),
        nsqd.http("POST", "/pub?topic=payments", b'{"customer": "a"}'),
        nsqd.http("POST", f"/v2/subscribe/poll?{about}"),
        nsqd.http("POST", f"/v2/channel/redrive?{about}"),
        nsqd.http("PUT", "/v2/channel/policy?topic=payments.dead&channel=ledger", b'{"priority": true}'),
    ]
    assert [answer.status for answer in asked] == [200] * len(asked), asked


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Scraped]:
    directory = tmp_path_factory.mktemp("scraped")
    lookupd = LookupdProcess(directory / "lookupd")
    nsqd = NsqdProcess(
        directory / "nsqd",
        *certificates.server.flags(),
        "--https-address=",
        "--magic-timeout=100ms",
        "--http-subscribe",
        "--e2e-processing-latency-percentile=0.99",
        f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}",
    )
    admin = AdminProcess(directory / "admin", f"--lookupd-http-address={HOST}:{lookupd.http_port}")
    try:
        lookupd.start()
        nsqd.start()
        admin.start()
        cause_traffic(nsqd)
        assert admin.get("/api/nodes").status == 200
        daemons = {"nsqd": nsqd, "nsqlookupd": lookupd, "nsqadmin": admin}
        targets = {job: [f"{HOST}:{daemon.http_port}"] for job, daemon in daemons.items()}
        prometheus = PrometheusProcess(directory, ALERTS, targets)
        try:
            wait_until(lambda: list(prometheus.query("up").values()) == [1, 1, 1], "all are scraped", SCRAPE_SECONDS)
            yield Scraped(nsqd, lookupd, admin, prometheus)
        finally:
            prometheus.close()
    finally:
        for process in (admin, nsqd, lookupd):
            process.close()


def test_promtool_finds_nothing_in_a_scrape(scraped: Scraped) -> None:
    for daemon in (scraped.nsqd, scraped.lookupd, scraped.admin):
        assert promtool("check", "metrics", text=daemon.http("GET", "/metrics").body) == ""


def test_the_rules_and_the_configuration_are_right() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))
    assert "SUCCESS" in promtool("check", "config", str(MONITORING / "prometheus.yml"))


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(MONITORING / "alerts_test.yml"))


def test_each_alert_is_tested() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS.read_text("utf-8"))
    tested = re.findall(r"- name: (\w+)", (MONITORING / "alerts_test.yml").read_text("utf-8"))
    assert sorted(tested) == sorted(alerts)


def test_prometheus_answers_with_the_figures_of_the_nsqd(scraped: Scraped) -> None:
    query = scraped.prometheus.query
    wait_until(lambda: query("sum(nsq_channel_requeued_total)") == {"{}": 1}, "all that happened", SCRAPE_SECONDS)
    assert query('sum(nsq_topic_messages_total{topic="orders"})') == {"{}": 3}
    assert query("sum(nsq_channel_finished_total)") == {"{}": 1}
    assert query('sum(nsq_channel_depth{topic="orders",channel="billing"})') == {"{}": 2}
    assert query('min(nsq_ready{job="nsqd"})') == {"{}": 1}
    assert query("sum(nsq_lookupd_up)") == {"{}": 1}
    assert query("sum(nsq_lookupd_producers)") == {"{}": 1}
    assert query("sum(nsq_admin_requests_total) > bool 0") == {"{}": 1}
    assert query("sum(nsq_e2e_latency_seconds_count)") == {"{}": 1}
    assert query("sum(nsq_publish_ack_seconds_count)") == {"{}": 4}


def test_every_metric_of_the_dashboard_and_the_alerts_exists(scraped: Scraped) -> None:
    """
    Those of Spark need a Spark: tests/spark/test_monitoring.py. Those of a replica store need one:
    tests/api/test_replica.py.
    """
    named = _NAME.findall(" ".join([*expressions(), ALERTS.read_text("utf-8")]))
    used = {name for name in named if not name.startswith(("nsq_spark_", "nsq_replica_"))}
    existing = set(scraped.prometheus.api("label/__name__/values"))
    assert used - existing == set()


def test_prometheus_takes_every_expression_of_the_dashboard(scraped: Scraped) -> None:
    for expression in expressions():
        scraped.prometheus.api("query", query=expression)


def test_prometheus_evaluates_every_alert(scraped: Scraped) -> None:
    def rules() -> list[dict[str, Any]]:
        groups = scraped.prometheus.api("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] == "ok" for rule in rules()), "the rules are evaluated", SCRAPE_SECONDS)
    assert len(rules()) == ALERTS.read_text("utf-8").count("alert: ")
