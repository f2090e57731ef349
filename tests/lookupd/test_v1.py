"""
The V1 protocol as dialogues. What the original answers is recorded (tests/conformance); here is what is ours: limits,
the secret, the log, and that it does not matter how the bytes arrive.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.lookupd.registrations import RegistrationQuotas, Registrations
from nsqtw.lookupd.v1 import MAX_BODY_BYTES, MAX_LINE_BYTES, V1Context, V1Session
from tests.lookupd.harness import INACTIVE_AFTER, SECOND, START, TOMBSTONE
from tests.lookupd.nsqd import identify, identity, responses

IDENTITY = b'{"broadcast_address":"me"}'
REMOTE = "10.0.0.9:50000"


class Line:
    """One session, and its nsqlookupd."""

    def __init__(self, secret: bytes = b"", **quotas: int) -> None:
        self.said: list[tuple[str, str]] = []
        self.now = START
        self.registrations = Registrations(INACTIVE_AFTER, TOMBSTONE, RegistrationQuotas(**quotas))
        self.context = V1Context(self.registrations, self._log, IDENTITY, secret)
        self.session = V1Session(self.context, 0, REMOTE)

    def _log(self, level: str, text: str, /, **fields: Any) -> None:
        self.said.append((level, text.format(**fields)))

    def send(self, data: bytes) -> list[bytes]:
        """What is answered to it."""
        self.session.receive_data(data, self.now)
        return responses(self.session.data_to_send())

    def topics(self) -> list[str]:
        return sorted(self.registrations.topics())


def test_an_nsqd_introduces_itself_and_says_what_it_has() -> None:
    line = Line()
    assert line.send(b"PING\n") == [b"OK"]
    assert line.send(identify(**identity(topology_zone="z"))) == [IDENTITY]
    assert line.send(b"REGISTER t c\nREGISTER u\n") == [b"OK", b"OK"]
    (node,) = line.registrations.nodes(line.now)
    assert (node.producer.remote_address, node.producer.topology_zone, node.topics) == (REMOTE, "z", ["t", "u"])
    assert line.send(b"UNREGISTER t c\nUNREGISTER t\n") == [b"OK", b"OK"]
    assert line.registrations.nodes(line.now)[0].topics == ["u"]
    line.session.connection_lost()
    assert not line.registrations.nodes(line.now)
    assert line.topics() == ["t", "u"]


def test_the_log_has_the_lines_of_the_original() -> None:
    line = Line()
    line.send(identify())
    line.now += 15 * SECOND
    line.send(b"PING\nREGISTER t c\nUNREGISTER t\nNOPE\n")
    list(line.session.connection_lost())
    client = f"client({REMOTE})"
    assert line.said == [
        ("info", f"CLIENT({REMOTE}): IDENTIFY Address:a TCP:4150 HTTP:4151 Version:1.3.0"),
        ("info", f"DB: {client} REGISTER category:client key: subkey:"),
        ("info", f"CLIENT({REMOTE}): pinged (last ping 15s)"),
        ("info", f"DB: {client} REGISTER category:channel key:t subkey:c"),
        ("info", f"DB: {client} REGISTER category:topic key:t subkey:"),
        ("warn", f"{client} unexpected UNREGISTER category:channel key:t subkey:c"),
        ("info", f"DB: {client} UNREGISTER category:topic key:t subkey:"),
        ("error", f"[{REMOTE}] - E_INVALID invalid command 'NOPE'"),
        ("info", f"PROTOCOL(V1): [{REMOTE}] exiting ioloop"),
        ("info", f"DB: {client} UNREGISTER category:client key: subkey:"),
    ]


DIALOGUE = identify() + b"PING\r\n  REGISTER t c \nREGISTER t  c\nREGISTER t x*\nPING\n"
ANSWERS = [IDENTITY, b"OK", b"OK", b"OK", b"E_BAD_CHANNEL REGISTER channel name 'x*' is not valid"]


@given(st.lists(st.integers(0, len(DIALOGUE))))
def test_it_does_not_matter_how_the_bytes_arrive(cuts: list[int]) -> None:
    line = Line()
    places = [0, *sorted(cuts), len(DIALOGUE)]
    answered = [one for a, b in pairwise(places) for one in line.send(DIALOGUE[a:b])]
    assert answered == ANSWERS
    assert line.session.closing


@given(
    st.lists(st.sampled_from([b"PING", b"IDENTIFY", b"REGISTER", b"\n", b" ", b"t", b"{}", b"\0\0\0\2", b"\xff" * 4]))
)
def test_whatever_comes_is_answered_or_waited_for(pieces: list[bytes]) -> None:
    line = Line()
    for piece in pieces:
        line.send(piece)
    line.session.receive_end()
    assert line.session.closing


def test_a_line_without_an_end_is_not_kept() -> None:
    line = Line()
    assert line.send(b"x" * MAX_LINE_BYTES) == []
    assert line.send(b"x") == [b"E_INVALID line is longer than 4096 bytes"]
    assert line.session.closing
    assert Line().send(b"PING" + b" " * MAX_LINE_BYTES + b"\n") == [b"E_INVALID line is longer than 4096 bytes"]
    assert Line().send(b"PING" + b" " * (MAX_LINE_BYTES - 4) + b"\n") == [b"OK"]


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_BODY_BYTES + 1, 2**31 - 1])
def test_a_body_of_an_impossible_size_is_not_waited_for(size: int) -> None:
    line = Line()
    assert line.send(b"IDENTIFY\n" + struct.pack(">i", size)) == [b"E_BAD_BODY IDENTIFY failed to read body"]
    assert line.session.closing


def test_a_body_of_the_largest_size() -> None:
    body = identify()[len(b"IDENTIFY\n") + 4 :].ljust(MAX_BODY_BYTES)
    assert Line().send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body) == [IDENTITY]


@pytest.mark.parametrize("body", [b"[" * 10_000, b'{"a":' * 3_000, b'{"tcp_port":' + b"9" * 5_000 + b"}", b"\xff"])
def test_json_that_means_harm_is_no_json(body: bytes) -> None:
    line = Line()
    assert line.send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body) == [
        b"E_BAD_BODY IDENTIFY failed to decode JSON body"
    ]


def test_what_is_beyond_a_limit_is_refused_and_the_rest_stays() -> None:
    line = Line(producer_registrations=3)
    line.send(identify() + b"REGISTER t c\n")
    assert line.send(b"REGISTER u c\nPING\nREGISTER u\n") == [
        b"E_TOO_MANY_REGISTRATIONS REGISTER registrations of one producer exceed limit of 3",
        b"OK",
        b"OK",
    ]
    assert line.session.refused == "registrations of one producer"
    assert not line.session.closing
    line.send(b"PING\n")
    assert line.session.refused == ""
    assert line.topics() == ["t", "u"]


def test_without_the_secret_nothing_is_believed() -> None:
    refusal = b"E_UNAUTHORIZED IDENTIFY needs the secret of this nsqlookupd"
    for given_one in ({}, {"secret": ""}, {"secret": "hunter"}, {"secret": "hunter22"}, {"secret": "h\u00fcnter2"}):
        line = Line(secret=b"hunter2")
        assert line.send(identify(**identity(**given_one))) == [refusal]
        assert line.session.closing
        assert line.registrations.producer_count == 0
        assert not any("hunter" in text for _, text in line.said)
    assert Line(secret=b"hunter2").send(identify(**identity(secret="hunter2"))) == [IDENTITY]
    assert Line().send(identify(**identity(secret="of another nsqlookupd"))) == [IDENTITY]


@pytest.mark.parametrize(
    "host", ["a b", "a\x1b[2J", "x\n2026/11/28 INF forged", "a/b", "a:1", "[::1]", "1::2::3", "\u202ea", "a" * 64]
)
def test_a_broadcast_address_that_is_no_host_is_refused(host: str) -> None:
    line = Line()
    refusal = b"E_BAD_BODY IDENTIFY broadcast_address is no host name and no IP address"
    assert line.send(identify(**identity(broadcast_address=host))) == [refusal]
    assert line.registrations.producer_count == 0


@pytest.mark.parametrize("host", ["a", "nsq_1.example.", "10.0.0.1", "::1", "fe80::1%eth0", "a" * 63])
def test_names_and_ip_addresses_are_hosts(host: str) -> None:
    assert Line().send(identify(**identity(broadcast_address=host))) == [IDENTITY]


@pytest.mark.parametrize("fields", [{"tcp_port": -1}, {"http_port": 65536}, {"tcp_port": 1 << 40}])
def test_a_port_that_is_none_is_refused(fields: dict[str, int]) -> None:
    refusal = b"E_BAD_BODY IDENTIFY tcp_port and http_port must be 1 to 65535"
    assert Line().send(identify(**identity(**fields))) == [refusal]


def test_a_secret_of_another_type_is_no_json_of_ours() -> None:
    refusal = b"E_BAD_BODY IDENTIFY failed to decode JSON body"
    assert Line(secret=b"5").send(identify(**identity(secret=5))) == [refusal]


def test_the_secret_is_not_part_of_what_consumers_see() -> None:
    line = Line(secret=b"hunter2")
    line.send(identify(**identity(secret="hunter2")) + b"REGISTER t\n")
    lookup = line.registrations.lookup("t", line.now)
    assert lookup is not None
    assert b"hunter2" not in lookup.producers[0].document
    assert "hunter2" not in repr(line.context)


@pytest.mark.parametrize("name", ["hostname", "version", "topology_zone", "topology_region"])
def test_texts_of_an_nsqd_are_bounded(name: str) -> None:
    """/debug has all of them for each registration."""
    assert Line().send(identify(**identity(**{name: "x" * 255}))) == [IDENTITY]
    refused = f"E_BAD_BODY IDENTIFY {name} is longer than 255 characters".encode()
    assert Line().send(identify(**identity(**{name: "x" * 256}))) == [refused]
