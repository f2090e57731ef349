"""What a client says of itself, and what of it changes when it says it again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from nsqtw.core.client import Client
from nsqtw.core.timers import TimerQueue
from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols.identify import Settings
from nsqtw.protocols.v2_identity import MAX_IDENTIFIES, Identity
from tests.protocols.dialogue import END, HEARTBEAT, OK, UNKNOWN_ID, V2Harness, error, identify, message, pub


class Speaker:
    """A client without a session."""

    def __init__(self, **options: Any) -> None:
        self.client = Client("1.2.3.4:5", 0)
        self.lines: list[str] = []
        self.identity = Identity(self.client, Options(**options), self._log)

    def _log(self, level: str, text: str, /, **fields: object) -> None:
        self.lines.append(f"{level}: {text.format(**fields)}")

    def says(self, **fields: Any) -> None:
        self.identity.learn(json.dumps(fields).encode())

    def subscribed(self) -> tuple[Any, ...]:
        """The timeout of its deliveries, what TOUCH grants, how it is sampled, and whether it is near."""
        consumer = self.identity.consumer(TimerQueue(lambda: None), lambda frames: None, lambda: None)
        near = (consumer.zone_local, consumer.region_local)
        return consumer.msg_timeout, consumer.touch_timeout, consumer.sample_rate, near


@pytest.mark.parametrize(
    ("address", "host"), [("1.2.3.4:5678", "1.2.3.4"), ("[2001:db8::1]:5678", "2001:db8::1"), ("@", "")]
)
def test_before_identify_a_client_is_its_address(address: str, host: str) -> None:
    stage = V2Harness()
    stage.connect(address)
    assert (stage.seen.client_id, stage.seen.hostname, stage.seen.user_agent) == (host, host, "")


def test_without_names_a_client_has_none() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify())
    client.expect(OK)
    assert (stage.seen.client_id, stage.seen.hostname, stage.seen.user_agent) == ("", "", "")


def test_statistics_show_what_a_client_says_of_itself() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(
        identify(client_id="id", hostname="h", user_agent="ua", sample_rate=5, topology_region="r", topology_zone="z")
    )
    client.expect(OK)
    shown = stage.seen
    assert (shown.client_id, shown.hostname, shown.user_agent, shown.sample_rate) == ("id", "h", "ua", 5)
    assert (shown.topology_region, shown.topology_zone, shown.state) == ("r", "z", 0)
    assert (shown.tls, shown.snappy, shown.deflate) == (False, False, False)


# -- again


def test_identify_can_be_repeated_until_sub() -> None:
    client = V2Harness().connect()
    for _ in range(3):
        client.send(identify())
        client.expect(OK)
    client.subscribe()
    client.send(identify())
    client.expect(error(b"E_INVALID cannot IDENTIFY in current state"), END)


def test_names_are_those_of_the_last_identify() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(client_id="a", hostname="b", user_agent="c"), identify(client_id="d"))
    client.expect(OK, OK)
    assert (stage.seen.client_id, stage.seen.hostname, stage.seen.user_agent) == ("d", "", "")


def test_deliveries_time_out_as_the_first_identify_says_and_touch_grants_what_the_last_one_says() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(msg_timeout=1000), identify(msg_timeout=5000), pub(b"a", b"b"))
    client.expect(OK, OK, OK, OK)
    client.subscribe(ready=2)
    a, _ = client.expect(message(b"a"), message(b"b"))
    client.send(b"TOUCH %s\n" % a.id)
    stage.wait(1.2)
    client.expect(message(b"b", attempts=2))
    client.send(b"RDY 0\n")
    stage.wait(3.7)
    client.send(b"FIN %s\n" % a.id, b"FIN %s\n" % UNKNOWN_ID)
    client.expect(error(b"E_FIN_FAILED FIN %s failed ID not in flight" % UNKNOWN_ID))


def test_messages_are_sampled_as_the_first_identify_says() -> None:
    random.seed(1)
    for first, last, sampled in ((0, 1, False), (1, 0, True)):
        stage = V2Harness()
        client = stage.connect()
        client.send(identify(sample_rate=first), identify(sample_rate=last))
        client.expect(OK, OK)
        client.subscribe(ready=2500)
        client.send(pub(*[b"x"] * 500))
        delivered = client.read().count(message(b"x"))
        assert delivered < 50 if sampled else delivered == 500
        assert stage.seen.sample_rate == last


def test_heartbeats_come_as_the_first_identify_says() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000), identify(heartbeat_interval=10_000))
    client.expect(OK, OK)
    for _ in range(5):
        stage.wait(1.01)
        client.expect(HEARTBEAT)


def test_heartbeats_turned_off_by_the_first_identify_stay_off() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(heartbeat_interval=-1), identify(heartbeat_interval=5000))
    client.expect(OK, OK)
    for _ in range(3):
        stage.wait(4.9)
        client.expect()
        client.send(b"NOP\n")


def test_heartbeats_go_on_when_a_second_identify_turns_them_off() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000), identify(heartbeat_interval=-1))
    client.expect(OK, OK)
    for _ in range(5):
        stage.wait(1.01)
        client.expect(HEARTBEAT)


def test_the_read_deadline_is_what_the_last_identify_says() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(heartbeat_interval=10_000), identify(heartbeat_interval=2000))
    client.expect(OK, OK)
    stage.wait(3.9)
    client.expect()
    stage.wait(0.2)
    client.expect(END)


def test_it_is_said_ten_times_at_most() -> None:
    """Reading one and its line in the log take long, and it is done for clients that have shown no secret."""
    client = V2Harness().connect()
    client.send(identify() * 100_000)
    client.expect(*[OK] * 10, error(b"E_INVALID cannot IDENTIFY more than 10 times"), END)


def test_a_second_identify_keeps_what_it_does_not_name() -> None:
    speaker = Speaker()
    speaker.says(msg_timeout=1000, output_buffer_size=100, output_buffer_timeout=50, sample_rate=5)
    speaker.says(heartbeat_interval=2000)
    agreed = Settings(1.0, 0.05, heartbeat_interval=2.0, output_buffer_bytes=100)
    assert speaker.identity.settings == agreed, "but 0 is a sample rate"


def test_a_client_that_says_nothing_gets_what_the_options_say() -> None:
    assert Speaker(msg_timeout=7.0).subscribed() == (7.0, 7.0, 0, (False, False))


@pytest.mark.parametrize("experiments", [("topology-aware-consumption",), ()])
def test_it_subscribes_with_what_it_said_first_but_touch(experiments: tuple[str, ...]) -> None:
    speaker = Speaker(enable_experiment=experiments, topology_zone="z", topology_region="r")
    speaker.says(msg_timeout=1000, sample_rate=5, topology_zone="z", topology_region="far")
    speaker.says(msg_timeout=3000, sample_rate=9, topology_zone="far", topology_region="r")
    assert speaker.subscribed() == (1.0, 3.0, 5, (bool(experiments), False))
    assert (speaker.client.topology_zone, speaker.client.sample_rate) == ("far", 9)


def test_what_it_says_is_logged_before_it_is_judged_and_not_more_often_than_it_may_be_said() -> None:
    speaker = Speaker()
    for _ in range(MAX_IDENTIFIES + 1):
        with pytest.raises(ClientError):
            speaker.says(sample_rate=100)
    assert len(speaker.lines) == MAX_IDENTIFIES
    assert speaker.lines[0].startswith("info: [1.2.3.4:5] IDENTIFY: {ClientID: Hostname: ")
    assert speaker.subscribed()[2] == 0


@pytest.mark.parametrize("name", ["client_id", "hostname", "user_agent", "topology_region", "topology_zone"])
def test_what_a_client_says_of_itself_is_bounded(name: str) -> None:
    """/stats shows all of it for as long as the client is connected."""
    stage = V2Harness()
    client = stage.connect()
    client.send(identify(**{name: "\x01" * 255}))
    client.expect(OK)
    client = stage.connect()
    client.send(identify(**{name: "\x01" * 256}))
    client.expect(error(f"E_BAD_BODY IDENTIFY {name} is longer than 255 characters".encode()), END)
