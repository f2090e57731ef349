"""RDY, FIN, REQ, TOUCH and CLS; what is delivered, and what becomes of it."""

from __future__ import annotations

import random

import pytest

from tests.core.harness import Message
from tests.protocols.dialogue import (
    CLOSE_WAIT,
    END,
    OK,
    UNKNOWN_ID,
    Frame,
    Peer,
    V2Harness,
    error,
    identify,
    message,
    mpub,
    pub,
)

NOT_IN_FLIGHT, NOT_OWNED = b"ID not in flight", b"client does not own message"


def failed(verb: bytes, message_id: bytes, why: bytes = NOT_IN_FLIGHT) -> Frame:
    return error(b"E_%s_FAILED %s %s failed %s" % (verb, verb, message_id, why))


def consumer_of(stage: V2Harness, *bodies: bytes, ready: int = 100) -> tuple[Peer, list[Message]]:
    """A subscriber of t/c that was given these messages."""
    client = stage.connect()
    client.subscribe(ready=ready)
    publisher = stage.connect()
    publisher.send(mpub(*bodies))
    publisher.vanish()
    return client, client.expect(*map(message, bodies[:ready]))


# -- RDY


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (b"RDY\n", 1),
        (b"RDY\r\n", 1),
        (b"RDY \n", 0),
        (b"RDY  5\n", 0),
        (b"RDY 0\n", 0),
        (b"RDY 2\n", 2),
        (b"RDY 0002\n", 2),
        (b"RDY 2 x\n", 2),
        (b"RDY 18446744073709551616\n", 0),
        (b"RDY 18446744073709551618\n", 2),
        (b"RDY 5\n", 5),
    ],
)
def test_rdy(line: bytes, count: int) -> None:
    stage = V2Harness(max_rdy_count=5)
    client = stage.connect()
    client.subscribe()
    client.send(mpub(*[b"x"] * 10))
    client.expect(OK)
    client.send(line)
    client.expect(*[message(b"x")] * count)
    (seen,) = stage.broker.clients.values()
    assert (seen.ready_count, seen.in_flight_count, seen.message_count) == (count, count, count)


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (b"x", b"could not parse count x"),
        (b"-1", b"could not parse count -1"),
        (b"+1", b"could not parse count +1"),
        (b"1.0", b"could not parse count 1.0"),
        (b"\t1", b"could not parse count \t1"),
        (b"\xff\x00", b"could not parse count \xff\x00"),
        (b"6", b"count 6 out of range 0-5"),
        (b"9223372036854775807", b"count 9223372036854775807 out of range 0-5"),
        (b"9223372036854775808", b"count -9223372036854775808 out of range 0-5"),
        (b"18446744073709551615", b"count -1 out of range 0-5"),
        (b"18446744073709551622", b"count 6 out of range 0-5"),
    ],
)
def test_rdy_that_is_refused(parameter: bytes, text: bytes) -> None:
    client = V2Harness(max_rdy_count=5).connect()
    client.subscribe()
    client.send(b"RDY %s\n" % parameter)
    client.expect(error(b"E_INVALID RDY " + text), END)


def test_rdy_is_a_standing_credit() -> None:
    stage = V2Harness()
    client, (a, b) = consumer_of(stage, b"1", b"2", b"3", b"4", ready=2)
    client.send(b"FIN %s\n" % a.id)
    (c,) = client.expect(message(b"3"))
    client.send(b"RDY 1\n", b"FIN %s\n" % b.id)
    client.expect()
    client.send(b"FIN %s\n" % c.id)
    client.expect(message(b"4"))
    client.send(b"RDY 0\n", pub(b"5"))
    client.expect(OK)


# -- FIN, REQ, TOUCH


@pytest.mark.parametrize(
    ("verb", "line"), [("FIN", b"FIN\n"), ("REQ", b"REQ\n"), ("REQ", b"REQ x\n"), ("TOUCH", b"TOUCH\n")]
)
def test_too_few_parameters(verb: str, line: bytes) -> None:
    client = V2Harness().connect()
    client.subscribe()
    client.send(line)
    client.expect(error(b"E_INVALID %s insufficient number of params" % verb.encode()), END)


@pytest.mark.parametrize("line", [b"FIN %s\n", b"FIN %s\r\n", b"FIN %s x\n", b"REQ %s x\n", b"TOUCH %s\n"])
@pytest.mark.parametrize("message_id", [b"", b"x", UNKNOWN_ID[1:], UNKNOWN_ID + b"0", b" " + UNKNOWN_ID, b"0" * 99])
def test_an_id_has_16_bytes(line: bytes, message_id: bytes) -> None:
    client = V2Harness().connect()
    client.subscribe()
    client.send(line % message_id)
    client.expect(error(b"E_INVALID invalid message ID"), END)


@pytest.mark.parametrize("parameter", [b"x", b"-1", b"+1", b"1.5", b"1s", b"\xff"])
def test_req_needs_a_number(parameter: bytes) -> None:
    client = V2Harness().connect()
    client.subscribe()
    client.send(b"REQ %s %s\n" % (UNKNOWN_ID, parameter))
    client.expect(error(b"E_INVALID REQ could not parse timeout " + parameter), END)


@pytest.mark.parametrize(
    "message_id", [UNKNOWN_ID, b"no_hex_digits!!!", b"\x00\xff\xfe\t\r\x01\x02\x03" * 2, b"%s%d%%%q%n%x%f%s"]
)
def test_an_unknown_id_is_echoed_as_it_came(message_id: bytes) -> None:
    client = V2Harness().connect()
    client.subscribe()
    client.send(b"FIN %s\n" % message_id, b"REQ %s 5\n" % message_id, b"TOUCH %s\n" % message_id)
    client.expect(failed(b"FIN", message_id), failed(b"REQ", message_id), failed(b"TOUCH", message_id))


def test_only_the_owner_can_finish_requeue_or_touch() -> None:
    stage = V2Harness()
    owner, (m,) = consumer_of(stage, b"x")
    other = stage.connect()
    other.subscribe()
    other.send(b"FIN %s\nREQ %s 0\nTOUCH %s\n" % (m.id, m.id, m.id))
    other.expect(*[failed(verb, m.id, NOT_OWNED) for verb in (b"FIN", b"REQ", b"TOUCH")])
    owner.send(b"TOUCH %s\nFIN %s\nFIN %s\n" % (m.id, m.id, m.id))
    owner.expect(failed(b"FIN", m.id))


def test_a_run_of_fins_fails_where_it_fails() -> None:
    stage = V2Harness()
    client, (a, b, c) = consumer_of(stage, b"a", b"b", b"c")
    client.send(b"".join(b"FIN %s\n" % i for i in (a.id, UNKNOWN_ID, b.id, a.id, c.id, b"x" * 16)))
    client.expect(failed(b"FIN", UNKNOWN_ID), failed(b"FIN", a.id), failed(b"FIN", b"x" * 16))
    channel = stage.broker.topics["t"].channels["c"]
    assert (channel.depth, channel.in_flight_count) == (0, 0)
    (seen,) = stage.broker.clients.values()
    assert (seen.finish_count, seen.in_flight_count) == (3, 0)


def test_a_malformed_fin_ends_the_run_and_the_connection() -> None:
    stage = V2Harness()
    client, (a, b, c) = consumer_of(stage, b"a", b"b", b"c")
    client.send(b"FIN %s\nFIN %s\nFIN %s\n" % (a.id, b.id[1:], c.id))
    client.expect(error(b"E_INVALID invalid message ID"), END)
    assert stage.broker.topics["t"].channels["c"].in_flight_count == 2


@pytest.mark.parametrize("delay", [b"0", b"", b"18446744073709551615", b"9223372036855", b"18446744073709551616"])
def test_req_without_a_delay_or_with_one_that_overflows_comes_again_at_once(delay: bytes) -> None:
    stage = V2Harness()
    client, (m,) = consumer_of(stage, b"x")
    client.send(b"REQ %s %s\n" % (m.id, delay))
    (again,) = client.expect(message(b"x", attempts=2))
    assert (again.id, again.timestamp_ns) == (m.id, m.timestamp_ns)
    (seen,) = stage.broker.clients.values()
    assert (seen.requeue_count, stage.broker.topics["t"].channels["c"].requeue_count) == (1, 1)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(b"1500", 1.5), (b"10000", 10), (b"10001", 10), (b"9223372036854", 10), (b"18446744073710", 0)],
)
def test_req_with_a_delay_comes_again_after_it_and_a_long_one_is_cut(delay: bytes, seconds: float) -> None:
    stage = V2Harness(max_req_timeout=10.0)
    client, (m,) = consumer_of(stage, b"x")
    client.send(b"REQ %s %s\n" % (m.id, delay))
    if seconds:
        stage.wait(seconds - 0.1)
        client.expect()
    stage.wait(0.2)
    client.expect(message(b"x", attempts=2))


def test_a_deferred_message_is_not_in_flight() -> None:
    stage = V2Harness()
    client, (m,) = consumer_of(stage, b"x")
    client.send(b"REQ %s 1000\n" % m.id, b"FIN %s\n" % m.id, b"REQ %s 0\n" % m.id, b"TOUCH %s\n" % m.id)
    client.expect(*[failed(verb, m.id) for verb in (b"FIN", b"REQ", b"TOUCH")])
    stage.wait(1.1)
    client.expect(message(b"x", attempts=2))


def test_touch_starts_the_timeout_anew_but_not_past_the_longest() -> None:
    stage = V2Harness(max_msg_timeout=2.5)
    client = stage.connect()
    client.send(identify(msg_timeout=1000))
    client.expect(OK)
    client.subscribe(ready=1)
    client.send(pub(b"x"))
    (m,) = client.expect(OK, message(b"x"))
    for _ in range(2):
        stage.wait(0.9)
        client.send(b"TOUCH %s\n" % m.id)
        client.expect()
    stage.wait(0.6)
    client.expect()
    stage.wait(0.2)
    client.expect(message(b"x", attempts=2))


def test_what_has_timed_out_can_not_be_finished_any_more() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(msg_timeout=1000))
    client.expect(OK)
    client.subscribe(ready=1)
    client.send(pub(b"x") + b"RDY 0\n")
    client.expect(OK)
    client.send(b"RDY 1\n")
    (m,) = client.expect(message(b"x"))
    client.send(b"RDY 0\n")
    stage.wait(1.2)
    client.send(b"FIN %s\n" % m.id)
    client.expect(failed(b"FIN", m.id))
    client.send(b"RDY 1\n")
    client.expect(message(b"x", attempts=2))


def test_in_whatever_order_a_client_finishes_it_can_once() -> None:
    stage = V2Harness()
    client, got = consumer_of(stage, *[b"%d" % n for n in range(20)])
    ids = [m.id for m in got]
    client.send(b"".join(b"FIN %s\n" % one for one in ids[:12]))
    client.expect()
    client.send(b"".join(b"FIN %s\n" % one for one in [*ids[12:15], ids[16], ids[15], ids[3], *ids[17:19], ids[18]]))
    client.expect(failed(b"FIN", ids[3]), failed(b"FIN", ids[18]))
    client.send(b"REQ %s 0\n" % ids[19])
    (again,) = client.expect(message(b"19", attempts=2))
    client.send(b"FIN %s\nFIN %s\n" % (again.id, again.id))
    client.expect(failed(b"FIN", again.id))
    channel = stage.broker.topics["t"].channels["c"]
    assert (channel.depth, channel.in_flight_count) == (0, 0)


def test_what_a_channel_forgot_is_not_in_flight() -> None:
    stage = V2Harness()
    client, (m,) = consumer_of(stage, b"x", ready=1)
    stage.broker.topics["t"].channels["c"].empty()
    client.send(b"FIN %s\n" % m.id, pub(b"y"))
    client.expect(failed(b"FIN", m.id), OK, message(b"y"))


# -- CLS


def test_cls_stops_deliveries_and_what_is_in_flight_can_still_be_answered_for() -> None:
    stage = V2Harness()
    client, (a, b, c, d) = consumer_of(stage, b"a", b"b", b"c", b"d")
    client.send(b"CLS\n", pub(b"x"))
    client.expect(CLOSE_WAIT, OK)
    client.send(b"FIN %s\nREQ %s 0\nTOUCH %s\nFIN %s\n" % (a.id, b.id, c.id, UNKNOWN_ID))
    client.expect(failed(b"FIN", UNKNOWN_ID))
    stage.wait(20)
    assert client.connected
    channel = stage.broker.topics["t"].channels["c"]
    assert (channel.depth, channel.in_flight_count) == (2, 2)
    (seen,) = stage.broker.clients.values()
    assert seen.ready_count == 0
    assert d.attempts == 1


# -- what is delivered


def test_nothing_is_delivered_behind_a_fatal_error() -> None:
    stage = V2Harness()
    bad, publisher = stage.connect(), stage.connect()
    bad.subscribe(ready=10)
    bad.write(b"X\n")
    publisher.send(pub(b"x"))
    bad.expect(error(b"E_INVALID invalid command X"), END)


def test_nothing_is_delivered_behind_the_error_of_a_failed_commit() -> None:
    stage = V2Harness()
    bad, publisher = stage.connect(), stage.connect()
    bad.subscribe(ready=10)
    with stage.failing_commits("no", "bad"):
        bad.write(pub(b"a", topic=b"bad"))
        publisher.send(pub(b"x"))
    bad.expect(error(b"E_PUB_FAILED PUB failed no"), END)


def test_nothing_is_delivered_to_a_client_that_only_waits_for_its_last_replies() -> None:
    stage = V2Harness()
    bad = stage.connect()
    bad.subscribe()
    bad.send(pub(b"x"))
    bad.expect(OK)
    stage.commits_held = True
    bad.stall()
    bad.send(b"RDY 1\n" + pub(b"y", topic=b"u") + b"X\n")
    bad.catch_up()
    bad.expect()
    stage.commits_held = False
    stage.turn()
    bad.expect(OK, error(b"E_INVALID invalid command X"), END)


def test_a_client_that_reads_slowly_gets_no_messages_until_it_has_caught_up() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(ready=10)
    client.stall()
    client.send(pub(b"a", b"b"), b"TOUCH %s\n" % UNKNOWN_ID)
    client.expect(OK, OK, failed(b"TOUCH", UNKNOWN_ID))
    client.catch_up()
    client.expect(message(b"a"), message(b"b"))


def test_a_client_that_reads_slowly_before_it_subscribes_gets_no_messages_either() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.stall()
    client.subscribe(ready=10)
    client.send(pub(b"a"))
    client.expect(OK)
    client.catch_up()
    client.expect(message(b"a"))


def test_another_consumer_gets_what_a_slow_one_does_not_read() -> None:
    stage = V2Harness()
    slow, quick = stage.connect(), stage.connect()
    slow.subscribe(ready=10)
    quick.subscribe(ready=10)
    slow.stall()
    quick.send(mpub(b"a", b"b"))
    quick.expect(OK, message(b"a"), message(b"b"))


def test_what_a_lost_client_had_waits_for_its_timeout() -> None:
    stage = V2Harness()
    client, (a, _, _) = consumer_of(stage, b"a", b"b", b"c", ready=3)
    client.send(b"FIN %s\n" % a.id)
    client.vanish()
    other = stage.connect()
    other.subscribe(ready=10)
    other.send(b"FIN %s\n" % UNKNOWN_ID)
    other.expect(failed(b"FIN", UNKNOWN_ID))
    stage.wait(59)
    assert message(b"b") not in other.read()
    other.send(b"NOP\n")
    stage.wait(1.2)
    redelivered = [frame for frame in other.read() if frame.attempts]
    assert sorted(redelivered) == [message(b"b", attempts=2), message(b"c", attempts=2)]


@pytest.mark.parametrize(
    ("rate", "least", "most"), [(0, 2000, 2000), (99, 2000, 2000), (49, 900, 1100), (10, 150, 300)]
)
def test_sampling_keeps_one_percent_more_than_its_rate_and_drops_the_rest(rate: int, least: int, most: int) -> None:
    random.seed(rate)
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(sample_rate=rate))
    client.expect(OK)
    client.subscribe(ready=2500)
    client.send(mpub(*[b"x"] * 2000))
    delivered = client.read().count(message(b"x"))
    assert least <= delivered <= most
    channel = stage.broker.topics["t"].channels["c"]
    assert (channel.depth, channel.in_flight_count) == (0, delivered)


def test_a_paused_channel_delivers_nothing() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(ready=10)
    channel = stage.broker.topics["t"].channels["c"]
    channel.pause()
    client.send(pub(b"a"))
    client.expect(OK)
    channel.unpause()
    stage.turn()
    client.expect(message(b"a"))


def test_several_consumers_share_what_there_is() -> None:
    stage = V2Harness()
    clients = [stage.connect() for _ in range(4)]
    for client in clients:
        client.subscribe(ready=100)
    stage.connect().send(mpub(*[b"x"] * 40))
    for client in clients:
        client.expect(*[message(b"x")] * 10)
