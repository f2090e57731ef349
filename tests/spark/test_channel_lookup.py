"""Reading a channel from the nsqds that nsqlookupds name: they come, they go, they come back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.channel.consumer import ChannelConsumer
from pyspark_nsq.channel.intake import Intake
from pyspark_nsq.channel.sample import take
from pyspark_nsq.errors import ReadError
from pyspark_nsq.http.reactor_thread import running_reactor
from pyspark_nsq.log.client import LogClient
from pyspark_nsq.log.discovery import Discovery
from pyspark_nsq.log.positions import Log
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.log import LogOptions
from twisted.internet.threads import blockingCallFromThread

from tests.process import ForkedNsqd, LookupdProcess, NsqdProcess, Start, starting, wait_until
from tests.spark.http_thread import Answer, GetThread
from tests.spark.spans import bodies_of
from tests.wire import HOST


class FakeLookupd(GetThread):
    """Names `producers` for the topic t; None: the topic is unknown. `broken`: it answers nonsense."""

    def __init__(self) -> None:
        self.producers: list[NsqdProcess] | None = None
        self.broken = False
        self.asked = 0
        super().__init__()

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        self.asked += 1
        if self.broken:
            return Answer(500, b"out of order")
        if path != "/lookup?topic=t" or self.producers is None:
            return Answer(404, b'{"message":"TOPIC_NOT_FOUND"}')
        named = [
            {"broadcast_address": HOST, "tcp_port": one.tcp_port, "http_port": one.http_port} for one in self.producers
        ]
        return Answer(200, json.dumps({"channels": ["c"], "producers": named}).encode())


@pytest.fixture
def lookupd() -> Iterator[FakeLookupd]:
    with FakeLookupd() as fake:
        yield fake


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path, ForkedNsqd) as start_one:
        yield start_one


def broker(start: Start) -> NsqdProcess:
    """One that has the channel c of the topic t."""
    process = start()
    process.create("t", "c")
    return process


def options(*lookupds: FakeLookupd | str, **more: str) -> ChannelOptions:
    addresses = ",".join(one if isinstance(one, str) else one.address for one in lookupds)
    given = {"lookupdHttpAddresses": addresses, "topic": "t", "channel": "c", "idleTimeoutMs": "100"}
    return ChannelOptions.parse(given | {"lookupdPollMs": "20"} | more)


@pytest.fixture
def intake(lookupd: FakeLookupd, tmp_path: Path) -> Iterator[Intake]:
    """Nobody waits for `maxWaitMs`: what has to happen has to happen by itself."""
    path = str(tmp_path / "spool")
    one = Intake(options(lookupd, maxWaitMs="3600000", spoolPath=path), path)
    yield one
    one.close()


def bodies(intake: Intake) -> list[bytes]:
    return sorted(bodies_of(intake.spans(0, intake.end())))


def await_bodies(intake: Intake, *expected: bytes) -> None:
    wait_until(lambda: bodies(intake) == sorted(expected), f"{expected}, there is {bodies(intake)}")


def test_nsqds_come_and_go(lookupd: FakeLookupd, start: Start, intake: Intake) -> None:
    wait_until(lambda: lookupd.asked > 2, "it asks again while nobody knows the topic")
    first, second = broker(start), broker(start)
    first.publish("t", [b"1"])
    second.publish("t", [b"2"])
    lookupd.producers = [first]
    await_bodies(intake, b"1")
    lookupd.producers = [first, second]
    await_bodies(intake, b"1", b"2")
    lookupd.producers = [first]
    second.publish("t", [b"3"])
    await_bodies(intake, b"1", b"2", b"3")  # not named any more, but there
    second.kill()
    first.publish("t", [b"4"])
    await_bodies(intake, b"1", b"2", b"3", b"4")
    intake.drain()  # it waits for all that it knows, and would for the second if it still did


def test_an_nsqd_that_comes_back_is_found_again(lookupd: FakeLookupd, start: Start, intake: Intake) -> None:
    only = broker(start)
    lookupd.producers = [only]
    only.publish("t", [b"1"])
    await_bodies(intake, b"1")
    only.kill()
    lookupd.producers = []
    asked = lookupd.asked
    wait_until(lambda: lookupd.asked > asked + 2, "it has heard that nobody is named")
    only.start()
    only.publish("t", [b"2"])
    lookupd.producers = [only]
    await_bodies(intake, b"1", b"2")


def test_an_nsqlookupd_that_can_tell_is_not_waited_for(tmp_path: Path, start: Start) -> None:
    """Ours says what changes. Who would only ask, would ask again in an hour."""
    path = str(tmp_path / "spool")
    with closing(LookupdProcess(tmp_path / "lookupd")) as lookupd:
        lookupd.start()
        flags = [f"--broadcast-address={HOST}", f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}"]
        address = f"{HOST}:{lookupd.http_port}"
        intake = Intake(options(address, lookupdPollMs="3600000", maxWaitMs="3600000", spoolPath=path), path)
        with closing(intake):
            for body in (b"1", b"2"):
                start(*flags).publish("t", [body])
                await_bodies(intake, *[b"1", b"2"][: int(body)])


def test_one_nsqlookupd_out_of_order_does_not_matter(lookupd: FakeLookupd, start: Start) -> None:
    only = broker(start)
    only.publish("t", [b"1"])
    lookupd.producers = [only]
    with FakeLookupd() as other:
        other.broken = True
        asked = options(other, lookupd, f"{HOST}:1", maxMessages="1", idleTimeoutMs="60000")
        assert bodies_of(take(asked)) == [b"1"]


@pytest.mark.parametrize(
    ("broken", "said"), [(True, ": 500 out of order"), (False, 'knows no nsqd with the topic "t"; correct .*')]
)
def test_nobody_is_named(lookupd: FakeLookupd, broken: bool, said: str) -> None:
    lookupd.broken = broken
    reactor = running_reactor()
    consumer = ChannelConsumer(reactor, options(lookupd), lambda *_: None)
    blockingCallFromThread(reactor, consumer.start)
    try:
        wait_until(lambda: consumer.trouble, "it says what keeps it")
    finally:
        blockingCallFromThread(reactor, consumer.stop)
    assert re.fullmatch(f"nsqlookupd http://.*{said}", str(consumer.trouble))


def test_a_log_is_read_where_it_is_said_to_be(lookupd: FakeLookupd, start: Start) -> None:
    lookupd.producers = [broker(start), broker(start)]
    given: dict[str, Any] = {"replay": "log", "topic": "t", "lookupdHttpAddresses": f"{lookupd.address},{HOST}:1"}
    options = LogOptions.parse(given | {"retries": "0", "topicDiscoveryMs": "0"})
    discovery = Discovery(LogClient(options), options)
    assert sorted(Log("t", f"http://{HOST}:{one.http_port}") for one in lookupd.producers) == discovery.logs()[0]
    lookupd.broken = True
    with pytest.raises(ReadError, match=r"no nsqlookupd answers: .*500 out of order.*refused"):
        discovery.logs()
