"""What is pushed to statsd: names, kinds, differences, and packets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nsqtw.stats.document import Numbers, walk
from nsqtw.stats.statsd_lines import Lines, Packets
from tests.core.harness import BrokerHarness

LATENCY = {"e2e_processing_latency": {"count": 0, "percentiles": None}}


def lines_of(harness: BrokerHarness, lines: Lines) -> list[str]:
    """One push, without memory."""
    told = [line for found in walk(harness.broker, harness.now) if found is not None for line in lines.of(found)]
    lines.end_push()
    return told


def busy_harness(**options: object) -> BrokerHarness:
    """Topic t with channel c: of 4 messages 3 timed out once; now 1 is deferred, 1 in flight, and 2 wait."""
    harness = BrokerHarness(msg_timeout=10.0, **options)
    reader = harness.reader(ready=3)
    harness.put(b"one", b"two", b"three", b"four")
    reader.read()
    reader.channel.set_ready(reader.consumer, 1)
    harness.wait(11)
    (message,) = reader.read()
    reader.requeue(message.id, delay=60)
    reader.read()
    return harness


def test_the_lines_of_a_topic_and_its_channel_in_nsqds_order() -> None:
    assert lines_of(busy_harness(), Lines("nsq.host_4151.")) == [
        "nsq.host_4151.topic.t.message_count:4|c\n",
        "nsq.host_4151.topic.t.message_bytes:15|c\n",
        "nsq.host_4151.topic.t.depth:0|g\n",
        "nsq.host_4151.topic.t.backend_depth:0|g\n",
        "nsq.host_4151.topic.t.channel.c.message_count:4|c\n",
        "nsq.host_4151.topic.t.channel.c.depth:2|g\n",
        "nsq.host_4151.topic.t.channel.c.backend_depth:0|g\n",
        "nsq.host_4151.topic.t.channel.c.in_flight_count:1|g\n",
        "nsq.host_4151.topic.t.channel.c.deferred_count:1|g\n",
        "nsq.host_4151.topic.t.channel.c.requeue_count:1|c\n",
        "nsq.host_4151.topic.t.channel.c.timeout_count:3|c\n",
        "nsq.host_4151.topic.t.channel.c.clients:1|g\n",
    ]


def test_dropped_messages_are_counted_once_there_are_some() -> None:
    harness, lines = BrokerHarness(mem_queue_size=1), Lines("")
    harness.reader("c#ephemeral", ready=0)
    told = []
    for bodies in ([b"1"], [b"2"], [b"3", b"4"], []):
        if bodies:
            harness.put(*bodies)
            harness.turn()
        told.append([line for line in lines_of(harness, lines) if "dropped" in line])
    name = "topic.t.channel.c#ephemeral.dropped_count"
    assert told == [[], [f"{name}:1|c\n"], [f"{name}:2|c\n"], [f"{name}:0|c\n"]]


def test_damage_of_a_topic_is_told_once_there_was_some() -> None:
    harness, lines = busy_harness(), Lines("")
    assert not [line for line in lines_of(harness, lines) if "lost_count" in line]
    harness.broker.damage.add("t", lost=2, damaged=3)
    names = ["lost_count:2|c", "damaged_count:3|c", "set_aside_count:0|c"]
    told = [line for line in lines_of(harness, lines) if any(name.split(":")[0] in line for name in names)]
    assert told == [f"topic.t.{name}\n" for name in names]


def test_counters_tell_what_came_since_the_last_push_and_gauges_what_is() -> None:
    harness, lines = busy_harness(), Lines("")
    lines_of(harness, lines)
    harness.put(b"x" * 100)
    harness.turn()
    again = lines_of(harness, lines)
    assert again[:3] == ["topic.t.message_count:1|c\n", "topic.t.message_bytes:100|c\n", "topic.t.depth:0|g\n"]
    assert again[4:6] == ["topic.t.channel.c.message_count:1|c\n", "topic.t.channel.c.depth:3|g\n"]
    assert again[9:11] == ["topic.t.channel.c.requeue_count:0|c\n", "topic.t.channel.c.timeout_count:0|c\n"]


def test_a_topic_that_was_made_anew_counts_backwards_once() -> None:
    harness, lines = busy_harness(), Lines("")
    lines_of(harness, lines)
    harness.broker.delete_topic("t")
    harness.save()
    harness.put(b"x")
    harness.turn()
    assert lines_of(harness, lines)[0] == "topic.t.message_count:-3|c\n"
    assert lines_of(harness, lines)[0] == "topic.t.message_count:0|c\n"


def test_names_with_dots_do_not_share_a_counter() -> None:
    lines = Lines("")
    counts = {"message_count": 5, "message_bytes": 1, "depth": 0, "backend_depth": 0, "paused": False, **LATENCY}
    channel = dict.fromkeys(("in_flight_count", "deferred_count", "requeue_count", "timeout_count", "client_count"), 0)
    for _ in range(2):
        one = next(lines.of(Numbers("a", "b", {**counts, **channel})))
        other = next(lines.of(Numbers("a.channel.b", None, {**counts, "message_count": 9})))
        assert one.partition(":")[0] == other.partition(":")[0]
        lines.end_push()
    assert (one, other) == ("topic.a.channel.b.message_count:0|c\n", "topic.a.channel.b.message_count:0|c\n")


def test_latencies_stand_behind_the_rest_with_their_percents() -> None:
    """0.999 and 1 have the same name, as in nsqd."""
    harness = BrokerHarness(e2e_processing_latency_percentile=(1.0, 0.999, 0.95, 0.005))
    reader = harness.reader()
    harness.topic("bare")
    harness.put(b"x")
    reader.finish(*[message.id for message in reader.read()])
    told = lines_of(harness, Lines(""))
    names = [line.partition(":")[0] for line in told if "latency" in line]
    percents = ["100", "100", "95", "0"]
    assert names == [f"topic.t.e2e_processing_latency_{percent}" for percent in percents] + [
        f"topic.t.channel.c.e2e_processing_latency_{percent}" for percent in percents
    ]
    assert told[-1].endswith(":0|g\n")
    assert "latency" in told[-1]


def test_memory_in_nsqds_order() -> None:
    lines = Lines("p.")
    numbers = {
        "heap_objects": 1,
        "heap_idle_bytes": 2,
        "heap_in_use_bytes": 3,
        "heap_released_bytes": 4,
        "gc_pause_usec_100": 5,
        "gc_pause_usec_99": 6,
        "gc_pause_usec_95": 7,
        "next_gc_bytes": 8,
        "gc_total_runs": 9,
    }
    assert "".join(lines.memory(numbers)) == (
        "p.mem.heap_objects:1|g\n"
        "p.mem.heap_idle_bytes:2|g\n"
        "p.mem.heap_in_use_bytes:3|g\n"
        "p.mem.heap_released_bytes:4|g\n"
        "p.mem.gc_pause_usec_100:5|g\n"
        "p.mem.gc_pause_usec_99:6|g\n"
        "p.mem.gc_pause_usec_95:7|g\n"
        "p.mem.next_gc_bytes:8|g\n"
        "p.mem.gc_runs:9|c\n"
    )
    lines.end_push()
    assert list(lines.memory({**numbers, "gc_total_runs": 11}))[-1] == "p.mem.gc_runs:2|c\n"


# -- packets


@given(st.lists(st.text("ab", max_size=12).map(lambda text: f"{text}\n"), max_size=30), st.integers(0, 40))
def test_packets_are_whole_lines_in_order_and_as_full_as_may_be(lines: list[str], size: int) -> None:
    packets = Packets(size)
    packets.add(lines)
    taken = packets.take()
    assert b"".join(taken).decode() == "".join(lines)
    assert all(packet.endswith(b"\n") for packet in taken)
    assert all(len(packet) <= size or packet.count(b"\n") == 1 for packet in taken)
    for packet, following in pairwise(taken):
        first_line = following.partition(b"\n")[0] + b"\n"
        assert len(packet) + len(first_line) > size
    assert packets.take() == []


def test_a_prefix_that_is_no_text_goes_out_as_it_came() -> None:
    packets = Packets(508)
    packets.add(["\udcff.mem.heap_objects:1|g\n"])
    assert packets.take() == [b"\xff.mem.heap_objects:1|g\n"]
