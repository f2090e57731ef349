"""Logs of topics without a retention: an error or a warning that names it, never an empty result alone."""

from __future__ import annotations

import pytest
from pyspark_nsq.errors import DataLossError
from pyspark_nsq.log.batch import LogBatchReader
from pyspark_nsq.log.rows import LogPartition
from pyspark_nsq.options.log import LogOptions

from tests.process import NsqdProcess
from tests.spark.log_stream import LogStream, keep, options, url


def publish(broker: NsqdProcess, topic: str, *bodies: bytes, channel: str = "") -> None:
    query = f"&channel={channel}" if channel else ""
    assert broker.http("POST", f"/mpub?topic={topic}{query}", b"\n".join(bodies)).status == 200


def rows(broker: NsqdProcess, topic: str, **more: str) -> int:
    reader = LogBatchReader(LogOptions.parse(options(broker, topic=topic, **more)))
    parts = [each for each in reader.partitions() if isinstance(each, LogPartition)]
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def test_a_batch_of_messages_that_wait_for_a_first_channel_fails(
    real_nsqd: NsqdProcess, caplog: pytest.LogCaptureFixture
) -> None:
    publish(real_nsqd, "t", b"1", b"2")
    with pytest.raises(DataLossError) as caught:
        rows(real_nsqd, "t")
    text = str(caught.value)
    assert text.startswith(f'topic "t" on {url(real_nsqd)} has no retention: its log lacks ')
    assert "it lacks 2 message(s) now" in text and "\n" not in text
    assert f"curl -X POST '{url(real_nsqd)}/v2/topic/retention?topic=t&time=24h'" in text
    assert rows(real_nsqd, "t", failOnDataLoss="false") == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    real_nsqd.order("/v2/topic/retention?topic=t&time=24h")
    assert rows(real_nsqd, "t") == 2


def test_a_log_without_retention_warns(real_nsqd: NsqdProcess, caplog: pytest.LogCaptureFixture) -> None:
    real_nsqd.create("t", "c")
    keep(real_nsqd, "kept")
    publish(real_nsqd, "t", b"1")
    assert rows(real_nsqd, "t") == 1
    LogStream(options(real_nsqd, subscribe="t,kept", startingOffsets="earliest"))
    real_nsqd.create("new")
    LogStream(options(real_nsqd, topic="new"))
    named = [record.getMessage().split(" has no retention")[0] for record in caplog.records]
    assert [f'topic "{topic}" on {url(real_nsqd)}' for topic in ("t", "t", "new")] == named


def test_messages_of_one_channel_are_passed_over_in_one_micro_batch(real_nsqd: NsqdProcess) -> None:
    keep(real_nsqd, "t")
    real_nsqd.order("/channel/create?topic=t&channel=c")
    publish(real_nsqd, "t", b"first")
    for _ in range(3):
        publish(real_nsqd, "t", *[b"only"] * 1000, channel="c")
    publish(real_nsqd, "t", b"last")
    given = options(real_nsqd, topic="t", startingOffsets="earliest", maxRowsPerTrigger="100", fetchBytes="20000")
    assert LogStream(given).run_available() == [[("t", b"first")], [("t", b"last")]]


def test_a_micro_batch_is_full_also_between_messages_of_one_channel(real_nsqd: NsqdProcess) -> None:
    keep(real_nsqd, "t")
    real_nsqd.order("/channel/create?topic=t&channel=c")
    for number in range(40):
        publish(real_nsqd, "t", *[b"only"] * 50, channel="c")
        publish(real_nsqd, "t", b"%02d" % number)
    publish(real_nsqd, "t", *[b"only"] * 50, channel="c")
    given = options(real_nsqd, topic="t", startingOffsets="earliest", maxRowsPerTrigger="10", fetchBytes="3000")
    batches = LogStream(given).run_available()
    assert [len(batch) for batch in batches if batch] == [10, 10, 10, 10]
    assert len(batches) <= 5
    assert [b"%02d" % number for number in range(40)] == [body for batch in batches for _, body in batch]
