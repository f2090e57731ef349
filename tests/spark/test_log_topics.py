"""A stream from several topics' logs: topics and nsqds that appear, vanish and come back."""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark_nsq.errors import DataLossError, OptionError, ReadError
from pyspark_nsq.log.client import Extent, Extents
from pyspark_nsq.log.positions import Log
from pyspark_nsq.log.survey import ends
from pyspark_nsq.options.log import LogOptions

from tests.process import ForkedNsqd, LookupdProcess, NsqdProcess, Start, starting, wait_until
from tests.spark.log_stream import LogStream, Rows, address, delete, keep, options, url
from tests.wire import HOST


@pytest.fixture
def start(tmp_path: Path) -> Any:
    with starting(tmp_path, ForkedNsqd) as start_one:
        yield start_one


@pytest.fixture
def broker(start: Start) -> NsqdProcess:
    return start()


def publish(broker: NsqdProcess, topic: str, *values: bytes) -> Rows:
    broker.publish(topic, values)
    return [(topic, value) for value in values]


def test_a_pattern_matches_whole_names_and_no_ephemeral_topic(broker: NsqdProcess) -> None:
    keep(broker, "clicks", "clicks.eu", "old-clicks")
    expected = [row for topic in ("clicks", "clicks.eu") for row in publish(broker, topic, b"1", b"2")]
    publish(broker, "old-clicks", b"3")
    publish(broker, "clicks#ephemeral", b"4")
    stream = LogStream(options(broker, subscribePattern="clicks.*", startingOffsets="earliest"))
    assert expected == stream.step()
    assert {"clicks", "clicks.eu"} == set(stream.offset)


def test_a_topic_and_an_nsqd_that_appear_are_read_from_their_beginning(start: Start) -> None:
    first, second = start(), start()
    keep(first, "a")
    publish(first, "a", b"before")
    stream = LogStream(options(first, second, subscribePattern="[ab]"))  # from the latest ones
    assert stream.step() == []
    keep(first, "b")
    keep(second, "a")
    new = publish(first, "b", b"1") + publish(second, "a", b"2") + publish(first, "a", b"3")
    assert sorted(new) == stream.step()
    assert {"a": {url(first), url(second)}, "b": {url(first)}} == {
        topic: set(each) for topic, each in stream.offset.items()
    }
    assert stream.step() == []


def test_a_stream_of_a_topic_that_nobody_has_warns_and_waits_for_it(
    broker: NsqdProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_nsq"):
        stream = LogStream(options(broker, topic="later"))
    assert caplog.messages == ['no nsqd has the topic "later" yet; a stream reads it from its beginning once it exists']
    keep(broker, "later")
    assert publish(broker, "later", b"a") == stream.step()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_topic_without_retention_and_channel_has_nothing_to_read_until_it_has_one(
    broker: NsqdProcess, starting: str
) -> None:
    rows = publish(broker, "a", b"1", b"2")
    stream = LogStream(options(broker, subscribe="a", startingOffsets=starting))
    assert stream.step() == []
    rows += publish(broker, "a", b"3")
    assert stream.step() == []
    broker.create("a", "c")
    assert rows == stream.step(), "nothing was released to any reader before"


def test_topics_are_looked_for_as_often_as_the_option_says(broker: NsqdProcess) -> None:
    keep(broker, "a")
    often = LogStream(options(broker, subscribePattern=".*", startingOffsets="earliest"))
    seldom = LogStream(options(broker, subscribePattern=".*", startingOffsets="earliest", topicDiscoveryMs="3600000"))
    keep(broker, "b")
    old, new = publish(broker, "a", b"1"), publish(broker, "b", b"2")
    assert old + new == often.step()
    assert old == seldom.step()


def test_positions_by_topic(broker: NsqdProcess) -> None:
    keep(broker, "a", "b", "c")
    rows = {topic: publish(broker, topic, b"1", b"2") for topic in "abc"}
    probe = LogStream(options(broker, subscribe="a,b,c", startingOffsets="earliest"))
    first = probe.offset["a"][url(broker)]
    starts = f'{{"a": {{"{address(broker)}": {first + 1}}}, "b": {{"{address(broker)}": -1}}}}'
    stream = LogStream(options(broker, subscribe="a,b,c", startingOffsets=starts))
    assert rows["a"][1:] + rows["c"] == stream.step()  # b from its latest one, c is not named


def test_limits_take_turns_and_reach_the_end(broker: NsqdProcess) -> None:
    topics = ["a", "b", "c"]
    keep(broker, *topics)
    rows = [row for topic in topics for row in publish(broker, topic, *(b"%03d" % number for number in range(50)))]
    given = options(broker, subscribe="a,b,c", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    batches = LogStream(given).run_available()
    assert max(len(batch) for batch in batches) == 2
    assert set(topics) == {topic for batch in batches[:6] for topic, _ in batch}, "none waits for the end of another"
    assert rows == sorted(row for batch in batches for row in batch)


def test_available_now_ends_although_messages_go_on_coming(broker: NsqdProcess) -> None:
    keep(broker, "a", "b")
    rows = publish(broker, "a", b"1", b"2") + publish(broker, "b", b"3")
    stream = LogStream(options(broker, subscribePattern=".", startingOffsets="earliest", maxRowsPerTrigger="2"))
    reader = stream._reader
    reader.prepareForTriggerAvailableNow()
    keep(broker, "c")
    later = publish(broker, "a", b"4") + publish(broker, "c", b"5")
    found = stream.step() + stream.step()
    assert rows == sorted(found)
    assert stream.step() == []
    assert sorted(later) == LogStream(options(broker, subscribePattern="."), stream.offset).step()


def test_a_deleted_topic_is_loss_and_without_it_the_others_go_on(broker: NsqdProcess) -> None:
    keep(broker, "a", "b")
    publish(broker, "a", b"1")
    publish(broker, "b", b"2")
    given = options(broker, subscribePattern="[ab]", startingOffsets="earliest")
    stream = LogStream(given)
    stream.step()
    delete(broker, "a")
    more = publish(broker, "b", b"3")
    with pytest.raises(
        DataLossError, match=r'topic "a" on http://.* is deleted; the stream had read it up to position'
    ):
        stream.step()
    with pytest.raises(DataLossError, match='topic "a"'):
        LogStream(given, stream.offset).run_available()
    tolerant = LogStream(given | {"failOnDataLoss": "false"}, stream.offset)
    assert more == tolerant.step()
    assert {"b"} == set(tolerant.offset)
    # It is over: the strict query goes on from here.
    again = LogStream(given, tolerant.offset)
    assert again.step() == []
    keep(broker, "a")
    assert again.step() == []
    assert publish(broker, "a", b"4") == again.step()


@pytest.mark.parametrize("is_refilled", [False, True])
def test_a_topic_deleted_and_created_between_two_questions(broker: NsqdProcess, is_refilled: bool) -> None:
    keep(broker, "a", "b")
    publish(broker, "a", b"1", b"2")
    given = options(broker, subscribe="a,b", startingOffsets="earliest")
    stream = LogStream(given)
    stream.step()
    delete(broker, "a")
    keep(broker, "a")
    rows = publish(broker, "a", b"3") if is_refilled else []
    with pytest.raises(DataLossError, match='topic "a" on http://'):
        stream.step()
    tolerant = LogStream(given | {"failOnDataLoss": "false"}, stream.offset)
    found = tolerant.step()
    rows += publish(broker, "a", b"4")
    assert rows == found + tolerant.step()


@pytest.mark.parametrize("life", range(3))
def test_an_nsqd_that_comes_back_with_another_data_path(broker: NsqdProcess, life: int) -> None:
    """Its positions start at random, above or below those before."""
    keep(broker, "a", "b")
    publish(broker, "a", b"1")
    given = options(broker, subscribe="a,b", startingOffsets="earliest")
    stream = LogStream(given)
    stream.step()
    broker.stop()
    shutil.rmtree(broker.data_path)
    broker.data_path.mkdir()
    broker.start()
    keep(broker, "a", "b")
    rows = publish(broker, "a", b"%d" % life) + publish(broker, "b", b"3")
    with pytest.raises(DataLossError, match='topic "a" on http://'):
        stream.step()
    tolerant = LogStream(given | {"failOnDataLoss": "false"}, stream.offset)
    assert rows == sorted(tolerant.step() + tolerant.step())
    assert tolerant.step() == []


LOG = Log("a", "http://x:1")
AT = 1 << 50


@pytest.mark.parametrize(
    ("latest", "expected"),
    [
        (AT + 5, AT + 5),
        (AT - 5, AT),  # a power loss took the end: the next message gets a higher position
        (AT - (1 << 31), None),  # another data path, whose next message has a position below
        (0, None),  # created again, and empty
    ],
)
def test_a_log_that_ends_before_the_place_of_the_stream(latest: int, expected: int | None) -> None:
    given = {"replay": "log", "nsqdHttpAddresses": "x:1", "topic": "a"}
    found: Extents = {LOG: Extent(0, latest, 0, latest)}
    tolerant = LogOptions.parse(given | {"failOnDataLoss": "false"})
    assert expected == ends(tolerant, {LOG: AT}, found).get(LOG)
    if expected is None:
        with pytest.raises(DataLossError, match="is another log now"):
            ends(LogOptions.parse(given), {LOG: AT}, found)
        assert latest == ends(tolerant, {}, found)[LOG], "as a new one it is read from its beginning"
    else:
        assert expected == ends(LogOptions.parse(given), {LOG: AT}, found)[LOG]


def test_a_crash_of_nsqd_is_no_loss(broker: NsqdProcess) -> None:
    keep(broker, "a", "b")
    stream = LogStream(options(broker, subscribePattern=".", startingOffsets="earliest"))
    rows = publish(broker, "a", b"1") + publish(broker, "b", b"2")
    assert rows == stream.step()
    broker.kill()
    with pytest.raises(ReadError, match="refused"):
        stream.step()
    broker.start()
    assert stream.step() == []
    assert publish(broker, "a", b"3") == stream.step()


def test_a_subscription_that_changes(broker: NsqdProcess) -> None:
    keep(broker, "a", "b")
    publish(broker, "a", b"1")
    stream = LogStream(options(broker, subscribe="a,b", startingOffsets="earliest"))
    stream.step()
    publish(broker, "a", b"2")
    other = LogStream(options(broker, subscribe="b"), stream.offset)
    assert publish(broker, "b", b"3") == other.step()
    assert {"b"} == set(other.offset)


def test_the_checkpoint_of_an_earlier_version_goes_on(broker: NsqdProcess) -> None:
    keep(broker, "a", "b")
    rows = publish(broker, "a", b"1", b"2")
    old = LogStream(options(broker, topic="a", startingOffsets="earliest"))
    assert {url(broker)} == set(old.offset), "the form of one topic is as it was"
    assert rows == old.step()
    more = publish(broker, "a", b"3")
    single = LogStream(options(broker, subscribe="a"), old.offset)
    assert more == single.step()
    assert {"a"} == set(single.offset)
    several = LogStream(options(broker, subscribe="a,b"), single.offset)
    assert publish(broker, "b", b"4") == several.step()
    assert LogStream(options(broker, topic="a"), several.offset).step() == []
    with pytest.raises(OptionError, match='of a query with the option "topic" and does not say which one') as caught:
        LogStream(options(broker, subscribe="a,b"), old.offset).step()
    assert f'{{"TOPIC": {{"{url(broker)}": ' in str(caught.value)


@pytest.mark.parametrize("offset", [{"spool": "6f3c", "seq": 7}, {"a": {"0": 7}}])
def test_the_checkpoint_of_another_source_is_one_line(broker: NsqdProcess, offset: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"^the checkpoint is not of a query with replay=log, .* another folder$"):
        LogStream(options(broker, topic="a"), offset).step()


class Cluster:
    """An nsqlookupd, and nsqds that it knows."""

    def __init__(self, lookupd: LookupdProcess, start: Start) -> None:
        self.lookupd, self._start = lookupd, start

    def broker(self) -> NsqdProcess:
        flags = [f"--broadcast-address={HOST}", f"--lookupd-tcp-address={HOST}:{self.lookupd.tcp_port}"]
        return self._start(*flags)

    def options(self, **more: str) -> dict[str, str]:
        return options(lookupdHttpAddresses=f"{HOST}:{self.lookupd.http_port}", **more)

    def await_named(self, topic: str, *brokers: NsqdProcess) -> None:
        """Wait until just these nsqds are named for the topic."""
        ports = {broker.http_port for broker in brokers}
        wait_until(lambda: ports == self._named(topic), f"{ports} have {topic}")

    def _named(self, topic: str) -> set[int]:
        answer = self.lookupd.http("GET", f"/lookup?topic={topic}")
        return {one["http_port"] for one in json.loads(answer.body).get("producers", [])}


@pytest.fixture
def cluster(tmp_path: Path, start: Start) -> Any:
    with closing(LookupdProcess(tmp_path / "lookupd")) as lookupd:
        lookupd.start()
        yield Cluster(lookupd, start)


@pytest.mark.parametrize("selected", [{"subscribe": "a,b"}, {"subscribePattern": "[ab]"}])
def test_nsqds_that_nsqlookupd_names(cluster: Cluster, selected: dict[str, str]) -> None:
    first = cluster.broker()
    keep(first, "a", "other")
    rows = publish(first, "a", b"1")
    publish(first, "other", b"2")
    cluster.await_named("a", first)
    stream = LogStream(cluster.options(startingOffsets="earliest", **selected))
    assert rows == stream.step()
    second = cluster.broker()
    keep(second, "a", "b")
    rows = publish(second, "a", b"3") + publish(second, "b", b"4")
    cluster.await_named("a", first, second)
    cluster.await_named("b", second)
    assert rows == stream.step()
    # One that is down is forgotten by nsqlookupd. Its place is kept, and the other goes on.
    second.kill()
    cluster.await_named("a", first)
    assert publish(first, "a", b"5") == stream.step()
    assert {url(first), url(second)} == set(stream.offset["a"])
    second.start()
    cluster.await_named("a", first, second)
    assert publish(second, "b", b"6") == stream.step()
    # A topic that is deleted everywhere is not named either.
    delete(second, "b")
    cluster.await_named("b")
    with pytest.raises(DataLossError, match=r'topic "b" on http://.* is deleted'):
        stream.step()


def test_positions_of_an_nsqd_that_does_not_have_the_topic(cluster: Cluster) -> None:
    broker = cluster.broker()
    keep(broker, "a")
    cluster.await_named("a", broker)
    given = cluster.options(topic="a", startingOffsets='{"localhost:4151": 5}')
    with pytest.raises(OptionError, match='topic "a" is not on http://localhost:4151; it is on: http://'):
        LogStream(given)
