"""Tasks for ranges of logs, and requests ahead of the consumer, within their bounds."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from pyspark_nsq.errors import ReadError
from pyspark_nsq.log import plan as log_plan
from pyspark_nsq.log.batch import LogBatchReader
from pyspark_nsq.log.client import Part
from pyspark_nsq.log.positions import Log
from pyspark_nsq.log.prefetch import Prefetch
from pyspark_nsq.log.rows import LogPartition, LogRange
from pyspark_nsq.options.log import LogOptions

from tests.process import NsqdProcess
from tests.spark.log_stream import keep, options


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    """Ten topics with 30 messages each, and one with 600."""
    for topic in [*(f"small{number}" for number in range(10)), "large"]:
        keep(real_nsqd, topic)
        bodies = b"\n".join(b"%d" % number for number in range(600 if topic == "large" else 30))
        assert real_nsqd.http("POST", f"/mpub?topic={topic}", bodies).status == 200
    return real_nsqd


def partitions(broker: NsqdProcess, **more: str) -> list[LogPartition]:
    reader = LogBatchReader(LogOptions.parse(options(broker, **more)))
    found = [one for one in reader.partitions() if isinstance(one, LogPartition)]
    assert (300 if more["subscribePattern"] == "small." else 900) == sum(
        batch.num_rows for one in found for batch in reader.read(one)
    )
    return found


def lengths(found: list[LogPartition]) -> list[list[int]]:
    return [[len(each) for each in one.ranges] for one in found]


def test_small_logs_share_a_task(broker: NsqdProcess) -> None:
    assert lengths(partitions(broker, subscribePattern="small.")) == [[30] * 5] * 2
    assert lengths(partitions(broker, subscribePattern=".*", minPartitions="3")) == [[300]] * 2 + [[30] * 10]


def test_a_bound_on_the_positions_of_a_task(broker: NsqdProcess) -> None:
    found = lengths(partitions(broker, subscribePattern=".*", maxRecordsPerPartition="70"))
    assert max(sum(each) for each in found) <= 70
    assert len(found) == 9 + 5


def test_small_ranges_are_packed_up_to_a_size() -> None:
    log = Log("t", "http://x:1")
    ranges = [LogRange(log, 0, length) for length in (50, 40, 30, 100, 1)]
    assert lengths(log_plan._packed(ranges, 95)) == [[50, 40], [30], [100], [1]]


class Broker:
    """Answers requests of a `Prefetch` when the test says so. Each answer has 10 positions."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Future[Part]]] = []

    def read(self, start: int) -> Future[Part]:
        answer: Future[Part] = Future()
        self.asked.append((start, answer))
        return answer

    def answer(self, size: int = 100) -> None:
        start, answer = self.asked[-1]
        assert not answer.done()
        answer.set_result(Part([], start + 10, 0, 0, size))

    @property
    def is_asked(self) -> bool:
        return bool(self.asked) and not self.asked[-1][1].done()


@pytest.mark.parametrize(("most", "ahead"), [(100, 1), (199, 1), (200, 2), (450, 4)])
def test_no_more_is_fetched_ahead_than_the_bound(most: int, ahead: int) -> None:
    broker = Broker()
    coming = Prefetch(broker.read, 0, 1000, 100, most)
    coming._ask_ahead()
    for _ in range(ahead):
        assert broker.is_asked
        broker.answer()
    assert not broker.is_asked
    assert coming.take().next == 10  # there is room again
    assert broker.is_asked
    broker.answer(size=180)  # of a long segment
    for number in range(2, ahead + 2):
        assert 10 * number == coming.take().next
    assert broker.is_asked
    assert ahead + 2 == len(broker.asked)


def test_nothing_is_fetched_ahead_with_a_bound_of_0() -> None:
    broker = Broker()
    coming = Prefetch(broker.read, 0, 1000, 100, 0)
    coming._ask_ahead()
    assert broker.asked == []
    coming._ask()
    broker.answer()
    assert coming.take().next == 10
    assert not broker.is_asked


def test_nothing_is_asked_behind_the_end() -> None:
    broker = Broker()
    coming = Prefetch(broker.read, 0, 15, 100, 1000)
    coming._ask_ahead()
    broker.answer()
    broker.answer()
    assert [start for start, _ in broker.asked] == [0, 10]
    assert [coming.take().next, coming.take().next] == [10, 20]


def test_an_error_comes_behind_the_answers_before_it() -> None:
    broker = Broker()
    coming = Prefetch(broker.read, 0, 1000, 100, 300)
    coming._ask_ahead()
    broker.answer()
    broker.asked[-1][1].set_exception(ReadError("no more"))
    assert coming.take().next == 10
    for _ in range(2):
        with pytest.raises(ReadError, match="no more"):
            coming.take()
