"""
Bad input: it gets nsqd's error, or the end of its connection, and nobody else notices.

One broker stands all of it, beside a connection that publishes to and consumes from it all the time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.process import NOTHING, NsqdProcess, wait_until
from tests.wire import ERROR, MAGIC, MESSAGE, RESPONSE, Client, Frame, sized

TOO_LARGE = b"\x7f\xff\xff\xff"
NEGATIVE = b"\xff\xff\xff\xff"
ZERO = b"\x00\x00\x00\x00"
ID = b"0123456789abcdef"
SUB = b"SUB t hostile\n"


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path_factory.mktemp("besieged"))
    try:
        process.start()
        yield process
        process.stop()
    finally:
        process.close()


@pytest.fixture(scope="module")
def neighbour(besieged: NsqdProcess) -> Iterator[Client]:
    """A client that does no harm, and lives through all the tests."""
    with besieged.client() as client:
        client.sub("t", "peaceful", ready=1)
        yield client


@pytest.fixture
def nsqd(besieged: NsqdProcess, neighbour: Client) -> Iterator[NsqdProcess]:
    """The broker, with nothing left behind of what was done to it."""
    sockets = besieged.open_sockets()
    yield besieged
    neighbour.pub("t", b"still here")
    assert [message.body for message in neighbour.drain(1)] == [b"still here"]
    assert besieged.http("GET", "/ping") == (200, b"OK")
    wait_until(lambda: besieged.open_sockets() <= sockets, "all connections are closed")
    besieged.assert_no_traceback()
    assert "\x1b" not in besieged.said()


def command(line: bytes, size: bytes, body: bytes = b"") -> bytes:
    return line + b"\n" + size + body


def error(text: bytes) -> list[Frame]:
    return [Frame(ERROR, text)]


@pytest.mark.parametrize(
    "magic", [b"  V1", b"  V3", b"\x00\x00\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
def test_a_wrong_magic(nsqd: NsqdProcess, magic: bytes) -> None:
    with nsqd.client(magic) as client:
        assert client.rest() == error(b"E_BAD_PROTOCOL")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"\n", b"E_INVALID invalid command "),
        (b"pub t\n", b"E_INVALID invalid command pub"),
        (b"\xff\x00\x1b[2J\n", b"E_INVALID invalid command \xff\x00\x1b[2J"),
        (b"FIN " + ID + b"\n", b"E_INVALID cannot FIN in current state"),
        (SUB + SUB, b"E_INVALID cannot SUB in current state"),
        (SUB + b"FIN short\n", b"E_INVALID invalid message ID"),
        (SUB + b"REQ " + ID + b" soon\n", b"E_INVALID REQ could not parse timeout soon"),
        (SUB + b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500"),
        (SUB + b"RDY 18446744073709551615\n", b"E_INVALID RDY count -1 out of range 0-2500"),
        (b"SUB t\n", b"E_INVALID SUB insufficient number of parameters"),
        (b"SUB ../../etc c\n", b'E_BAD_TOPIC SUB topic name "../../etc" is not valid'),
        (b"SUB t " + b"c" * 65 + b"\n", b'E_BAD_CHANNEL SUB channel name "' + b"c" * 65 + b'" is not valid'),
        (b"PUB t/../../x\n", b'E_BAD_TOPIC PUB topic name "t/../../x" is not valid'),
        (command(b"PUB t", ZERO), b"E_BAD_MESSAGE PUB invalid message body size 0"),
        (command(b"PUB t", NEGATIVE), b"E_BAD_MESSAGE PUB invalid message body size -1"),
        (command(b"PUB t", TOO_LARGE), b"E_BAD_MESSAGE PUB message too big 2147483647 > 1048576"),
        (command(b"DPUB t 3600001", b""), b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
        (command(b"DPUB t 1", TOO_LARGE), b"E_BAD_MESSAGE DPUB message too big 2147483647 > 1048576"),
        (command(b"MPUB t", TOO_LARGE), b"E_BAD_BODY MPUB body too big 2147483647 > 5242880"),
        (command(b"MPUB t", sized(TOO_LARGE)), b"E_BAD_BODY MPUB invalid message count 2147483647"),
        (command(b"MPUB t", sized(NEGATIVE)), b"E_BAD_BODY MPUB invalid message count -1"),
        (
            command(b"MPUB t", sized(b"\x00\x00\x00\x02" + sized(b"x") + TOO_LARGE)),
            b"E_BAD_MESSAGE MPUB message too big 2147483647 > 1048576",
        ),
        (command(b"IDENTIFY", TOO_LARGE), b"E_BAD_BODY IDENTIFY body too big 2147483647 > 5242880"),
        (command(b"IDENTIFY", sized(b"{")), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (command(b"IDENTIFY", sized(b"[" * 60_000)), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (command(b"IDENTIFY", sized(b'{"a":' * 12_000)), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
        (
            command(b"IDENTIFY", sized(b'{"msg_timeout":1%s}' % (5000 * b"0"))),
            b"E_BAD_BODY IDENTIFY failed to decode JSON body",
        ),
        (command(b"AUTH", sized(b"secret")), b"E_AUTH_DISABLED AUTH disabled"),
    ],
)
def test_a_mistake_has_its_error_and_ends_the_connection(nsqd: NsqdProcess, sent: bytes, text: bytes) -> None:
    with nsqd.client() as client:
        client.send(sent + b"NOP\n")
        assert [frame for frame in client.rest() if frame != (RESPONSE, b"OK")] == error(text)


def test_a_mistake_is_said_in_the_log(nsqd: NsqdProcess) -> None:
    with nsqd.client() as client:
        host, port = client.address()
        client.send(b"RDY 7\n")
        assert client.rest() == error(b"E_INVALID cannot RDY in current state")
    line = f" ERROR: [{host}:{port}] - E_INVALID cannot RDY in current state"
    wait_until(lambda: line in nsqd.said(), f"{line} in the log")


def test_what_is_not_in_flight_is_said_and_the_connection_goes_on(nsqd: NsqdProcess) -> None:
    with nsqd.client() as client:
        client.sub("t", "hostile")
        for line in (b"FIN %s\n", b"REQ %s 18446744073709551615\n", b"TOUCH %s\n"):
            verb = line.split()[0]
            client.send(line % (b"\xff\x00" * 8))
            assert client.frame() == (
                ERROR,
                b"E_%b_FAILED %b %b failed ID not in flight" % (verb, verb, b"\xff\x00" * 8),
            )
        client.cls()


def test_a_message_belongs_to_who_got_it(nsqd: NsqdProcess) -> None:
    with nsqd.client() as owner, nsqd.client() as thief:
        owner.sub("theft#ephemeral", "c", ready=1)
        thief.sub("theft#ephemeral", "c")
        owner.pub("theft#ephemeral", b"mine")
        message = owner.message()
        thief.fin([message])
        assert thief.frame() == (ERROR, b"E_FIN_FAILED FIN %b failed client does not own message" % message.id)
        owner.fin([message])
        nsqd.await_counts("theft#ephemeral", "c", NOTHING)


def test_a_line_that_does_not_end(nsqd: NsqdProcess) -> None:
    with nsqd.client() as client:
        client.send(b"PUB " + b"t" * 20_000)
        assert client.rest() == []


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"", b""),
        (b"PUB", b""),
        (b"PUB t\n\x00\x00", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n\x00\x00\x00\x09half", b"E_BAD_MESSAGE PUB failed to read message body"),
        (
            b"MPUB t\n\x00\x00\x00\x20\x00\x00\x00\x02\x00\x00\x00\x01a\x00",
            b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
        ),
        (b"IDENTIFY\n\x00\x00\x00\x09{", b"E_BAD_BODY IDENTIFY failed to read body"),
    ],
)
def test_half_a_command_is_never_carried_out(nsqd: NsqdProcess, sent: bytes, text: bytes) -> None:
    with nsqd.client() as client:
        client.send(sent)
        client.end()
        assert client.rest() == (error(text) if text else [])


@pytest.mark.parametrize("seed", range(5))
def test_garbage(nsqd: NsqdProcess, seed: int) -> None:
    """Random bytes, and commands with random bytes for parameters and bodies."""
    chance = random.Random(seed)
    verbs = [b"IDENTIFY", b"SUB", b"PUB", b"MPUB", b"DPUB", b"RDY", b"FIN", b"REQ", b"TOUCH", b"CLS", b"AUTH", b""]
    for _ in range(40):
        garbage = chance.randbytes(chance.randrange(200))
        line = chance.choice(verbs) + chance.choice((b" ", b"\n", b" t ", b" t c\n")) + garbage
        with nsqd.client(chance.choice((MAGIC, MAGIC, MAGIC, b""))) as client:
            client.send(chance.choice((garbage, line, b"SUB t garbage\n" + line)))
            client.end()
            assert all(frame.kind in (RESPONSE, ERROR, MESSAGE) for frame in client.rest())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"  V2PUB t\n\x00\x00\x00\x01x\r\n\r\n", b"400"),
        (b"\x00\xff\x00\xff\r\n\r\n", b"400"),
        (b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", b"413"),
        (b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf", b"400"),
        (b"GET /sta", b""),
    ],
)
def test_what_is_no_http_request_or_half_of_one(nsqd: NsqdProcess, sent: bytes, status: bytes) -> None:
    with Client(nsqd.http_port, sent) as client:
        client.end()
        answer = client.bytes_left()
        assert answer.split(b" ")[:2] == [b"HTTP/1.1", status] if status else answer == b""


@pytest.mark.parametrize("piece", [b"x", b"/x: y\r\n"])
def test_a_request_that_does_not_end(nsqd: NsqdProcess, piece: bytes) -> None:
    """One line, or more and more of them: the broker has enough in time, and ends the connection."""
    with Client(nsqd.http_port, b"GET /stats HTTP/1.1\r\nx") as client, pytest.raises(ConnectionError):
        for _ in range(10_000):
            client.send(piece * 1000)


def test_two_hundred_connections_that_open_and_die(nsqd: NsqdProcess) -> None:
    """Silent, half-way through a command, subscribed and ready; closed in order, or reset."""
    beginnings = [b"", MAGIC, MAGIC + b"PUB t\n\x00\x00\x10\x00half", MAGIC + b"SUB t dying\nRDY 100\n"]
    for number in range(200):
        client = nsqd.client(beginnings[number % len(beginnings)])
        if number % 3:
            client.reset()
        else:
            client.close()


def test_two_hundred_half_commands_at_a_time(nsqd: NsqdProcess) -> None:
    half = MAGIC + b"MPUB t\n\x00\x10\x00\x00\x00\x00\x00\x01\x00\x01\x00\x00half"
    clients = [nsqd.client(half) for _ in range(200)]
    nsqd.publish("t#ephemeral", [b"in between"])
    for client in clients:
        client.close()
