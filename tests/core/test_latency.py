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

from nsqtw.core.latency import Latencies, Measure
from nsqtw.nsqd.build import measure
from nsqtw.options.broker import Options
from nsqtw.stats.document import document
from tests.core.world import START, World

ROOT = Path(__file__).parent.parent.parent
SECOND_NS = 10**9
WINDOW = 60.0
NOTHING = {"count": 0, "percentiles": None}
MEASURED = {"e2e_processing_latency_percentile": (1.0, 0.5), "e2e_processing_latency_window_time": WINDOW}


def latency(world: World, channel: str | None = "c", topic: str = "t") -> dict[str, Any]:
    """What /stats tells of a channel, or for None of the topic."""
    found = document(world.broker, "1.3.0", now=world.now, topic=topic)["topics"][0]
    if channel is not None:
        (found,) = (one for one in found["channels"] if one["channel_name"] == channel)
    told: dict[str, Any] = found["e2e_processing_latency"]
    return told


def count(world: World, channel: str | None = "c") -> int:
    return int(latency(world, channel)["count"])


def values(world: World, channel: str | None = "c") -> list[int]:
    return [told["value"] for told in latency(world, channel)["percentiles"]]


def near(seconds: list[float]) -> Any:
    """As values in ns, as exact as a sketch is."""
    return pytest.approx([second * SECOND_NS for second in seconds], rel=0.01)


# -- the shape


def test_nothing_is_told_when_nothing_is_configured() -> None:
    world = World()
    reader = world.reader()
    world.put(b"x")
    reader.finish(*[message.id for message in reader.read()])
    assert latency(world) == latency(world, None) == NOTHING


def test_a_topic_without_a_channel_has_no_percentiles() -> None:
    world = World(**MEASURED)
    world.topic()
    assert latency(world, None) == NOTHING


def test_percentiles_stand_as_configured_and_are_zero_when_nothing_was_finished() -> None:
    world = World(e2e_processing_latency_percentile=(0.5, 1.0, 0.99))
    world.channel()
    expected = {
        "count": 0,
        "percentiles": [
            {"quantile": 0.5, "value": 0},
            {"quantile": 1, "value": 0},
            {"quantile": 0.99, "value": 0},
        ],
    }
    assert latency(world) == latency(world, None) == expected
    one = latency(world)["percentiles"][1]
    assert list(one) == ["quantile", "value"]
    assert type(one["quantile"]) is int  # and so printed as 1


def test_no_library_is_loaded_for_a_broker_that_measures_nothing() -> None:
    script = (
        "import sys; from nsqtw.nsqd.build import measure; from nsqtw.options.broker import Options;"
        "print(measure(Options()), 'ddsketch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"


# -- what a FIN puts in


def test_a_fin_takes_the_time_since_the_publish() -> None:
    world = World(**MEASURED)
    reader = world.reader()
    world.put(b"x")
    (message,) = reader.read()
    world.wait(2.5)
    assert reader.finish(message.id) == []
    assert count(world) == 1
    assert values(world) == near([2.5, 2.5])
    assert all(type(value) is int for value in values(world))


def test_the_time_counts_from_the_publish_and_not_from_the_delivery() -> None:
    world = World(**MEASURED)
    world.channel()
    world.put(b"x")
    world.turn()
    world.wait(7)
    reader = world.reader()
    reader.finish(*[message.id for message in reader.read()])
    assert values(world) == near([7, 7])


def test_a_run_of_fins_over_several_publishes() -> None:
    """Delivered together, as one segment even, and each counted from its own publish."""
    world = World(e2e_processing_latency_percentile=(0.3, 0.4, 0.6, 0.7))
    world.channel()
    for bodies in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f"]):
        world.put(*bodies)
        world.turn()
        world.wait(1)
    world.stop_and_start()
    reader = world.reader()
    got = reader.read()
    assert len({message.timestamp_ns for message in got}) == 3
    reader.finish(*[message.id for message in got])
    assert count(world) == 6
    assert values(world) == near([1, 2, 3, 3])


def test_a_redelivered_message_counts_from_its_publish() -> None:
    """However often: requeued, deferred, touched, timed out."""
    world = World(**MEASURED, msg_timeout=5.0)
    reader = world.reader()
    world.put(b"x")
    for again in (
        lambda message: reader.requeue(message.id),
        lambda message: reader.requeue(message.id, delay=1),
        lambda message: world.wait(6),
    ):
        (message,) = reader.read()
        again(message)
        world.wait(1)
    (message,) = reader.read()
    reader.touch(message.id)
    assert count(world) == 0
    reader.finish(message.id)
    assert count(world) == 1
    assert values(world) == near([9, 9])


def test_an_ephemeral_channel_counts_alike() -> None:
    world = World(**MEASURED)
    reader = world.reader("c#ephemeral")
    world.put(b"x", b"y")
    first, second = reader.read()
    reader.requeue(second.id)
    world.wait(3)
    (second,) = reader.read()
    reader.finish(first.id, second.id)
    assert count(world, "c#ephemeral") == 2
    assert values(world, "c#ephemeral") == near([3, 3])


def test_a_sampled_consumer_counts_what_it_was_given() -> None:
    world = World(**MEASURED)
    reader = world.reader(sample_rate=50)
    world.put(*[b"x"] * 50)
    got = reader.read()
    reader.finish(*[message.id for message in got])
    assert count(world) == len(got)


def test_a_fin_that_fails_counts_nothing() -> None:
    world = World(**MEASURED)
    reader = world.reader()
    world.put(b"x", b"y")
    first, second = reader.read()
    reader.finish(first.id, first.id, b"0" * 16)
    assert count(world) == 1
    world.channel().empty()
    reader.finish(second.id)
    assert count(world) == 1


def test_each_channel_counts_for_itself_and_the_topic_for_all() -> None:
    world = World(**MEASURED)
    readers = [world.reader("a"), world.reader("b")]
    world.put(b"x", b"y")
    for reader in readers:
        got = reader.read()
        world.wait(2)
        reader.finish(*[message.id for message in got])
    assert (count(world, "a"), count(world, "b"), count(world, None)) == (2, 2, 4)
    assert values(world, "a") == near([2, 2])
    assert values(world, "b") == near([4, 4])
    assert values(world, None) == near([4, 2])
    only_one = document(world.broker, "1.3.0", now=world.now, channel="a")["topics"][0]
    assert only_one["e2e_processing_latency"]["count"] == 4  # of the topic, whatever is asked for


# -- the window


def latencies() -> Latencies:
    return Latencies(Measure((1.0,), WINDOW, DDSketch))


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
    found = Latencies(made)
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
