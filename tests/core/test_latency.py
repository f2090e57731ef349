"""End-to-end latencies: what a FIN puts into the sketches of its channel, and what they tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.core.histogram import LATENCY_BOUNDS, Histogram
from nsqtw.core.latency import Latencies, Measure
from nsqtw.nsqd.build import measure
from nsqtw.options.broker import Options
from nsqtw.stats.document import document
from tests.core.harness import START, BrokerHarness

ROOT = Path(__file__).parent.parent.parent
SECOND_NS = 10**9
WINDOW = 60.0
NOTHING = {"count": 0, "percentiles": None}
MEASURED = {"e2e_processing_latency_percentile": (1.0, 0.5), "e2e_processing_latency_window_time": WINDOW}


def latency(harness: BrokerHarness, channel: str | None = "c", topic: str = "t") -> dict[str, Any]:
    """What /stats tells of a channel, or for None of the topic."""
    found = document(harness.broker, "1.3.0", now=harness.now, topic=topic)["topics"][0]
    if channel is not None:
        (found,) = (one for one in found["channels"] if one["channel_name"] == channel)
    told: dict[str, Any] = found["e2e_processing_latency"]
    return told


def count(harness: BrokerHarness, channel: str | None = "c") -> int:
    return int(latency(harness, channel)["count"])


def values(harness: BrokerHarness, channel: str | None = "c") -> list[int]:
    return [told["value"] for told in latency(harness, channel)["percentiles"]]


def near(seconds: list[float]) -> Any:
    """As values in ns, as exact as a sketch is."""
    return pytest.approx([second * SECOND_NS for second in seconds], rel=0.01)


# -- the shape


def test_nothing_is_told_when_nothing_is_configured() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"x")
    reader.finish(*[message.id for message in reader.read()])
    assert latency(harness) == latency(harness, None) == NOTHING


def test_a_topic_without_a_channel_has_no_percentiles() -> None:
    harness = BrokerHarness(**MEASURED)
    harness.topic()
    assert latency(harness, None) == NOTHING


def test_percentiles_stand_as_configured_and_are_zero_when_nothing_was_finished() -> None:
    harness = BrokerHarness(e2e_processing_latency_percentile=(0.5, 1.0, 0.99))
    harness.channel()
    expected = {
        "count": 0,
        "percentiles": [
            {"quantile": 0.5, "value": 0},
            {"quantile": 1, "value": 0},
            {"quantile": 0.99, "value": 0},
        ],
    }
    assert latency(harness) == latency(harness, None) == expected
    one = latency(harness)["percentiles"][1]
    assert list(one) == ["quantile", "value"]
    assert type(one["quantile"]) is int  # and so printed as 1


@pytest.mark.process
def test_no_library_is_loaded_for_a_broker_that_measures_nothing() -> None:
    script = (
        "import sys; from nsqtw.nsqd.build import measure; from nsqtw.options.broker import Options;"
        "print(measure(Options()), 'ddsketch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"


# -- what a FIN puts in


def test_a_fin_takes_the_time_since_the_publish() -> None:
    harness = BrokerHarness(**MEASURED)
    reader = harness.reader()
    harness.put(b"x")
    (message,) = reader.read()
    harness.wait(2.5)
    assert reader.finish(message.id) == []
    assert count(harness) == 1
    assert values(harness) == near([2.5, 2.5])
    assert all(type(value) is int for value in values(harness))


def test_messages_that_waited_for_their_keys_count_from_their_own_publishes() -> None:
    harness = BrokerHarness(**{**MEASURED, "e2e_processing_latency_percentile": (1.0, 0.01)})
    harness.channel().policies.set({"ordered_by": "json:k"})
    reader = harness.reader()
    harness.put(b'{"k":1,"n":1}', b'{"k":2,"n":1}', b'{"k":1,"n":2}')
    heads = reader.read()
    harness.wait(3.0)
    harness.put(b'{"k":2,"n":2}')
    assert reader.bodies() == []
    assert reader.finish(*[message.id for message in heads]) == []
    others = reader.read()
    harness.wait(2.0)
    assert reader.finish(*[message.id for message in others]) == []
    assert [message.body for message in others] == [b'{"k":1,"n":2}', b'{"k":2,"n":2}']
    assert count(harness) == 4
    assert values(harness) == near([5.0, 2.0])


def test_the_time_counts_from_the_publish_and_not_from_the_delivery() -> None:
    harness = BrokerHarness(**MEASURED)
    harness.channel()
    harness.put(b"x")
    harness.turn()
    harness.wait(7)
    reader = harness.reader()
    reader.finish(*[message.id for message in reader.read()])
    assert values(harness) == near([7, 7])


def test_a_run_of_fins_over_several_publishes() -> None:
    """Delivered together, as one segment even, and each counted from its own publish."""
    harness = BrokerHarness(e2e_processing_latency_percentile=(0.3, 0.4, 0.6, 0.7))
    harness.channel()
    for bodies in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f"]):
        harness.put(*bodies)
        harness.turn()
        harness.wait(1)
    harness.stop_and_start()
    reader = harness.reader()
    got = reader.read()
    assert len({message.timestamp_ns for message in got}) == 3
    reader.finish(*[message.id for message in got])
    assert count(harness) == 6
    assert values(harness) == near([1, 2, 3, 3])


def test_a_redelivered_message_counts_from_its_publish() -> None:
    """However often: requeued, deferred, touched, timed out."""
    harness = BrokerHarness(**MEASURED, msg_timeout=5.0)
    reader = harness.reader()
    harness.put(b"x")
    for again in (
        lambda message: reader.requeue(message.id),
        lambda message: reader.requeue(message.id, delay=1),
        lambda message: harness.wait(6),
    ):
        (message,) = reader.read()
        again(message)
        harness.wait(1)
    (message,) = reader.read()
    reader.touch(message.id)
    assert count(harness) == 0
    reader.finish(message.id)
    assert count(harness) == 1
    assert values(harness) == near([9, 9])


def test_an_ephemeral_channel_counts_alike() -> None:
    harness = BrokerHarness(**MEASURED)
    reader = harness.reader("c#ephemeral")
    harness.put(b"x", b"y")
    first, second = reader.read()
    reader.requeue(second.id)
    harness.wait(3)
    (second,) = reader.read()
    reader.finish(first.id, second.id)
    assert count(harness, "c#ephemeral") == 2
    assert values(harness, "c#ephemeral") == near([3, 3])


def test_a_sampled_consumer_counts_what_it_was_given() -> None:
    harness = BrokerHarness(**MEASURED)
    reader = harness.reader(sample_rate=50)
    harness.put(*[b"x"] * 50)
    got = reader.read()
    reader.finish(*[message.id for message in got])
    assert count(harness) == len(got)


def test_a_fin_that_fails_counts_nothing() -> None:
    harness = BrokerHarness(**MEASURED)
    reader = harness.reader()
    harness.put(b"x", b"y")
    first, second = reader.read()
    reader.finish(first.id, first.id, b"0" * 16)
    assert count(harness) == 1
    harness.channel().empty()
    reader.finish(second.id)
    assert count(harness) == 1


def test_each_channel_counts_for_itself_and_the_topic_for_all() -> None:
    harness = BrokerHarness(**MEASURED)
    readers = [harness.reader("a"), harness.reader("b")]
    harness.put(b"x", b"y")
    for reader in readers:
        got = reader.read()
        harness.wait(2)
        reader.finish(*[message.id for message in got])
    assert (count(harness, "a"), count(harness, "b"), count(harness, None)) == (2, 2, 4)
    assert values(harness, "a") == near([2, 2])
    assert values(harness, "b") == near([4, 4])
    assert values(harness, None) == near([4, 2])
    only_one = document(harness.broker, "1.3.0", now=harness.now, channel="a")["topics"][0]
    assert only_one["e2e_processing_latency"]["count"] == 4  # of the topic, whatever is asked for


# -- the window


def latencies() -> Latencies:
    return Latencies(Measure((1.0,), WINDOW, DDSketch), Histogram(LATENCY_BOUNDS))


def merged(found: Latencies, now: float) -> DDSketch:
    sketch = DDSketch()
    found.merge_into(sketch, now)
    return sketch


@given(st.lists(st.tuples(st.floats(0, 2 * WINDOW), st.integers(1, 5), st.booleans()), max_size=30))
def test_what_is_told_covers_between_half_a_window_and_a_whole_one(steps: list[tuple[float, int, bool]]) -> None:
    found = latencies()
    now = START
    inserted: list[tuple[float, int]] = []
    for wait, weight, looks in steps:
        now += wait
        found.insert(SECOND_NS, weight, now)
        inserted.append((now, weight))
        if looks:
            told = merged(found, now).count
            assert told >= sum(weight for at, weight in inserted if now - at < WINDOW / 2)
            assert told <= sum(weight for at, weight in inserted if now - at <= WINDOW)


@pytest.mark.parametrize("later", [WINDOW * 1.01, WINDOW * 1.6, WINDOW * 100])
def test_an_old_window_is_forgotten(later: float) -> None:
    found = latencies()
    found.insert(1, 1, START)
    assert merged(found, START + WINDOW * 0.75).count == 1
    assert merged(found, START + later).count == 0


def test_a_channel_that_finishes_nothing_holds_no_sketch() -> None:
    found = latencies()
    assert merged(found, START).count == 0
    found.insert(1, 1, START)
    merged(found, START + 2 * WINDOW)
    assert (found._newer, found._older) == (None, None)


def test_what_is_told_is_within_a_percent_of_the_truth() -> None:
    """A thousand runs of different weights, in two halves."""
    made = measure(Options(e2e_processing_latency_percentile=(1.0, 0.99, 0.95, 0.5, 0.01)))
    assert made is not None
    found = Latencies(made, Histogram(LATENCY_BOUNDS))
    values: list[int] = []
    for n in range(1000):
        value, weight = (1 + n * 7919 % 1000) ** 3, 1 + n % 7
        found.insert(value, weight, START + n * made.window / 1000)
        values += [value] * weight
    values.sort()
    told = made.told(merged(found, START + made.window))
    assert told["count"] == len(values)
    for percentile in told["percentiles"]:
        truth = values[int(percentile["quantile"] * (len(values) - 1))]
        assert percentile["value"] == pytest.approx(truth, rel=0.0101, abs=0.5)


def test_a_clock_that_was_set_back_harms_nobody() -> None:
    found = latencies()
    found.insert(-5 * SECOND_NS, 1, START)
    assert merged(found, START).count == 1
