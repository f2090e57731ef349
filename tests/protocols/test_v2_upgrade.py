"""What follows an IDENTIFY that negotiates TLS or compression, and what TLS being required keeps out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.protocols.dialogue import (
    DEFLATE,
    END,
    HEARTBEAT,
    OK,
    RESPONSE,
    SNAPPY,
    TLS,
    Frame,
    Peer,
    V2Harness,
    error,
    identify,
    mpub,
    pub,
)

CERTIFICATE: dict[str, Any] = {"tls_cert": "a.crt", "tls_key": "a.key"}
WITHOUT = {"tls_v1": False, "snappy": False, "deflate": False}


def negotiated(client: Peer, **asked: Any) -> tuple[dict[str, Any], list[Frame]]:
    """What the answer says of upgrades, and what was read behind it."""
    client.send(identify(feature_negotiation=True, **asked))
    frame, *rest = client.read()
    assert frame.kind == RESPONSE
    answer = json.loads(frame.data)
    return {name: answer[name] for name in WITHOUT}, rest


@pytest.mark.parametrize(("name", "upgrade"), [("snappy", SNAPPY), ("deflate", DEFLATE)])
def test_compression_begins_behind_the_answer_and_is_answered(name: str, upgrade: Frame) -> None:
    stage = V2Harness()
    client = stage.connect()
    assert negotiated(client, **{name: True}) == ({**WITHOUT, name: True}, [upgrade, OK])
    (seen,) = stage.broker.clients.values()
    assert (seen.snappy, seen.deflate, seen.tls) == (name == "snappy", name == "deflate", False)
    client.send(pub(b"x"))
    client.expect(OK)


def test_tls_comes_first_and_each_layer_is_answered() -> None:
    stage = V2Harness(**CERTIFICATE)
    client = stage.connect()
    assert negotiated(client, tls_v1=True, deflate=True) == ({**WITHOUT, "tls_v1": True, "deflate": True}, [TLS])
    (seen,) = stage.broker.clients.values()
    assert not (seen.tls or seen.deflate)
    client.secure("who")
    client.expect(OK, DEFLATE, OK)
    assert (seen.tls, seen.tls_version, seen.tls_cipher_suite) == (True, "TLS1.3", "Unknown 4865")
    assert (seen.common_name, seen.deflate) == ("who", True)


def test_only_what_is_there_is_negotiated() -> None:
    everything = {"tls_v1": True, "snappy": True, "deflate": True}
    assert negotiated(V2Harness(snappy=False, deflate=False).connect(), **everything) == (WITHOUT, [])
    answer, _ = negotiated(V2Harness(snappy=False).connect(), **everything)
    assert answer == {**WITHOUT, "deflate": True}


def test_both_compressions_are_refused_unless_one_of_them_is_off() -> None:
    both = error(b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression")
    client = V2Harness().connect()
    client.send(identify(feature_negotiation=True, snappy=True, deflate=True))
    client.expect(both, END)
    client = V2Harness().connect()
    assert negotiated(client, snappy=True)[1] == [SNAPPY, OK]
    client.send(identify(feature_negotiation=True, deflate=True))
    client.expect(both, END)


@pytest.mark.parametrize(
    ("asked", "level"),
    [
        ({}, 6),
        ({"deflate_level": 1}, 1),
        ({"deflate_level": 9}, 7),
        ({"deflate_level": 0}, 6),
        ({"deflate_level": -1}, 6),
    ],
)
def test_the_level_is_what_was_asked_for_up_to_the_highest(asked: dict[str, int], level: int) -> None:
    client = V2Harness(max_deflate_level=7).connect()
    client.send(identify(feature_negotiation=True, deflate=True, **asked))
    answer, *rest = client.read()
    assert json.loads(answer.data)["deflate_level"] == level
    assert rest == [DEFLATE, OK]


@pytest.mark.parametrize("asked", [{"tls_v1": True}, {"snappy": True}, {"tls_v1": True, "snappy": True}])
def test_what_was_sent_before_the_upgrade_is_dropped(asked: dict[str, bool]) -> None:
    """Nobody in between can put plain text in front of what comes through TLS."""
    stage = V2Harness(**CERTIFICATE)
    client = stage.connect()
    client.write(identify(feature_negotiation=True, **asked) + b"NO COMMAND\n" + pub(b"injected") + b"PUB t")
    stage.turn()
    if "tls_v1" in asked:
        client.session.receive_data(pub(b"injected, too"), stage.now)
        client.secure()
    assert END not in client.read()
    client.send(pub(b"meant"))
    client.expect(OK)
    assert stage.core.topic().message_count == 1


def test_nothing_is_said_during_a_handshake() -> None:
    stage = V2Harness(**CERTIFICATE)
    client = stage.connect()
    negotiated(client, tls_v1=True, heartbeat_interval=1000)
    assert not client.session.wants_data
    for _ in range(5):
        stage.wait(1.0)
    client.expect()
    client.secure()
    assert client.session.wants_data
    client.expect(OK)
    stage.wait(1.0)
    client.expect(HEARTBEAT)


def test_a_failed_handshake_ends_the_session_with_an_error() -> None:
    client = V2Harness(**CERTIFICATE).connect()
    negotiated(client, tls_v1=True)
    client.fail_to_secure("tls: first record does not look like a TLS handshake")
    client.expect(error(b"E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake"), END)


def test_replies_that_are_owed_come_before_the_upgrade() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.commits_held = True
    client.send(pub(b"x") + identify(feature_negotiation=True, snappy=True))
    client.expect()
    stage.commits_held = False
    stage.turn()
    first, second, *rest = client.read()
    assert (first, second.data[:1], rest) == (OK, b"{", [SNAPPY, OK])


def test_what_is_on_stays_on_when_a_client_identifies_again() -> None:
    client = V2Harness(**CERTIFICATE).connect()
    negotiated(client, tls_v1=True)
    client.secure()
    client.expect(OK)
    assert negotiated(client, tls_v1=True, snappy=True) == ({**WITHOUT, "tls_v1": True, "snappy": True}, [SNAPPY, OK])
    assert negotiated(client, output_buffer_size=64) == ({**WITHOUT, "tls_v1": True, "snappy": True}, [])


def test_tls_does_not_begin_inside_a_compression() -> None:
    client = V2Harness(**CERTIFICATE).connect()
    negotiated(client, snappy=True)
    assert negotiated(client, tls_v1=True) == ({**WITHOUT, "snappy": True}, [])


@pytest.mark.parametrize("required", [1, 2])
@pytest.mark.parametrize(
    ("command", "word"),
    [
        (pub(b"x"), b"PUB"),
        (mpub(b"x"), b"MPUB"),
        (b"SUB t c\n", b"SUB"),
        (b"AUTH\n", b"AUTH"),
        (b"NOP\n", b"NOP"),
        (b"RDY 1\n", b"RDY"),
        (b"BOGUS a b\n", b"BOGUS"),
        (b"\xff\n", b"\xff"),
        (b"\n", b""),
    ],
)
def test_where_tls_is_required_nothing_but_identify_is_done_without(required: int, command: bytes, word: bytes) -> None:
    refused = error(b"E_INVALID cannot %s in current state (TLS required)" % word)
    stage = V2Harness(tls_required=required, **CERTIFICATE)
    client = stage.connect()
    client.send(command)
    client.expect(refused, END)
    client = stage.connect()
    negotiated(client)
    client.send(command)
    client.expect(refused, END)
    assert not stage.broker.topics


def test_where_tls_is_required_it_opens_everything() -> None:
    stage = V2Harness(tls_required=2, **CERTIFICATE)
    client = stage.connect()
    negotiated(client, tls_v1=True)
    client.secure()
    client.send(pub(b"x"))
    client.expect(OK, OK)
    client.send(b"BOGUS\n")
    client.expect(error(b"E_INVALID invalid command BOGUS"), END)
