"""Heartbeats, and clients that are silent for too long."""

from __future__ import annotations

import pytest

from tests.protocols.dialogue import (
    CLOSE_WAIT,
    END,
    HEARTBEAT,
    OK,
    UNKNOWN_ID,
    Peer,
    V2Harness,
    dpub,
    error,
    identify,
    message,
    mpub,
    pub,
)


def identified(stage: V2Harness, interval_ms: int) -> Peer:
    client = stage.connect()
    client.send(identify(heartbeat_interval=interval_ms))
    client.expect(OK)
    return client


# -- heartbeats


def test_heartbeats_come_every_30_seconds_from_the_connection_on() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.wait(29.9)
    client.expect()
    stage.wait(0.2)
    client.expect(HEARTBEAT)
    client.send(b"NOP\n")
    stage.wait(29.8)
    client.expect()
    stage.wait(0.2)
    client.expect(HEARTBEAT)


def test_the_first_identify_starts_them_anew() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.wait(20)
    client.send(identify())
    client.expect(OK)
    stage.wait(29.9)
    client.expect()
    stage.wait(0.2)
    client.expect(HEARTBEAT)


def test_a_shorter_interval_and_a_longer_one() -> None:
    stage = V2Harness()
    short, long = identified(stage, 1000), identified(stage, 60_000)
    beats = 0
    for _ in range(59):
        stage.wait(1.0)
        beats += short.read().count(HEARTBEAT)
        short.send(b"NOP\n")
    assert 58 <= beats <= 59
    long.expect()
    stage.wait(1.1)
    long.expect(HEARTBEAT)


@pytest.mark.parametrize("state", ["init", "subscribed", "closing"])
def test_they_come_in_every_state(state: str) -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    if state != "init":
        client.subscribe(ready=1)
    if state == "closing":
        client.send(b"CLS\n")
        client.expect(CLOSE_WAIT)
    for _ in range(3):
        stage.wait(1.01)
        client.expect(HEARTBEAT)
        client.send(b"NOP\n")


def test_they_come_whatever_else_is_sent_and_received() -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    client.subscribe(ready=100)
    beats = 0
    for _ in range(30):
        stage.wait(0.101)
        client.send(pub(b"x"))
        frames = client.read()
        assert (frames.count(OK), frames.count(message(b"x"))) == (1, 1)
        beats += frames.count(HEARTBEAT)
    assert beats == 3


def test_they_come_to_a_client_that_reads_slowly() -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    client.stall()
    stage.wait(1.01)
    client.expect(HEARTBEAT)


def test_they_come_while_a_birth_is_being_saved() -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    stage.saves_held = True
    client.send(b"SUB t c\n")
    stage.wait(1.01)
    client.expect(HEARTBEAT)
    stage.saves_held = False
    stage.turn()
    client.expect(OK)


def test_none_come_when_they_are_turned_off_and_then_nothing_is_too_long() -> None:
    stage = V2Harness()
    client = identified(stage, -1)
    for _ in range(10):
        stage.wait(1000)
    client.expect()
    client.send(pub(b"x"))
    client.expect(OK)


def test_without_heartbeats_there_is_no_sub() -> None:
    client = identified(V2Harness(), -1)
    client.send(b"SUB\n")
    client.expect(error(b"E_INVALID cannot SUB with heartbeats disabled"), END)


def test_none_come_to_whom_is_gone() -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    client.vanish()
    stage.wait(1.01)
    stage.wait(1.01)
    assert client.session.data_to_send() == []


# -- silence


def test_two_intervals_of_silence_close_the_connection_without_a_word() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.wait(30)
    client.expect(HEARTBEAT)
    stage.wait(29.9)
    client.expect()
    stage.wait(0.2)
    client.expect(END)


@pytest.mark.parametrize(
    "sign",
    [b"NOP\n", b"RDY 1\n", b"FIN %s\n" % UNKNOWN_ID, b"TOUCH %s\n" % UNKNOWN_ID, pub(b"x"), mpub(b"x"), dpub(1, b"x")],
)
def test_any_command_is_a_sign_of_life(sign: bytes) -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    client.subscribe()
    for _ in range(5):
        stage.wait(1.9)
        client.send(sign)
    assert END not in client.read()
    stage.wait(1.9)
    assert END not in client.read()
    stage.wait(0.2)
    assert client.read()[-1] == END


def test_half_a_line_is_no_sign_of_life() -> None:
    stage = V2Harness()
    client = identified(stage, 10_000)
    for piece in (b"N", b"O"):
        stage.wait(9)
        client.send(piece)
    client.expect(HEARTBEAT)
    stage.wait(2.1)
    client.expect(END)


@pytest.mark.parametrize(
    ("whole", "text"),
    [
        (pub(b"abcdefgh"), b"E_BAD_MESSAGE PUB failed to read message body"),
        (dpub(0, b"abcdefgh"), b"E_BAD_MESSAGE DPUB failed to read message body"),
        (mpub(b"abcdefgh"), b"E_BAD_MESSAGE MPUB failed to read message body"),
        (mpub(b"a", b"b")[:-1], b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
        (identify(client_id="abc"), b"E_BAD_BODY IDENTIFY failed to read body"),
    ],
)
def test_a_body_that_trickles_in_has_the_same_deadline_as_its_line(whole: bytes, text: bytes) -> None:
    stage = V2Harness()
    client = identified(stage, 10_000)
    head, rest = whole[:-8], whole[-8:-1]
    stage.wait(5)
    client.send(head)
    for at in range(len(rest)):
        stage.wait(2)
        client.send(rest[at : at + 1])
    assert set(client.read()) == {HEARTBEAT}
    stage.wait(0.9)
    client.expect()
    stage.wait(0.2)
    client.expect(error(text), END)


def test_the_deadline_counts_from_the_last_command_not_from_the_last_bytes() -> None:
    stage = V2Harness()
    client = identified(stage, 10_000)
    stage.wait(15)
    client.send(pub(b"a") + b"PUB t\n")
    client.expect(HEARTBEAT, OK)
    stage.wait(19.9)
    client.expect(HEARTBEAT)
    stage.wait(0.2)
    client.expect(error(b"E_BAD_MESSAGE PUB failed to read message body size"), END)


def test_a_subscriber_that_is_silent_leaves_what_it_has_to_the_others_after_its_timeout() -> None:
    stage = V2Harness()
    silent, other = identified(stage, 1000), stage.connect()
    silent.subscribe(ready=1)
    other.subscribe()
    other.send(pub(b"x"))
    silent.expect(message(b"x"))
    stage.wait(1.01)
    stage.wait(1.01)
    silent.expect(HEARTBEAT, END)
    other.send(b"RDY 1\n")
    other.expect(OK)
    stage.wait(57)
    other.expect(HEARTBEAT)
    stage.wait(1.2)
    assert message(b"x", attempts=2) in other.read()


def test_a_birth_that_takes_long_to_save_does_not_make_a_client_silent() -> None:
    stage = V2Harness()
    client = identified(stage, 1000)
    stage.saves_held = True
    client.send(b"SUB t c\n")
    for _ in range(5):
        stage.wait(1.01)
        client.expect(HEARTBEAT)
    stage.saves_held = False
    stage.turn()
    client.expect(OK)
    stage.wait(1.9)
    client.send(b"NOP\n")
    assert set(client.read()) == {HEARTBEAT}
