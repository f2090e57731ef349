"""One declaration for a statistic."""

from __future__ import annotations

import re

import pytest

from nsqtw.core.channel import Channel
from nsqtw.stats import document, metrics
from nsqtw.stats.families import COUNTER
from nsqtw.stats.metrics import CHANNEL_METRICS, Metric, Metrics, Series
from nsqtw.stats.statsd_lines import Lines
from nsqtw.tools.documentation import metrics_table
from tests.core.harness import BrokerHarness
from tests.http.broker_fixture import Web

LENGTH: Metric[Channel] = Metric(
    "name_length",
    COUNTER,
    lambda channel: len(channel.name),
    label="name",
    width=3,
    is_extra=True,
    series=Series("nsq_channel_name_length_total", "Letters of the name.", rank=99),
)


def test_one_declaration_makes_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the JSON and the text of /stats, pushed to statsd, scraped by Prometheus, and in the documentation."""
    with_length = Metrics(*CHANNEL_METRICS.all, LENGTH, labels=("topic", "channel"), path="channel")
    for name, value in vars(with_length).items():
        monkeypatch.setattr(CHANNEL_METRICS, name, value)
    web = Web()
    web.post("/topic/create?topic=t")
    web.post("/channel/create?topic=t&channel=abc")
    (channel,) = web.get("/stats?format=json").json["topics"][0]["channels"]
    assert channel["name_length"] == 3
    assert b"name: 3" in web.get("/stats").body
    (_, numbers) = [numbers for numbers in document.walk(web.broker, 0.0) if numbers is not None]
    assert "topic.t.channel.abc.name_length:3|c\n" in [*Lines("").of(numbers)]
    assert b'nsq_channel_name_length_total{channel="abc",topic="t"} 3.0\n' in web.get("/metrics").body
    assert "| `nsq_channel_name_length_total` | counter | `topic`, `channel` | Letters of the name. |" in metrics_table(
        CHANNEL_METRICS.families
    )


def test_the_depths_of_priorities() -> None:
    """In JSON and text, for statsd, and for Prometheus, of a channel that has priorities."""
    web = Web()
    web.core.channel("plain")
    web.core.channel("abc").policies.set({"priority": True})
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
    for rows in (metrics.TOPIC_METRICS, metrics.CHANNEL_METRICS, metrics.MEMORY_METRICS):
        assert (
            len({metric.name for metric in rows.all})
            == len({metric.statsd_name for metric in rows.all})
            == len(rows.all)
        )


def test_a_count_of_nothing_is_left_out() -> None:
    harness = BrokerHarness()
    channel = harness.reader("c#ephemeral", ready=0).channel
    assert "dropped_count" not in CHANNEL_METRICS.numbers_of(channel)
    channel.position.dropped_count = 2
    assert CHANNEL_METRICS.numbers_of(channel)["dropped_count"] == 2
