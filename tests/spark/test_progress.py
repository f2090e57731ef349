"""What was done is told in lines of JSON: by the sink, and by both ways of reading."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark_nsq.channel.batch import ChannelBatchReader
from pyspark_nsq.channel.stream import ChannelStreamReader
from pyspark_nsq.log.batch import LogBatchReader
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.rows import Columns
from pyspark_nsq.sink.writer import NsqBatchWriter, NsqStreamWriter

from tests.process import NOTHING, Counts, NsqdProcess
from tests.spark.fake_nsqd import FakeNsqd
from tests.wire import HOST

Told = list[dict[str, str | int | None]]
_NOT_COUNTED = {"waitedMs", "retried429", "retriedTimeout", "retriedRefused", "retriedLost"}
BODIES = [b"%04d" % number for number in range(300)]


def shown(capfd: pytest.CaptureFixture[str]) -> Told:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


@pytest.fixture
def broker(real_nsqd: NsqdProcess) -> NsqdProcess:
    """The topic t keeps its messages; the channel c has them."""
    real_nsqd.create("t", "c")
    real_nsqd.order("/v2/topic/retention?topic=t&time=1h")
    answer = real_nsqd.http("POST", "/mpub?topic=t", b"\n".join(BODIES))
    assert answer.status == 200
    return real_nsqd


def channel(broker: NsqdProcess, **more: str) -> ChannelOptions:
    given = {"nsqdTcpAddresses": f"{HOST}:{broker.tcp_port}", "topic": "t", "channel": "c"}
    return ChannelOptions.parse(given | {"showProgress": "true"} | more)


@pytest.mark.parametrize("batch", [None, 7])
def test_the_sink_tells_of_each_batch(nsqd: FakeNsqd, capfd: pytest.CaptureFixture[str], batch: int | None) -> None:
    nsqd.script.append((503, b"EXITING"))
    given = {"nsqdHttpAddresses": nsqd.address, "topic": "t", "batchSize": "200", "backoffMs": "1"}
    options = SinkOptions.parse(given | {"showProgress": "true"})
    rows = pa.record_batch({"value": pa.array(BODIES)})
    columns = Columns(value=0, topic=None, defer=None)
    if batch is None:
        writer = NsqBatchWriter(options, columns)
        writer.commit([writer.write(iter([rows]))])
    else:
        stream_writer = NsqStreamWriter(options, columns)
        stream_writer.commit([stream_writer.write(iter([rows]))], batch)
    counted = {"rows": 300, "requests": 2, "retried": 1, "bytes": 300 * 8 + 2 * 4, "tasks": 1}
    [line] = shown(capfd)
    assert {"event": "published", "batch": batch, "retried5xx": 1} | counted == {
        name: value for name, value in line.items() if name not in _NOT_COUNTED
    }
    assert int(line["waitedMs"] or 0) > 0


def test_a_stream_from_a_channel_tells_of_each_micro_batch(
    broker: NsqdProcess, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = channel(broker, spoolPath=str(tmp_path / "spool"), maxRowsPerTrigger="200")
    names = {"event": "taken", "topic": "t", "channel": "c"}
    for repeated in (0, 300):
        reader = ChannelStreamReader(options)
        reader.prepareForTriggerAvailableNow()
        start = {"spool": reader.initialOffset()["spool"], "seq": 0}
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert len(reader.partitions(start, end)) == 2
        reader.stop()
        counted = {"after": 0, "end": 200, "rows": 200, "bytes": 800, "repeated": repeated, "waiting": 100, "tasks": 2}
        assert [names | counted] == shown(capfd)
        broker.order("/v2/channel/seek?topic=t&channel=c&to=earliest")


def test_a_batch_of_a_channel_tells_what_it_took(broker: NsqdProcess, capfd: pytest.CaptureFixture[str]) -> None:
    ChannelBatchReader(channel(broker, maxMessages="300")).partitions()
    expected = {"event": "sampled", "topic": "t", "channel": "c", "rows": 300, "bytes": 1200, "tasks": 2}
    assert [expected] == shown(capfd)
    broker.await_counts("t", "c", NOTHING)


def test_each_task_of_a_log_tells_what_it_read(broker: NsqdProcess, capfd: pytest.CaptureFixture[str]) -> None:
    address = f"http://{HOST}:{broker.http_port}"
    given = {"replay": "log", "nsqdHttpAddresses": address, "topic": "t", "showProgress": "true"}
    reader = LogBatchReader(LogOptions.parse(given))
    for partition in reader.partitions():
        list(reader.read(partition))
    told = shown(capfd)
    assert [("replayed", "t", address, 150, 0)] * 2 == [
        (line["event"], line["topic"], line["nsqd"], line["rows"], line["retried"]) for line in told
    ]
    assert told[0]["end"] == told[1]["start"]
    for line in told:
        assert int(line["requests"] or 0) >= 1 and int(line["bytes"] or 0) >= 150 * 38
    broker.await_counts("t", "c", Counts(depth=300, in_flight=0, deferred=0))
