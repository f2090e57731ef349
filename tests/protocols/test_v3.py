"""Dialogues in protocol V3."""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.protocols.v3 import codec
from nsqtw.protocols.v3.factory import V3Factory
from nsqtw.testing.protocols import SECRET, Connection, ProtocolContract2, SessionHarness
from tests.protocols import v3_frames as v3
from tests.protocols.v3_client import Client, bodies, deliveries, names, save_channels
from tests.protocols.v3_frames import answers, confirmed, delivered, error_of

EXAMPLE = re.compile(r"\s*(?:(?:[0-9a-f]{2}|TIME|ID x 16)\s+|(?:[0-9a-f]{2}|TIME)$)*")
"""The bytes in a line of the example, without the comment."""
IMPORTED = (
    *("nsqtw.errors", "nsqtw.interfaces", "nsqtw.upgrades", "nsqtw.protocols.body_rate"),
    *("nsqtw.protocols.fin_coalescing", "nsqtw.protocols.mpub", "nsqtw.protocols.session", "nsqtw.protocols.v3"),
)
"""What a protocol of others may import, too: docs/how-to/plugin-protocol.md."""


class TestV3(ProtocolContract2):
    factory = V3Factory()

    def hello(self) -> bytes:
        return v3.hello()

    def auth(self, secret: bytes) -> bytes:
        return v3.auth(secret)

    def put(self, topic: bytes, body: bytes) -> bytes:
        return v3.publish(1, [body], topic)

    def get(self, topic: bytes, channel: bytes) -> bytes:
        return v3.subscribe(9, topic, channel)

    def done(self, message_id: bytes) -> bytes:
        return v3.fin(9, (int(message_id, 16), 1))

    def is_ok(self, written: bytes) -> bool:
        return any(answer.name in ("CONFIRM", "SUBSCRIBED") for answer in answers(written))

    def is_refused(self, written: bytes) -> bool:
        return any(answer.name in ("REJECT", "UNSUBSCRIBED", "FAILED", "ERROR") for answer in answers(written))

    def messages(self, written: bytes) -> list[tuple[bytes, bytes]]:
        return [(b"%016x" % message.id, message.body) for message in delivered(answers(written))]

    def put_headers(self, topic: bytes, body: bytes, headers: dict[str, str]) -> bytes:
        return v3.publish(1, [body], topic, headers=[headers])

    def get_again(self, topic: bytes, channel: bytes) -> bytes:
        return v3.subscribe(5, topic, channel)

    def done_with(self, message_ids: list[bytes]) -> bytes:
        return v3.fin(5, *((int(one, 16), 1) for one in message_ids))

    def refuse(self, message_id: bytes, reason: str) -> bytes:
        return v3.nack(5, 0, reason.encode(), (int(message_id, 16), 1))

    def headers(self, written: bytes) -> list[dict[str, str]]:
        return [message.headers for message in delivered(answers(written))]

    def says_paused(self, written: bytes) -> bool:
        return any(answer.name == "PAUSED" for answer in answers(written))

    def says_draining(self, written: bytes) -> bool:
        return any(answer.name == "DRAINING" for answer in answers(written))


@pytest.fixture
def stage() -> SessionHarness:
    return SessionHarness()


@pytest.fixture
def client(stage: SessionHarness) -> Client:
    return Client(stage)


def test_the_broker_tells_its_limits(client: Client) -> None:
    import json

    (welcome,) = client.greeting
    document = json.loads(welcome.payload)
    assert (welcome.name, document["protocol"], document["max_msg_size"]) == ("WELCOME", 3, 100)
    assert (document["max_credit"], document["msg_timeout"], document["heartbeat_interval"]) == (2500, 60_000, 30_000)
    assert (document["auth_required"], document["features"], document["max_range"]) == (False, [], 4096)


def test_publishes_are_confirmed_together(client: Client) -> None:
    written = client.says(*(v3.publish(number, [b"x"]) for number in (1, 2, 3, 7)))
    assert names(written) == ["CONFIRM"]
    assert confirmed(written) == [1, 2, 3, 7]
    assert len(written[0].payload) == 16, "two ranges"


def test_a_rejected_publish_leaves_the_connection_open(client: Client) -> None:
    written = client.says(
        v3.publish(1, [b"x"]), v3.publish(2, [b""]), v3.publish(3, [b"x"], b"b@d"), v3.publish(4, [b"x"])
    )
    assert [(one.name, one.id) for one in written[:2]] == [("REJECT", 2), ("REJECT", 3)]
    assert error_of(written[0].payload)[0] == "E_BAD_MESSAGE PUB invalid message body size 0"
    assert error_of(written[1].payload)[0] == 'E_BAD_TOPIC PUB topic name "b@d" is not valid'
    assert confirmed(written) == [1, 4] and not client.is_closed


def test_a_run_of_publishes_is_rejected_one_by_one(client: Client) -> None:
    client.says(v3.publish(1, [b"x"]))
    written = client.says(*(v3.publish(number, [b"x" * 101]) for number in (2, 3, 4)), v3.publish(5, [b"y"]))
    assert [(one.name, one.id) for one in written[:3]] == [("REJECT", 2), ("REJECT", 3), ("REJECT", 4)]
    assert confirmed(written) == [5] and client.stage.stored() == 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cuts_of_the_input_make_no_difference(data: st.DataObject) -> None:
    """Runs are taken together only where all of their frames have come."""
    chance = data.draw(st.randoms(use_true_random=False))
    sent: list[tuple[bytes, bytes]] = []
    frames = [v3.hello(), v3.subscribe(9, channel=b"c#ephemeral", credit=1000)]
    for number in range(1, 40):
        topic, body = chance.choice((b"t", b"t", b"t", b"u")), chance.choice((b"x", b"y", b"longer"))
        headers = [{"k": "v"}] if chance.random() < 0.1 else None
        sent.append((topic, body))
        frames.append(v3.publish(number, [body], topic, headers))
    stage = SessionHarness()
    connection = Connection(stage, V3Factory())
    everything = b"".join(frames)
    cuts = sorted(chance.randrange(len(everything)) for _ in range(chance.choice((0, 1, 5, 50))))
    written = b"".join(
        connection.send(everything[start:stop]) for start, stop in pairwise([0, *cuts, len(everything)]) if stop > start
    )
    found = answers(written)
    assert sorted(confirmed(found)) == [*range(1, 40)]
    assert bodies(found) == [body for topic, body in sent if topic == b"t"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_order_of_answers_finishes_each_message_once(data: st.DataObject) -> None:
    chance = data.draw(st.randoms(use_true_random=False))
    client = Client(SessionHarness())
    client.says(v3.subscribe(9, channel=b"c#ephemeral", credit=1000), v3.publish(1, [b"x"] * 60))
    (channel,) = client.stage.broker.topics["t"].channels.values()
    (consumer,) = channel.consumers
    left = [int(message_id, 16) for message_id, _ in consumer.in_flight.items()]
    assert len(left) == 60
    while left:
        size = chance.choice((1, 1, 2, 7, 20))
        start = 0 if chance.random() < 0.5 else chance.randrange(len(left))
        taken, left = left[start : start + size], left[:start] + left[start + size :]
        if chance.random() < 0.3:
            chance.shuffle(taken)
        together = [v3.fin(9, *((number, 1) for number in taken))]
        assert client.says(*(chance.choice((together, [v3.fin(9, (number, 1)) for number in taken])))) == []
        assert sorted(int(message_id, 16) for message_id, _ in consumer.in_flight.items()) == left
    assert channel.finish_count == 60 and consumer.in_flight.count == 0


def test_an_empty_topic_is_refused(client: Client) -> None:
    (rejected,) = client.says(v3.publish(1, [b"x"], b""))
    assert error_of(rejected.payload)[0] == 'E_BAD_TOPIC PUB topic name "" is not valid'


def test_messages_of_a_frame_are_stored_together_or_not(client: Client) -> None:
    assert confirmed(client.says(v3.publish(1, [b"a", b"bb", b"c"]))) == [1]
    assert names(client.says(v3.publish(2, [b"a", b"", b"c"]))) == ["REJECT"]
    assert client.stage.stored() == 3
    assert bodies(client.says(v3.subscribe(9))) == [b"a", b"bb", b"c"]


def test_headers_come_back(client: Client) -> None:
    headers = [{"k": "v", "a": "ü"}, {}]
    client.says(v3.publish(1, [b"x", b"y"], headers=headers), v3.publish(2, [b"z"]))
    found = deliveries(client, v3.subscribe(9))
    assert [(one.headers, one.body) for one in found] == [(headers[0], b"x"), ({}, b"y"), ({}, b"z")]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([{"nsq-x": "v"}], "only nsqd writes headers"),
        ([{"K": "v"}], "not sorted by name, or a name"),
        ([{"k": "a\nb"}], "control character"),
        ([{"k": "v"}, {}], "headers for 2 of 1 messages"),
    ],
)
def test_wrong_headers_reject_the_publish(client: Client, headers: Any, why: str) -> None:
    (rejected,) = client.says(v3.publish(1, [b"x"], headers=headers))
    assert error_of(rejected.payload)[0].startswith("E_BAD_HEADERS ") and why in error_of(rejected.payload)[0]
    assert not client.stage.stored()


def test_each_message_may_have_its_delay(client: Client) -> None:
    client.says(v3.subscribe(9))
    written = client.says(v3.publish(1, [b"now", b"soon", b"later"], delays=[0, 1000, 5000]))
    assert confirmed(written) == [1]
    assert bodies(written) == [b"now"]
    client.stage.now += 2
    assert bodies(client.hears()) == [b"soon"]
    client.stage.now += 4
    assert bodies(client.hears()) == [b"later"]
    assert names(client.says(v3.publish(2, [b"x", b"y"], delays=[4_000_000]))) == ["REJECT"]
    assert names(client.says(v3.publish(2, [b"x", b"y", b"z"], delays=[1, 2]))) == ["REJECT"]


def test_a_delay_is_as_long_as_the_client_says(client: Client) -> None:
    client.says(v3.subscribe(9), v3.publish(1, [b"x"], delays=[1001]))
    client.stage.now += 1.0005
    assert bodies(client.hears()) == []
    client.stage.now += 0.0005
    assert bodies(client.hears()) == [b"x"]


def test_delays_make_no_more_segments_than_a_turn_has_time_for(client: Client) -> None:
    client.stage.options.max_body_size = 100_000
    client = Client(client.stage)
    delays = [number % 2 for number in range(4096)]
    (rejected,) = client.says(v3.publish(1, [b"x"] * 4097, delays=[*delays, 0]))
    text = "E_INVALID DPUB has 4097 runs of equal delays, at most 4096 are allowed"
    assert error_of(rejected.payload)[0] == text
    assert not client.stage.stored()
    assert confirmed(client.says(v3.publish(2, [b"x"] * 4097, delays=[*delays, 1]))) == [2]


def test_ranges_and_sets_are_finished_in_one_frame(client: Client) -> None:
    client.says(v3.publish(1, [b"%d" % number for number in range(10)]))
    found = deliveries(client, v3.subscribe(9))
    first = found[0].id
    assert [one.id for one in found] == [*range(first, first + 10)]
    assert client.says(v3.fin(9, (first, 4)), v3.fin(9, (first + 8, 1), (first + 5, 2))) == []
    (failed,) = client.says(v3.fin(9, (first, 5), (first + 9, 1)))
    text, rest = error_of(failed.payload[1:])
    assert (failed.name, failed.id, failed.payload[0]) == ("FAILED", 9, 7)
    assert text == f"E_FIN_FAILED FIN {first:016x} and 3 others failed ID not in flight"
    assert [*struct.iter_unpack(">QI", rest)] == [(first, 4)]
    (channel,) = client.stage.broker.topics["t"].channels.values()
    assert (channel.finish_count, channel.in_flight_count) == (9, 1)


def test_single_fins_that_come_together_are_one_run(client: Client) -> None:
    client.says(v3.publish(1, [b"x"] * 10))
    first = deliveries(client, v3.subscribe(9))[0].id
    assert client.says(*(v3.fin(9, (first + number, 1)) for number in range(6))) == []
    assert client.says(*(v3.fin(9, (first + number, 1)) for number in (9, 7))) == []
    (channel,) = client.stage.broker.topics["t"].channels.values()
    assert (channel.finish_count, channel.in_flight_count) == (8, 2)


@pytest.mark.parametrize("cut", range(1, 24))
def test_single_fins_of_two_subscriptions_alternate(client: Client, cut: int) -> None:
    client.says(v3.publish(1, [b"x"] * 4, b"a"), v3.publish(2, [b"y"] * 4, b"b"))
    firsts = [deliveries(client, v3.subscribe(number, name))[0].id for number, name in ((8, b"a"), (9, b"b"))]
    sent = [v3.fin(8 + index % 2, (firsts[index % 2] + index // 2, 1)) for index in range(6)]
    fins = b"".join([*sent, v3.fin(9, (firsts[1] + 3, 1)), v3.ping(7), v3.fin(8, (firsts[0] + 3, 1), (5, 1))])
    written = [answer for start in range(0, len(fins), cut) for answer in client.says(fins[start : start + cut])]
    assert [answer.name for answer in written] == ["PONG", "FAILED"]
    counts = [topic.channels["c"].finish_count for topic in client.stage.broker.topics.values()]
    assert counts == [4, 4]


@pytest.mark.parametrize(("count", "pieces"), [(1, 1), (60, 2)])
def test_messages_are_copied_behind_their_header_only_if_they_are_few(client: Client, count: int, pieces: int) -> None:
    client.says(v3.subscribe(9, channel=b"c#ephemeral", credit=0), *[v3.publish(1, [b"x" * 100])] * count)
    session, stage = client.connection.session, client.stage
    session.receive_data(v3.credit(9, count), stage.now)
    stage.broker.serve(stage.now)
    written = [item for item in session.data_to_send() if isinstance(item, bytes)]
    assert len(written) == pieces and len(delivered(answers(b"".join(written)))) == count


@pytest.mark.parametrize("first", [0xFE, 0xFFFE, 0xFFFFFE, 2**40 - 2])
def test_single_fins_are_one_run_whatever_their_numbers(first: int) -> None:
    reader = codec.FrameReader()
    reader.expect_fins(9, lambda limit: [])
    reader.feed(b"".join([v3.fin(9, (first + number, 1)) for number in range(5)]))
    ranges = reader.next_fins()
    assert [number for begin, count in ranges for number in range(begin, begin + count)] == [*range(first, first + 5)]
    assert len(ranges) == 1 or [begin & 0xFFFF for begin, _ in ranges[1:]] == [
        0
    ]  # where the lowest two bytes begin anew
    assert not reader.has_more and reader.unfinished_bytes == 0


def next_of(ranges: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """The first of so many messages."""
    told: list[tuple[int, int]] = []
    for first, count in ranges:
        if limit:
            told.append((first, min(count, limit)))
            limit -= told[-1][1]
    return told


def test_the_next_messages_in_flight_are_one_look_whatever_the_order() -> None:
    runs = [(40, 3), (20, 1), (0xFFF0, 16)]
    reader = codec.FrameReader()
    reader.expect_fins(9, lambda limit: next_of(runs, limit))
    fins = [v3.fin(9, (first + number, 1)) for first, count in runs for number in range(count)]
    reader.feed(b"".join(fins[:-1]))
    assert reader.next_fins() == [(40, 3), (20, 1), (0xFFF0, 15)]
    assert not reader.has_more and reader.unfinished_bytes == 0


def test_fins_of_ranges_are_taken_together_up_to_a_limit() -> None:
    reader = codec.FrameReader()
    reader.expect_fins(9, lambda limit: [])
    sent = [(7, 2000), (5000, 1), (9000, 47), (1, 2), (2**63, 2), (3, 9000)]
    reader.feed(b"".join([v3.fin(9, one) for one in sent]) + v3.fin(8, (1, 2)))
    assert reader.next_fins() == sent[:3]
    assert reader.next_fins() == sent[3:4]
    assert reader.next_fins() == sent[4:5]
    assert reader.next_fins() == sent[5:]
    assert reader.next_fins() == [] and reader.unfinished_bytes == len(v3.fin(8, (1, 2)))


@given(st.data())
def test_ranges_of_single_fins_are_what_was_sent(data: st.DataObject) -> None:
    runs = data.draw(st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(1, 300)), min_size=1, max_size=6))
    sent = [first + number for first, count in runs for number in range(count)]
    other = data.draw(st.sampled_from([b"", v3.ping(1), v3.fin(8, (5, 1)), v3.fin(9, (5, 2)), v3.fin(9, (2**63, 1))]))
    known = data.draw(st.sampled_from([runs, runs[1:], [(first ^ 1 << 16, count) for first, count in runs]]))
    reader = codec.FrameReader()
    reader.expect_fins(9, lambda limit: next_of(known, limit))
    reader.feed(b"".join([v3.fin(9, (one, 1)) for one in sent]) + other)
    found: list[int] = []
    while ranges := reader.next_fins():
        found += [first + number for first, count in ranges for number in range(count)]
    if found[len(sent) :]:  # which is no FIN of one message, or one for a number that the broker refuses
        assert v3.fin(9, (found[len(sent)], len(found) - len(sent))) == other
        other = b""
        del found[len(sent) :]
    assert found == sent and reader.unfinished_bytes == len(other)
    assert reader.has_more == (other != b"")


def test_single_fins_are_one_run_between_deliveries(client: Client) -> None:
    client.says(v3.subscribe(9, credit=2500))
    sent: list[int] = []
    for _ in range(4):  # a delivery each
        client.stage.now += 1
        sent += [one.id for one in delivered(client.says(*(v3.publish(1, [b"x"] * 100) for _ in range(6))))]
    assert sent == [*range(sent[0], sent[0] + 2400)]
    (channel,) = client.stage.broker.topics["t"].channels.values()
    for count, left in ((700, 1700), (1699, 1)):
        assert client.says(*(v3.fin(9, (one, 1)) for one in sent[:count])) == []
        assert channel.in_flight_count == left
        del sent[:count]
    (failed,) = client.says(*(v3.fin(9, (sent[0] + number, 1)) for number in range(3)))
    assert [*struct.iter_unpack(">QI", failed.payload[-12:])] == [(sent[0] + 1, 2)]
    assert channel.finish_count == 2400


def test_a_nack_says_why(client: Client) -> None:
    client.says(v3.publish(1, [b"a", b"b"]))
    first = deliveries(client, v3.subscribe(9))[0].id
    written = client.says(v3.nack(9, 0, b"no such customer", (first, 1)), v3.req(9, 5000, (first + 1, 1)))
    written += client.hears()
    assert [(one.body, one.attempts) for one in delivered(written)] == [(b"a", 2)]
    assert ("info", 'CHANNEL(c): [10.0.0.1:5] requeued 1 of t - "no such customer"') in client.stage.lines
    client.stage.now += 5
    assert [(one.body, one.attempts) for one in delivered(client.hears())] == [(b"b", 2)]


def test_touch_restarts_the_timeout(client: Client) -> None:
    client.says(v3.publish(1, [b"a", b"b"]))
    first = deliveries(client, v3.subscribe(9, timeout=1000))[0].id
    client.stage.now += 0.9
    assert client.says(v3.touch(9, (first, 1))) == []
    client.stage.now += 0.5
    assert [one.id for one in delivered(client.hears())] == [first + 1]
    (failed,) = client.says(v3.touch(9, (first + 5, 1)))
    assert error_of(failed.payload[1:])[0].startswith("E_TOUCH_FAILED")


def test_several_subscriptions_share_a_connection(client: Client) -> None:
    client.says(v3.publish(1, [b"x"], b"a"), v3.publish(2, [b"y"], b"b"))
    written = (
        client.says(v3.subscribe(1, b"a"), v3.subscribe(2, b"b"), v3.subscribe(3, b"a", b"other")) + client.hears()
    )
    assert sorted(one.id for one in written if one.name == "SUBSCRIBED") == [1, 2, 3]
    assert {one.id: bodies([one]) for one in written if one.name == "DELIVER"} == {1: [b"x"], 2: [b"y"]}
    assert names(client.says(v3.unsubscribe(2), v3.publish(3, [b"z"], b"b"))) == ["UNSUBSCRIBED", "CONFIRM"]
    assert bodies(client.says(v3.publish(4, [b"z"], b"a"))) == [b"z", b"z"]
    assert names(client.says(v3.subscribe(2, b"b")))[0] == "SUBSCRIBED"
    assert [len(channel.consumers) for channel in client.stage.broker.topics["b"].channels.values()] == [1]
    client.connection.close()
    assert not any(channel.consumers for channel in client.stage.broker.topics["a"].channels.values())
    assert not client.stage.broker.clients


def test_a_refused_subscription_leaves_the_connection_open(client: Client) -> None:
    (refused,) = client.says(v3.subscribe(1, b"t", b"b@d"))
    assert (refused.name, refused.id) == ("UNSUBSCRIBED", 1)
    assert error_of(refused.payload)[0].startswith("E_BAD_CHANNEL")
    assert names(client.says(v3.subscribe(1))) == ["SUBSCRIBED"]
    assert names(client.says(v3.unsubscribe(5))) == ["UNSUBSCRIBED"]
    (failed,) = client.says(v3.fin(5, (1, 1)))
    assert error_of(failed.payload[1:])[0] == "E_FIN_FAILED FIN failed not subscribed"


def test_credit_in_messages(client: Client) -> None:
    client.says(v3.publish(1, [b"%d" % number for number in range(9)]))
    found = deliveries(client, v3.subscribe(9, credit=2))
    assert len(found) == 2
    assert len(deliveries(client, v3.credit(9, 3))) == 3
    assert len(deliveries(client, v3.fin(9, (found[0].id, 2)))) == 2
    assert deliveries(client, v3.credit(9, 0, replaces=True), v3.fin(9, (found[0].id + 2, 1))) == []
    del client.stage.lines[:]
    assert names(client.says(v3.credit(9, -1))) == ["ERROR"] and client.is_closed
    assert len(client.stage.lines) == 1, client.stage.lines


def test_nothing_is_delivered_behind_an_error(client: Client) -> None:
    client.says(v3.subscribe(9))
    written = client.says(v3.publish(1, [b"x"]), v3.credit(9, -100))
    assert sorted(names(written)) == ["CONFIRM", "ERROR"]


def test_credit_in_bytes(client: Client) -> None:
    """While 70 bytes of frames are in flight nothing more comes: a frame has 34 bytes and the body."""
    client.says(v3.publish(1, [b"x" * 6] * 5))
    found = deliveries(client, v3.subscribe(9, size=70, timeout=5000))
    assert len(found) == 2
    assert len(deliveries(client, v3.fin(9, (found[0].id, 1)))) == 1
    assert len(deliveries(client, v3.req(9, 60_000, (found[0].id + 1, 1)))) == 1
    client.stage.now += 6  # what is in flight times out, and comes again
    assert [one.attempts for one in delivered(client.hears())] == [1, 2]
    assert len(deliveries(client, v3.credit(9, 10, 0, replaces=True))) == 1
    assert names(client.says(v3.credit(9, 0, -1))) == ["ERROR"]


@pytest.mark.parametrize("channel", [b"c", b"c#ephemeral"])
def test_a_limit_in_bytes_counts_what_is_in_flight_when_it_is_set(client: Client, channel: bytes) -> None:
    client.says(v3.subscribe(9, channel=channel, credit=100))
    found = deliveries(client, v3.publish(1, [b"x" * 6] * 3), v3.publish(2, [b"x" * 26]))
    assert len(found) == 4
    assert deliveries(client, v3.req(9, 0, (found[0].id, 1)))[0].attempts == 2
    assert deliveries(client, v3.credit(9, 100, 150, replaces=True), v3.publish(3, [b"y" * 6] * 3)) == [], "180 bytes"
    assert deliveries(client, v3.fin(9, (found[3].id, 1))), "120"
    assert deliveries(client, v3.credit(9, 100, 120, replaces=True)) == []
    assert len(deliveries(client, v3.credit(9, 100, 0, replaces=True))) == 2
    assert deliveries(client, v3.credit(9, 100, 200, replaces=True), v3.publish(4, [b"z"])) == []


@pytest.mark.parametrize("how", ["empty", "seek"])
def test_bytes_in_flight_that_an_operator_removes_give_credit_back(client: Client, how: str) -> None:
    client.says(v3.publish(1, [b"x" * 6] * 4))
    assert len(deliveries(client, v3.subscribe(9, size=70))) == 2
    channel = client.stage.broker.topics["t"].channels["c"]
    if how == "empty":
        channel.empty()
    else:
        channel.seek(channel.topic.released, skips_all=True)
    assert bodies(client.says(v3.publish(2, [b"y"] * 3))) == [b"y"] * 2


def test_an_operators_pause_is_told(client: Client) -> None:
    client.says(v3.subscribe(9))
    channel = client.stage.broker.topics["t"].channels["c"]
    channel.pause()
    assert [(one.name, one.id) for one in client.hears()] == [("PAUSED", 9)]
    late = Client(client.stage)
    assert names(late.says(v3.subscribe(1))) == ["SUBSCRIBED", "PAUSED"]
    channel.unpause()
    assert names(client.hears()) == names(late.hears()) == ["RESUMED"]
    client.stage.broker.topics["t"].pause()
    assert names(client.hears()) == ["PAUSED"]
    client.stage.broker.topics["t"].unpause(client.stage.now)
    assert names(client.hears()) == ["RESUMED"]


def test_a_drain_is_told(client: Client) -> None:
    client.stage.broker.topic("t")
    client.stage.broker.begin_drain()
    assert names(client.hears()) == ["DRAINING"]
    (rejected,) = client.says(v3.publish(1, [b"x"]))
    assert error_of(rejected.payload)[0] == "E_PUB_FAILED PUB failed draining"
    assert names(Client(client.stage).greeting) == ["WELCOME", "DRAINING"]


def test_a_deleted_channel_ends_its_subscription_only(client: Client) -> None:
    client.says(v3.subscribe(1), v3.subscribe(2, b"t", b"other"))
    client.stage.broker.topics["t"].delete_channel("c")
    (ended,) = client.hears()
    assert (ended.name, ended.id) == ("UNSUBSCRIBED", 1)
    assert error_of(ended.payload)[0] == "E_SUB_FAILED the channel was deleted"
    assert bodies(client.says(v3.publish(1, [b"x"]))) == [b"x"]
    assert names(client.says(v3.subscribe(1)))[0] == "SUBSCRIBED"


def test_heartbeats(client: Client) -> None:
    client.stage.now += 30
    assert [(one.name, one.id) for one in client.hears()] == [("PING", 0)]
    client.says(v3.frame(17, 0))
    client.stage.now += 30
    assert names(client.hears()) == ["PING"]
    client.stage.now += 30
    assert names(client.hears()) == ["ERROR"] and client.is_closed
    silent = Client(client.stage, said=v3.hello(heartbeat_interval=0))
    silent.stage.now += 1000
    assert silent.hears() == [] and not silent.is_closed
    assert [(one.name, one.id) for one in silent.says(v3.ping(77))] == [("PONG", 77)]


def test_close_answers_everything_before_it(client: Client) -> None:
    written = client.says(v3.publish(1, [b"x"]), v3.CLOSE, v3.publish(2, [b"y"]))
    assert confirmed(written) == [1] and written[-1].name == "CLOSE" and client.is_closed
    assert client.stage.stored() == 1


def test_the_secret_comes_with_hello(stage: SessionHarness) -> None:
    stage.guard()
    client = Client(stage, said=v3.hello(SECRET, client_id="shop") + v3.publish(1, [b"x"]))
    assert names(client.greeting) == ["WELCOME", "CONFIRM"]
    assert b'"identity": "ann"' in client.greeting[0].payload
    assert [one.client_id for one in stage.broker.clients.values()] == ["shop"]
    wrong = Client(stage, said=v3.hello(b"guess") + v3.publish(1, [b"x"]))
    assert names(wrong.greeting) == ["ERROR"] and wrong.is_closed
    assert stage.stored() == 1


def test_what_waits_for_rights_is_done_behind_them(stage: SessionHarness) -> None:
    authorizations = stage.guard()
    authorizations.is_slow = True
    client = Client(
        stage, said=v3.hello(SECRET) + v3.subscribe(9, channel=b"c#ephemeral") + v3.publish(1, [b"x"]) + v3.ping(5)
    )
    assert client.greeting == []
    authorizations.answer()
    assert names(client.hears() + client.hears())[:4] == ["WELCOME", "SUBSCRIBED", "PONG", "DELIVER"]


def test_unknown_extensions_are_skipped(client: Client) -> None:
    unknown = struct.pack(">HH", 999, 3) + b"abc"
    assert confirmed(client.says(v3.frame(3, 1, b"\1t\0\0\0\1x", extension=unknown))) == [1]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (v3.frame(3, 1, b"\5t"), "E_INVALID invalid frame of type 3"),
        (v3.frame(3, 1, b"\1t\0\0\0\5x"), "E_INVALID invalid frame of type 3"),
        (v3.frame(3, 1, b"\1t\0\0\0\1xx"), "E_INVALID invalid frame of type 3"),
        (v3.frame(3, 1, b"\1t\0\0\0\1x", flags=64), "E_INVALID unknown flags 64 in a frame of type 3"),
        (v3.frame(3, 1, b"\1t\0\0\0\2\0\5a\0\0\0\1x", flags=1), "E_INVALID invalid frame of type 3"),
        (v3.frame(3, 1, b"\1t\xff\xff\xff\xff", flags=2), "E_INVALID invalid frame of type 3"),
        (v3.frame(4, 1, b"\1t\1c"), "E_INVALID invalid frame of type 4"),
        (v3.frame(6, 1, b"\0"), "E_INVALID invalid frame of type 6"),
        (v3.frame(7, 1, b"\0" * 13), "E_INVALID invalid frame of type 7"),
        (v3.frame(9, 1, b"\0\0\0\0\0\5"), "E_INVALID invalid frame of type 9"),
        (v3.frame(99, 1), "E_INVALID unknown frame type 99"),
        (v3.hello(), "E_INVALID HELLO must be the first frame"),
        (b"\0\0\0\7" + b"\0" * 8, "E_INVALID frame of 7 bytes is too short"),
        (b"\xff\xff\xff\xff" + b"\0" * 8, "E_INVALID frame of 4294967295 bytes is larger than 263244"),
        (v3.auth(b"x"), "E_AUTH_DISABLED AUTH disabled"),
    ],
)
def test_what_is_no_frame_ends_the_connection(client: Client, sent: bytes, text: str) -> None:
    del client.stage.lines[:]
    (error,) = client.says(sent, v3.ping())
    assert (error.name, error_of(error.payload)) == ("ERROR", (text, b""))
    assert client.is_closed
    assert client.stage.lines == [("error", f"[10.0.0.1:5] - {text}")]


@pytest.mark.parametrize(
    ("size", "text"), [(7, "E_INVALID frame of 7 bytes is too short"), (9, "E_INVALID invalid frame of type 3")]
)
def test_a_publish_that_ends_within_its_topic_ends_the_connection_also_behind_others(
    client: Client, size: int, text: str
) -> None:
    short = struct.pack(">I", size) + v3.publish(2, [b"hello"])[4:]
    error, confirm = client.says(v3.publish(1, [b"hello"]), short)
    assert (error.name, error_of(error.payload)) == ("ERROR", (text, b""))
    assert confirmed([confirm]) == [1] and client.is_closed


@pytest.mark.parametrize(
    "said",
    [
        v3.ping(),
        v3.frame(1, 0, b"\0\0[]"),
        v3.frame(1, 0, b"\0\0{"),
        v3.frame(1, 0, b"\0"),
        v3.hello(client_id=5),
        v3.hello(heartbeat_interval=5),
        v3.hello(heartbeat_interval=True),
    ],
)
def test_a_wrong_hello_ends_the_connection(stage: SessionHarness, said: bytes) -> None:
    client = Client(stage, said=said)
    assert names(client.greeting) == ["ERROR"] and client.is_closed


def test_new_topics_of_subscriptions_leave_others_their_turn(client: Client) -> None:
    frames = [v3.subscribe(number, b"t%d" % number, b"c#ephemeral") for number in range(1, 101)]
    client.connection.session.receive_data(b"".join(frames), client.stage.now)
    assert len(client.stage.broker.topics) == 8 and client.connection.session.is_behind
    for _ in range(20):
        client.hears()
    assert len(client.stage.broker.topics) == 100


def test_ranges_are_bounded(client: Client) -> None:
    client.says(v3.subscribe(9))
    del client.stage.lines[:]
    (error,) = client.says(v3.fin(9, (1, 5000)))
    assert len(client.stage.lines) == 1, client.stage.lines
    assert error_of(error.payload)[0] == "E_INVALID FIN of 5000 messages, at most 4096 are allowed"


def test_a_reader_that_stalls_is_not_read_from(client: Client) -> None:
    client.says(v3.subscribe(9))
    session = client.connection.session
    session.pause_delivery()
    for number in range(1000):
        client.connection.send(v3.ping(number))
    assert not session.wants_data
    assert bodies(client.says(v3.publish(1, [b"x"]))) == []
    session.resume_delivery(client.stage.now)
    assert session.wants_data and bodies(client.hears()) == [b"x"]


def test_the_example_of_the_specification(client: Client) -> None:
    """The client's bytes are sent as they stand there, and the broker's are those that come."""
    page = (Path(__file__).parents[2] / "docs/protocol-v3.md").read_text("utf-8")
    lines = [line for line in page.partition("## Example")[2].splitlines() if line[:1] in ("<", ">")]
    fresh = Connection(client.stage, V3Factory())
    written, at, message = b"", 0, 0
    for line in lines[1:]:
        text = EXAMPLE.match(line[1:])[0]  # type: ignore[index]
        if line.startswith(">"):
            if "ID AS" in line:
                raw = message.to_bytes(8, "big") + bytes.fromhex("00000001")
            else:
                raw = bytes.fromhex(text)
            written += fresh.send(raw)
            save_channels(client.stage)
            written += fresh.read()
            continue
        if "WELCOME" in line:
            at = 4 + int.from_bytes(written[:4], "big")
            continue
        for word in text.replace("ID x 16", " ".join(["ID"] * 16)).split():
            if word not in ("TIME", "ID"):
                assert written[at : at + 1] == bytes.fromhex(word), (line, written[at:])
            elif word == "ID":
                message = message * 16 + int(written[at : at + 1], 16)
            at += 1
    assert at == len(written)
    (channel,) = client.stage.broker.topics["t"].channels.values()
    assert (channel.finish_count, channel.in_flight_count) == (1, 0)


def test_it_imports_what_others_may_import() -> None:
    from tests.test_layers import ROOT, imports_of

    for module in (ROOT / "nsqtw/protocols/v3").glob("*.py"):
        own = {name for name in imports_of(module) if name.startswith("nsqtw")}
        assert {name for name in own if not name.startswith(IMPORTED)} == set(), module
