"""What a hostile client of protocol V3 can have the broker do and keep."""

from __future__ import annotations

import struct
import sys

import pytest

from nsqtw.testing.protocols import SECRET, SessionHarness
from tests.protocols import v3_frames as v3
from tests.protocols.v3_client import Client, deliveries, names
from tests.protocols.v3_frames import answers, error_of

BODY_TIMEOUT = 30.0
UNREAD = 256 * 1024


@pytest.fixture
def client() -> Client:
    return Client(SessionHarness(), said=v3.hello(heartbeat_interval=0))


def waits(client: Client, seconds: float) -> list[str]:
    client.stage.now += seconds
    return names(client.hears())


def test_half_a_frame_is_not_kept_for_ever(client: Client) -> None:
    frame = v3.publish(1, [b"x" * 100])
    assert client.says(frame[:50]) == []
    assert waits(client, BODY_TIMEOUT - 1) == []
    client.stage.now += 1
    (error,) = client.hears()
    assert error_of(error.payload)[0] == "E_TIMEOUT the rest of a frame did not come in time"
    assert client.is_closed and not client.stage.stored()


def test_a_byte_now_and_then_does_not_help() -> None:
    client = Client(SessionHarness(), said=v3.hello(heartbeat_interval=1000))
    frame = v3.publish(1, [b"x" * 100])
    for byte in struct.unpack("60c", frame[:60]):
        client.connection.send(byte)
        client.stage.now += 0.9
        if client.is_closed:
            break
    assert client.is_closed
    assert any("the rest of a frame did not come in time" in line for _, line in client.stage.lines)


def test_a_frame_that_goes_on_coming_is_waited_for() -> None:
    stage = SessionHarness()
    stage.options.min_body_rate = 2
    client = Client(stage, said=v3.hello(heartbeat_interval=0))
    frame = v3.publish(1, [b"x" * 99] * 5)
    for start in range(0, 400, 40):
        assert client.says(frame[start : start + 40]) == []
        stage.now += 15
    assert names(client.says(frame[400:])) == ["CONFIRM"]


def test_a_frame_after_the_other_each_in_time(client: Client) -> None:
    frame = v3.publish(1, [b"x"])
    assert client.says(frame[:9]) == []
    for _ in range(5):
        client.stage.now += 0.9 * BODY_TIMEOUT
        assert names(client.says(frame[9:], frame[:9])) == ["CONFIRM"]
    assert not client.is_closed


def test_single_fins_are_not_half_a_frame(client: Client) -> None:
    client.says(v3.publish(1, [b"x"] * 6))
    first = deliveries(client, v3.subscribe(9))[0].id
    assert client.says(*(v3.fin(9, (first + number, 1)) for number in range(6))) == []
    client.stage.now += BODY_TIMEOUT - 1
    frame = v3.publish(2, [b"x" * 100])
    assert client.says(frame[:50]) == []
    assert waits(client, 2) == []
    assert sorted(names(client.says(frame[50:]))) == ["CONFIRM", "DELIVER"]


def flood(client: Client, frame: bytes, count: int) -> list[str]:
    """Send a frame so many times, at once, and return the names of the answers until the client has to wait."""
    session, stage = client.connection.session, client.stage
    session.receive_data(frame * count, stage.now)
    found = []
    while True:
        found += names(answers(client.connection.read()))
        if not session.is_behind:
            return found


@pytest.mark.parametrize(
    "frame",
    [v3.ping(), v3.credit(9, 0), v3.fin(9, (5, 1)), v3.touch(9, (5, 1)), v3.unsubscribe(77), v3.publish(1, [b""])],
    ids=["PING", "CREDIT", "FIN", "TOUCH", "UNSUBSCRIBE", "REJECT"],
)
def test_frames_without_effect_are_slowed_and_then_refused(frame: bytes) -> None:
    stage = SessionHarness()
    stage.options.max_idle_commands = 1000
    client = Client(stage)
    client.says(v3.subscribe(9))
    flood(client, frame, 3000)
    session = client.connection.session
    assert not session.wants_data and not client.is_closed
    rests = 0
    while not client.is_closed:
        stage.now += 0.1
        rests += 1
        assert rests < 50
        while session.is_behind or not rests:
            client.hears()
        client.hears()
    assert rests > 1
    assert session.refused == "max-idle-commands"
    assert any("too many commands without effect" in line for _, line in stage.lines)


def test_frames_with_an_effect_are_never_too_many() -> None:
    stage = SessionHarness()
    stage.options.max_idle_commands = 100
    client = Client(stage)
    for number in range(500):
        client.connection.send(v3.ping() + v3.publish(number, [b"x"]))
    assert not client.is_closed and stage.stored() == 500


def test_what_is_not_read_is_bounded_in_bytes() -> None:
    stage = SessionHarness()
    stage.options.max_idle_commands = 0
    client = Client(stage)
    client.says(v3.subscribe(9))
    session = client.connection.session
    session.pause_delivery()
    apart = [(2 * number, 1) for number in range(1, 4001)]
    written = 0
    while session.wants_data:
        written += len(client.connection.send(v3.fin(9, *apart)))
        assert written < 2 * UNREAD
    assert written > UNREAD


@pytest.mark.parametrize("kind", [v3.fin, v3.touch])
@pytest.mark.parametrize("number", [9, 4], ids=["subscribed", "not subscribed"])
def test_ranges_without_messages_are_bounded_too(client: Client, kind: object, number: int) -> None:
    client.says(v3.subscribe(9))
    (error,) = client.says(kind(number, *[(5, 0)] * 4097))  # type: ignore[operator]
    assert error.name == "ERROR" and "has more than 4096 ranges" in error_of(error.payload)[0]


def test_a_header_table_ends_with_the_messages(client: Client) -> None:
    (rejected,) = client.says(v3.publish(1, [b"x"], headers=[{}] * 5000))
    assert rejected.name == "REJECT"
    assert error_of(rejected.payload)[0] == "E_BAD_HEADERS PUB has headers for 2 of 1 messages"


def test_subscriptions_are_bounded(client: Client) -> None:
    frames = [v3.subscribe(number, b"t", b"c#ephemeral", credit=0) for number in range(1, 1002)]
    client.connection.session.receive_data(b"".join(frames), client.stage.now)
    found = []
    while client.connection.session.is_behind:
        found += client.hears()
    assert [one.id for one in found if one.name == "UNSUBSCRIBED"] == [1001]
    assert [len(channel.consumers) for channel in client.stage.broker.topics["t"].channels.values()] == [1000]


@pytest.mark.parametrize("frame", [v3.ping(1), v3.publish(2, [b"x"]), v3.publish(2, [b"x", b"y"]), v3.fin(9, (1, 1))])
def test_nothing_is_kept_of_frames_that_were_executed(client: Client, frame: bytes) -> None:
    """Memory that is free again takes the next chunk; a chunk may have 256 KB."""
    client.says(v3.publish(1, [b"x"]), v3.subscribe(9))
    chunk = frame * 3
    references = sys.getrefcount(chunk)
    client.says(chunk)
    assert sys.getrefcount(chunk) == references


LARGE = v3.publish(1, [b"x" * 90] * 800)


def test_a_large_frame_is_not_kept_before_a_secret() -> None:
    stage = SessionHarness()
    stage.guard()
    client = Client(stage, said=v3.hello())
    (error,) = client.says(LARGE[:100])
    assert error_of(error.payload)[0].startswith(f"E_INVALID frame of {len(LARGE) - 4} bytes is larger than 70000")
    assert client.is_closed


@pytest.mark.parametrize("said", [v3.hello(SECRET), v3.hello() + v3.auth(SECRET)])
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_large_frame_behind_a_secret(said: bytes, is_slow: bool) -> None:
    stage = SessionHarness()
    authorizations = stage.guard()
    authorizations.is_slow = is_slow
    client = Client(stage, said=said + LARGE)
    if is_slow:
        authorizations.answer()
    assert "WELCOME" in names(client.greeting + client.hears())
    assert not client.is_closed


@pytest.mark.parametrize("name", ["client_id", "hostname", "user_agent"])
def test_what_a_client_says_of_itself_is_bounded(name: str) -> None:
    assert names(Client(SessionHarness(), said=v3.hello(**{name: "x" * 255})).greeting) == ["WELCOME"]
    (error,) = Client(SessionHarness(), said=v3.hello(**{name: "x" * 256})).greeting
    assert error_of(error.payload)[0] == f"E_BAD_BODY HELLO {name} is longer than 255 characters"
