"""A real broker that asks for TLS and a secret: written to, and both ways of reading it."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark_nsq.channel.sample import take
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.errors import PublishError, ReadError
from pyspark_nsq.log.batch import LogBatchReader
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.packing import deferred_request
from pyspark_nsq.sink.publisher import Publisher

from nsqtw.auth.secret_hash import Recipe
from tests.certificates import Certificates
from tests.process import ForkedNsqd, NsqdProcess, ReservedPort, starting
from tests.spark.spans import bodies_of
from tests.wire import ANSWER_SECONDS, HOST

SECRET = "s3cret"
CHEAP = Recipe("scrypt", (16, 1, 1), b"salt")
GRANTS = """
[[client]]
identity = "spark"
secret = "{secret}"
[[client.grant]]
topic = "^t$"
permissions = ["publish", "subscribe", "admin"]
"""

Given = dict[str, str]


class Secured:
    """The broker, and the options that get one in. Its topic is t, which has a channel c and keeps what it had."""

    def __init__(self, process: NsqdProcess, https_port: int, certificates: Certificates) -> None:
        self.https = f"https://localhost:{https_port}"
        self.known: Given = {"topic": "t", "authSecret": SECRET, "tls.caFile": certificates.authority.certificate}
        self.by_tcp = {"nsqdTcpAddresses": f"localhost:{process.tcp_port}", "channel": "c", "idleTimeoutMs": "60000"}
        self.by_tcp |= self.known | {"tls": "true"}
        self.by_log = {"replay": "log", "nsqdHttpAddresses": self.https, "retries": "0"} | self.known
        self.by_sink = {"nsqdHttpAddresses": self.https, "retries": "0"} | self.known
        trust = ssl.create_default_context(cafile=certificates.authority.certificate)
        connection = http.client.HTTPSConnection("localhost", https_port, timeout=ANSWER_SECONDS, context=trust)
        with closing(connection):
            for order in (
                "topic/create?topic=t",
                "channel/create?topic=t&channel=c",
                "v2/topic/retention?topic=t&time=1h",
            ):
                connection.request("POST", f"/{order}", headers={"Authorization": f"Bearer {SECRET}"})
                answer = connection.getresponse()
                assert (answer.status, order) == (200, order), answer.read()
                answer.read()

    def publish(self, body: bytes, **more: str) -> None:
        options = SinkOptions.parse(self.by_sink | more)
        with Publisher(options) as publisher:
            publisher.submit(deferred_request(str(options.topic), body, 0))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    grants = directory / "grants.toml"
    grants.write_text(GRANTS.format(secret=CHEAP.line(SECRET.encode())))
    port = ReservedPort()
    flags = [*certificates.server.flags(), "--tls-required=true", f"--https-address={HOST}:{port.number}"]
    with starting(directory, ForkedNsqd) as start:
        yield Secured(start(*flags, f"--auth=static:{grants}"), port.number, certificates)
    port.release()


@pytest.fixture(scope="module")
def wrong(certificates: Certificates) -> dict[str, tuple[Given, str]]:
    """What may be wrong with options by themselves fine, and what is said of it."""
    return {
        "authority": ({"tls.caFile": certificates.stranger.certificate}, "TLS: .*certificate verify failed"),
        "secret": ({"authSecret": "guessed"}, "E_AUTH_FAILED|40[13] "),
        "topic": ({"topic": "others"}, "E_UNAUTHORIZED|403 "),
    }


def is_told_in_a_line(caught: pytest.ExceptionInfo[Exception]) -> bool:
    """And without what is secret."""
    said = str(caught.value)
    return "\n" not in said and "guessed" not in said and len(said) < 200


def test_what_is_published_through_tls_comes_back_both_ways(secured: Secured) -> None:
    secured.publish(b"one")
    secured.publish(b"two")
    assert bodies_of(take(ChannelOptions.parse(secured.by_tcp | {"maxMessages": "2"}))) == [b"one", b"two"]
    reader = LogBatchReader(LogOptions.parse(secured.by_log))
    read = [
        value
        for partition in reader.partitions()
        for rows in reader.read(partition)
        for value in rows.column("value").to_pylist()
    ]
    assert read == [b"one", b"two"]


@pytest.mark.parametrize("what", ["authority", "secret", "topic"])
def test_who_is_not_let_in_hears_why_at_once(
    secured: Secured, wrong: dict[str, tuple[Given, str]], what: str, tmp_path: Path
) -> None:
    given, said = wrong[what]
    with pytest.raises(PublishError, match=said) as publishing:
        secured.publish(b"x", **given)
    with pytest.raises(ReadError, match=f"nsqd localhost:.*{said}") as sampling:
        take(ChannelOptions.parse(secured.by_tcp | given))
    stream = ChannelStreamReader(ChannelOptions.parse(secured.by_tcp | given | {"spoolPath": str(tmp_path / "spool")}))
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(ReadError, match=said) as streaming:
        stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    stream.stop()
    with pytest.raises(ReadError, match=said) as replaying:
        LogBatchReader(LogOptions.parse(secured.by_log | given)).partitions()
    for caught in (publishing, sampling, streaming, replaying):
        assert is_told_in_a_line(caught)


@pytest.mark.parametrize(("option", "said"), [("authSecret", "E_AUTH_FIRST"), ("tls", "TLS required")])
def test_who_shows_nothing_hears_what_is_asked_for(secured: Secured, option: str, said: str) -> None:
    left_out = {option, "tls.caFile"} if option == "tls" else {option}
    given = {name: text for name, text in secured.by_tcp.items() if name not in left_out}
    with pytest.raises(ReadError, match=said) as caught:
        take(ChannelOptions.parse(given))
    assert is_told_in_a_line(caught)


def test_a_broker_without_tls(real_nsqd: NsqdProcess) -> None:
    given = {"nsqdTcpAddresses": f"{HOST}:{real_nsqd.tcp_port}", "topic": "t", "channel": "c", "tls": "true"}
    with pytest.raises(ReadError, match='offers no TLS; leave out the option "tls"'):
        take(ChannelOptions.parse(given))


@pytest.mark.parametrize("way", ["by_tcp", "by_log"])
def test_no_job_starts_with_a_wrong_secret(spark: SparkSession, secured: Secured, way: str) -> None:
    given = getattr(secured, way) | {"authSecret": "guessed"}
    spark.sparkContext.setJobGroup(f"refused {way}", way)
    with pytest.raises((AnalysisException, PythonException), match=r"E_AUTH_FAILED|40[13] "):
        spark.read.format("nsq").options(**given).load().count()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    assert len(jobs(f"refused {way}")) == 0
    spark.range(1).count()
    assert len(jobs(f"refused {way}")) > 0, "jobs are counted"
