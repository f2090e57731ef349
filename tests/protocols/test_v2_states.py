"""Which command is allowed in which state, and what it answers there."""

from __future__ import annotations

import pytest

from tests.protocols.dialogue import (
    CLOSE_WAIT,
    END,
    OK,
    UNKNOWN_ID,
    Frame,
    Peer,
    V2Harness,
    dpub,
    error,
    identify,
    mpub,
    pub,
    sized,
)

STATES = {"init": 0, "subscribed": 3, "closing": 4}


def client_in(state: str) -> tuple[V2Harness, Peer]:
    stage = V2Harness()
    client = stage.connect()
    if state != "init":
        client.subscribe()
    if state == "closing":
        client.send(b"CLS\n")
        client.expect(CLOSE_WAIT)
    return stage, client


def not_now(verb: str) -> list[Frame]:
    return [error(b"E_INVALID cannot %s in current state" % verb.encode()), END]


def not_in_flight(verb: str) -> list[Frame]:
    return [error(b"E_%s_FAILED %s %s failed ID not in flight" % (verb.encode(), verb.encode(), UNKNOWN_ID))]


#   command     well-formed                         init                subscribed              closing
TABLE: dict[str, tuple[bytes, list[Frame], list[Frame], list[Frame]]] = {
    "IDENTIFY": (identify(), [OK], not_now("IDENTIFY"), not_now("IDENTIFY")),
    "AUTH": (
        b"AUTH\n" + sized(b"x"),
        [error(b"E_AUTH_DISABLED AUTH disabled"), END],
        not_now("AUTH"),
        not_now("AUTH"),
    ),
    "SUB": (b"SUB t c\n", [OK], not_now("SUB"), not_now("SUB")),
    "RDY": (b"RDY 1\n", not_now("RDY"), [], []),
    "FIN": (b"FIN %s\n" % UNKNOWN_ID, not_now("FIN"), not_in_flight("FIN"), not_in_flight("FIN")),
    "REQ": (b"REQ %s 0\n" % UNKNOWN_ID, not_now("REQ"), not_in_flight("REQ"), not_in_flight("REQ")),
    "TOUCH": (b"TOUCH %s\n" % UNKNOWN_ID, not_now("TOUCH"), not_in_flight("TOUCH"), not_in_flight("TOUCH")),
    "CLS": (b"CLS\n", not_now("CLS"), [CLOSE_WAIT], not_now("CLS")),
    "NOP": (b"NOP\n", [], [], []),
    "PUB": (pub(b"x"), [OK], [OK], [OK]),
    "MPUB": (mpub(b"x"), [OK], [OK], [OK]),
    "DPUB": (dpub(1, b"x"), [OK], [OK], [OK]),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", TABLE)
def test_every_command_in_every_state(verb: str, state: str) -> None:
    sent, *replies = TABLE[verb]
    wanted = replies[list(STATES).index(state)]
    _, client = client_in(state)
    client.send(sent)
    client.expect(*wanted)
    assert client.connected == (END not in wanted)
    if client.connected:
        client.send(pub(b"still there", topic=b"u"))
        client.expect(OK)


@pytest.mark.parametrize("state", ["subscribed", "closing"])
@pytest.mark.parametrize("line", [b"IDENTIFY\n", b"AUTH\n", b"AUTH too many\n", b"SUB\n", b"SUB $ $\n"])
def test_the_state_is_looked_at_before_anything_else(line: bytes, state: str) -> None:
    _, client = client_in(state)
    client.send(line)
    client.expect(*not_now(line.split()[0].decode()))


@pytest.mark.parametrize("line", [b"RDY x\n", b"FIN\n", b"FIN 1\n", b"REQ\n", b"REQ 1 x\n", b"TOUCH\n", b"CLS x\n"])
def test_without_a_subscription_parameters_do_not_matter(line: bytes) -> None:
    _, client = client_in("init")
    client.send(line)
    client.expect(*not_now(line.split()[0].decode()))


@pytest.mark.parametrize("line", [b"RDY\n", b"RDY \n", b"RDY x\n", b"RDY -1\n", b"RDY 99999\n", b"RDY 1 2 3\n"])
def test_rdy_is_ignored_while_closing_whatever_it_says(line: bytes) -> None:
    stage, client = client_in("closing")
    client.send(line, pub(b"x"))
    client.expect(OK)
    assert stage.broker.topics["t"].channels["c"].depth == 1


@pytest.mark.parametrize("state", STATES)
def test_statistics_show_the_state(state: str) -> None:
    stage, _ = client_in(state)
    (seen,) = stage.broker.clients.values()
    assert seen.state == STATES[state]


@pytest.mark.parametrize("state", STATES)
def test_a_run_of_fins_is_refused_once(state: str) -> None:
    _, client = client_in(state)
    client.send(b"FIN %s\n" % UNKNOWN_ID * 3)
    client.expect(*(not_now("FIN") if state == "init" else not_in_flight("FIN") * 3))


def test_only_what_concerns_a_message_may_fail_and_go_on() -> None:
    _, client = client_in("subscribed")
    for verb in ("FIN", "REQ", "TOUCH"):
        client.send(TABLE[verb][0])
        client.expect(*not_in_flight(verb))
    client.send(b"RDY 1\nNOP\n", pub(b"x", topic=b"u"))
    client.expect(OK)
