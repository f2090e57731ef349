"""What nsqd and nsqlookupd say to each other, without a connection. The test owns time and the bytes."""

from __future__ import annotations

import json
import struct
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.discovery import protocol
from nsqtw.discovery.protocol import (
    ANSWER_SECONDS,
    LATEST_PING_SECONDS,
    MAX_UNANSWERED,
    PING_SECONDS,
    IdentifyPayload,
    Lookupd,
    LookupdProtocol,
    Name,
)

START = 1000.0
IDENTIFY = (
    b'{"broadcast_address":"b","hostname":"h","http_port":4151,"tcp_port":4150,'
    b'"topology_region":"r","topology_zone":"z","version":"1.3.0"}'
)
ABOUT_ITSELF = {"tcp_port": 4160, "http_port": 4161, "version": "1.3.0", "broadcast_address": "l", "hostname": "x"}
LONGEST = 1000


def sized(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


class Talk:
    """A dialogue, with the test as nsqlookupd."""

    def __init__(self, *names: str, secret: str = "", met: bool = True, **about_itself: object) -> None:
        self.now = START
        self.lines: list[str] = []
        identify_payload = IdentifyPayload("b", "h", 4151, 4150, "r", "z", "1.3.0", secret)
        listed = [named(name) for name in names]
        self.protocol = LookupdProtocol(
            "l:4160", identify_payload, listed, self._log, most_answer_bytes=LONGEST, now=START
        )
        self.first = self.protocol.data_to_send(self.now)
        if met:
            self.answer(json.dumps({**ABOUT_ITSELF, **about_itself}).encode())

    def _log(self, level: str, text: str, /, **fields: Any) -> None:
        self.lines.append(f"{level}: {text.format(**fields)}")

    def answer(self, *answers: bytes) -> None:
        self.receive(b"".join(map(sized, answers)))

    def receive(self, data: bytes) -> None:
        self.protocol.receive_data(data, self.now)

    def on_created(self, name: str) -> None:
        self.protocol.on_created(named(name))

    def on_deleted(self, name: str) -> None:
        self.protocol.on_deleted(named(name))

    def sent(self) -> list[str]:
        """The commands there are to send now."""
        return self.protocol.data_to_send(self.now).decode().splitlines()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.protocol.tick(self.now)


def named(text: str) -> Name:
    return Name(*text.split(":"))


def test_it_introduces_itself_and_says_nothing_more_before_it_is_answered() -> None:
    talk = Talk("t", met=False)
    assert talk.first == b"  V1IDENTIFY\n" + sized(IDENTIFY)
    talk.on_created("u")
    assert talk.sent() == []
    talk.answer(json.dumps(ABOUT_ITSELF).encode())
    assert talk.protocol.lookupd == Lookupd(4160, 4161, "1.3.0", "l")
    assert talk.protocol.lookupd.http_address == "l:4161"
    assert talk.lines[0] == (
        "info: LOOKUPD(l:4160): peer info {TCPPort:4160 HTTPPort:4161 Version:1.3.0 BroadcastAddress:l}"
    )
    assert talk.sent() == ["REGISTER t", "REGISTER u"]


def test_it_answers_byte_by_byte() -> None:
    talk = Talk("t:c", met=False)
    for byte in sized(json.dumps(ABOUT_ITSELF).encode()):
        talk.receive(bytes([byte]))
    assert talk.sent() == ["REGISTER t c"]
    for byte in sized(b"OK"):
        talk.receive(bytes([byte]))
    assert (talk.protocol.failure, talk.protocol.refused) == ("", [])


def test_what_there_is_already_is_told_without_a_line_each_and_news_with_one() -> None:
    talk = Talk("old:c", "alone")
    assert talk.sent() == ["REGISTER old c", "REGISTER alone"]
    assert talk.lines[1:] == ["info: LOOKUPD(l:4160): registering 2 topics and channels"]
    talk.on_created("t")
    talk.on_created("t:c")
    assert talk.sent() == ["REGISTER t", "REGISTER t c"]
    talk.on_deleted("t:c")
    talk.on_deleted("t")
    assert talk.sent() == ["UNREGISTER t c", "UNREGISTER t"]
    assert talk.lines[2:] == [
        "info: LOOKUPD(l:4160): topic REGISTER t",
        "info: LOOKUPD(l:4160): channel REGISTER t c",
        "info: LOOKUPD(l:4160): channel UNREGISTER t c",
        "info: LOOKUPD(l:4160): topic UNREGISTER t",
    ]


def test_a_topic_known_by_its_channel_only_is_unregistered_as_well() -> None:
    talk = Talk("t:c")
    talk.sent()
    talk.on_deleted("t:c")
    talk.on_deleted("t")
    assert talk.sent() == ["UNREGISTER t c", "UNREGISTER t"]


def test_what_comes_and_goes_before_it_is_told_is_not_told() -> None:
    talk = Talk("t")
    talk.on_created("u")
    talk.on_deleted("u")
    talk.on_deleted("never")
    assert talk.sent() == ["REGISTER t"]


def test_a_topic_whose_only_channel_goes_before_it_is_told_is_told() -> None:
    talk = Talk("t:c", "u:c")
    talk.on_deleted("t:c")
    talk.on_deleted("u:c")
    talk.on_deleted("u")
    assert talk.sent() == ["REGISTER t"]


def test_what_is_deleted_and_made_again_is_told_so_in_this_order() -> None:
    talk = Talk("t:c")
    talk.sent()
    for say in (talk.on_deleted, talk.on_created):
        say("t:c")
    talk.on_deleted("t:c")
    talk.on_deleted("t")
    talk.on_created("t")
    talk.on_created("t:c")
    assert talk.sent() == ["UNREGISTER t c", "UNREGISTER t", "REGISTER t", "REGISTER t c"]


def test_registrations_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_UNANSWERED", 3)
    talk = Talk(*"abcde")
    assert talk.sent() == ["REGISTER a", "REGISTER b", "REGISTER c"]
    assert talk.sent() == []
    talk.on_deleted("a")
    talk.answer(b"OK", b"OK")
    assert talk.sent() == ["UNREGISTER a", "REGISTER d"]
    talk.wait(0.9)
    talk.answer(b"OK")
    talk.wait(0.9)
    assert talk.sent() == ["REGISTER e"]
    talk.answer(b"OK", b"OK", b"OK")
    assert (talk.sent(), talk.protocol.failure) == ([], "")


def test_it_pings_every_15_seconds_whatever_else_is_said() -> None:
    talk = Talk()
    assert talk.protocol.next_due == START + PING_SECONDS
    for _ in range(3):
        talk.wait(PING_SECONDS - 0.1)
        talk.on_created("t")
        talk.sent()
        talk.answer(b"OK")
        talk.on_deleted("t")
        talk.sent()
        talk.answer(b"OK")
        talk.wait(0.1)
        assert talk.sent() == ["PING"]
        talk.answer(b"OK")
    assert talk.protocol.failure == ""


def test_each_answer_has_a_second() -> None:
    silent = Talk(met=False)
    silent.wait(ANSWER_SECONDS)
    assert silent.protocol.failure == "IDENTIFY - no answer in time"
    talk = Talk("t", "u")
    talk.sent()
    talk.wait(0.9)
    talk.answer(b"OK")
    talk.wait(0.9)
    assert talk.protocol.failure == ""
    talk.wait(0.1)
    assert talk.protocol.failure == "REGISTER u - no answer in time"
    assert talk.protocol.next_due == inf
    pinged = Talk()
    pinged.wait(PING_SECONDS)
    pinged.sent()
    pinged.wait(ANSWER_SECONDS)
    assert pinged.protocol.failure == "PING - no answer in time"


def test_an_answer_that_comes_in_drops_has_no_more_time_than_one_that_comes_at_once() -> None:
    talk = Talk("t")
    talk.sent()
    for byte in struct.pack(">i", 900)[:3]:
        talk.wait(ANSWER_SECONDS / 4)
        talk.receive(bytes([byte]))
    talk.wait(ANSWER_SECONDS / 4)
    assert talk.protocol.failure == "REGISTER t - no answer in time"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"\x00\x00\x03\xe9", "IDENTIFY - response body size (1001) is not within limit (1000)"),
        (b"\xff\xff\xff\xff", "IDENTIFY - response body size (-1) is not within limit (1000)"),
        (b"HTTP/1.1 400 Bad Request", "IDENTIFY - response body size (1213486160) is not within limit (1000)"),
        (sized(b"E_INVALID"), "it does not want us"),
        (sized(b"E_BAD_BODY IDENTIFY missing fields"), "parsing response - E_BAD_BODY IDENTIFY missing fields"),
        (sized(b""), "parsing response - "),
        (sized(b"[]"), "parsing response - []"),
        (sized(b'{"http_port":"4161"}'), 'parsing response - {"http_port":"4161"}'),
        (sized(b'{"http_port":true}'), 'parsing response - {"http_port":true}'),
        (sized(b"\xff\n"), "parsing response - \\xff\n"),
        (sized(b"[" * 900), f"parsing response - {'[' * 200}..."),
    ],
)
def test_an_introduction_that_will_not_do_ends_the_connection(answer: bytes, failure: str) -> None:
    talk = Talk("t", met=False)
    talk.receive(answer)
    assert talk.protocol.failure == failure
    assert (talk.sent(), talk.protocol.next_due) == ([], inf)


def test_an_answer_to_nothing_ends_the_connection() -> None:
    talk = Talk()
    talk.answer(b"OK")
    assert talk.protocol.failure == "an answer to nothing"


def test_who_does_not_say_where_it_is_is_still_told() -> None:
    talk = Talk("t", broadcast_address="")
    assert "error: LOOKUPD(l:4160): no broadcast address" in talk.lines
    assert talk.protocol.lookupd is not None
    assert talk.protocol.lookupd.http_address == ""
    assert talk.sent() == ["REGISTER t"]


def test_an_error_refuses_one_name() -> None:
    talk = Talk("t", "u")
    talk.sent()
    talk.answer(b"E_FULL no more", b"OK")
    assert talk.protocol.refused == [Name("t")]
    assert talk.lines[-1] == "warn: LOOKUPD(l:4160): REGISTER t - E_FULL no more"
    talk.on_deleted("t")
    talk.on_deleted("u")
    assert talk.sent() == ["UNREGISTER u"]
    talk.answer(b"E_BAD")
    assert (talk.protocol.refused, talk.protocol.failure) == ([Name("t")], "")


def test_the_first_ping_waits_until_everything_was_told() -> None:
    talk = slow_talk(PING_SECONDS + 5)
    while lines := talk.sent():
        talk.answer(*[b"OK"] * (MAX_UNANSWERED // 2))
        assert all(line.startswith("REGISTER") for line in lines)
    talk.wait(0.9)
    assert talk.sent() == []
    talk.answer(b"OK")
    talk.wait(0.2)
    assert talk.sent() == ["PING"]


def test_the_first_ping_does_not_wait_for_ever() -> None:
    talk = slow_talk(LATEST_PING_SECONDS - 1)
    for _ in range(3):
        talk.wait(0.5)
        talk.answer(b"OK")
    assert "PING" in talk.sent()


def slow_talk(seconds: float) -> Talk:
    """With an nsqlookupd that answers twice in a second, for so long."""
    talk = Talk(*(f"t{number}" for number in range(MAX_UNANSWERED * 2)))
    for _ in range(round(seconds * 2)):
        assert all(line.startswith("REGISTER") for line in talk.sent())
        talk.wait(0.5)
        talk.answer(b"OK")
    return talk


def test_a_name_that_is_gone_before_it_is_refused_is_not_a_refused_one() -> None:
    talk = Talk("t", "u")
    talk.sent()
    talk.on_deleted("t")
    assert talk.sent() == ["UNREGISTER t"]
    talk.on_deleted("u")
    talk.answer(b"E_FULL", b"E_FULL")
    assert talk.protocol.refused == []


def test_the_secret_is_told_to_the_peer_and_to_nobody_else() -> None:
    secret = 'hunter"2'
    talk = Talk("t", secret=secret, version=secret)
    assert b'"http_port":4151,"secret":"hunter\\"2","tcp_port":4150' in talk.first
    talk.sent()
    talk.answer(b"E_X " + secret.encode())
    rude = Talk(secret=secret, met=False)
    rude.receive(sized(b"E_BAD_BODY " + rude.first[13:]))
    said = [*talk.lines, *rude.lines, rude.protocol.failure, repr(IdentifyPayload("b", "h", 1, 2, "", "", "", secret))]
    assert rude.protocol.failure.startswith("parsing response - E_BAD_BODY ")
    assert not [line for line in said if "hunter" in line]
    assert "Version:***" in talk.lines[0]


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("+-"), st.sampled_from(["t", "u", "t:c", "t:d", "u:c"])),
        st.sampled_from([("send", ""), ("answer", "")]),
    ),
    max_size=40,
)


class Model:
    """A broker that makes and deletes, and the database of an nsqlookupd (nsqlookupd specification 1.4)."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.database: set[str] = set()

    def make(self, name: str, talk: Talk) -> None:
        topic, _, channel = name.partition(":")
        for one in (topic, name) if channel else (topic,):
            if one not in self.wanted:
                self.wanted.add(one)
                talk.on_created(one)

    def delete(self, name: str, talk: Talk) -> None:
        for one in sorted((one for one in self.wanted if one == name or one.startswith(f"{name}:")), reverse=True):
            self.wanted.discard(one)
            talk.on_deleted(one)

    def take(self, command: str) -> None:
        verb, topic, *channel = command.split()
        name = ":".join([topic, *channel])
        if verb == "REGISTER":
            self.database |= {topic, name}
        elif channel:
            self.database.discard(name)
        else:
            self.database = {one for one in self.database if one.partition(":")[0] != topic}


@given(start=st.sets(st.sampled_from(["t:c", "t:d", "u"])), changes=CHANGES)
def test_in_the_end_the_peer_knows_what_there_is(start: set[str], changes: list[tuple[str, str]]) -> None:
    model, unanswered = Model(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "MAX_UNANSWERED", 2)
        talk = Talk(*sorted(start))
        model.wanted = start | {name.partition(":")[0] for name in start}
        for what, name in [*changes, *[("send", ""), ("answer", "")] * 40]:
            if what == "+":
                model.make(name, talk)
            elif what == "-":
                model.delete(name, talk)
            elif what == "answer" and unanswered:
                talk.answer(b"OK")
                unanswered -= 1
            elif what == "send":
                for command in talk.sent():
                    model.take(command)
                    unanswered += 1
    assert model.database == model.wanted
    assert not unanswered
