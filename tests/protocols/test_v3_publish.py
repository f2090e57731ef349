"""Dialogues in protocol V3 about publishes: ids of messages, headers that the broker reads, refusals."""

from __future__ import annotations

import json
import struct

import pytest

from nsqtw.testing.protocols import SECRET, SessionHarness
from tests.protocols import v3_frames as v3
from tests.protocols.v3_client import Client, bodies, deliveries, names
from tests.protocols.v3_frames import Answer, confirmed, confirmed_ids, delivered, error_of


@pytest.fixture
def client() -> Client:
    return Client(SessionHarness())


@pytest.fixture
def told() -> Client:
    """A client that is told the ids of its messages."""
    return Client(SessionHarness(), said=v3.hello(features=["message_ids", "another"]))


def refusal(written: list[Answer]) -> str:
    """The error of the only answer, a REJECT."""
    (rejected,) = written
    assert rejected.name == "REJECT", rejected
    return error_of(rejected.payload)[0]


def test_ids_are_told_to_those_that_ask(told: Client, client: Client) -> None:
    assert json.loads(told.greeting[0].payload)["features"] == ["message_ids"]
    assert json.loads(client.greeting[0].payload)["features"] == []
    written = told.says(v3.publish(7, [b"a", b"b"]), v3.publish(8, [b"c"]), v3.publish(9, [b"d"]))
    found = confirmed_ids(written)
    assert list(found) == [7, 8, 9] and [len(ids) for ids in found.values()] == [2, 1, 1]
    sent = [one for ids in found.values() for one in ids]
    assert [one.id for one in deliveries(told, v3.subscribe(1))] == sent
    (answer,) = client.says(v3.publish(1, [b"x"]))
    assert answer.flags == 0 and confirmed([answer]) == [1]


def test_ids_of_a_frame_with_delays_are_in_the_order_of_its_messages(told: Client) -> None:
    told.says(v3.subscribe(1, credit=10))
    written = told.says(v3.publish(1, [b"now", b"later", b"now too"], delays=[0, 1000, 0]))
    found = {one.body: one.id for one in delivered(written)}
    told.stage.now += 2
    found |= {one.body: one.id for one in delivered(told.hears())}
    assert confirmed_ids(written) == {1: [found[b"now"], found[b"later"], found[b"now too"]]}


def test_a_repeat_has_the_id_of_the_first(told: Client) -> None:
    told.stage.broker.topic("t").policies.set({"dedupe_window": 3600.0})
    headers = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    first = confirmed_ids(told.says(v3.publish(1, [b"a", b"b", b"c"], headers=headers)))[1]
    written = told.says(v3.publish(2, [b"c", b"a", b"new"], headers=[headers[2], headers[0], {"id": "d"}]))
    assert confirmed_ids(written)[2] == [first[2], first[0], first[2] + 1]
    assert told.stage.stored() == 4


def test_a_rejected_publish_has_no_ids(told: Client) -> None:
    told.stage.broker.topic("t").channel("c", told.stage.now).policies.set({"max_depth": 3})
    frames = [v3.publish(number, [b"x"]) for number in range(1, 4)]
    assert names(told.says(*frames)) == ["CONFIRM"]
    written = told.says(*frames)
    assert [(one.name, one.id) for one in written] == [("REJECT", 1), ("REJECT", 2), ("REJECT", 3)]


def test_a_confirm_of_auth_has_no_ids() -> None:
    stage = SessionHarness()
    stage.guard()
    client = Client(stage, said=v3.hello(features=["message_ids"]))
    (answer,) = client.says(v3.auth(SECRET, 5))
    assert (answer.flags, answer.payload) == (1, struct.pack(">IIQI", 5, 1, 0, 0))


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"ttl": "soon"}, "header 'ttl' must be milliseconds"),
        ({"priority": "urgent"}, "header 'priority' must be high, normal or low"),
        ({"id": "x" * 256}, "header 'id' must be 1 to 255 bytes"),
    ],
)
def test_headers_that_the_broker_reads_have_values_that_it_knows(
    client: Client, headers: dict[str, str], why: str
) -> None:
    answer = refusal(client.says(v3.publish(1, [b"x"], headers=[headers])))
    assert answer.startswith("E_BAD_HEADERS ") and why in answer
    assert not client.stage.stored() and not client.is_closed


def test_headers_of_many_messages_are_checked_together(client: Client) -> None:
    headers = [{"number": str(number)} for number in range(40)]
    assert names(client.says(v3.publish(1, [b"x"] * 40, headers=headers))) == ["CONFIRM"]
    answer = refusal(client.says(v3.publish(2, [b"x"] * 42, headers=[*headers, {"ttl": "soon"}, {"ttl": "0"}])))
    assert answer.startswith("E_BAD_HEADERS ") and answer.endswith(
        "header 'ttl' must be milliseconds, as a whole number above 0"
    )
    assert client.stage.stored() == 40


def test_a_backend_without_headers_is_named(client: Client) -> None:
    client.stage.broker.topic("t").log.stores_headers = False
    answer = refusal(client.says(v3.publish(1, [b"x"], headers=[{"k": "v"}])))
    assert answer == "E_BAD_HEADERS PUB failed the storage backend does not store headers"
    assert names(client.says(v3.publish(2, [b"x"]))) == ["CONFIRM"]


def test_a_full_channel_rejects_until_there_is_room(client: Client) -> None:
    client.stage.broker.topic("t").channel("c", client.stage.now).policies.set({"max_depth": 2})
    assert names(client.says(v3.publish(1, [b"x"]), v3.publish(2, [b"y"]))) == ["CONFIRM"]
    refused = "E_PUB_FAILED PUB failed channel c has reached its max_depth"
    assert refusal(client.says(v3.publish(3, [b"z"]))) == refused
    (first, _) = deliveries(client, v3.subscribe(1))
    written = client.says(v3.fin(1, (first.id, 2)), v3.publish(4, [b"z"]))
    assert confirmed(written) == [4] and bodies(written) == [b"z"]


@pytest.mark.parametrize("delays", [None, [0, 1, 2]])
def test_a_publish_that_never_fits_is_told_so(client: Client, delays: list[int] | None) -> None:
    client.stage.broker.topic("t").channel("c", client.stage.now).policies.set({"max_depth": 2})
    refused = refusal(client.says(v3.publish(1, [b"x"] * 3, delays=delays)))
    assert refused.endswith("PUB failed 3 messages exceed the max_depth of channel c, which is 2")
    assert confirmed(client.says(v3.publish(2, [b"x"] * 2))) == [2]


def test_headers_are_bytes_of_messages_with_different_delays(client: Client) -> None:
    client.stage.broker.topic("t").channel("c", client.stage.now).policies.set({"max_bytes": 200})
    given = [{"k": "v" * 50}] * 3
    refused = refusal(client.says(v3.publish(1, [b"x"] * 3, headers=given, delays=[0, 1, 2])))
    assert refused.endswith("PUB failed 267 bytes exceed the max_bytes of channel c, which is 200")
    assert confirmed(client.says(v3.publish(2, [b"x"] * 3, delays=[0, 1, 2]))) == [2]


def test_a_draining_broker_rejects(client: Client) -> None:
    client.stage.broker.begin_drain()
    written = client.says(v3.publish(1, [b"x"]))
    assert names(written) == ["DRAINING", "REJECT"] and not client.is_closed
    assert error_of(written[1].payload)[0].startswith("E_PUB_FAILED PUB failed ")


def test_messages_with_different_delays_are_stored_together_or_not(client: Client) -> None:
    client.stage.broker.topic("t").channel("c", client.stage.now).policies.set({"max_depth": 2})
    assert names(client.says(v3.publish(1, [b"x"] * 3, delays=[0, 1, 2]))) == ["REJECT"]
    assert not client.stage.stored()


def test_the_reason_of_the_last_nack_is_in_the_dead_letter(client: Client) -> None:
    client.stage.broker.topic("t").channel("c", client.stage.now).policies.set({"max_attempts": 2})
    client.says(v3.publish(1, [b"a", b"b"]))
    first, second = deliveries(client, v3.subscribe(9))
    client.says(v3.nack(9, 0, b"the first reason", (first.id, 2)))
    client.says(v3.nack(9, 0, "no\ncustomer ü ".encode() + b"x" * 2000, (first.id, 1)), v3.req(9, 0, (second.id, 1)))
    client.hears()
    letters = {one.body: one.headers for one in deliveries(client, v3.subscribe(5, b"t.dead"))}
    detail = letters[b"a"]["nsq-dead-detail"]
    assert detail.startswith("no customer ü xx") and len(detail.encode()) == 1000
    assert letters[b"a"]["nsq-dead-reason"] == letters[b"b"]["nsq-dead-reason"] == "requeued"
    assert "nsq-dead-detail" not in letters[b"b"]


def test_a_bound_judges_each_publish_of_a_run(client: Client) -> None:
    """Those that fit are accepted, and each refusal counts."""
    topic = client.stage.broker.topic("t")
    topic.channel("c", client.stage.now).policies.set({"max_depth": 3})
    *rejected, stored = client.says(*(v3.publish(number, [b"%d" % number]) for number in range(1, 10)))
    assert [(one.name, one.id) for one in rejected] == [("REJECT", number) for number in range(4, 10)]
    assert error_of(rejected[0].payload)[0] == "E_PUB_FAILED PUB failed channel c has reached its max_depth"
    assert confirmed([stored]) == [1, 2, 3] and not client.is_closed
    assert (topic.put_total, topic.rejected_count) == (3, 6)
    refusal(client.says(v3.publish(10, [b"a", b"b"])))
    assert topic.rejected_count == 7, "the messages of one frame are one publish"
    assert client.says(v3.ping()) and not client.is_closed


def test_a_bound_judges_each_publish_of_a_run_whose_ids_are_told(told: Client) -> None:
    topic = told.stage.broker.topic("t")
    topic.channel("c", told.stage.now).policies.set({"max_depth": 2})
    *rejected, stored = told.says(*(v3.publish(number, [b"%d" % number]) for number in range(1, 5)))
    assert [(one.name, one.id) for one in rejected] == [("REJECT", 3), ("REJECT", 4)]
    found = confirmed_ids([stored])
    assert topic.rejected_count == 2 and list(found) == [1, 2]
    assert [(one.body, [one.id]) for one in deliveries(told, v3.subscribe(1))] == [(b"1", found[1]), (b"2", found[2])]
