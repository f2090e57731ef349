"""The publisher against an HTTP server that takes, refuses, drops and keeps silent."""

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark_nsq.errors import PublishError
from pyspark_nsq.http.attempt import Requester
from pyspark_nsq.http.causes import Cause
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.entries import entries_of
from pyspark_nsq.sink.packing import Request, TopicPacker
from pyspark_nsq.sink.publisher import Publisher

from tests.crash.disks import FaultyDisk
from tests.process import wait_until
from tests.spark.fake_nsqd import Answer, FakeNsqd, Misbehaviour
from tests.wire import HOST


def batch(*messages: bytes) -> Request:
    [entries] = entries_of(pa.array(messages, pa.binary()))
    [request] = [*(packer := TopicPacker("t", 1000, 100_000)).extend(entries), *packer.flush()]
    return request


def options(*nsqds: FakeNsqd | str, **more: str) -> SinkOptions:
    """SinkOptions for these nsqds with pauses that do not slow the tests down."""
    addresses = ",".join(n if isinstance(n, str) else n.address for n in nsqds)
    pauses = {"backoffMs": "1", "maxBackoffMs": "20"} if more.get("retries") != "0" else {}
    return SinkOptions.parse({"nsqdHttpAddresses": addresses} | pauses | more)


def test_what_is_flushed_has_arrived(nsqd: FakeNsqd) -> None:
    with Publisher(options(nsqd)) as publisher:
        for number in range(20):
            publisher.submit(batch(b"%d" % number, b"x"))
        publisher.flush()
        assert sorted([b"%d" % n for n in range(20)] + [b"x"] * 20) == sorted(nsqd.messages["t"])
    assert (publisher.tally.rows, publisher.tally.requests, publisher.tally.retried) == (40, 20, 0)
    assert sum(batch(b"%d" % n, b"x").body_bytes for n in range(20)) == publisher.tally.body_bytes


def test_an_nsqd_that_would_publish_to_all_channels_gets_nothing(nsqd: FakeNsqd) -> None:
    publisher = Publisher(options(nsqd, channel="c"))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match='the option "channel" needs an nsqd of nsqtw'):
        publisher.flush()
    assert nsqd.requests == 0


def test_leaving_the_context_flushes(nsqd: FakeNsqd) -> None:
    with Publisher(options(nsqd)) as publisher:
        publisher.submit(batch(b"a"))
    assert nsqd.messages["t"] == [b"a"]


def test_no_more_requests_under_way_than_allowed(nsqd: FakeNsqd) -> None:
    with Publisher(options(nsqd, maxInFlight="3")) as publisher:
        for _ in range(50):
            publisher.submit(batch(b"a"))
    assert 1 <= nsqd.most_at_once <= 3


def test_connections_are_kept_from_one_task_to_the_next(nsqd: FakeNsqd) -> None:
    for _ in range(5):
        with Publisher(options(nsqd, maxInFlight="1")) as publisher:
            publisher.submit(batch(b"a"))
    assert nsqd.connections == 1


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        ((429, b"SLOWER"), Cause.BUSY),
        ((500, b"FAILED"), Cause.SERVER),
        ((503, b"EXITING"), Cause.SERVER),
        (Misbehaviour.DROP, Cause.LOST),
        (Misbehaviour.SILENCE, Cause.TIMEOUT),
    ],
)
def test_what_may_heal_is_tried_again(nsqd: FakeNsqd, step: Answer | Misbehaviour, cause: Cause) -> None:
    nsqd.script.append(step)
    with Publisher(options(nsqd, requestTimeoutMs="200", retries="20")) as publisher:
        publisher.submit(batch(b"a"))
    assert b"a" in nsqd.messages["t"]
    assert publisher.tally.retried >= 1
    assert publisher.tally.retries[cause] >= 1
    if cause is not Cause.TIMEOUT:
        assert {cause: 1} == publisher.tally.retries


def test_the_wait_for_the_broker_is_measured(nsqd: FakeNsqd) -> None:
    nsqd.script.append(Misbehaviour.SILENCE)
    publisher = Publisher(options(nsqd, maxInFlight="2", requestTimeoutMs="200"))
    publisher.submit(batch(b"a"))
    publisher.submit(batch(b"b"))
    assert publisher.tally.waited_ms == 0, "there was a slot for each"
    publisher.flush()
    assert publisher.tally.waited_ms > 0


def test_an_error_of_the_connectors_own_fails_the_task_with_its_text(
    nsqd: FakeNsqd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("no such")

    monkeypatch.setattr(Requester, "post", fails)
    with (
        pytest.raises(PublishError, match=r"the connector failed: KeyError.'no such'") as caught,
        Publisher(options(nsqd)) as publisher,
    ):
        publisher.submit(batch(b"a"))
    assert isinstance(caught.value.__cause__, KeyError)


def test_connections_that_are_idle_are_closed(nsqd: FakeNsqd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_nsq.http.connections._IDLE_SECONDS", 0.01)
    with Publisher(options(nsqd, authSecret="for-connections-of-its-own")) as publisher:
        publisher.submit(batch(b"a"))
    wait_until(lambda: nsqd.closed == nsqd.connections == 1, "the connection is closed")


@pytest.mark.parametrize("status", [302, 400, 413])
def test_a_refusal_is_not_tried_again(nsqd: FakeNsqd, status: int) -> None:
    nsqd.script.append((status, b'{"message":"INVALID_TOPIC"}'))
    publisher = Publisher(options(nsqd))
    publisher.submit(batch(b"a", b"b"))
    with pytest.raises(PublishError) as caught:
        publisher.flush()
    expected = (
        'topic "t": 2 message(s) not published after 1 attempt; '
        f'the last at http://{nsqd.address}: {status} {{"message":"INVALID_TOPIC"}}'
    )
    assert expected == str(caught.value)
    assert nsqd.requests == 1


def test_retries_come_to_an_end(nsqd: FakeNsqd) -> None:
    nsqd.script.extend([(503, b"EXITING")] * 10)
    publisher = Publisher(options(nsqd, retries="3"))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match=r"after 4 attempts; .*: 503 EXITING"):
        publisher.flush()
    assert nsqd.requests == 4


def test_a_dropped_connection_is_tried_again(nsqd: FakeNsqd) -> None:
    nsqd.script.append(Misbehaviour.DROP)
    with Publisher(options(nsqd)) as publisher:
        publisher.submit(batch(b"a"))
    assert nsqd.messages["t"] == [b"a"]


@pytest.mark.parametrize("how", [Misbehaviour.TAKE_AND_DROP, Misbehaviour.SILENCE, Misbehaviour.HALF_AN_ANSWER])
def test_a_lost_answer_publishes_twice_and_never_not_at_all(nsqd: FakeNsqd, how: Misbehaviour) -> None:
    nsqd.script.append(how)
    with Publisher(options(nsqd, requestTimeoutMs="200", retries="20")) as publisher:
        publisher.submit(batch(b"a"))
    assert {b"a"} == set(nsqd.messages["t"])
    assert len(nsqd.messages["t"]) == publisher.tally.retried + 1 > 1
    assert publisher.tally.rows == 1


@pytest.mark.parametrize("how", [Misbehaviour.SILENCE, Misbehaviour.HALF_AN_ANSWER])
def test_the_time_limit_is_said_and_the_connection_closed(nsqd: FakeNsqd, how: Misbehaviour) -> None:
    nsqd.script.append(how)
    publisher = Publisher(options(nsqd, requestTimeoutMs="50", retries="0"))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match="no answer within 50 ms"):
        publisher.flush()
    assert nsqd.hung_up.wait(60)


def test_a_dead_nsqd_is_named(dead_address: str) -> None:
    publisher = Publisher(options(dead_address, retries="1"))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match=f"2 attempts; the last at http://{dead_address}: connection refused"):
        publisher.flush()


def test_a_retry_goes_to_the_next_nsqd_and_stays_there(nsqd: FakeNsqd, dead_address: str) -> None:
    with Publisher(options(dead_address, nsqd, maxInFlight="1")) as publisher:
        for _ in range(10):
            publisher.submit(batch(b"a"))
    assert len(nsqd.messages["t"]) == 10
    assert publisher.tally.retried == 1


def test_tasks_start_at_different_nsqds(nsqd: FakeNsqd) -> None:
    with FakeNsqd() as other:
        for task in range(4):
            with Publisher(options(nsqd, other), first_address=task) as publisher:
                publisher.submit(batch(b"%d" % task))
        assert nsqd.messages["t"] == [b"0", b"2"]
        assert other.messages["t"] == [b"1", b"3"]


def test_after_a_failure_submit_raises_it(nsqd: FakeNsqd) -> None:
    nsqd.script.append((400, b"INVALID_TOPIC"))
    publisher = Publisher(options(nsqd, maxInFlight="1"))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match="INVALID_TOPIC"):
        publisher.submit(batch(b"b"))


def test_a_task_that_fails_leaves_nothing_in_flight(nsqd: FakeNsqd) -> None:
    nsqd.script.append((503, b"EXITING"))
    with pytest.raises(ZeroDivisionError), Publisher(options(nsqd, retries="1000", backoffMs="20")) as publisher:
        publisher.submit(batch(b"a"))
        raise ZeroDivisionError
    requests = nsqd.requests
    with Publisher(options(nsqd)) as later:
        later.submit(batch(b"b"))
    assert requests + 1 == nsqd.requests


def test_a_big_body_arrives_whole(nsqd: FakeNsqd) -> None:
    messages = [struct.pack(">i", number) * 1000 for number in range(1000)]
    packer = TopicPacker("t", 10_000, 5 * 1024 * 1024)
    with Publisher(options(nsqd)) as publisher:
        [entries] = entries_of(pa.array(messages))
        for request in [*packer.extend(entries), *packer.flush()]:
            publisher.submit(request)
    assert messages == nsqd.messages["t"]


def test_a_refusal_of_nsqd_has_a_remedy(nsqd: FakeNsqd) -> None:
    nsqd.script.append((413, b'{"message":"BODY_TOO_BIG"}'))
    with (
        pytest.raises(PublishError, match=r'BODY_TOO_BIG.*; set the option "batchBytes" below the --max-body-size'),
        Publisher(options(nsqd)) as publisher,
    ):
        publisher.submit(batch(b"a"))


def test_a_full_disk_of_nsqd_is_named(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, "ENOSPC")
    try:
        disk.nsqd.start()
        disk.nsqd.create("t")
        disk.fill()
        given = {"nsqdHttpAddresses": f"{HOST}:{disk.nsqd.http_port}", "topic": "t", "retries": "1", "backoffMs": "1"}
        publisher = Publisher(SinkOptions.parse(given))
        publisher.submit(batch(b"a"))
        with pytest.raises(PublishError, match=r"EXITING.*: it cannot store messages, /ping says NOK - .*o space left"):
            publisher.flush()
    finally:
        disk.close()


def test_a_broker_that_is_going_away_is_told_from_a_full_disk(nsqd: FakeNsqd) -> None:
    nsqd.script.append((503, b'{"message":"EXITING"}'))
    publisher = Publisher(options(nsqd, retries="0"))
    publisher.submit(batch(b"a"))
    with pytest.raises(PublishError, match=r"EXITING.*: it is stopping, .* its log has the reason"):
        publisher.flush()


def test_an_answer_that_is_not_that_of_nsqd_is_no_success(nsqd: FakeNsqd) -> None:
    nsqd.script.append((200, b"welcome"))
    with (
        pytest.raises(PublishError, match="it answered with b'welcome'; give the HTTP address of an nsqd"),
        Publisher(options(nsqd)) as publisher,
    ):
        publisher.submit(batch(b"a"))
