"""SUB: what it refuses, births that must be saved first, and the ways a subscription ends."""

from __future__ import annotations

import pytest

from nsqtw.errors import BackendError
from tests.protocols.dialogue import CLOSE_WAIT, END, OK, V2Harness, error, identify, message, pub


@pytest.mark.parametrize("line", [b"SUB\n", b"SUB t\n", b"SUB $\n", b"SUB t\r\n"])
def test_sub_needs_a_topic_and_a_channel(line: bytes) -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(line)
    client.expect(error(b"E_INVALID SUB insufficient number of parameters"), END)
    assert not stage.broker.topics


def test_the_topic_is_looked_at_before_the_channel() -> None:
    client = V2Harness().connect()
    client.send(b"SUB $ $\n")
    client.expect(error(b'E_BAD_TOPIC SUB topic name "$" is not valid'), END)


def test_sub_makes_topic_and_channel_and_delivers_nothing_before_rdy() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(b"SUB t c\n", pub(b"x"))
    client.expect(OK, OK)
    assert list(stage.broker.topics["t"].channels) == ["c"]
    client.send(b"RDY 1\n")
    client.expect(message(b"x"))


def test_sub_is_answered_when_the_birth_is_saved_and_what_follows_waits_for_it() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.saves_held = True
    client.send(b"SUB t c\n" + pub(b"y", topic=b"u"), b"CLS\n")
    client.expect()
    assert not client.session.wants_data
    assert list(stage.broker.topics) == ["t"]
    stage.saves_held = False
    stage.turn()
    assert client.session.wants_data
    client.expect(OK, OK, CLOSE_WAIT)
    (saved, *_) = stage.core.positions.load().topics
    assert [cursor.name for cursor in saved.cursors] == ["c"]


def test_rdy_behind_a_birth_is_taken_when_that_is_saved() -> None:
    stage = V2Harness()
    stage.connect().send(pub(b"a", b"b"))
    client = stage.connect()
    stage.saves_held = True
    client.send(b"SUB t c\nRDY 1\n")
    client.expect()
    stage.saves_held = False
    stage.turn()
    client.expect(OK, message(b"a"))


def test_everybody_who_waits_for_a_birth_is_answered() -> None:
    stage = V2Harness()
    clients = [stage.connect() for _ in range(3)]
    stage.saves_held = True
    for client in clients:
        client.send(b"SUB t c\n")
        client.expect()
    stage.saves_held = False
    stage.turn()
    for client in clients:
        client.expect(OK)


def test_a_channel_that_is_saved_is_subscribed_to_at_once() -> None:
    stage = V2Harness()
    stage.connect().subscribe()
    client = stage.connect()
    stage.saves_held = True
    client.send(b"SUB t c\nCLS\n")
    client.expect(OK, CLOSE_WAIT)


def test_ephemeral_ones_are_never_saved_and_not_waited_for() -> None:
    stage = V2Harness()
    stage.saves_held = True
    for line in (b"SUB t c#ephemeral\n", b"SUB t#ephemeral c\n"):
        client = stage.connect()
        client.send(line)
        client.expect(OK)


def test_a_birth_that_cannot_be_saved_is_an_error_and_the_next_sub_tries_again() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.save_error = BackendError("disk full")
    client.send(pub(b"a", topic=b"u") + b"SUB t c\nRDY 1\n" + pub(b"b", topic=b"u"))
    client.expect(OK, error(b"E_SUB_FAILED SUB failed disk full"), END)
    assert stage.broker.topics["u"].depth == 1
    assert not stage.broker.topics["t"].channels["c"].consumers
    stage.save_error = None
    stage.connect().subscribe()


def test_a_client_that_goes_while_its_birth_is_saved() -> None:
    stage = V2Harness()
    client = stage.connect()
    stage.saves_held = True
    client.send(b"SUB t c\nRDY 1\n")
    client.vanish()
    stage.saves_held = False
    stage.turn()
    stage.wait(100)
    client.expect()
    channel = stage.broker.topics["t"].channels["c"]
    assert (channel.is_saved, channel.consumers) == (True, [])


def test_a_channel_takes_as_many_consumers_as_it_may_have() -> None:
    stage = V2Harness(max_channel_consumers=2)
    first, second, third = stage.connect(), stage.connect(), stage.connect()
    first.subscribe()
    second.subscribe()
    third.send(b"SUB t c\n")
    third.expect(error(b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 2"), END)
    first.vanish()
    stage.connect().subscribe()
    stage.connect().subscribe(channel=b"other")


def test_a_topic_that_is_going_away_takes_no_subscriber() -> None:
    stage = V2Harness()
    stage.connect().subscribe()
    stage.saves_held = True
    stage.broker.delete_topic("t")
    client = stage.connect()
    client.send(b"SUB t c\n")
    client.expect(error(b"E_SUB_FAILED SUB failed exiting"), END)


def test_deleting_the_channel_or_the_topic_ends_its_consumers_without_a_word() -> None:
    stage = V2Harness()
    consumer, other = stage.connect(), stage.connect()
    consumer.subscribe(channel=b"c", ready=1)
    other.subscribe(channel=b"d", ready=1)
    stage.broker.topics["t"].delete_channel("c")
    stage.turn()
    consumer.expect(END)
    other.expect()
    stage.broker.delete_topic("t")
    stage.turn()
    other.expect(END)


# -- ephemeral ones


def test_an_ephemeral_channel_goes_with_its_last_client() -> None:
    stage = V2Harness()
    first, second = stage.connect(), stage.connect()
    first.subscribe(channel=b"c#ephemeral", ready=1)
    second.subscribe(channel=b"c#ephemeral", ready=1)
    topic = stage.broker.topics["t"]
    first.vanish()
    assert list(topic.channels) == ["c#ephemeral"]
    second.send(b"X\n")
    second.expect(error(b"E_INVALID invalid command X"), END)
    assert not topic.channels
    assert list(stage.broker.topics) == ["t"], "the topic is a lasting one"


def test_what_an_ephemeral_channel_had_goes_with_it() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe(channel=b"c#ephemeral", ready=1)
    client.send(pub(b"a", b"b"))
    client.expect(OK, OK, message(b"a"))
    client.vanish()
    again = stage.connect()
    again.subscribe(channel=b"c#ephemeral", ready=10)
    again.send(pub(b"c"))
    again.expect(OK, message(b"c"))


def test_an_ephemeral_topic_goes_with_its_last_channel() -> None:
    stage = V2Harness()
    client, publisher = stage.connect(), stage.connect()
    client.subscribe(topic=b"t#ephemeral", channel=b"c#ephemeral", ready=1)
    client.vanish()
    assert not stage.broker.topics
    publisher.send(pub(b"x", topic=b"t#ephemeral"))
    publisher.expect(OK)


def test_a_lasting_channel_stays_without_clients() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.subscribe()
    client.vanish()
    stage.connect().send(pub(b"kept"))
    again = stage.connect()
    again.subscribe(ready=1)
    again.expect(message(b"kept"))


@pytest.mark.parametrize("experiments", [("topology-aware-consumption",), ()])
def test_the_experiment_prefers_who_is_near(experiments: tuple[str, ...]) -> None:
    stage = V2Harness(enable_experiment=experiments, topology_zone="z", topology_region="r")
    clients = {}
    for name, zone, region in (("far", "y", "q"), ("region", "y", "r"), ("zone", "z", "r")):
        clients[name] = stage.connect()
        clients[name].send(identify(topology_zone=zone, topology_region=region))
        clients[name].expect(OK)
        clients[name].subscribe(ready=2 if name == "zone" else 1)
    got = []
    for _ in range(4):
        stage.connect().send(pub(b"x"))
        got += [name for name, client in clients.items() if client.read()]
    assert sorted(got) == sorted(["far", "region", "zone", "zone"])
    channel = stage.core.channel()
    counts = (channel.zone_local_msg_count, channel.region_local_msg_count, channel.global_msg_count)
    if experiments:
        assert (got, counts) == (["zone", "zone", "region", "far"], (2, 1, 1))
    else:
        assert counts == (0, 0, 4)
