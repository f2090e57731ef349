"""GET /metrics of a broker: its figures, their bound, and the steps they are made in."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nsqtw.errors import BackendError
from nsqtw.stats.broker_families import BROKER_FAMILIES
from nsqtw.stats.broker_scrape import BrokerMetrics
from nsqtw.stats.daemon_families import DAEMON_FAMILIES
from nsqtw.stats.metrics import CHANNEL_METRICS, TOPIC_METRICS
from tests.http.broker_fixture import Web, request

Samples = dict[tuple[str, ...], float]
"""Values by the name of the sample and its label values."""
SERIES_OF_A_TOPIC = 6
SERIES_OF_A_CHANNEL = len(CHANNEL_METRICS.families)


def scrape(web: Web) -> Samples:
    reply = web.get("/metrics")
    assert reply.status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


def of_channel(samples: Samples, name: str, topic: str = "t", channel: str = "c") -> float:
    return samples[f"nsq_channel_{name}", channel, topic]


def test_every_name_says_what_it_counts() -> None:
    families = [*DAEMON_FAMILIES, *BROKER_FAMILIES, *TOPIC_METRICS.families, *CHANNEL_METRICS.families]
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    assert all(name.startswith("nsq_") for name in names)
    assert all(family.name.endswith("_total") == (family.kind == "counter") for family in families)


def test_the_figures_of_a_topic_and_its_channel() -> None:
    web = Web()
    reader = web.core.reader(ready=2)
    web.post("/pub?topic=t", b"one")
    web.post("/pub?topic=t", b"two")
    web.post("/pub?topic=t", b"three")
    web.post("/pub?topic=t&defer=60000", b"later")
    first, second = reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    reader.finish(first.id)
    reader.requeue(second.id)
    web.core.now += 4
    samples = scrape(web)
    assert samples["nsq_topic_messages_total", "t"] == 4
    assert samples["nsq_topic_bytes_total", "t"] == len("onetwothreelater")
    assert samples["nsq_topic_depth", "t"] == 0
    assert of_channel(samples, "depth") == 2
    assert of_channel(samples, "in_flight") == 0
    assert of_channel(samples, "deferred") == 1
    assert of_channel(samples, "clients") == 1
    assert of_channel(samples, "finished_total") == 1
    assert of_channel(samples, "requeued_total") == 1
    assert of_channel(samples, "oldest_message_age_seconds") == pytest.approx(4)
    assert of_channel(samples, "paused") == 0


def test_what_times_out_and_what_is_dropped_is_counted() -> None:
    web = Web(mem_queue_size=1)
    reader = web.core.reader("c#ephemeral", ready=1)
    for body in (b"1", b"2", b"3", b"4"):
        web.post("/pub?topic=t", body)
    reader.read()
    reader.channel.set_ready(reader.consumer, 0)
    web.core.wait(web.core.options.msg_timeout + 1)
    samples = scrape(web)
    assert of_channel(samples, "timed_out_total", channel="c#ephemeral") == 1
    assert of_channel(samples, "dropped_total", channel="c#ephemeral") == 3


def test_messages_that_wait_for_their_key() -> None:
    web = Web()
    web.core.topic().channel("c", web.core.now)
    assert ("nsq_channel_set_aside", "c", "t") not in scrape(web)
    web.core.topic().channels["c"].policies.set({"ordered_by": "header:k"})
    for body in (b"a", b"b", b"c"):
        web.ask("POST", "/pub?topic=t", body, X_NSQ_k="1")
    web.core.reader(ready=9).read()
    assert of_channel(scrape(web), "set_aside") == 2
    web.core.topic().channels["c"].policies.set({"ordered_by": "header:k", "max_depth": 1, "overflow": "drop_oldest"})
    web.pump.wake()
    web.turn()
    samples = scrape(web)
    assert of_channel(samples, "depth") == 1
    assert of_channel(samples, "set_aside") == 1, "what a bound drops does not wait any more"


def test_cancelled_messages_are_counted() -> None:
    web = Web()
    for channels in ((), ("c", "d")):
        for channel in channels:
            web.post(f"/channel/create?topic=t&channel={channel}")
        (message_id,) = web.post("/pub?topic=t&defer=1000&ids=true", b"a").json["ids"]
        for _ in range(2):
            web.post(f"/v2/topic/cancel?topic=t&id={message_id}")
    assert scrape(web)["nsq_topic_cancelled_total", "t"] == 2
    assert web.get("/stats?format=json").json["topics"][0]["cancelled_count"] == 2
    assert " cancelled: 2" in web.get("/stats").body.decode()


def test_publishes_and_their_acknowledgements() -> None:
    web = Web()
    for _ in range(3):
        web.post("/pub?topic=t", b"x")
    samples = scrape(web)
    assert samples["nsq_publish_ack_seconds_count",] == 3
    assert samples["nsq_publish_ack_seconds_bucket", "+Inf"] == 3


def test_latencies_are_there_when_they_are_measured() -> None:
    web = Web(e2e_processing_latency_percentile=(0.99,))
    reader = web.core.reader()
    web.post("/pub?topic=t", b"x")
    (message,) = reader.read()
    web.core.now += 2
    reader.finish(message.id)
    samples = scrape(web)
    assert samples["nsq_e2e_latency_seconds_count", "t"] == 1
    assert samples["nsq_e2e_latency_seconds_sum", "t"] == pytest.approx(2)
    assert ("nsq_e2e_latency_seconds_count", "t") not in scrape(Web())


def test_the_store_and_its_failures() -> None:
    web = Web()
    web.post("/pub?topic=t", b"x")
    web.core.backend.commit = lambda writes, durable: {queue: BackendError("no space") for queue, _ in writes}
    web.post("/pub?topic=t", b"x")
    samples = scrape(web)
    assert samples["nsq_store_bytes", "/"] == web.core.topic().log.queue.size
    assert 0 < samples["nsq_store_free_bytes", "/"] <= samples["nsq_store_capacity_bytes", "/"]
    assert samples["nsq_store_errors_total", "/"] == 1


def test_readiness_is_a_figure_for_each_check() -> None:
    web = Web()
    web.readiness.add("disk", lambda: "")
    web.readiness.add("draining", lambda: "the broker stops")
    samples = scrape(web)
    assert samples["nsq_ready", "disk"] == 1
    assert samples["nsq_ready", "draining"] == 0
    assert samples["nsq_draining",] == 1


@pytest.mark.parametrize(
    ("options", "has_topics", "has_channels"),
    [
        ({}, True, True),
        ({"metrics_channels": False}, True, False),
        ({"metrics_topics": False}, False, False),
    ],
)
def test_series_of_topics_and_channels_can_be_switched_off(
    options: dict[str, Any], has_topics: bool, has_channels: bool
) -> None:
    web = Web(**options)
    web.core.channel()
    samples = scrape(web)
    assert (("nsq_topic_depth", "t") in samples) is has_topics
    assert (("nsq_channel_depth", "c", "t") in samples) is has_channels
    assert (samples["nsq_topics",], samples["nsq_channels",]) == (1, 1)


def test_what_is_beyond_the_bound_is_counted_and_left_out() -> None:
    web = Web(metrics_max_series=SERIES_OF_A_TOPIC + SERIES_OF_A_CHANNEL * 2)
    for channel in ("a", "b", "c"):
        web.core.channel(channel)
    web.core.channel("a", topic="u")
    samples = scrape(web)
    shown = [key for key in samples if key[0] == "nsq_channel_depth"]
    assert shown == [("nsq_channel_depth", "a", "t"), ("nsq_channel_depth", "b", "t")]
    assert samples["nsq_metrics_omitted", "channel"] == 2
    assert samples["nsq_metrics_omitted", "topic"] == 1


def test_no_bound_shows_everything() -> None:
    web = Web(metrics_max_series=0)
    for number in range(30):
        web.core.channel(f"c{number}")
    assert sum(key[0] == "nsq_channel_depth" for key in scrape(web)) == 30


def test_a_scrape_is_made_in_steps_of_a_channel() -> None:
    web = Web()
    for number in range(30):
        web.core.channel(f"c{number}")
    _, pieces = BrokerMetrics(web.view).scrape("")
    assert sum(piece == b"" for piece in pieces) >= 30


def test_what_is_deleted_between_two_steps_is_left_out() -> None:
    web = Web()
    web.core.channel("a")
    web.core.channel("b")
    web.core.channel("c", topic="u")
    _, pieces = BrokerMetrics(web.view).scrape("")
    next(pieces)
    web.core.topic("t").delete_channel("b")
    web.broker.delete_topic("u")
    text = b"".join(pieces).decode()
    assert 'nsq_channel_depth{channel="a",topic="t"}' in text
    assert 'channel="b"' not in text
    assert 'topic="u"' not in text


def test_a_client_that_accepts_openmetrics_gets_it() -> None:
    reply = Web().ask("GET", "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert reply.body.endswith(b"# EOF\n")


def test_a_scrape_ends_with_the_connection_that_asked_for_it() -> None:
    web = Web()
    web.core.channel()
    asked: list[str] = []

    def check() -> str:
        asked.append("disk")
        return ""

    web.readiness.add("disk", check)
    browser = web.connect()
    browser.send(request("GET", "/metrics"))
    browser.lose()
    web.turn()
    assert asked == []
    scrape(web)
    assert asked != []
