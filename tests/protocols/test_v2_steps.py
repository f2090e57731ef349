"""Commands in steps: what a client sends at once is carried out some at a time, and talk without effect has a limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqtw.protocols.idle_commands import BATCH, REST_SECONDS
from nsqtw.protocols.session import STEP_BYTES, session_of
from nsqtw.protocols.v2_session import STEP_COMMANDS
from tests.protocols.dialogue import END, HEARTBEAT, OK, UNKNOWN_ID, Peer, V2Harness, error, identify, message, pub
from tests.protocols.test_session import Recorded

LIMIT = 1000
TOO_MANY = error(b"E_INVALID too many commands without effect")
FLOODS = {
    "NOP": b"NOP\n",
    "RDY": b"RDY 0\n",
    "failed FIN": b"FIN %s\n" % UNKNOWN_ID,
    "failed REQ": b"REQ %s 0\n" % UNKNOWN_ID,
    "failed TOUCH": b"TOUCH %s\n" % UNKNOWN_ID,
}


def steps(client: Peer, data: bytes, now: float) -> int:
    """In how many steps a session carries out what it is given at once."""
    client.session.receive_data(data, now)
    count = 1
    while client.session.is_behind:
        assert not client.session.wants_data
        client.session.receive_data(b"", now)
        count += 1
    return count


def test_commands_are_carried_out_in_steps_and_in_order() -> None:
    stage = V2Harness()
    client = stage.connect()
    data = b"".join(pub(b"%d" % index, topic=b"t%d" % (index % 10)) for index in range(600))
    assert steps(client, data, stage.now) == 600 // STEP_COMMANDS + 1
    stage.turn()
    client.expect(*[OK] * 600)
    for topic in range(10):
        assert stage.core.reader(topic=f"t{topic}").bodies() == [b"%d" % index for index in range(topic, 600, 10)]


def test_runs_of_publishes_are_one_command() -> None:
    stage = V2Harness()
    assert steps(stage.connect(), pub(b"x") * 10_000, stage.now) == 1


def test_half_a_command_behind_a_step_is_waited_for() -> None:
    stage = V2Harness()
    client = stage.connect()
    half = pub(b"hello")
    assert steps(client, b"NOP\n" * STEP_COMMANDS + half[:-3], stage.now) == 2
    assert client.session.wants_data
    client.send(half[-3:])
    client.expect(OK)


def test_what_comes_while_a_session_is_behind_waits() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.session.receive_data(b"NOP\n" * STEP_COMMANDS, stage.now)
    assert client.session.is_behind
    client.session.receive_data(pub(b"x"), stage.now)
    stage.turn()
    client.expect(OK)


def test_failures_count_for_more() -> None:
    stage = V2Harness(max_idle_commands=0)
    other = stage.connect()
    other.subscribe()
    assert steps(other, b"REQ %s 0\n" % UNKNOWN_ID * STEP_COMMANDS, stage.now) > 4


@pytest.mark.parametrize("flood", FLOODS)
def test_a_client_that_only_talks_is_slowed_and_then_disconnected(flood: str) -> None:
    stage = V2Harness(max_idle_commands=LIMIT)
    client = stage.connect()
    client.subscribe()
    client.send(FLOODS[flood] * LIMIT * 3)
    assert TOO_MANY not in client.read()
    assert not client.session.wants_data
    rests = 0
    while client.connected:
        stage.wait(REST_SECONDS)
        rests += 1
    assert rests >= LIMIT // BATCH - 1
    assert client.read()[-2:] == [TOO_MANY, END]
    assert client.session.refused == "max-idle-commands"


def test_a_client_that_rests_gets_its_heartbeats_and_is_read_from_again() -> None:
    stage = V2Harness(max_idle_commands=LIMIT)
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    client.expect(OK)
    stage.wait(1 - REST_SECONDS / 2)
    client.send(b"NOP\n" * (LIMIT + 1))
    stage.wait(0.6 * REST_SECONDS)
    client.expect(HEARTBEAT)
    assert not client.session.wants_data
    stage.wait(0.6 * REST_SECONDS)
    assert client.session.wants_data
    client.send(pub(b"x"))
    client.expect(OK)


def publish(client: Peer, stage: V2Harness) -> None:
    client.send(pub(b"x"))


def consume(client: Peer, stage: V2Harness) -> None:
    client.send(b"RDY 1\n")
    client.read()
    stage.connect().send(pub(b"x"))
    (delivered,) = client.expect(message(b"x"))
    client.send(b"FIN %s\n" % delivered.id)


@pytest.mark.parametrize("effect", [publish, consume])
def test_an_effect_begins_the_count_anew(effect: Callable[[Peer, V2Harness], None]) -> None:
    stage = V2Harness(max_idle_commands=LIMIT)
    client = stage.connect()
    client.subscribe()
    for _ in range(5):
        client.send(b"NOP\n" * (LIMIT - 10))
        effect(client, stage)
    assert client.session.wants_data
    assert END not in client.read()


def test_talk_at_a_low_rate_is_no_flood() -> None:
    stage = V2Harness(max_idle_commands=LIMIT)
    client = stage.connect()
    for _ in range(4 * LIMIT // 50):
        client.send(b"NOP\n" * 50)
        stage.wait(1.0)
    assert client.connected


def test_without_a_limit_a_client_may_talk() -> None:
    stage = V2Harness(max_idle_commands=0)
    client = stage.connect()
    assert steps(client, b"NOP\n" * 50_000, stage.now) > 50_000 // STEP_COMMANDS
    client.send(pub(b"x"))
    client.expect(OK)


# -- sessions of plugins


def pieces(session: Recorded) -> list[bytes]:
    return [given[1] for given in session.told if given[0] == "receive_data"]


class Willing(Recorded):
    """Wants data, and goes on."""

    closing = False
    wants_data = True


def test_a_session_of_another_class_gets_what_was_read_in_pieces() -> None:
    recorded = Willing()
    session = session_of(recorded)
    chunk = bytes(range(256)) * (STEP_BYTES // 100)
    session.receive_data(chunk, 1.0)
    assert session.is_behind
    assert not session.wants_data
    session.receive_data(b"more", 1.0)
    session.receive_end(1.0)
    while session.is_behind:
        session.receive_data(b"", 2.0)
    assert b"".join(pieces(recorded)) == chunk + b"more"
    assert max(map(len, pieces(recorded))) == STEP_BYTES
    assert recorded.told[-1] == ("receive_end", 2.0)
    assert session.wants_data == 1


def test_a_session_of_another_class_gets_no_piece_that_it_does_not_want() -> None:
    recorded = Willing()
    session = session_of(recorded)
    session.receive_data(bytes(3 * STEP_BYTES), 1.0)
    recorded.wants_data = False
    assert not session.is_behind
    recorded.wants_data = True
    assert session.is_behind
    session.connection_lost(2.0)
    assert not session.is_behind
