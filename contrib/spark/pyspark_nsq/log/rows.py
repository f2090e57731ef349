"""The rows that a read of logs gives to Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from pyspark_nsq.errors import DataLossError
from pyspark_nsq.log.positions import Log
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.progress import tell

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nsq.log.client import LogClient, Part
    from pyspark_nsq.log.sections import Cut
    from pyspark_nsq.values.decoder import Decoder


class LogRange:
    """The positions of a log from `start` to before `end`."""

    def __init__(self, log: Log, start: int, end: int) -> None:
        self.log, self.start, self.end = log, start, end

    def __len__(self) -> int:
        return self.end - self.start


class LogPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: list[LogRange]) -> None:
        self.ranges = ranges


def read_log(options: LogOptions, partition: LogPartition) -> Iterator[pa.RecordBatch]:
    """Return the rows of a partition. While Spark takes rows, later ones are requested, up to `prefetchBytes`.

    Raises ReadError, DataLossError for lost messages, unless failOnDataLoss is false, and ValueFormatError.
    """
    from pyspark_nsq.log.client import LogClient
    from pyspark_nsq.values.decoder import decoder

    maker = _Rows(options, decoder(options))
    for each in partition.ranges:
        yield from _read_range(options, LogClient(options), each, maker)


def _read_range(options: LogOptions, client: LogClient, whole: LogRange, maker: _Rows) -> Iterator[pa.RecordBatch]:
    from pyspark_nsq.log.prefetch import Prefetch

    def read(start: int) -> Any:
        return client.read(whole.log, start, options.fetch_bytes)

    coming = Prefetch(read, whole.start, whole.end, options.fetch_bytes, options.most_prefetched)
    at, count = whole.start, 0
    while at < whole.end:
        part = coming.take()
        if options.fail_on_data_loss:
            check(whole, at, part)
        if part.next <= at:  # the log ends before the range does: the topic is deleted, or a power loss took its end
            if options.fail_on_data_loss:
                raise DataLossError(f"{_named(whole.log)}: positions {at} to {whole.end} are gone; {_GO_ON}")
            break
        at = part.next
        for batch in maker.batches(whole, part):
            count += batch.num_rows
            yield batch
    tell(
        "replayed",
        options.show_progress,
        topic=whole.log.topic,
        nsqd=whole.log.address,
        start=whole.start,
        end=whole.end,
        rows=count,
        requests=client.requests,
        retried=client.retried,
        bytes=client.body_bytes,
    )


_GO_ON = 'set the option "failOnDataLoss" to "false" to go on without them'


def _named(log: Log) -> str:
    return f'topic "{log.topic}" on {log.address}'


def check(whole: LogRange, at: int, part: Part) -> None:
    """Raise DataLossError when messages from `at` on are no longer kept."""
    if at and at < part.earliest:
        raise DataLossError(
            f"{_named(whole.log)}: position {at} is no longer kept, the oldest is {part.earliest}; keep messages "
            f"longer (retention), or {_GO_ON}"
        )
    for section in part.sections:
        if section.frames is None and section.first < whole.end:
            raise DataLossError(
                f"{_named(whole.log)}: {section.messages} message(s) from position {section.first} on are damaged; "
                f"{_GO_ON}"
            )


class _Rows:
    """Makes the rows of answers, with the columns that the options select."""

    def __init__(self, options: LogOptions, decoder: Decoder | None) -> None:
        self._makers: dict[str, _Maker] = {
            name: _COLUMNS[name] for name in options.columns or options.schema.fieldNames()
        }
        self._decoder = decoder

    def batches(self, whole: LogRange, part: Part) -> Iterator[pa.RecordBatch]:
        """Return the rows of an answer that belong to the range, in one batch."""
        import pyarrow as pa

        from pyspark_nsq.log.sections import cut

        rows = cut(part.sections, whole.start, whole.end)
        if rows is None:
            return
        columns = {name: maker(whole.log, rows) for name, maker in self._makers.items()}
        if self._decoder is not None:

            def locate(row: int) -> str:
                return f"{_named(whole.log)}, position {rows.position_of(row)}"

            columns["value"] = self._decoder.decode(columns["value"], locate)
        yield pa.record_batch(columns)


_Maker = Callable[[Log, "Cut"], "pa.Array"]


def _topic(log: Log, rows: Cut) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(log.topic, rows.count)


def _id(log: Log, rows: Cut) -> pa.Array:
    import pyarrow as pa

    return rows.ids.cast(pa.string())


def _timestamp(log: Log, rows: Cut) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.divide(rows.timestamps_ns, 1000).cast(pa.timestamp("us", "UTC"))


def _nsqd(log: Log, rows: Cut) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(log.address.partition("://")[2], rows.count)


def _due(log: Log, rows: Cut) -> pa.Array:
    import pyarrow as pa

    return rows.due_us.cast(pa.timestamp("us", "UTC"))


_COLUMNS: dict[str, _Maker] = {
    "value": lambda log, rows: rows.bodies,
    "topic": _topic,
    "id": _id,
    "timestamp": _timestamp,
    "nsqd": _nsqd,
    "position": lambda log, rows: rows.positions,
    "due": _due,
    "headers": lambda log, rows: rows.headers,
}
