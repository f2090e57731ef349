"""Command lines, names, AUTH, errors, and the ends of a session."""

from __future__ import annotations

import pytest
from zope.interface.verify import verifyObject

from nsqtw.interfaces import IProtocol, IProtocolFactory
from nsqtw.protocols.v2 import V2Factory
from tests.protocols.dialogue import (
    CLOSE_WAIT,
    END,
    OK,
    UNKNOWN_ID,
    V2Harness,
    dpub,
    error,
    identify,
    int32,
    message,
    mpub,
    pub,
    sized,
)


def test_the_factory_and_its_sessions_are_what_the_interfaces_say() -> None:
    assert verifyObject(IProtocolFactory, V2Factory)
    assert verifyObject(IProtocol, V2Harness().connect().session)
    assert V2Factory.magic == b"  V2"


def test_a_new_session_has_nothing_to_say_and_wants_data() -> None:
    session = V2Harness().connect().session
    assert session.data_to_send() == []
    assert session.wants_data
    assert not session.closing


def test_what_is_to_be_sent_is_given_once_and_the_list_is_the_callers() -> None:
    stage = V2Harness()
    session = V2Factory.session(stage.broker, "1.2.3.4:5", lambda: None, stage.now)
    session.receive_data(b"IDENTIFY\n" + sized(b"{}"), stage.now)
    out = session.data_to_send()
    assert b"".join(out) == b"\0\0\0\6\0\0\0\0OK"
    out.append(b"x")
    assert session.data_to_send() == []


def test_who_gave_it_data_need_not_be_asked_for_what_it_says_in_that_turn() -> None:
    stage = V2Harness()
    asked: list[None] = []
    session = V2Factory.session(stage.broker, "1.2.3.4:5", lambda: asked.append(None), stage.now)
    session.receive_data(b"IDENTIFY\n" + sized(b"{}") + pub(b"x"), stage.now)
    stage.turn()
    assert not asked
    assert b"".join(session.data_to_send()) == b"\0\0\0\6\0\0\0\0OK" * 2
    stage.wait(30)
    assert asked
    assert b"_heartbeat_" in b"".join(session.data_to_send())


def test_frames_byte_for_byte() -> None:
    stage = V2Harness()
    session = V2Factory.session(stage.broker, "1.2.3.4:5", lambda: None, stage.now)
    session.receive_data(identify() + b"SUB t c\nCLS\nnop\n", stage.now)
    stage.core.save()
    stage.turn()
    assert b"".join(session.data_to_send()) == (
        b"\0\0\0\6\0\0\0\0OK"
        b"\0\0\0\6\0\0\0\0OK"
        b"\0\0\0\x0e\0\0\0\0CLOSE_WAIT"
        b"\0\0\0\x21\0\0\0\1E_INVALID invalid command nop"
    )


def test_a_message_byte_for_byte() -> None:
    stage = V2Harness()
    session = V2Factory.session(stage.broker, "1.2.3.4:5", lambda: None, stage.now)
    session.receive_data(b"SUB t c\nRDY 1\n", stage.now)
    stage.core.save()
    stage.turn()
    session.data_to_send()
    stage.connect().send(pub(b"hello"))
    message_id = b"%016x" % (617 << 53 | stage.broker.topics["t"].log.end - 1)
    timestamp_ns = stage.broker.timestamp_ns(stage.now).to_bytes(8, "big")
    wanted = int32(4 + 26 + 5) + int32(2) + timestamp_ns + b"\0\1" + message_id + b"hello"
    assert b"".join(session.data_to_send()) == wanted


# -- lines


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"\n", b""),
        (b"\r\n", b""),
        (b" \n", b""),
        (b" NOP\n", b""),
        (b"  V2\n", b""),
        (b"nop\n", b"nop"),
        (b"Pub t\n", b"Pub"),
        (b"NOPE\n", b"NOPE"),
        (b"NO\n", b"NO"),
        (b"NOP\t\n", b"NOP\t"),
        (b"NOP\r\r\n", b"NOP\r"),
        (b"PUB\tt\n", b"PUB\tt"),
        (b"GET / HTTP/1.1\r\n", b"GET"),
        (b"X parameters are not echoed\n", b"X"),
        (b"\x00\n", b"\x00"),
        (b"\xff\xfe \xff\n", b"\xff\xfe"),
        ('"中\\"\n'.encode(), '"中\\"'.encode()),
        (b"%s %d\n", b"%s"),
    ],
)
def test_unknown_commands(line: bytes, name: bytes) -> None:
    client = V2Harness().connect()
    client.send(line)
    client.expect(error(b"E_INVALID invalid command " + name), END)


@pytest.mark.parametrize(
    ("sent", "replies"),
    [
        (b"NOP\r\n", []),
        (b"NOP x y\n", []),
        (b"NOP \n", []),
        (b"PUB t\r\n" + sized(b"x"), [OK]),
        (b"PUB t extra  more\n" + sized(b"x"), [OK]),
        (b"MPUB t extra\n" + sized(int32(1) + sized(b"x")), [OK]),
        (b"DPUB t 0 extra\n" + sized(b"x"), [OK]),
        (b"IDENTIFY extra more\n" + sized(b"{}"), [OK]),
        (b"SUB t c extra\n", [OK]),
        (b"SUB t c\nRDY 1 extra\nCLS extra\n", [OK, CLOSE_WAIT]),
        (
            b"SUB t c\nFIN %s extra\nTOUCH %s extra\nREQ %s 0 extra\n" % ((UNKNOWN_ID,) * 3),
            [OK]
            + [
                error(b"E_%s_FAILED %s %s failed ID not in flight" % (verb, verb, UNKNOWN_ID))
                for verb in (b"FIN", b"TOUCH", b"REQ")
            ],
        ),
    ],
)
def test_a_cr_and_extra_parameters_are_ignored(sent: bytes, replies: list[object]) -> None:
    client = V2Harness().connect()
    client.send(sent)
    assert client.read() == replies
    assert client.connected


def test_a_line_without_an_end_closes_the_connection_without_a_word() -> None:
    client = V2Harness().connect()
    client.send(pub(b"before") + b"x" * 16383)
    client.expect(OK)
    client.send(b"x")
    client.expect(END)


def test_the_longest_line_is_a_command() -> None:
    client = V2Harness().connect()
    client.send(b"NOP " + b"x" * (16384 - 5) + b"\n", pub(b"x"))
    client.expect(OK)
    client.send(b"NOP " + b"x" * (16384 - 4) + b"\n")
    client.expect(END)


def test_commands_in_one_chunk_are_answered_in_order() -> None:
    client = V2Harness().connect()
    client.send(identify() + pub(b"a") + b"NOP\n" + mpub(b"b", b"c") + dpub(0, b"d") + b"SUB u c\nCLS\n" + pub(b"e"))
    client.expect(OK, OK, OK, OK, OK, CLOSE_WAIT, OK)


def test_commands_behind_a_fatal_error_are_not_looked_at() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(pub(b"a", topic=b"before") + b"X\n" + pub(b"b", topic=b"behind"), pub(b"c", topic=b"later"))
    client.expect(OK, error(b"E_INVALID invalid command X"), END)
    assert list(stage.broker.topics) == ["before"]


# -- names


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"", rb'""'),
        (b"a$b", rb'"a$b"'),
        (b"a/b", rb'"a/b"'),
        (b"x" * 65, b'"' + b"x" * 65 + b'"'),
        (b"x" * 55 + b"#ephemeral", b'"' + b"x" * 55 + b'#ephemeral"'),
        (b"#ephemeral", rb'"#ephemeral"'),
        (b"a#Ephemeral", rb'"a#Ephemeral"'),
        (b'a"b', rb'"a\"b"'),
        (b"a\\b", rb'"a\\b"'),
        (b"a\tb", rb'"a\tb"'),
        (b"a\rb", rb'"a\rb"'),
        (b"a\x01\x7f", rb'"a\x01\x7f"'),
        (b"\xff", rb'"\xff"'),
        ("中".encode(), '"中"'.encode()),
        ("\u00a0\U000e0001".encode(), rb'"\u00a0\U000e0001"'),
    ],
)
def test_names_that_are_not_valid(name: bytes, shown: bytes) -> None:
    for line, text in (
        (b"PUB %s\n", b"E_BAD_TOPIC PUB topic name %s is not valid"),
        (b"DPUB %s x\n", b"E_BAD_TOPIC DPUB topic name %s is not valid"),
        (b"MPUB %s\n", b"E_BAD_TOPIC E_BAD_TOPIC MPUB topic name %s is not valid"),
        (b"SUB %s c\n", b"E_BAD_TOPIC SUB topic name %s is not valid"),
        (b"SUB t %s\n", b"E_BAD_CHANNEL SUB channel name %s is not valid"),
    ):
        stage = V2Harness()
        client = stage.connect()
        client.send(line % name)
        client.expect(error(text % shown), END)
        assert not stage.broker.topics


@pytest.mark.parametrize("name", [b"t", b".", b"..", b"-", b"_", b"A.b-C_0", b"x" * 64, b"x" * 54 + b"#ephemeral"])
def test_names_that_are_valid(name: bytes) -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(name, name, ready=10)
    client.send(pub(b"a", topic=name), mpub(b"b", topic=name), dpub(0, b"c", topic=name))
    assert sorted(client.read()) == sorted([OK] * 3 + [message(body) for body in (b"a", b"b", b"c")])
    assert list(stage.broker.topics) == [name.decode()]


# -- AUTH, which this broker does not have


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
        (b"AUTH \n", b"E_INVALID AUTH invalid number of parameters"),
        (b"AUTH\n" + int32(101), b"E_BAD_BODY AUTH body too big 101 > 100"),
        (b"AUTH\n" + int32(0), b"E_BAD_BODY AUTH invalid body size 0"),
        (b"AUTH\n" + int32(-1), b"E_BAD_BODY AUTH invalid body size -1"),
        (b"AUTH\n" + sized(b"secret"), b"E_AUTH_DISABLED AUTH disabled"),
        (b"AUTH\r\n" + sized(b"x" * 100), b"E_AUTH_DISABLED AUTH disabled"),
    ],
)
def test_auth(sent: bytes, text: bytes) -> None:
    client = V2Harness(max_body_size=100).connect()
    client.send(sent)
    client.expect(error(text), END)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (101, b"E_BAD_BODY IDENTIFY body too big 101 > 100"),
        (2**31 - 1, b"E_BAD_BODY IDENTIFY body too big 2147483647 > 100"),
        (0, b"E_BAD_BODY IDENTIFY invalid body size 0"),
        (-1, b"E_BAD_BODY IDENTIFY invalid body size -1"),
    ],
)
def test_sizes_of_an_identify(size: int, text: bytes) -> None:
    client = V2Harness(max_body_size=100).connect()
    client.send(b"IDENTIFY\n" + int32(size))
    client.expect(error(text), END)


# -- the end


@pytest.mark.parametrize("sent", [b"", b"NOP\n", b"NO", b"PUB t", identify()[:8], b"FIN " + UNKNOWN_ID])
def test_the_end_between_commands_or_within_a_line_is_quiet(sent: bytes) -> None:
    client = V2Harness().connect()
    client.send(sent)
    client.shut()
    client.expect(END)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (identify()[:9], b"E_BAD_BODY IDENTIFY failed to read body size"),
        (identify()[:12], b"E_BAD_BODY IDENTIFY failed to read body size"),
        (identify()[:13], b"E_BAD_BODY IDENTIFY failed to read body"),
        (identify()[:-1], b"E_BAD_BODY IDENTIFY failed to read body"),
        (b"AUTH\n", b"E_BAD_BODY AUTH failed to read body size"),
        (b"AUTH\n" + int32(3) + b"ab", b"E_BAD_BODY AUTH failed to read body"),
        (b"PUB t\n", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n\0\0\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n" + int32(10) + b"abc", b"E_BAD_MESSAGE PUB failed to read message body"),
        (dpub(1, b"abc")[:9], b"E_BAD_MESSAGE DPUB failed to read message body size"),
        (dpub(1, b"abc")[:-1], b"E_BAD_MESSAGE DPUB failed to read message body"),
        (mpub(b"ab", b"cd")[:7], b"E_BAD_BODY MPUB failed to read body size"),
        (mpub(b"ab", b"cd")[:10], b"E_BAD_BODY MPUB failed to read body size"),
        (mpub(b"ab", b"cd")[:11], b"E_BAD_BODY MPUB failed to read message count"),
        (mpub(b"ab", b"cd")[:15], b"E_BAD_MESSAGE MPUB failed to read message(0) body size"),
        (mpub(b"ab", b"cd")[:19], b"E_BAD_MESSAGE MPUB failed to read message body"),
        (mpub(b"ab", b"cd")[:21], b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
        (mpub(b"ab", b"cd")[:-1], b"E_BAD_MESSAGE MPUB failed to read message body"),
    ],
)
def test_the_end_within_a_body(sent: bytes, text: bytes) -> None:
    client = V2Harness().connect()
    client.send(sent)
    client.expect()
    client.shut()
    client.expect(error(text), END)


def test_everything_sent_before_the_end_is_done_and_answered() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.write(b"SUB t c\nCLS\n" + pub(b"a", topic=b"u") + b"PUB u\n")
    client.shut()
    client.expect(OK, CLOSE_WAIT, OK, error(b"E_BAD_MESSAGE PUB failed to read message body size"), END)
    assert stage.broker.topics["u"].depth == 1


def test_the_end_waits_for_what_is_owed() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.commits_held = True
    client.write(pub(b"a"))
    client.shut()
    client.expect()
    stage.commits_held = False
    stage.turn()
    client.expect(OK, END)


def test_a_lost_connection_is_forgotten() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(ready=1)
    client.vanish()
    assert not stage.broker.clients
    assert not stage.broker.topics["t"].channels["c"].consumers
    stage.wait(100)
    client.expect()
    assert client.session.data_to_send() == []


def test_errors_end_only_the_connection_that_made_them() -> None:
    stage = V2Harness()
    good, bad = stage.connect(), stage.connect()
    good.subscribe(ready=10)
    bad.write(b"X\n")
    good.send(pub(b"a"))
    bad.expect(error(b"E_INVALID invalid command X"), END)
    good.expect(OK, message(b"a"))
