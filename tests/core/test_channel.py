"""Dialogues with channels: what is delivered, to whom, and what becomes of it."""

from __future__ import annotations

import pytest

from nsqtw.core.channel import NOT_IN_FLIGHT, NOT_OWNED
from nsqtw.errors import BackendError, ChannelFull, Exiting
from tests.core.harness import BrokerHarness


def test_a_message_is_delivered_once_to_each_channel_with_the_same_bytes() -> None:
    harness = BrokerHarness()
    one, two = harness.reader("one"), harness.reader("two")
    harness.put(b"a", b"b")
    first, second = one.read(), two.read()
    assert [m.body for m in first] == [b"a", b"b"]
    assert [(m.id, m.timestamp_ns, m.attempts) for m in first] == [(m.id, m.timestamp_ns, m.attempts) for m in second]
    assert {m.attempts for m in first} == {1}


def test_rdy_bounds_what_is_unfinished_and_fin_gives_room() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=2)
    harness.put(*[b"%d" % n for n in range(5)])
    got = reader.read()
    assert [m.body for m in got] == [b"0", b"1"]
    assert reader.bodies() == []
    assert reader.finish(got[0].id) == []
    assert reader.bodies() == [b"2"]
    assert (reader.channel.depth, reader.channel.in_flight_count) == (2, 2)


def test_rdy_zero_stops_and_a_smaller_rdy_stops_until_enough_are_finished() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=3)
    harness.put(*[b"%d" % n for n in range(6)])
    got = reader.read()
    reader.channel.set_ready(reader.consumer, 1)
    reader.finish(got[0].id, got[1].id)
    assert reader.bodies() == []
    reader.finish(got[2].id)
    assert reader.bodies() == [b"3"]


def test_what_is_not_in_flight_or_not_owned_cannot_be_finished_requeued_or_touched() -> None:
    harness = BrokerHarness()
    owner, other = harness.reader(ready=1), harness.reader(ready=0)
    harness.put(b"a")
    (message,) = owner.read()
    unknown = b"0123456789abcdef"
    assert other.finish(message.id, unknown) == [(message.id, NOT_OWNED), (unknown, NOT_IN_FLIGHT)]
    assert other.requeue(message.id) == NOT_OWNED
    assert other.touch(unknown) == NOT_IN_FLIGHT
    assert owner.finish(message.id, message.id) == [(message.id, NOT_IN_FLIGHT)]
    assert owner.client.finish_count == 1


def test_a_requeued_message_comes_again_with_one_more_attempt() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a")
    for attempt in range(1, 4):
        (message,) = reader.read()
        assert message.attempts == attempt
        assert reader.requeue(message.id) is None
    assert reader.channel.requeue_count == 3


def test_a_message_requeued_for_ever_at_rdy_1_does_not_starve_the_others() -> None:
    harness = BrokerHarness(mem_queue_size=10)
    reader = harness.reader(ready=1)
    harness.put(b"poison", *[b"%d" % n for n in range(100)])
    seen, deliveries = [], 0
    while len(seen) < 100:
        (message,) = reader.read()
        deliveries += 1
        if message.body == b"poison":
            reader.requeue(message.id)
        else:
            seen.append(message.body)
            reader.finish(message.id)
    assert seen == [b"%d" % n for n in range(100)]
    assert 105 <= deliveries <= 115, "one in mem_queue_size, neither never nor all the time"


@pytest.mark.histories
def test_attempts_wrap_after_65535() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a")
    (message,) = reader.read()
    for _ in range(65535):
        reader.requeue(message.id)
        harness.turn()
    assert [m.attempts for m in reader.read()][-2:] == [65535, 0]


def test_a_timed_out_message_comes_again_also_from_a_consumer_that_left() -> None:
    harness = BrokerHarness()
    on_deleted, stays = harness.reader(ready=1), harness.reader(ready=0)
    harness.put(b"a")
    (message,) = on_deleted.read()
    on_deleted.leave()
    stays.channel.set_ready(stays.consumer, 1)
    harness.wait(59.9)
    assert stays.bodies() == []
    assert stays.channel.in_flight_count == 1
    harness.wait(0.2)
    (again,) = stays.read()
    assert (again.id, again.attempts) == (message.id, 2)
    assert stays.channel.timeout_count == 1


def test_no_message_times_out_early_and_none_later_than_a_tenth_of_a_second() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=1)
    for _ in range(20):
        harness.wait(0.0137)
        harness.put(b"a")
        (message,) = reader.read()
        harness.wait(59.999)
        assert reader.read() == []
        harness.wait(0.101)
        (again,) = reader.read()
        assert again.id == message.id
        reader.finish(again.id)


def test_touch_extends_the_timeout_up_to_the_cap() -> None:
    harness = BrokerHarness(msg_timeout=60.0, max_msg_timeout=100.0)
    reader = harness.reader()
    harness.put(b"a")
    (message,) = reader.read()
    harness.wait(50)
    assert reader.touch(message.id) is None
    harness.wait(45)
    assert reader.read() == []
    reader.touch(message.id)
    harness.wait(5.2)
    assert [m.attempts for m in reader.read()] == [2]


def test_a_deferred_message_waits_for_its_time() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"later", delay_ms=5000)
    harness.put(b"now")
    assert reader.bodies() == [b"now"]
    assert (reader.channel.deferred_count, reader.channel.depth) == (1, 0)
    harness.wait(4.9)
    assert reader.bodies() == []
    harness.wait(0.2)
    (message,) = reader.read()
    assert (message.body, message.attempts) == (b"later", 1)
    assert reader.channel.deferred_count == 0


def test_req_with_a_delay_defers() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a")
    (message,) = reader.read()
    reader.requeue(message.id, 5.0)
    assert (reader.channel.in_flight_count, reader.channel.deferred_count) == (0, 1)
    harness.wait(4.9)
    assert reader.read() == []
    harness.wait(0.2)
    assert [m.attempts for m in reader.read()] == [2]


def test_a_small_batch_is_shared_by_all_who_are_ready_and_the_first_one_rotates() -> None:
    harness = BrokerHarness()
    readers = [harness.reader() for _ in range(4)]
    harness.put(*[b"x"] * 8)
    harness.turn()
    assert [len(reader.read()) for reader in readers] == [2, 2, 2, 2]
    firsts = []
    for _ in range(8):
        harness.put(b"one")
        harness.turn()
        firsts.append([len(reader.read()) for reader in readers].index(1))
    assert sorted(firsts) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_those_with_more_room_take_what_others_cannot() -> None:
    harness = BrokerHarness()
    small, large = harness.reader(ready=1), harness.reader(ready=100)
    harness.put(*[b"x"] * 20)
    assert (len(small.read()), len(large.read())) == (1, 19)


def test_a_stalled_consumer_counts_as_rdy_0() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    reader.consumer.is_blocked = True
    harness.put(b"a")
    assert reader.bodies() == []
    reader.consumer.is_blocked = False
    reader.channel.wake()
    assert reader.bodies() == [b"a"]


def test_one_turn_gives_a_consumer_no_more_than_a_segment_or_one_larger_message() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=2500)
    harness.put(*[b"x" * 1000] * 2000)
    harness.broker.commit(harness.now)
    assert harness.broker.serve(harness.now) is True
    assert 200_000 < sum(map(len, reader.frames)) < 256 * 1024 + 1034
    reader.finish(*[m.id for m in reader.read()])
    harness.put(*[b"y" * 1_000_000] * 3)
    reader.frames.clear()
    harness.broker.commit(harness.now)
    harness.broker.serve(harness.now)
    assert len(reader.frames) == 1


@pytest.mark.parametrize("sizes", [[300_000], [50_000] * 6])
def test_who_had_all_he_may_have_in_a_turn_gets_what_comes_next(sizes: list[int]) -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=100)
    harness.put(*[b"x" * size for size in sizes])
    assert [len(body) for body in reader.bodies()] == sizes
    harness.put(b"next")
    assert reader.bodies() == [b"next"]


def test_a_requeued_message_lets_others_pass_also_without_a_memory_queue() -> None:
    harness = BrokerHarness(mem_queue_size=0)
    reader = harness.reader(ready=1)
    harness.put(b"poison", *[b"%d" % n for n in range(5)])
    seen = []
    for _ in range(12):
        (message,) = reader.read()
        seen.append(message.body)
        if message.body == b"poison":
            reader.requeue(message.id)
        else:
            reader.finish(message.id)
    assert {b"0", b"1", b"2", b"3", b"4"} < set(seen)


def test_a_channel_that_has_read_everything_keeps_no_segment_in_memory() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=2500)
    harness.put(*[b"x"] * 100)
    reader.finish(*[m.id for m in reader.read()])
    assert reader.channel.cursor is not None
    assert reader.channel.cursor._ahead == []


def test_rows_that_were_never_saved_are_not_remembered_for_deletion() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.save()
    for _ in range(50):
        harness.put(b"x")
        (message,) = reader.read()
        reader.requeue(message.id)
        harness.save(BackendError("full"))
        (message,) = reader.read()
        reader.finish(message.id)
    assert reader.channel.cursor is not None
    assert reader.channel.cursor._pending._changed == {}


def test_a_paused_channel_delivers_nothing_but_times_out_what_is_in_flight() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=1)
    harness.put(b"a", b"b")
    (message,) = reader.read()
    reader.channel.pause()
    reader.finish(message.id)
    assert reader.bodies() == []
    reader.channel.unpause()
    (second,) = reader.read()
    reader.channel.pause()
    harness.wait(61)
    assert (reader.channel.in_flight_count, reader.channel.depth) == (0, 1)
    reader.channel.unpause()
    assert [m.id for m in reader.read()] == [second.id]


def test_an_emptied_channel_forgets_all_and_late_fins_fail_without_harm() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=2)
    harness.put(b"a", b"b", b"c")
    harness.put(b"d", delay_ms=1000)
    first, second = reader.read()
    reader.requeue(second.id, 10)
    reader.channel.empty()
    channel = reader.channel
    assert (channel.depth, channel.in_flight_count, channel.deferred_count) == (0, 0, 0)
    assert reader.finish(first.id) == [(first.id, NOT_IN_FLIGHT)]
    assert reader.client.in_flight_count == 0
    harness.wait(100)
    harness.put(b"e")
    assert reader.bodies() == [b"e"]


def test_the_number_of_consumers_is_limited() -> None:
    harness = BrokerHarness(max_channel_consumers=1)
    harness.reader()
    with pytest.raises(ChannelFull):
        harness.reader()


def test_deleting_a_channel_disconnects_its_consumers_and_frees_the_name() -> None:
    harness = BrokerHarness()
    reader = harness.reader()
    harness.put(b"a")
    reader.read()
    harness.topic().delete_channel("c")
    assert reader.disconnected
    with pytest.raises(Exiting):
        reader.channel.subscribe(reader.consumer)
    assert harness.reader().bodies() == []


def test_sampling_keeps_rate_plus_one_percent_and_finishes_the_rest() -> None:
    harness = BrokerHarness()
    reader = harness.reader(ready=2500, sample_rate=9)
    harness.put(*[b"x"] * 2000)
    got = reader.read()
    assert 120 < len(got) < 290
    assert (reader.channel.depth, reader.channel.in_flight_count) == (0, len(got))


def test_a_zone_local_consumer_is_served_first() -> None:
    harness = BrokerHarness()
    far, near = harness.reader(ready=10), harness.reader(ready=10, zone_local=True)
    for _ in range(5):
        harness.put(b"x")
        harness.turn()
    assert (len(far.read()), len(near.read())) == (0, 5)


def test_messages_are_counted_by_how_near_their_consumer_is() -> None:
    harness = BrokerHarness()
    far, region = harness.reader(ready=3), harness.reader(ready=2, region_local=True)
    zone = harness.reader(ready=1, zone_local=True, region_local=True)
    for _ in range(6):
        harness.put(b"x")
        harness.turn()
    assert [len(reader.read()) for reader in (zone, region, far)] == [1, 2, 3]
    channel = zone.channel
    assert (channel.zone_local_msg_count, channel.region_local_msg_count, channel.global_msg_count) == (1, 2, 3)


def test_what_nsqd_would_have_on_disk_only_is_not_counted_by_place() -> None:
    harness = BrokerHarness(mem_queue_size=0)
    reader = harness.reader()
    harness.put(b"x")
    assert reader.bodies() == [b"x"]
    assert reader.channel.global_msg_count == 0
    assert harness.reader("brief#ephemeral").channel.global_msg_count == 0
    harness.put(b"y")
    harness.turn()
    assert harness.channel("brief#ephemeral").global_msg_count == 1


def test_what_a_restart_brought_back_is_not_counted_by_place() -> None:
    harness = BrokerHarness()
    harness.channel()
    harness.put(b"old")
    harness.stop_and_start()
    harness.put(b"new")
    reader = harness.reader()
    assert reader.bodies() == [b"old", b"new"]
    assert reader.channel.global_msg_count == 1


def test_what_overflowed_memory_is_read_from_disk_and_not_counted() -> None:
    harness = BrokerHarness(mem_queue_size=3)
    harness.channel()
    harness.put(b"a", b"b", b"c", b"d", b"e")
    reader = harness.reader()
    assert len(reader.bodies()) == 5
    assert reader.channel.global_msg_count == 3
    harness.put(b"f", b"g")
    assert len(reader.bodies()) == 2
    assert reader.channel.global_msg_count == 5


def test_what_leaves_the_backend_without_being_delivered_counts_for_nothing() -> None:
    """Deferred messages that a replay comes upon wait again."""
    harness = BrokerHarness()
    harness.channel()
    for _ in range(10):
        harness.put(b"x", delay_ms=60_000)
        harness.turn()
    harness.save()
    harness.crash()
    reader = harness.reader()
    reader.channel.seek(reader.channel.topic.reader.kept_from)
    assert reader.bodies() == []
    assert (reader.channel.deferred_count, reader.channel.global_msg_count) == (10, 0)


def test_what_a_topic_had_on_disk_fills_the_memory_of_a_new_channel() -> None:
    harness = BrokerHarness(mem_queue_size=3)
    harness.put(b"a", b"b", b"c", b"d")
    harness.stop_and_start()
    channel = harness.channel()
    assert (channel.depth, channel.backend_depth) == (4, 1)


def test_requeued_messages_are_on_disk_as_far_as_the_memory_queue_is_full() -> None:
    for mem_queue_size, backend_depth in ((0, 4), (3, 1), (10, 0)):
        harness = BrokerHarness(mem_queue_size=mem_queue_size)
        reader = harness.reader(ready=3)
        harness.put(b"a", b"b", b"c", b"d")
        got = reader.read()
        reader.channel.set_ready(reader.consumer, 0)
        for message in got:
            reader.requeue(message.id)
        assert (reader.channel.depth, reader.channel.backend_depth) == (4, backend_depth)


def test_a_restart_leaves_everything_on_disk() -> None:
    harness = BrokerHarness(mem_queue_size=10)
    reader = harness.reader(ready=2)
    harness.put(b"in flight", b"requeued", b"waiting")
    reader.requeue(reader.read()[1].id)
    harness.stop_and_start()
    channel = harness.channel()
    assert (channel.depth, channel.backend_depth) == (3, 3)
    again = harness.reader(ready=1)
    first = again.read()[0]
    assert (channel.depth, channel.backend_depth) == (2, 2)
    channel.set_ready(again.consumer, 0)
    again.requeue(first.id)
    assert (channel.depth, channel.backend_depth) == (3, 2)
    channel.empty()
    assert (channel.depth, channel.backend_depth) == (0, 0)


def test_a_lagging_channel_reads_what_the_memory_has_forgotten() -> None:
    harness = BrokerHarness()
    harness.broker._cache.limit = 20_000
    slow, quick = harness.reader("slow", ready=0), harness.reader("quick", ready=2500)
    sent = [b"%05d" % n for n in range(1000)]
    got = []
    for start in range(0, 1000, 10):
        harness.put(*sent[start : start + 10])
        read = quick.read()
        got += [m.body for m in read]
        quick.finish(*[m.id for m in read])
    assert got == sent
    slow.channel.set_ready(slow.consumer, 2500)
    assert slow.bodies() == sent


def test_what_a_consumer_had_in_flight_is_requeued_at_once_if_the_options_say_so() -> None:
    harness = BrokerHarness(requeue_on_disconnect=True)
    on_deleted = harness.reader(ready=2)
    harness.put(b"a", b"b", b"c")
    first, second = on_deleted.read()
    on_deleted.finish(first.id)
    assert [m.body for m in on_deleted.read()] == [b"c"]
    on_deleted.leave()
    channel = harness.channel()
    assert (channel.in_flight_count, channel.depth, channel.requeue_count) == (0, 2, 2)
    reader = harness.reader()
    again = {m.body: m.attempts for m in reader.read()}
    assert again == {b"b": 2, b"c": 2}
    assert on_deleted.finish(second.id) == [(second.id, NOT_OWNED)]
    reader.finish(second.id)
    assert on_deleted.finish(second.id) == [(second.id, NOT_IN_FLIGHT)]
    harness.wait(120.0)
    assert channel.timeout_count == 1, "only what the second one still has"


def test_requeueing_on_disconnect_survives_a_restart_in_the_middle() -> None:
    harness = BrokerHarness(requeue_on_disconnect=True)
    on_deleted = harness.reader(ready=2)
    harness.put(b"a", b"b")
    on_deleted.read()
    on_deleted.leave()
    harness.save()
    harness.crash()
    assert {m.body: m.attempts for m in harness.reader().read()} == {b"a": 2, b"b": 2}
