"""
Anything a client can send: random bytes, and commands with something wrong in them, in pieces of any size.

A session answers or ends; it never raises. How the bytes were cut does not change the answers, and other sessions of
the same broker do not notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocols.dialogue import (
    END,
    ERROR,
    MESSAGE,
    OK,
    RESPONSE,
    UNKNOWN_ID,
    Frame,
    V2Harness,
    dpub,
    identify,
    int32,
    message,
    mpub,
    pub,
    sized,
)

OPTIONS = {"max_msg_size": 30, "max_body_size": 200, "max_rdy_count": 10}
RESPONSES = re.compile(rb"OK|CLOSE_WAIT|\{.*\}", re.DOTALL)
ERRORS = re.compile(rb"E_[A-Z_]+ .*", re.DOTALL)
NON_FATAL = re.compile(rb"E_(FIN|REQ|TOUCH)_FAILED ")


class Conversation:
    """A broker with one client that sends anything, and a witness that must not notice."""

    def __init__(self) -> None:
        self.stage = V2Harness(**OPTIONS)
        self.client = self.stage.connect()
        self.witness = self.stage.connect()
        self.witness.subscribe(topic=b"witness", ready=1)

    def nobody_else_notices(self) -> None:
        self.witness.send(pub(b"still there", topic=b"witness"))
        (seen,) = self.witness.expect(OK, message(b"still there"))
        self.witness.send(b"FIN %s\n" % seen.id)
        self.witness.expect()


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`data`, cut at these places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places) if start < stop]


def answers_to(data: bytes, cuts: Iterable[int] = ()) -> list[Frame]:
    """What a new client is answered that sends this and then the end; messages left out."""
    conversation = Conversation()
    client = conversation.client
    for piece in pieces(data, cuts):
        client.send(piece)
    client.shut()
    conversation.nobody_else_notices()
    return [frame for frame in client.read() if frame.kind != MESSAGE]


def check(answers: Sequence[Frame]) -> None:
    """Responses and errors as they are in the protocol; the first fatal error is the last, and then the end."""
    assert answers[-1] == END
    for at, (kind, data, _) in enumerate(answers[:-1]):
        if kind == RESPONSE:
            assert RESPONSES.fullmatch(data)
        else:
            assert kind == ERROR and ERRORS.fullmatch(data)
            assert NON_FATAL.match(data) or at == len(answers) - 2


NAMES = st.one_of(
    st.sampled_from([b"t", b"u"]),
    st.sampled_from([b"t", b"u", b"t#ephemeral", b"c#ephemeral", b"", b"bad$", b"x" * 65, b"\xff"]),
)
NUMBERS = st.one_of(
    st.integers(0, 12).map(lambda n: b"%d" % n),
    st.sampled_from([b"", b"-1", b"x", b"3600001", b"18446744073709551616", b"18446744073710"]),
)
IDS = st.sampled_from([UNKNOWN_ID, UNKNOWN_ID[1:], UNKNOWN_ID + b"0", b"", b"\0\xff\r\t" * 4])
BODIES = st.binary(min_size=1, max_size=31)
DOCUMENTS = st.sampled_from(
    [b"{}", b"null", b"[]", b"{", b'{"feature_negotiation":true}', b'{"msg_timeout":1}', b'{"sample_rate":50}', b"\xff"]
    + [b'{"heartbeat_interval":-1}', b'{"heartbeat_interval":1000,"client_id":"\xff"}', b'{"client_id":"\\ud800"}']
)

COMMANDS = st.one_of(
    st.builds(
        lambda line: line + b"\n", st.sampled_from([b"NOP", b"CLS", b"RDY", b"", b"nop", b"FIN", b"NOP\r", b" "])
    ),
    st.builds(lambda t, c: b"SUB %s %s\n" % (t, c), NAMES, NAMES),
    st.builds(lambda n: b"RDY %s\n" % n, NUMBERS),
    st.builds(lambda i, n: b"FIN %s\n" % i * n, IDS, st.integers(1, 4)),
    st.builds(lambda i, n: b"REQ %s %s\n" % (i, n), IDS, NUMBERS),
    st.builds(lambda i: b"TOUCH %s\n" % i, IDS),
    st.builds(lambda t, bodies: pub(*bodies, topic=t), NAMES, st.lists(BODIES, min_size=1, max_size=4)),
    st.builds(lambda t, bodies: mpub(*bodies, topic=t), NAMES, st.lists(BODIES, max_size=5)),
    st.builds(lambda t, n, body: dpub(n, body, topic=t), NAMES, NUMBERS, BODIES),
    st.builds(lambda document: b"IDENTIFY\n" + sized(document), DOCUMENTS),
    st.builds(lambda verb, size: verb + b"\n" + int32(size), st.sampled_from([b"AUTH", b"PUB t"]), st.integers(-2, 40)),
)
PUBLISHES = st.one_of(
    st.builds(lambda bodies: pub(*bodies), st.lists(BODIES.map(lambda body: body[:30]), min_size=1, max_size=4)),
    st.builds(lambda bodies: mpub(*bodies), st.lists(BODIES.map(lambda body: body[:5]), min_size=1, max_size=4)),
    st.builds(lambda body: dpub(100, body[:30]), BODIES),
)
WELL_FORMED = st.one_of(PUBLISHES, st.sampled_from([b"NOP\n", identify(), b"NOP extra\r\n"]))
SUBSCRIBED = st.one_of(
    PUBLISHES,
    st.integers(1, 4).map(lambda count: b"FIN %s\n" % UNKNOWN_ID * count),
    st.sampled_from([b"NOP\n", b"RDY 5\n", b"RDY\n", b"TOUCH %s\n" % UNKNOWN_ID, b"REQ %s 5\n" % UNKNOWN_ID]),
)


def mutated(data: bytes, changes: Sequence[tuple[int, int, bytes]]) -> bytes:
    """At each place some bytes are replaced by others."""
    for place, count, new in changes:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + count :]
    return data


BEGINNINGS = st.sampled_from([b"", identify(), b"SUB t c\n", b"SUB t c\nRDY 5\n", b"SUB t c\nCLS\n"])
CHANGES = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 3), st.binary(max_size=3)), max_size=3)
STREAMS = st.one_of(
    st.builds(lambda first, rest: first + b"".join(rest), BEGINNINGS, st.lists(COMMANDS, max_size=10)),
    st.lists(WELL_FORMED, max_size=12).map(b"".join),
    st.lists(SUBSCRIBED, max_size=12).map(lambda rest: b"SUB t c\n" + b"".join(rest)),
    st.builds(mutated, st.lists(WELL_FORMED, max_size=12).map(b"".join), CHANGES),
    st.builds(mutated, st.lists(SUBSCRIBED, max_size=12).map(lambda rest: b"SUB t c\n" + b"".join(rest)), CHANGES),
)
CUTS = st.lists(st.integers(0, 999), max_size=8)

thorough = settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.histories
@thorough
@given(st.binary(max_size=300), CUTS)
def test_random_bytes(data: bytes, cuts: list[int]) -> None:
    check(answers_to(data, cuts))


@pytest.mark.histories
@thorough
@given(STREAMS, CUTS)
def test_how_the_bytes_are_cut_does_not_change_the_answers(data: bytes, cuts: list[int]) -> None:
    whole = answers_to(data)
    check(whole)
    assert whole == answers_to(data, cuts)


@settings(thorough, max_examples=100)
@given(STREAMS)
def test_byte_by_byte_the_answers_are_the_same(data: bytes) -> None:
    assert answers_to(data) == answers_to(data, range(len(data)))


@pytest.mark.histories
@thorough
@given(STREAMS, CUTS, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3, 1.0]))
def test_a_connection_that_breaks_at_any_moment(
    data: bytes, cuts: list[int], commits_held: bool, saves_held: bool, seconds: float
) -> None:
    conversation = Conversation()
    stage, client = conversation.stage, conversation.client
    stage.commits_held, stage.saves_held = commits_held, saves_held
    for piece in pieces(data, cuts):
        client.send(piece)
        stage.wait(seconds)
    if client.connected:
        client.vanish()
    assert len(stage.broker.clients) == 1
    stage.commits_held = stage.saves_held = False
    stage.turn()
    conversation.nobody_else_notices()
    stage.wait(100)
    assert not stage.broker.clients
