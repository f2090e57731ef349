"""A task of the sink, without Spark round it: what it promises, and what it does not."""

import pyarrow as pa
import pytest
from pyspark_nsq.errors import PublishError
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.rows import Columns
from pyspark_nsq.sink.writer import NsqBatchWriter

from tests.spark.fake_nsqd import FakeNsqd, Misbehaviour

BODIES = [b"%03d" % number for number in range(300)]


def write(nsqd: FakeNsqd, **more: str) -> None:
    given = {"nsqdHttpAddresses": nsqd.address, "topic": "t", "batchSize": "100", "backoffMs": "1"} | more
    writer = NsqBatchWriter(SinkOptions.parse(given), Columns(value=0, topic=None, defer=None))
    writer.write(pa.record_batch({"value": pa.array(BODIES[at : at + 50])}) for at in range(0, 300, 50))


def test_everything_is_answered_when_it_returns(nsqd: FakeNsqd) -> None:
    write(nsqd)
    assert sorted(nsqd.messages["t"]) == BODIES
    assert nsqd.at_once == 0


def test_a_task_that_runs_again_publishes_again(nsqd: FakeNsqd) -> None:
    write(nsqd)
    write(nsqd)
    assert sorted(BODIES * 2) == sorted(nsqd.messages["t"])


def test_a_task_that_fails_leaves_what_it_had_published(nsqd: FakeNsqd) -> None:
    nsqd.script.extend([None, (400, b"BAD_DAY")])
    with pytest.raises(PublishError, match="BAD_DAY"):
        write(nsqd, maxInFlight="1")
    assert BODIES[:100] == nsqd.messages["t"]


def test_one_request_at_a_time_keeps_the_order_also_when_it_is_repeated(nsqd: FakeNsqd) -> None:
    nsqd.script.extend([(503, b"EXITING"), Misbehaviour.DROP])
    write(nsqd, maxInFlight="1")
    assert nsqd.messages["t"] == BODIES
