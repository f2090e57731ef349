"""Publishing to the nsqds that nsqlookupds know: they come and go while a task runs."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trustme
from pyspark_nsq.errors import PublishError
from pyspark_nsq.http.causes import Cause
from pyspark_nsq.http.lookup import Lookup
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.publisher import Publisher

from tests.process import ForkedNsqd, LookupdProcess, starting, wait_until
from tests.spark.fake_nsqd import FakeNsqd
from tests.spark.http_thread import Answer, GetThread
from tests.spark.test_publisher import batch
from tests.wire import HOST

HOUR = "3600000"


class FakeLookupd(GetThread):
    """Knows the `nsqds`. None: it is out of order."""

    def __init__(self, *nsqds: FakeNsqd | str, tls: ssl.SSLContext | None = None) -> None:
        self.nsqds: list[FakeNsqd | str] | None = list(nsqds)
        self.asked = 0
        self.authorizations: set[str | None] = set()
        super().__init__(tls)

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        self.asked += 1
        self.authorizations.add(headers.get("Authorization"))
        if self.nsqds is None:
            return Answer(500, b"out of order")
        assert path == "/nodes"
        places = [(one if isinstance(one, str) else one.address).rpartition(":") for one in self.nsqds]
        named = [{"broadcast_address": host, "tcp_port": 1, "http_port": int(port)} for host, _, port in places]
        return Answer(200, json.dumps({"producers": named}).encode())


@pytest.fixture
def other() -> Iterator[FakeNsqd]:
    with FakeNsqd() as fake:
        yield fake


def options(*lookupds: FakeLookupd | str, **more: str) -> SinkOptions:
    """Options with which the nsqlookupds are asked once, unless something fails."""
    addresses = ",".join(one if isinstance(one, str) else one.address for one in lookupds)
    given = {"lookupdHttpAddresses": addresses, "lookupdPollMs": HOUR, "maxInFlight": "1"}
    pauses = {"backoffMs": "1"} if more.get("retries") != "0" else {}
    return SinkOptions.parse(given | pauses | more)


def publish(options: SinkOptions, body: bytes, task: int = 0) -> Publisher:
    with Publisher(options, task) as publisher:
        publisher.submit(batch(body))
    return publisher


def test_tasks_spread_over_the_nsqds_and_ask_once(nsqd: FakeNsqd, other: FakeNsqd) -> None:
    with FakeLookupd(nsqd, other) as lookupd:
        for task in range(6):
            publish(options(lookupd), b"%d" % task, task)
        assert lookupd.asked == 1
    assert sorted([nsqd.messages["t"], other.messages["t"]]) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_the_nsqds_of_all_nsqlookupds_are_used_also_when_one_is_out_of_order(nsqd: FakeNsqd, other: FakeNsqd) -> None:
    with FakeLookupd(nsqd) as one, FakeLookupd(other) as two, FakeLookupd() as three:
        three.nsqds = None
        for task in range(2):
            publish(options(one, two, three, f"{HOST}:1"), b"a", task)
    assert (nsqd.messages["t"], other.messages["t"]) == ([b"a"], [b"a"])


def test_an_nsqd_that_is_gone_is_left_and_a_new_one_is_used(nsqd: FakeNsqd, dead_address: str) -> None:
    with FakeLookupd(dead_address) as lookupd:
        publisher = Publisher(options(lookupd, retries="1000"))
        publisher.submit(batch(b"a"))
        wait_until(lambda: publisher.tally.retried > 1, "it has failed at the only nsqd")
        lookupd.nsqds = [nsqd]
        publisher.flush()
        retried = publisher.tally.retried
        publisher.submit(batch(b"b"))
        publisher.flush()
    assert nsqd.messages["t"] == [b"a", b"b"]
    assert retried == publisher.tally.retried == publisher.tally.retries[Cause.REFUSED]


def test_a_task_that_runs_long_uses_an_nsqd_that_comes_later(nsqd: FakeNsqd, other: FakeNsqd) -> None:
    with FakeLookupd(nsqd) as lookupd, Publisher(options(lookupd, lookupdPollMs="1"), first_address=1) as publisher:
        publisher.submit(batch(b"a"))
        publisher.flush()
        lookupd.nsqds = ["localhost:1", other]  # by address: the second, whatever its port
        while not other.messages["t"]:
            publisher.submit(batch(b"b"))
            publisher.flush()
    assert publisher.tally.retried == 0


def test_an_nsqlookupd_that_dies_changes_nothing(nsqd: FakeNsqd) -> None:
    with FakeLookupd(nsqd) as lookupd, Publisher(options(lookupd, lookupdPollMs="1")) as publisher:
        for number in range(20):
            publisher.submit(batch(b"%d" % number))
            publisher.flush()
            lookupd.nsqds = None
        wait_until(lambda: lookupd.asked > 2, "it was asked again")
        publisher.submit(batch(b"last"))
        publisher.flush()
    assert len(nsqd.messages["t"]) == 21


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (True, r"no nsqd is known: nsqlookupd http://\S+: 500 out of order"),
        (False, r"no nsqd is known to nsqlookupd http://\S+; nsqd registers with --lookupd-tcp-address"),
    ],
)
def test_no_nsqd_is_known(broken: bool, said: str) -> None:
    with FakeLookupd() as lookupd:
        lookupd.nsqds = None if broken else []
        with pytest.raises(PublishError) as caught:
            publish(options(lookupd, retries="2"), b"a")
        assert lookupd.asked == 3
    expected = rf'topic "t": 1 message\(s\) not published after 3 attempts; {said}'
    assert re.fullmatch(expected, str(caught.value)), str(caught.value)


def test_a_mistake_in_the_connector_is_told(monkeypatch: pytest.MonkeyPatch, nsqd: FakeNsqd) -> None:
    monkeypatch.setattr(Lookup, "nodes", lambda *_: 1 / 0)
    with FakeLookupd(nsqd) as lookupd, pytest.raises(PublishError, match="cannot be asked: ZeroDivisionError"):
        publish(options(lookupd), b"a")


def test_an_nsqlookupd_with_tls_which_gets_no_secret(nsqd: FakeNsqd, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with FakeLookupd(nsqd, tls=context) as lookupd:
        publish(options(lookupd, authSecret="s3cret", **{"tls.caFile": str(tmp_path / "ca.pem")}), b"a")
        with pytest.raises(PublishError, match=r"no nsqd is known: nsqlookupd .*: TLS: certificate verify failed"):
            publish(options(lookupd, retries="0"), b"b")
        assert {None} == lookupd.authorizations
    assert ([b"a"], {"Bearer s3cret"}) == (nsqd.messages["t"], nsqd.authorizations)


def test_two_brokers_one_of_which_is_killed(tmp_path: Path) -> None:
    """Ours, and an nsqlookupd of ours: no message is lost, and the broker that is left gets the rest."""
    with ExitStack() as stack:
        lookupd = stack.enter_context(closing(LookupdProcess(tmp_path / "lookupd")))
        lookupd.start()
        start = stack.enter_context(starting(tmp_path, ForkedNsqd))
        flags = [f"--broadcast-address={HOST}", f"--lookupd-tcp-address={HOST}:{lookupd.tcp_port}"]
        brokers = [start(*flags), start(*flags)]
        wait_until(lambda: len(lookupd.ask("/nodes")["producers"]) == len(brokers), "both are registered")
        bodies = [b"%d" % number for number in range(40)]
        given = options(f"{HOST}:{lookupd.http_port}")
        with Publisher(given, 0) as one, Publisher(given, 1) as another:
            for number, body in enumerate(bodies):
                (one, another)[number % 2].submit(batch(body))
                if number == 19:
                    one.flush()
                    another.flush()
                    killed = [int(broker.stats("t")[0]["message_count"]) for broker in brokers]
                    brokers[0].kill()
        assert killed == [10, 10]
        assert int(brokers[1].stats("t")[0]["message_count"]) == 30
        assert 1 <= one.tally.retried + another.tally.retried <= 4
