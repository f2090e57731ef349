"""Order by key: what a consumer sees of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.peek import READY, peek_channel
from nsqtw.core.policy.message_keys import HeaderKeys
from nsqtw.errors import BackendError, InvalidPolicy
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Reader
from tests.core.harness import messages as messages_in
from tests.core.policy.invariants import check_position

NAMES = ("a1", "b1", "a2", "c1", "b2", "d1")


@pytest.fixture
def core() -> BrokerHarness:
    return BrokerHarness()


def ordered(core: BrokerHarness, **settings: Any) -> Channel:
    channel = core.channel()
    channel.policies.set({"ordered_by": "header:customer", **settings})
    return channel


def put(core: BrokerHarness, *names: str, delay_ms: int = 0) -> None:
    """Publish messages whose keys are the letters of their names; those that start with a digit have none."""
    headers = [encode_headers({} if name[0].isdigit() else {"customer": name[0]}) for name in names]
    core.topic().put([name.encode() for name in names], delay_ms, [].append, headers)
    core.turn()


def got(reader: Reader) -> dict[str, bytes]:
    """The names that arrived, with their ids."""
    return {message.body.decode(): message.id for message in reader.read()}


def test_one_of_a_key_is_in_flight(core: BrokerHarness) -> None:
    channel = ordered(core)
    put(core, "a1", "a2", "b1", "a3", "b2")
    one, two = core.reader(), core.reader()
    first = {**got(one), **got(two)}
    assert [*first] == ["a1", "b1"]
    assert (channel.depth, channel.in_flight_count) == (3, 2)
    for reader in (one, two):
        reader.finish(*[first[name] for name in ("a1",) if reader.consumer.in_flight.get(first[name])])
    assert {**got(one), **got(two)}.keys() == {"a2"}


def test_messages_without_a_key_do_not_wait(core: BrokerHarness) -> None:
    ordered(core)
    put(core, "1", "a1", "2", "a2", "3")
    core.put(b"4")
    reader = core.reader()
    messages = got(reader)
    assert [*messages] == ["1", "a1", "2", "3", "4"]
    assert reader.finish(messages["a1"]) == []
    assert [*got(reader)] == ["a2"]


def test_a_key_waits_for_its_requeued_message(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader()
    put(core, "a1", "a2", "b1")
    messages = got(reader)
    assert reader.requeue(messages["a1"], 5.0) is None
    assert got(reader) == {}
    core.wait(5.1)
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"a1", 2)]
    reader.finish(messages["a1"])
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"a2", 1)]


def test_a_long_line_is_delivered_in_order(core: BrokerHarness) -> None:
    ordered(core)
    names = [f"a{number}" for number in range(150)]
    reader = core.reader()
    put(core, *names[:10])
    put(core, *names[10:])
    for name in names:
        for is_finished in (False, True):
            [(told, message_id)] = got(reader).items()
            assert told == name
            if is_finished:
                reader.finish(message_id)
            else:
                reader.requeue(message_id)
    assert not got(reader)


def test_a_departed_consumer_keeps_its_keys_until_the_timeout(core: BrokerHarness) -> None:
    ordered(core)
    gone, reader = core.reader(), core.reader(ready=0)
    put(core, "a1", "a2")
    assert [*got(gone)] == ["a1"]
    gone.leave()
    reader.channel.set_ready(reader.consumer, 10)
    assert got(reader) == {}
    core.wait(61.0)
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"a1", 2)]


def test_a_crash_keeps_the_order_and_the_attempts(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader()
    put(core, "a1", "a2", "a3")
    assert [*got(reader)] == ["a1"]
    core.save()
    core.crash()
    put(core, "a4")
    ordered(core)
    reader = core.reader()
    for name, attempts in (("a1", 2), ("a2", 1), ("a3", 1), ("a4", 1)):
        (message,) = reader.read()
        assert (message.body.decode(), message.attempts) == (name, attempts)
        reader.finish(message.id)


def test_a_deferred_message_enters_when_it_is_due(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader()
    put(core, "a1", delay_ms=5000)
    put(core, "a2", "a3")
    messages = got(reader)
    assert [*messages] == ["a2"]
    core.wait(5.1)
    assert got(reader) == {}
    reader.finish(messages["a2"])
    messages = got(reader)
    assert [*messages] == ["a3"]
    reader.finish(messages["a3"])
    assert [*got(reader)] == ["a1"]


def test_a_key_that_was_free_may_be_taken_by_a_deferred_message() -> None:
    core = BrokerHarness(mem_queue_size=1)
    channel = ordered(core)
    reader = core.reader(ready=1)
    put(core, "a1", delay_ms=5000)
    put(core, "b1", "c1", "a2", "d1")
    assert [*got(reader)] == ["b1"]
    core.wait(5.1)
    channel.set_ready(reader.consumer, 2)
    assert [*got(reader)] == ["c1"]
    channel.set_ready(reader.consumer, 4)
    assert [*got(reader)] == ["a1", "d1"]


def test_many_deferred_messages_of_a_key_are_taken_in_several_turns(core: BrokerHarness) -> None:
    ordered(core)
    put(core, *[f"a{number}" for number in range(3000)], "b", delay_ms=1000)
    reader = core.reader()
    core.now += 2.0
    core.broker.tick(core.now)
    counts, is_more = [0], True
    while is_more:
        is_more = core.broker.serve(core.now)
        counts.append(len(core.channel().set_aside))
    assert max(later - earlier for earlier, later in pairwise(counts)) <= 1024
    assert got(reader).keys() == {"a0", "b"}


def test_switched_on_it_waits_for_what_is_in_flight(core: BrokerHarness) -> None:
    reader = core.reader(ready=2)
    put(core, "a1", "a2", "a3", "b1")
    messages = got(reader)
    assert [*messages] == ["a1", "a2"]
    channel = ordered(core)
    channel.set_ready(reader.consumer, 10)
    assert [*got(reader)] == ["b1"]
    reader.finish(messages["a1"])
    assert got(reader) == {}
    reader.finish(messages["a2"])
    assert [*got(reader)] == ["a3"]


def test_switched_on_what_is_in_flight_may_be_finished_in_any_order(core: BrokerHarness) -> None:
    reader = core.reader(ready=3)
    put(core, "a1", "a2", "a3", "a4")
    messages = got(reader)
    channel = ordered(core)
    channel.set_ready(reader.consumer, 10)
    assert got(reader) == {}
    reader.finish(messages["a2"])
    reader.requeue(messages["a3"])
    assert got(reader) == {}
    reader.finish(messages["a1"])
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"a3", 2)]


def test_switched_on_a_requeued_message_waits_for_those_of_its_key_in_flight(core: BrokerHarness) -> None:
    put(core, "a1", "a2", "a3", "a4")
    reader = core.reader(ready=3)
    messages = got(reader)
    assert [*messages] == ["a1", "a2", "a3"]
    ordered(core)
    for name in ("a2", "a1"):
        assert reader.requeue(messages[name]) is None
        core.turn()
        assert got(reader) == {}
    reader.finish(messages["a3"])
    messages = got(reader)
    assert [*messages] == ["a1"]
    reader.finish(messages["a1"])
    messages = got(reader)
    assert [*messages] == ["a2"]
    reader.finish(messages["a2"])
    assert [*got(reader)] == ["a4"]


def test_switched_off_nothing_waits_any_more(core: BrokerHarness) -> None:
    channel = ordered(core)
    reader = core.reader()
    put(core, "a1", "a2", "a3")
    assert [*got(reader)] == ["a1"]
    channel.policies.set({})
    assert [(message.body, message.attempts) for message in reader.read()] == [(b"a2", 1), (b"a3", 1)]


def test_a_full_window_stops_reading_and_never_a_head(core: BrokerHarness) -> None:
    channel = ordered(core, order_window=2)
    reader = core.reader()
    put(core, "a1", "a2", "a3", "a4", "b1")
    messages = got(reader)
    assert [*messages] == ["a1"]
    assert channel.ordered is not None
    assert (channel.ordered.set_aside_count, channel.ordered.waiting_key_count) == (2, 1)
    reader.requeue(messages["a1"])
    messages = got(reader)
    assert [*messages] == ["a1"]
    reader.finish(messages["a1"])
    assert [*got(reader)] == ["a2"]
    assert channel.ordered.set_aside_count == 2


def test_finished_in_any_order_keys_are_freed(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader()
    put(core, *[f"{key}{number}" for number in range(2) for key in "abcdef"])
    messages = got(reader)
    assert [*messages] == ["a0", "b0", "c0", "d0", "e0", "f0"]
    assert reader.finish(*[messages[name] for name in ("e0", "b0", "a0")]) == []
    assert sorted(got(reader)) == ["a1", "b1", "e1"]
    assert reader.finish(*[messages[name] for name in ("c0", "d0")]) == []
    assert sorted(got(reader)) == ["c1", "d1"]


def test_what_sampling_leaves_out_frees_its_key(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader(sample_rate=-1)
    put(core, "a1", "a2", "a3")
    assert got(reader) == {}
    assert core.channel().depth == 0


def test_a_seek_and_emptying_forget_what_waits(core: BrokerHarness) -> None:
    core.options.retention_time = 1e9
    core.topic().reader.retention_policy.give((None, None), core.now)
    channel = ordered(core)
    reader = core.reader()
    put(core, "a1", "a2", "a3")
    start = core.topic().reader.kept_from
    assert [*got(reader)] == ["a1"]
    assert channel.seek(start).depth == 3
    assert [*got(reader)] == ["a1"]
    channel.empty()
    assert (channel.depth, channel.in_flight_count) == (0, 0)
    put(core, "a4")
    assert [*got(reader)] == ["a4"]


def test_a_preview_of_a_seek_leaves_what_waits_where_it_is(core: BrokerHarness) -> None:
    channel = ordered(core)
    put(core, "a1", "a2", "b1", "a3")
    reader = core.reader()
    got(reader)
    waiting = [*channel.set_aside]
    moved = channel.preview_seek(waiting[1])
    assert [*channel.set_aside] == waiting and len(waiting) == 2
    assert channel.seek(waiting[1]) == moved


def test_peek_shows_what_waits(core: BrokerHarness) -> None:
    channel = ordered(core)
    reader = core.reader()
    put(core, "a1", "a2", "b1")
    got(reader)
    assert [message.body for message in peek_channel(channel, READY, 10, core.now).messages] == [b"a2"]


def test_what_may_be_delivered_of_a_segment_is_delivered_in_one_go(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader()
    put(core, "a1", "b1", "a2", "c1", "1", "a3", "b2", "d1", "2")
    assert len(reader.frames) == 1
    messages = got(reader)
    assert [*messages] == ["a1", "b1", "c1", "1", "d1", "2"]
    assert reader.finish(*messages.values()) == []
    assert len(reader.frames) == 0
    core.turn()
    assert len(reader.frames) == 1
    messages = got(reader)
    assert [*messages] == ["a2", "b2"]
    assert reader.finish(messages["a2"]) == []
    assert [*got(reader)] == ["a3"]


def test_what_is_delivered_in_one_go_is_delivered_in_parts_to_those_who_want_less(core: BrokerHarness) -> None:
    channel = ordered(core)
    one, two = core.reader(ready=2), core.reader(ready=0)
    put(core, "a1", "a2", "b1", "c1", "b2", "d1", "a3", "e1")
    first = got(one)
    assert [*first] == ["a1", "b1"]
    channel.set_ready(two.consumer, 1)
    second = got(two)
    assert [*second] == ["c1"]
    assert one.finish(*first.values()) == []
    first = got(one)
    assert [*first] == ["a2", "d1"]
    two.consumer.turn_bytes = 1
    channel.set_ready(two.consumer, 10)
    core.turn()
    assert two.finish(second["c1"]) == []
    assert [*got(two)] == ["b2", "e1"]
    assert one.finish(*first.values()) == []
    assert {**got(one), **got(two)}.keys() == {"a3"}


def test_the_headers_come_with_what_is_delivered_in_one_go(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader()
    delivered: list[tuple[bytes, list[bytes]]] = []
    reader.consumer.deliver_with_headers = lambda frames, headers: delivered.append((frames, [*headers]))
    put(core, "a1", "a2", "1", "b1")
    ((frames, headers),) = delivered
    assert [message.body for message in messages_in(frames)] == [b"a1", b"1", b"b1"]
    assert headers == [encode_headers({"customer": "a"}), b"", encode_headers({"customer": "b"})]


def test_a_message_to_wait_whose_key_became_free_before_its_turn_does_not_wait(core: BrokerHarness) -> None:
    channel = ordered(core)
    reader = core.reader(ready=1)
    put(core, "a1")
    (a1,) = got(reader).values()
    put(core, "b1", "a2", "c1", "a3")
    channel.set_ready(reader.consumer, 2)
    messages = got(reader)
    assert [*messages] == ["b1"], "it was chosen with c1, when a2 had to wait"
    assert reader.finish(a1) == []
    assert [*got(reader)] == ["c1"]
    channel.set_ready(reader.consumer, 9)
    messages = got(reader)
    assert [*messages] == ["a2"]
    assert reader.finish(messages["a2"]) == []
    assert [*got(reader)] == ["a3"]


def test_what_expires_between_others_frees_its_key(core: BrokerHarness) -> None:
    ordered(core)
    headers = [{"customer": name[0], **({"ttl": "1000"} if name in ("b1", "c1") else {})} for name in NAMES]
    core.topic().put([name.encode() for name in NAMES], 0, [].append, [*map(encode_headers, headers)])
    core.turn()
    core.wait(2.0)
    reader = core.reader()
    messages = got(reader)
    assert sorted(messages) == ["a1", "b2", "d1"]
    assert core.channel().expired_count == 2
    assert reader.finish(messages["a1"]) == []
    assert [*got(reader)] == ["a2"]


def test_what_is_sampled_out_of_many_frees_its_key(core: BrokerHarness) -> None:
    ordered(core)
    reader = core.reader(sample_rate=-1)
    put(core, *NAMES)
    assert got(reader) == {}
    assert core.channel().depth == 0


def test_a_full_window_takes_a_part_of_a_segment(core: BrokerHarness) -> None:
    channel = ordered(core, order_window=1)
    reader = core.reader()
    put(core, "a1", "b1", "a2", "c1", "b2", "d1")
    messages = got(reader)
    assert [*messages] == ["a1", "b1"]
    assert channel.ordered is not None
    assert channel.ordered.set_aside_count == 1
    assert reader.finish(*messages.values()) == []
    assert sorted(got(reader)) == ["a2", "b2", "c1", "d1"]


def test_what_waits_is_dropped_without_another_look_at_the_others(
    core: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = ordered(core, max_depth=6, overflow="drop_oldest")
    reader = core.reader()
    put(core, "a1", "b1", *[f"a{number}" for number in range(2, 8)])
    messages = got(reader)
    assert [*messages] == ["a1", "b1"]
    monkeypatch.setattr(HeaderKeys, "of_message", lambda *arguments: pytest.fail("the key was known"))
    put(core, "a8", "b2", "a9")
    core.turn()
    assert (channel.depth, channel.dropped_count) == (6, 3)
    assert reader.finish(*messages.values()) == []
    assert sorted(got(reader)) == ["a5", "b2"]


def test_a_dropped_message_frees_its_key(core: BrokerHarness) -> None:
    channel = ordered(core)
    reader = core.reader()
    put(core, "a1", "b1", "a2", "b2", "a3", "a4", "a5")
    messages = got(reader)
    reader.requeue(messages["b1"], 5.0)
    assert len(channel.droppable.drop_deferred(1)) == 1
    channel.wake()
    assert [*got(reader)] == ["b2"]
    channel.set_ready(reader.consumer, 0)
    assert reader.finish(messages["a1"]) == []
    assert len(channel.droppable.drop_requeued(3)) == 3
    channel.set_ready(reader.consumer, 9)
    assert [*got(reader)] == ["a5"]
    assert channel.dropped_count == 4


def requeue_all(core: BrokerHarness, count: int) -> Reader:
    """Publish messages of 100 keys, and requeue them all once. Their consumer gets no more."""
    put(core, *[f"{chr(200 + number % 100)}{number}" for number in range(count)])
    reader = core.reader(ready=count)
    ids = got(reader).values()
    assert len(ids) == count
    reader.channel.set_ready(reader.consumer, 0)
    for message_id in ids:
        assert reader.requeue(message_id) is None
    return reader


def test_many_unfinished_messages_are_grouped_in_several_turns(
    core: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand took a turn of half a second."""
    looks, look_up = [0], HeaderKeys.of_message

    def counted(*arguments: Any) -> Any:
        looks[-1] += 1
        return look_up(*arguments)

    monkeypatch.setattr(HeaderKeys, "of_message", counted)
    reader = requeue_all(core, 5000)
    ordered(core)
    reader.channel.set_ready(reader.consumer, 100)
    while core.broker.serve(core.now):
        assert reader.channel.in_flight_count == 0 or sum(looks) == 5000
        looks.append(0)
    assert sum(looks) == 5000
    assert max(looks) <= 1024
    assert [message.attempts for message in reader.read()] == [2] * 100
    check_position(reader.channel)


@pytest.mark.parametrize("page_rows", [100, 10_000])
def test_messages_end_and_come_back_while_they_are_grouped(page_rows: int) -> None:
    core = BrokerHarness(page_rows=page_rows)
    requeue_all(core, 3000)
    core.save()
    core.crash()
    reader = core.reader(ready=200)
    in_flight, channel = got(reader), reader.channel
    channel.set_ready(reader.consumer, 0)
    ordered(core)
    channel.set_ready(reader.consumer, 500)
    assert core.broker.serve(core.now)
    finished = [name for name in in_flight if int(name[1:]) % 3 == 0]
    requeued = [name for name in in_flight if int(name[1:]) % 3 == 1]
    assert reader.finish(*[in_flight[name] for name in finished]) == []
    for name in requeued:
        assert reader.requeue(in_flight[name]) is None
    save = core.broker.checkpointer.begin(core.now)
    core.positions.save(save.checkpoint)
    core.broker.checkpointer.end(save, None)
    dropped = channel.droppable.drop_requeued(30)
    assert channel.ordered is not None and not channel.ordered.is_grouped and dropped
    core.turn()
    check_position(channel)
    in_flight = {name: in_flight[name] for name in in_flight if int(name[1:]) % 3 == 2}
    assert channel.in_flight_count == len(in_flight) + len(reader.frames)
    assert reader.finish(*in_flight.values()) == []
    received: list[str] = []
    while batch := got(reader):
        assert len({name[0] for name in batch}) == len(batch)
        received += batch
        assert reader.finish(*batch.values()) == []
        check_position(channel)
    assert len({*received}) == len(received) == 3000 - len(finished) - len(in_flight) - len(dropped)


def test_a_failure_to_read_rows_has_messages_grouped_anew() -> None:
    core = BrokerHarness(page_rows=2)
    requeue_all(core, 10)
    core.save()
    core.crash()
    ordered(core)
    core.positions.read_failure = BackendError("EIO")
    reader = core.reader()
    assert got(reader) == {}
    core.positions.read_failure = None
    core.wait(1.0)
    assert len(got(reader)) == 10


@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_what_is_dropped_before_reading_the_rest_fails_frees_its_key(delay: float) -> None:
    core = BrokerHarness(page_rows=2)
    ordered(core)
    reader = core.reader(ready=4)
    put(core, "a1", "b1", "c1", "d1", "a2", "b2", "c2", "d2", "e1")
    for message_id in got(reader).values():
        assert reader.requeue(message_id, delay) is None
    reader.channel.set_ready(reader.consumer, 0)
    core.save()
    core.crash()
    reader = core.reader(ready=1)
    channel = reader.channel
    (first,) = got(reader).values()
    core.positions.read_failure = BackendError("EIO")
    drop = channel.droppable.drop_deferred if delay else channel.droppable.drop_requeued
    dropped = len(drop(3))
    assert 0 < dropped < 3
    with pytest.raises(BackendError):
        drop(3)
    core.positions.read_failure = None
    assert reader.finish(first) == []
    channel.set_ready(reader.consumer, 9)
    core.wait(1.0)
    assert len(got(reader)) == (dropped if delay else 5)


def test_what_is_too_old_frees_its_key() -> None:
    core = BrokerHarness(mem_queue_size=1)
    channel = ordered(core, max_age=10.0, overflow="drop_oldest")
    reader = core.reader()
    put(core, "a1", "b1", "a2")
    messages = got(reader)
    channel.set_ready(reader.consumer, 0)
    reader.requeue(messages["a1"])
    reader.finish(messages["b1"])
    core.wait(8.0)
    put(core, "a3", "b2")
    core.wait(3.0)
    core.turn()
    assert channel.dropped_count == 2
    channel.set_ready(reader.consumer, 9)
    assert sorted(got(reader)) == ["a3", "b2"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ordered_by": "key"}, "ordered_by 'key' must be header:NAME or json:PATH"),
        ({"ordered_by": "header:"}, "ordered_by 'header:': '' is not a name of a header"),
        ({"ordered_by": "json:a..b"}, "ordered_by 'json:a..b': 'a..b' is not a path such as customer.id"),
        ({"ordered_by": "json:a", "priority": True}, "priority and ordered_by cannot be used together"),
    ],
)
def test_a_wrong_setting_is_one_line(core: BrokerHarness, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        core.channel().policies.set(settings)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("settings", [{"ordered_by": "json:a"}, {"priority": True}])
def test_an_ephemeral_channel_has_no_order(core: BrokerHarness, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy, match="is for durable channels, and c#ephemeral is ephemeral"):
        core.channel("c#ephemeral").policies.set(settings)
