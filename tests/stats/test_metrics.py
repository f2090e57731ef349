"""One declaration for a statistic."""

from __future__ import annotations

import re

import pytest

from nsqtw.api import stats
from nsqtw.stats import document, metrics, statsd_lines
from nsqtw.stats.metrics import CHANNEL_METRICS, COUNTER, Metric
from nsqtw.stats.statsd_lines import Lines
from tests.core.harness import BrokerHarness
from tests.http.broker_fixture import Web

LENGTH = Metric("name_length", COUNTER, lambda channel: len(channel.name), label="name", width=3, is_extra=True)


def test_one_declaration_makes_a_statistic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the JSON and the text of /stats, and pushed to statsd."""
    table = (*CHANNEL_METRICS, LENGTH)
    for module in (metrics, document, stats):
        monkeypatch.setattr(module, "CHANNEL_METRICS", table)
    monkeypatch.setattr(statsd_lines, "_CHANNEL", metrics.in_statsd_order(table))
    web = Web()
    web.post("/topic/create?topic=t")
    web.post("/channel/create?topic=t&channel=abc")
    (channel,) = web.get("/stats?format=json").json["topics"][0]["channels"]
    assert channel["name_length"] == 3
    assert b"name: 3" in web.get("/stats").body
    (_, numbers) = [numbers for numbers in document.walk(web.broker, 0.0) if numbers is not None]
    assert "topic.t.channel.abc.name_length:3|c\n" in [*Lines("").of(numbers)]


def test_the_depths_of_priorities() -> None:
    """In JSON and text, for statsd, and for Prometheus, of a channel that has priorities."""
    web = Web()
    web.core.channel("plain")
    web.core.channel("abc").set_policy({"priority": True})
    for priority in ("low", "high", "low", "normal"):
        web.post(f"/pub?topic=t&priority={priority}", b"x")
    abc, plain = web.get("/stats?format=json").json["topics"][0]["channels"]
    assert [abc[f"{name}_depth"] for name in ("high", "normal", "low")] == [1, 1, 2]
    assert not [name for name in plain if name.startswith(("high", "normal", "low"))]
    assert b"high-depth: 1 normal-depth: 1 low-depth: 2" in web.get("/stats").body
    numbers = [numbers for numbers in document.walk(web.broker, 0.0) if numbers is not None][1]
    assert "topic.t.channel.abc.low_depth:2|g\n" in [*Lines("").of(numbers)]
    scraped = re.findall(r"^nsq_channel_class_depth{(.*)} (.*)$", web.get("/metrics").body.decode(), re.MULTILINE)
    assert [(labels.split(",")[1], depth) for labels, depth in scraped] == [
        *[('class="high"', "1.0"), ('class="normal"', "1.0"), ('class="low"', "2.0")]
    ]


def test_names_are_unique() -> None:
    for table in (metrics.TOPIC_METRICS, metrics.CHANNEL_METRICS, metrics.MEMORY_METRICS):
        assert len({metric.name for metric in table}) == len({metric.statsd_name for metric in table}) == len(table)


def test_a_count_of_nothing_is_left_out() -> None:
    harness = BrokerHarness()
    channel = harness.reader("c#ephemeral", ready=0).channel
    assert "dropped_count" not in metrics.numbers_of(CHANNEL_METRICS, channel)
    channel.position.dropped_count = 2
    assert metrics.numbers_of(CHANNEL_METRICS, channel)["dropped_count"] == 2
