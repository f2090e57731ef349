"""Commands that come slowly or in part, births without end, and what a session keeps meanwhile."""

from __future__ import annotations

import pytest

from nsqtw.core.quotas import CREATIONS_PER_TURN
from tests.protocols.dialogue import END, OK, Peer, V2Harness, error, identify, int32, mpub, pub, sized

SHORT_BODY = error(b"E_BAD_MESSAGE PUB failed to read message body")
HALF = b"PUB t\n" + int32(100_000)


def without_heartbeats(stage: V2Harness) -> Peer:
    client = stage.connect()
    client.send(identify(heartbeat_interval=-1))
    client.expect(OK)
    return client


def drip(stage: V2Harness, client: Peer, piece: bytes, times: int, seconds: float) -> None:
    for _ in range(times):
        if client.connected:
            client.send(piece)
            stage.wait(seconds)


def frames_but_heartbeats(client: Peer) -> list[object]:
    return [frame for frame in client.read() if frame.data != b"_heartbeat_"]


def test_a_slow_link_has_all_the_time_it_needs() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(HALF)
    drip(stage, client, b"x" * 1000, 100, 3)
    assert frames_but_heartbeats(client) == [OK]
    assert stage.core.topic().message_bytes == 100_000


def test_a_slow_mpub_too() -> None:
    stage = V2Harness()
    client = stage.connect()
    whole = mpub(*[b"x" * 20] * 5000)
    for start in range(0, len(whole), 2000):
        client.send(whole[start : start + 2000])
        stage.wait(4)
    assert frames_but_heartbeats(client) == [OK]


def test_a_slow_link_that_stops_is_not_waited_for() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(HALF)
    drip(stage, client, b"x" * 2000, 30, 3)
    assert client.connected
    stage.wait(61)
    stage.wait(61)
    assert frames_but_heartbeats(client) == [SHORT_BODY, END]


def test_without_heartbeats_half_a_command_is_waited_for_as_long_as_a_body() -> None:
    stage = V2Harness()
    client = without_heartbeats(stage)
    stage.wait(100_000)
    client.send(pub(b"x") + HALF)
    client.expect(OK)
    stage.wait(29)
    client.expect()
    stage.wait(2)
    client.expect(SHORT_BODY, END)


@pytest.mark.parametrize(
    "half", [b"PU", b"PUB t\n", b"PUB t\n\0\0", HALF, b"MPUB t\n" + int32(100) + int32(5) + sized(b"x")]
)
def test_whatever_it_is_half_of(half: bytes) -> None:
    stage = V2Harness()
    client = without_heartbeats(stage)
    client.send(half)
    stage.wait(31)
    assert client.read()[-1] == END


def test_without_heartbeats_a_drip_is_not_waited_for_and_a_slow_link_is() -> None:
    stage = V2Harness()
    dripping, slow = without_heartbeats(stage), without_heartbeats(stage)
    dripping.send(HALF)
    slow.send(HALF)
    for _ in range(100):
        if dripping.connected:
            dripping.send(b"x")
        slow.send(b"x" * 1000)
        stage.wait(1)
    dripping.expect(SHORT_BODY, END)
    slow.expect(OK)


def test_without_heartbeats_whole_commands_may_come_at_any_time() -> None:
    stage = V2Harness()
    client = without_heartbeats(stage)
    for _ in range(5):
        client.send(pub(b"x"))
        client.expect(OK)
        stage.wait(10_000)
    assert client.connected


def test_without_a_body_timeout_half_a_command_may_take_any_time() -> None:
    stage = V2Harness(body_timeout=0.0)
    client = without_heartbeats(stage)
    client.send(HALF)
    stage.wait(100_000)
    assert client.connected


def test_a_client_that_leaves_replies_unread_is_not_silent() -> None:
    """It is we who do not read on; whether it reads at all the edge sees."""
    stage = V2Harness()
    client = stage.connect()
    client.stall()
    client.write(*[pub(*[b"x"] * 100)] * 20)
    stage.turn()
    for _ in range(5):
        stage.wait(50)
    assert client.connected
    client.catch_up()
    assert frames_but_heartbeats(client).count(OK) == 2000


def test_what_a_session_keeps_is_told_and_given_up() -> None:
    stage = V2Harness()
    client = stage.connect()
    assert client.session.unfinished_bytes == 0
    client.send(pub(b"x") + HALF + b"x" * 50_000)
    assert client.session.unfinished_bytes == 50_000
    client.shut()
    client.expect(OK, SHORT_BODY, END)
    assert client.session.unfinished_bytes == 0


def test_births_without_end_leave_turns_for_others() -> None:
    stage = V2Harness()
    greedy, other = stage.connect(), stage.connect()
    count = 10 * CREATIONS_PER_TURN
    greedy.write(b"".join(pub(b"x", topic=b"t%d" % number) for number in range(count)))
    greedy.exchange()
    assert len(stage.broker.topics) == CREATIONS_PER_TURN
    assert not greedy.session.wants_data
    other.send(pub(b"y"))
    stage.wait(0)
    for _ in range(10):
        stage.wait(0.01)
    assert len(stage.broker.topics) == count + 1
    assert greedy.session.wants_data
    greedy.expect(*[OK] * count)
    other.expect(OK)


def test_births_by_mpub_too() -> None:
    stage = V2Harness()
    client = stage.connect()
    count = 3 * CREATIONS_PER_TURN
    client.write(b"".join(mpub(b"x", topic=b"t%d" % number) for number in range(count)))
    client.exchange()
    assert len(stage.broker.topics) == CREATIONS_PER_TURN
    for _ in range(5):
        stage.wait(0.01)
    client.expect(*[OK] * count)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (pub(b"x", topic=b"new"), b"E_PUB_FAILED PUB failed topics exceed limit of 1"),
        (mpub(b"x", topic=b"new"), b"E_MPUB_FAILED MPUB failed topics exceed limit of 1"),
        (b"DPUB new 1\n" + sized(b"x"), b"E_DPUB_FAILED DPUB failed topics exceed limit of 1"),
        (b"SUB new c\n", b"E_SUB_FAILED SUB failed topics exceed limit of 1"),
        (b"SUB t d\n", b"E_SUB_FAILED SUB failed channels exceed limit of 1"),
    ],
)
def test_more_than_there_may_be(command: bytes, text: bytes) -> None:
    stage = V2Harness(max_topics=1, max_channels=1)
    stage.connect().subscribe()
    client = stage.connect()
    client.send(pub(b"x"))
    client.expect(OK)
    client.send(command)
    client.expect(error(text), END)
