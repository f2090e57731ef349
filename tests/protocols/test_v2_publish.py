"""PUB, MPUB and DPUB: what they refuse, when they answer, and what becomes of failures."""

from __future__ import annotations

import pytest

from nsqtw.protocols.v2_session import MAX_UNREAD_REPLIES
from tests.protocols.dialogue import (
    CLOSE_WAIT,
    END,
    HEARTBEAT,
    OK,
    UNKNOWN_ID,
    Frame,
    V2Harness,
    dpub,
    error,
    identify,
    int32,
    message,
    mpub,
    pub,
    response,
    sized,
)

MPUB = b"MPUB t\n"
TOTAL = int32(100)


def not_in_flight(verb: bytes) -> Frame:
    return error(b"E_%s_FAILED %s %s failed ID not in flight" % (verb, verb, UNKNOWN_ID))


# -- what is refused (names: test_v2, interrupted bodies: test_v2)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
        (b"PUB t\n" + int32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (b"PUB t\n" + int32(-1), b"E_BAD_MESSAGE PUB invalid message body size -1"),
        (b"PUB t\n" + int32(-(2**31)), b"E_BAD_MESSAGE PUB invalid message body size -2147483648"),
        (b"PUB t\n" + int32(11), b"E_BAD_MESSAGE PUB message too big 11 > 10"),
        (b"PUB t\n" + int32(2**31 - 1), b"E_BAD_MESSAGE PUB message too big 2147483647 > 10"),
        (b"DPUB\n", b"E_INVALID DPUB insufficient number of parameters"),
        (b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
        (b"DPUB $\n", b"E_INVALID DPUB insufficient number of parameters"),
        (b"DPUB t x\n", b"E_INVALID DPUB could not parse timeout x"),
        (b"DPUB t -1\n", b"E_INVALID DPUB could not parse timeout -1"),
        (b"DPUB t +1\n", b"E_INVALID DPUB could not parse timeout +1"),
        (b"DPUB t 1.5\n", b"E_INVALID DPUB could not parse timeout 1.5"),
        (b"DPUB t 1s \n", b"E_INVALID DPUB could not parse timeout 1s"),
        (b"DPUB t \xff\x00\n", b"E_INVALID DPUB could not parse timeout \xff\x00"),
        (b"DPUB t 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        (b"DPUB t 9223372036854\n", b"E_INVALID DPUB timeout 9223372036854 out of range 0-3600000"),
        (b"DPUB t 9223372036855\n", b"E_INVALID DPUB timeout 9223372036855 out of range 0-3600000"),
        (b"DPUB t 18446744073709551615\n", b"E_INVALID DPUB timeout 18446744073709551615 out of range 0-3600000"),
        (b"DPUB t 18446744073713151617\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        (b"DPUB t 0\n" + int32(0), b"E_BAD_MESSAGE DPUB invalid message body size 0"),
        (b"DPUB t 0\n" + int32(-1), b"E_BAD_MESSAGE DPUB invalid message body size -1"),
        (b"DPUB t 0\n" + int32(11), b"E_BAD_MESSAGE DPUB message too big 11 > 10"),
        (b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
        (MPUB + int32(0), b"E_BAD_BODY MPUB invalid body size 0"),
        (MPUB + int32(-1), b"E_BAD_BODY MPUB invalid body size -1"),
        (MPUB + int32(101), b"E_BAD_BODY MPUB body too big 101 > 100"),
        (MPUB + TOTAL + int32(0), b"E_BAD_BODY MPUB invalid message count 0"),
        (MPUB + TOTAL + int32(-1), b"E_BAD_BODY MPUB invalid message count -1"),
        (MPUB + TOTAL + int32(20), b"E_BAD_BODY MPUB invalid message count 20"),
        (MPUB + TOTAL + int32(1) + int32(0), b"E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
        (MPUB + TOTAL + int32(2) + sized(b"a") + int32(-7), b"E_BAD_MESSAGE MPUB invalid message(1) body size -7"),
        (MPUB + TOTAL + int32(1) + int32(11), b"E_BAD_MESSAGE MPUB message too big 11 > 10"),
    ],
)
def test_what_is_refused(sent: bytes, text: bytes) -> None:
    stage = V2Harness(max_msg_size=10, max_body_size=100)
    client = stage.connect()
    client.send(sent)
    client.expect(error(text), END)
    assert sum(topic.message_count for topic in stage.broker.topics.values()) == 0


def test_the_largest_bodies_are_taken() -> None:
    stage = V2Harness(max_msg_size=10, max_body_size=100)
    client = stage.connect()
    client.send(pub(b"x" * 10), dpub(0, b"x" * 10), mpub(*[b"x" * 10] * 6), mpub(*[b"x"] * 19))
    client.expect(OK, OK, OK, OK)
    assert stage.broker.topics["t"].depth == 27


def test_an_mpub_with_a_bad_message_publishes_none_of_it() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(MPUB + TOTAL + int32(3) + sized(b"a") + sized(b"b") + int32(0))
    client.expect(error(b"E_BAD_MESSAGE MPUB invalid message(2) body size 0"), END)
    assert stage.broker.topics["t"].depth == 0


def test_a_bad_body_of_an_mpub_leaves_the_topic_created_and_of_a_pub_or_dpub_not() -> None:
    stage = V2Harness()
    for verb, topic in ((b"PUB", b"p"), (b"DPUB", b"d 1"), (b"MPUB", b"m")):
        client = stage.connect()
        client.send(verb + b" " + topic + b"\n" + int32(0))
        assert client.read()[-1] == END
    assert list(stage.broker.topics) == ["m"]


def test_the_total_of_an_mpub_is_not_compared_with_what_is_in_it() -> None:
    stage = V2Harness()
    client = stage.connect()
    two = int32(2) + sized(b"a") + sized(b"bc")
    client.send(MPUB + int32(1) + two + MPUB + int32(5000) + two + pub(b"d"))
    client.expect(OK, OK, OK)
    assert stage.broker.topics["t"].depth == 5


# -- what is published


def test_every_body_arrives_as_it_was_sent() -> None:
    stage = V2Harness()
    client, reader = stage.connect(), stage.connect()
    reader.subscribe(ready=10)
    bodies = [bytes(range(256)), b"\n", b"NOP\n", b"\0", b"x" * 70000]
    client.send(pub(*bodies[:2]) + mpub(*bodies[2:]))
    client.expect(OK, OK, OK)
    messages = reader.expect(*map(message, bodies))
    assert len({m.id for m in messages}) == len(bodies)
    assert all(m.id == m.id.lower() and int(m.id, 16) >> 53 == 617 for m in messages)


def test_publishes_are_counted_for_the_client_by_topic() -> None:
    stage = V2Harness()
    client = stage.connect()
    (seen,) = stage.broker.clients.values()
    client.send(pub(b"a", b"b") + mpub(b"c", b"d", b"e") + dpub(5, b"f") + pub(b"g", topic=b"u"))
    client.expect(*[OK] * 5)
    assert seen.pub_counts == {"t": 6, "u": 1}


def test_a_deferred_message_comes_after_its_delay() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(ready=10)
    client.send(dpub(1500, b"later"), dpub(0, b"now"), dpub(b"", b"empty is 0"))
    client.expect(OK, OK, OK, message(b"now"), message(b"empty is 0"))
    stage.wait(1.4)
    client.expect()
    stage.wait(0.2)
    client.expect(message(b"later"))


def test_publishing_may_have_a_longest_delay_of_its_own() -> None:
    """Of days; REQ keeps its own bound."""
    stage = V2Harness(max_req_timeout=10.0, max_defer_timeout=240 * 3600.0)
    client = stage.connect()
    client.subscribe(ready=10)
    client.send(dpub(864_000_000, b"x"))
    client.expect(OK)
    client.send(dpub(864_000_001, b"x"))
    client.expect(error(b"E_INVALID DPUB timeout 864000001 out of range 0-864000000"), END)


def test_the_longest_delay_is_taken() -> None:
    stage = V2Harness(max_req_timeout=10.0)
    client = stage.connect()
    client.subscribe(ready=10)
    client.send(dpub(10_000, b"x"))
    client.expect(OK)
    stage.wait(9.9)
    client.expect()
    stage.wait(0.2)
    client.expect(message(b"x"))
    client.send(dpub(10_001, b"x"))
    client.expect(error(b"E_INVALID DPUB timeout 10001 out of range 0-10000"), END)


@pytest.mark.parametrize(
    "delay",
    [
        pytest.param(b"18446744073709551616", id="2^64 ms is 0"),
        pytest.param(b"288230376151711744", id="2^58 ms is 2^64 ns, and so 0"),
        pytest.param(b"18446744073710", id="2^64 ns and 448,384 more"),
    ],
)
def test_delays_wrap_around(delay: bytes) -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(ready=10)
    client.send(dpub(delay, b"x"))
    stage.wait(0.1)
    client.expect(OK, message(b"x"))


# -- owed replies


def test_nothing_is_answered_or_delivered_before_the_commit() -> None:
    stage = V2Harness()
    client, reader = stage.connect(), stage.connect()
    reader.subscribe(ready=10)
    stage.commits_held = True
    client.send(pub(b"a", b"b"), mpub(b"c"), dpub(0, b"d"))
    client.expect()
    reader.expect()
    stage.commits_held = False
    stage.turn()
    client.expect(OK, OK, OK, OK)
    reader.expect(*map(message, (b"a", b"b", b"c", b"d")))


def test_replies_wait_for_what_is_owed_before_them() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe()
    stage.commits_held = True
    client.send(b"FIN %s\n" % UNKNOWN_ID + pub(b"a", b"b") + b"REQ %s 0\n" % UNKNOWN_ID + pub(b"c") + b"CLS\n")
    client.expect(not_in_flight(b"FIN"))
    stage.commits_held = False
    stage.turn()
    client.expect(OK, OK, not_in_flight(b"REQ"), OK, CLOSE_WAIT)


def test_the_answer_to_identify_and_sub_wait_for_what_is_owed_before_them() -> None:
    stage = V2Harness()
    stage.connect().subscribe()
    client = stage.connect()
    stage.commits_held = True
    client.send(pub(b"a") + identify() + b"SUB t c\n" + pub(b"b"))
    client.expect()
    stage.commits_held = False
    stage.turn()
    client.expect(OK, OK, OK, OK)


def test_a_birth_that_is_saved_before_an_older_publish_is_committed() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.commits_held = True
    client.send(pub(b"a", topic=b"u") + b"SUB t c\nRDY 1\n" + pub(b"b"))
    client.expect()
    stage.commits_held = False
    stage.turn()
    client.expect(OK, OK, OK, message(b"b"))


def test_messages_and_heartbeats_pass_while_a_publish_is_owed() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000), pub(b"a", b"b"))
    client.expect(OK, OK, OK)
    client.subscribe()
    stage.commits_held = True
    client.send(pub(b"c") + b"RDY 1\n")
    (a,) = client.expect(message(b"a"))
    stage.wait(1.1)
    client.expect(HEARTBEAT)
    client.send(b"FIN %s\n" % a.id)
    (b,) = client.expect(message(b"b"))
    stage.commits_held = False
    stage.turn()
    client.expect(OK)
    client.send(b"FIN %s\n" % b.id)
    client.expect(message(b"c"))


def test_a_client_whose_publish_takes_long_is_not_taken_for_silent() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    client.expect(OK)
    stage.commits_held = True
    client.send(pub(b"a"))
    for _ in range(5):
        stage.wait(1.01)
        client.expect(HEARTBEAT)
    stage.commits_held = False
    stage.turn()
    client.expect(OK)
    client.send(pub(b"b"))
    client.expect(OK)


def test_an_error_waits_for_what_is_owed_before_it_and_then_ends_the_connection() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.commits_held = True
    client.send(pub(b"a") + b"PUB\n" + pub(b"never"))
    client.expect()
    stage.commits_held = False
    stage.turn()
    client.expect(OK, error(b"E_INVALID PUB insufficient number of parameters"), END)
    assert stage.broker.topics["t"].depth == 1


# -- failures


@pytest.mark.parametrize(
    ("sent", "verb"), [(pub(b"x"), b"PUB"), (pub(b"x", b"y"), b"PUB"), (mpub(b"x"), b"MPUB"), (dpub(5, b"x"), b"DPUB")]
)
def test_a_failed_commit_is_the_error_and_the_end(sent: bytes, verb: bytes) -> None:
    stage = V2Harness()
    client, reader = stage.connect(), stage.connect()
    reader.subscribe(ready=10)
    (seen, _) = stage.broker.clients.values()
    with stage.failing_commits("write of topic t: no space left on device", "t"):
        client.send(sent)
        client.expect(error(b"E_%s_FAILED %s failed write of topic t: no space left on device" % (verb, verb)), END)
    assert seen.pub_counts == {}
    stage.wait(1)
    reader.expect()
    assert stage.broker.topics["t"].message_count == 0


def test_nothing_follows_the_error_of_a_failed_commit() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(topic=b"other")
    with stage.failing_commits("no", "bad"):
        client.send(
            pub(b"a", topic=b"good")
            + b"FIN %s\n" % UNKNOWN_ID
            + pub(b"b", topic=b"bad")
            + pub(b"c", topic=b"good")
            + b"FIN %s\n" % UNKNOWN_ID
            + b"CLS\n"
            + b"X\n"
        )
    client.expect(OK, not_in_flight(b"FIN"), error(b"E_PUB_FAILED PUB failed no"), END)


def test_a_failed_commit_concerns_only_its_topic() -> None:
    stage = V2Harness()
    one, two = stage.connect(), stage.connect()
    with stage.failing_commits("no", "bad"):
        one.write(pub(b"a", topic=b"bad"))
        two.send(pub(b"b", topic=b"good"))
    one.expect(error(b"E_PUB_FAILED PUB failed no"), END)
    two.expect(OK)


def test_publishing_goes_on_when_the_cause_is_gone() -> None:
    stage = V2Harness()
    first, second = stage.connect(), stage.connect()
    second.subscribe(ready=10)
    with stage.failing_commits("no", "t"):
        first.send(pub(b"a"))
    first.expect(error(b"E_PUB_FAILED PUB failed no"), END)
    second.send(pub(b"b"))
    second.expect(OK, message(b"b"))


@pytest.mark.parametrize(("sent", "verb"), [(pub(b"x"), b"PUB"), (mpub(b"x"), b"MPUB"), (dpub(5, b"x"), b"DPUB")])
def test_a_topic_that_is_going_away_takes_nothing(sent: bytes, verb: bytes) -> None:
    stage = V2Harness()
    owed, late = stage.connect(), stage.connect()
    stage.saves_held = stage.commits_held = True
    owed.send(sent)
    stage.broker.delete_topic("t")
    late.send(sent)
    for client in (owed, late):
        client.expect(error(b"E_%s_FAILED %s failed exiting" % (verb, verb)), END)
    stage.saves_held = stage.commits_held = False
    stage.turn()
    after = stage.connect()
    after.send(sent)
    after.expect(OK)


@pytest.mark.parametrize("sent", [pub(b"x"), mpub(b"x", b"y"), dpub(5, b"x")])
def test_after_its_topic_was_deleted_a_client_publishes_to_the_new_one(sent: bytes) -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(sent)
    client.expect(OK)
    old = stage.broker.topics["t"]
    stage.broker.delete_topic("t")
    stage.turn()
    client.send(sent)
    client.expect(OK)
    new = stage.broker.topics["t"]
    assert new is not old
    assert new.depth == old.message_count


def test_a_client_that_publishes_to_two_topics_in_turn_mixes_nothing_up() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(pub(b"1", topic=b"one") + pub(b"2", topic=b"two") + pub(b"3", b"4", topic=b"one"))
    client.expect(OK, OK, OK, OK)
    assert {name: topic.depth for name, topic in stage.broker.topics.items()} == {"one": 3, "two": 1}


def test_a_connection_lost_while_a_publish_is_owed_does_not_take_it_back() -> None:
    stage = V2Harness()
    client, reader = stage.connect(), stage.connect()
    reader.subscribe(ready=10)
    stage.commits_held = True
    client.send(pub(b"a") + b"PUB\n")
    client.vanish()
    stage.commits_held = False
    stage.turn()
    client.expect()
    assert client.session.data_to_send() == []
    reader.expect(message(b"a"))


# -- a client that does not read


@pytest.mark.parametrize(
    ("chunk", "reply", "count"),
    [
        pytest.param(pub(b"x"), OK, 1, id="single publishes"),
        pytest.param(pub(*[b"x"] * 500), OK, 500, id="runs of publishes"),
        pytest.param(mpub(b"x", b"y"), OK, 1, id="MPUB"),
        pytest.param(b"FIN %s\n" % UNKNOWN_ID * 500, not_in_flight(b"FIN"), 500, id="runs of FIN that fail"),
        pytest.param(b"TOUCH %s\n" % UNKNOWN_ID, not_in_flight(b"TOUCH"), 1, id="TOUCH that fails"),
    ],
)
def test_a_client_that_does_not_read_its_replies_is_not_read_from(chunk: bytes, reply: Frame, count: int) -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(topic=b"other")
    client.stall()
    for _ in range(2 * MAX_UNREAD_REPLIES // count):
        client.send(chunk)
    assert not client.session.wants_data
    replies = client.read()
    assert set(replies) == {reply}
    assert MAX_UNREAD_REPLIES <= len(replies) < MAX_UNREAD_REPLIES + count
    client.catch_up()
    assert client.session.wants_data
    assert len(replies) + len(client.read()) == 2 * MAX_UNREAD_REPLIES


def test_a_client_that_reads_may_be_owed_any_number_of_replies() -> None:
    client = V2Harness().connect()
    client.send(*[pub(b"x")] * (2 * MAX_UNREAD_REPLIES))
    client.expect(*[response(b"OK")] * (2 * MAX_UNREAD_REPLIES))


# -- a publish that takes longer than a turn (class fsync)


def fsync_stage() -> V2Harness:
    stage = V2Harness(durability="fsync")
    stage.core.lands_at_once = False
    return stage


def test_a_client_whose_publish_waits_for_the_medium_is_not_read_from() -> None:
    stage = fsync_stage()
    client, other = stage.connect(), stage.connect()
    other.subscribe(ready=10)
    client.write(pub(b"a") + pub(b"b"), pub(b"c"))
    stage.turn()
    assert not client.session.wants_data
    client.expect()
    stage.core.land()
    stage.turn()
    client.expect(OK, OK)
    other.expect(message(b"a"), message(b"b"))
    stage.core.land()
    stage.turn()
    client.expect(OK)
    assert client.session.wants_data


def test_heartbeats_pass_and_the_client_does_not_count_as_silent_meanwhile() -> None:
    stage = fsync_stage()
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    client.expect(OK)
    client.send(pub(b"a"))
    for _ in range(5):
        stage.wait(1.0)
        client.expect(HEARTBEAT)
    stage.core.land()
    stage.turn()
    client.expect(OK)


def test_a_flight_that_fails_ends_the_session_with_the_error() -> None:
    stage = fsync_stage()
    client = stage.connect()
    client.send(pub(b"a"))
    with stage.failing_commits("no space", "t"):
        stage.core.land()
        stage.turn()
    client.expect(error(b"E_PUB_FAILED PUB failed no space"), END)


def test_a_client_that_left_is_not_missed_when_its_flight_lands() -> None:
    stage = fsync_stage()
    client, other = stage.connect(), stage.connect()
    client.send(pub(b"a"))
    client.vanish()
    stage.core.land()
    other.subscribe(ready=1)
    other.expect(message(b"a"))
