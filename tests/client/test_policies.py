"""The policies of a consumer without IO: backoff, RDY counts, options, discovery."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from nsqtw.client.backoff import Backoff, Signal, Step
from nsqtw.client.lookup import Lookup, answer_of, lookup_url, producers_of
from nsqtw.client.options import ClientOptions
from nsqtw.client.ready import ReadyDistribution
from nsqtw.errors import LookupFailed, OptionError


class FakeConnection:
    """A connection that notes its RDY commands."""

    def __init__(self) -> None:
        self.rdy = self.last_rdy = 0
        self.rdy_since = self.last_message = 0.0
        self.is_closing = self.has_retry = False
        self.max_rdy_count = 2500
        self.sent: list[int] = []

    def send_rdy(self, count: int) -> None:
        self.last_rdy = count
        self.sent.append(count)


class Distribution:
    """RDY counts of some connections."""

    def __init__(self, max_in_flight: int) -> None:
        self.connections: list[FakeConnection] = []
        self.retries: list[Any] = []
        options = ClientOptions(max_in_flight=max_in_flight)
        self.ready = ReadyDistribution(options, self.connections, Random(1), self.retries.append)

    def connect(self, now: float = 0.0) -> FakeConnection:
        connection = FakeConnection()
        connection.last_message = now
        self.connections.append(connection)
        self.ready.share_out(now, last=connection)
        return connection

    @property
    def counts(self) -> list[int]:
        return [connection.rdy for connection in self.connections]


def pauses(backoff: Backoff, signals: list[Signal]) -> list[float]:
    """Return the pauses that signals cause, 0 for none."""
    found = []
    for signal in signals:
        step = backoff.on_signal(signal)
        found.append(backoff.pause if step is Step.PAUSE else 0.0)
        backoff.end_pause()
    return found


def test_pauses_double_up_to_64_seconds() -> None:
    backoff = Backoff(ClientOptions(), Random(1))
    assert pauses(backoff, [Signal.FAILURE] * 8) == [2, 4, 8, 16, 32, 64, 64, 64]
    assert pauses(backoff, [Signal.SUCCESS] * 6) == [32, 16, 8, 4, 2, 0]
    assert not backoff.is_on


def test_pauses_have_a_maximum() -> None:
    backoff = Backoff(ClientOptions(backoff_multiplier=0.5, max_backoff_duration=5.0), Random(1))
    assert pauses(backoff, [Signal.FAILURE] * 5) == [1, 2, 4, 4, 4]


def test_signals_during_a_pause_are_ignored() -> None:
    backoff = Backoff(ClientOptions(), Random(1))
    assert backoff.on_signal(Signal.FAILURE) is Step.PAUSE
    assert backoff.on_signal(Signal.FAILURE) is Step.NOTHING
    assert backoff.on_signal(Signal.SUCCESS) is Step.NOTHING
    backoff.end_pause()
    assert backoff.on_signal(Signal.CONTINUE) is Step.PAUSE, "at the same level"
    backoff.end_pause()
    assert backoff.on_signal(Signal.SUCCESS) is Step.RESUME


def test_jitter_is_random_below_the_exponential_pause() -> None:
    backoff = Backoff(ClientOptions(backoff_strategy="full_jitter"), Random(1))
    drawn = {backoff.duration(3) for _ in range(50)}
    assert len(drawn) > 40
    assert all(0 <= seconds <= 8 for seconds in drawn)


def test_no_backoff_with_a_maximum_of_zero() -> None:
    backoff = Backoff(ClientOptions(max_backoff_duration=0.0), Random(1))
    assert pauses(backoff, [Signal.FAILURE] * 3) == [0, 0, 0]
    assert not backoff.is_on


def test_two_connections_share() -> None:
    distribution = Distribution(200)
    first = distribution.connect()
    assert first.sent == [200]
    second = distribution.connect()
    assert (first.sent, second.sent) == ([200, 100], [100])


def test_a_share_is_rounded_down_to_one_at_least() -> None:
    distribution = Distribution(3)
    distribution.connect()
    distribution.connect()
    assert distribution.counts == [1, 1]


def test_a_single_rdy_moves_to_another_connection() -> None:
    distribution = Distribution(1)
    distribution.connect()
    distribution.connect()
    assert distribution.counts == [1, 0]
    assert len(distribution.retries) == 1
    holders = set()
    for turn in range(1, 40):
        distribution.ready.redistribute(turn * 5.0, in_backoff=False)
        assert sum(distribution.counts) == 1
        holders.add(distribution.counts.index(1))
    assert holders == {0, 1}


def test_a_lower_max_in_flight_holds_for_all() -> None:
    distribution = Distribution(4)
    distribution.connect()
    distribution.connect()
    distribution.ready.max_in_flight = 1
    distribution.ready.share_out(1.0)
    assert distribution.counts == [0, 1]


def test_the_limit_of_the_nsqd_counts() -> None:
    distribution = Distribution(5000)
    assert distribution.connect().sent == [2500]


def test_a_pause_stops_all() -> None:
    distribution = Distribution(10)
    connections = [distribution.connect() for _ in range(2)]
    distribution.ready.stop_all(1.0)
    assert distribution.counts == [0, 0]
    distribution.ready.share_out(2.0)
    assert [connection.sent for connection in connections] == [[10, 5, 0, 5], [5, 0, 5]]


def test_options_from_texts() -> None:
    options = ClientOptions.from_texts(
        ["max-attempts,0", "tls_v1", "msg_timeout,1m", "dial-timeout,250"], max_in_flight=7
    )
    assert (options.max_attempts, options.tls_v1, options.msg_timeout, options.dial_timeout) == (0, True, 60.0, 0.25)
    assert options.max_in_flight == 7


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nope,1", "^invalid option nope$"),
        ("max_attempts,x", r"^failed to coerce option max_attempts \(x\) - "),
        ("max_attempts,70000", "^invalid max_attempts ! 70000 > 65535$"),
        ("backoff_strategy,linear", "must be exponential or full_jitter"),
        ("heartbeat_interval,90s", "HeartbeatInterval 1m30s must be less than ReadTimeout 1m0s"),
    ],
)
def test_options_that_will_not_do(text: str, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        ClientOptions.from_texts([text])


def test_addresses_of_nsqlookupds() -> None:
    assert lookup_url("lookup:4161", "t") == "http://lookup:4161/lookup?topic=t"
    assert lookup_url("https://lookup:4161/", "t#ephemeral") == "https://lookup:4161/lookup?topic=t%23ephemeral"
    assert lookup_url("http://lookup:4161/path?b=2&a=1", "t") == "http://lookup:4161/path?a=1&b=2&topic=t"
    with pytest.raises(OptionError, match="missing port"):
        lookup_url("lookup", "t")


def test_answers_of_nsqlookupds() -> None:
    body = b'{"producers":[{"broadcast_address":"::1","tcp_port":4150},{"broadcast_address":"h","tcp_port":1}]}'
    both = (["[::1]:4150", "h:1"], [])
    assert producers_of(answer_of(200, "nsq; version=1.0", body)) == both
    old = b'{"status_code":200,"status_txt":"OK","data":%b}' % body
    assert producers_of(answer_of(200, "", old)) == both
    assert producers_of(answer_of(200, "", b"")) == ([], [])
    for status, wrong in ((404, b"{}"), (200, b"[]"), (200, b"{"), (200, b'{"producers":1}')):
        with pytest.raises(LookupFailed):
            producers_of(answer_of(status, "", wrong))


@pytest.mark.parametrize(
    "producer",
    [
        *(
            {"broadcast_address": host, "tcp_port": 1}
            for host in ("", "a b", "x\ny", "\x1b[2J", "a/b", "[::1]", 7, None)
        ),
        *({"broadcast_address": "h", "tcp_port": port} for port in (0, -1, 65536, "4150", True, None, 1.5)),
        *({}, [], "h:4150"),
    ],
)
def test_an_nsqd_without_a_usable_address_is_left_out(producer: object) -> None:
    good = {"broadcast_address": "h", "tcp_port": 4150}
    found = producers_of({"producers": [producer, good]})
    assert (found.addresses, len(found.refused)) == (["h:4150"], 1)
    assert "no host and port" in found.refused[0]


def test_the_first_poll_asks_all_and_later_ones_one() -> None:
    lookup = Lookup(["a", "b", "c"])
    assert lookup.poll() == ["a", "b", "c"]
    assert lookup.failed() == []
    assert lookup.poll() == ["a"]
    assert (lookup.failed(), lookup.failed(), lookup.failed()) == (["b"], ["c"], [])
    assert lookup.poll() == ["a"]
