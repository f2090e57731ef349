"""The messages of Spark's rows: the columns that the sink accepts, and the checks of each row.

| column  | type                    | meaning                                                               |
|---------|-------------------------|-----------------------------------------------------------------------|
| value   | string or binary        | the message                                                           |
| topic   | string                  | the topic; required unless the option ``topic`` is set                |
| defer   | byte, short, int, long  | optional: delay in milliseconds; null and 0 mean no delay             |
| headers | map<string, string>     | optional: headers of the message                                      |
| key     | string                  | optional: the header ``key``                                          |
| id      | string                  | optional: the header ``id``, by which nsqd recognises repeats         |

Any other column is an error. A task publishes to at most `maxTopics` topics, so that a wrong column does not create a
topic for each of its values. Columns are processed as Arrow data; only deferred rows are processed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Self

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from pyspark_nsq.errors import RowError, SchemaError
from pyspark_nsq.options.kinds import is_name
from pyspark_nsq.options.sink import SinkOptions
from pyspark_nsq.sink.encoded_headers import encoded_headers
from pyspark_nsq.sink.entries import Entries, entries_of

if TYPE_CHECKING:
    import pyarrow as pa

_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "defer": (ByteType, ShortType, IntegerType, LongType),
    "headers": (MapType,),
    "key": (StringType,),
    "id": (StringType,),
}


@dataclass(frozen=True)
class Columns:
    """The indexes of the sink's columns in the DataFrame."""

    value: int
    topic: int | None
    defer: int | None
    headers: int | None = None
    key: int | None = None
    id: int | None = None

    @classmethod
    def find(cls, schema: StructType, options: SinkOptions) -> Self:
        """Return the columns of a DataFrame. Raises SchemaError for wrong or missing columns."""
        places: dict[str, int] = {}
        for index, column in enumerate(schema.fields):
            name = column.name.lower()
            if name in _REMEDIES:
                raise SchemaError(f'column "{column.name}": {_REMEDIES[name]}')
            if name not in _ACCEPTED:
                raise SchemaError(f'column "{column.name}" has no place in a message; {_HOW}')
            if name in places:
                raise SchemaError(f'column "{column.name}" is there twice')
            if not isinstance(column.dataType, _ACCEPTED[name]):
                accepted = " or ".join(kind.typeName() for kind in _ACCEPTED[name])
                found = column.dataType.simpleString()
                raise SchemaError(f'column "{column.name}" is {found}, but must be {accepted}')
            if isinstance(column.dataType, MapType) and column.dataType.simpleString() != "map<string,string>":
                found = column.dataType.simpleString()
                raise SchemaError(f'column "{column.name}" is {found}, but must be map<string,string>')
            places[name] = index
        if "value" not in places:
            raise SchemaError(f'column "value" is missing; {_HOW}')
        if "topic" not in places and options.topic is None:
            raise SchemaError('no topic: set the option "topic" or add a column "topic"')
        return cls(places.pop("value"), places.pop("topic", None), places.pop("defer", None), **places)


_HOW = (
    'the columns are "value", and optionally "topic", "defer", "headers", "key" and "id"; to put many columns into one '
    "value use to_json(struct(...)) as value"
)

_INTO_VALUE = "put it into the value, for example with to_json(struct(...)) as value"
_FROM_READING = "it comes from reading NSQ, and NSQ sets it anew; leave it out with select(...)"
#: Columns of other systems and of readers that the sink refuses, with the remedy.
_REMEDIES = {
    "partition": "NSQ topics have no partitions; leave it out",
    "timestamp": f"NSQ sets the time of a message when it is published; leave it out, or {_INTO_VALUE}",
    "channel": _FROM_READING,
    "attempts": _FROM_READING,
    "nsqd": _FROM_READING,
    "position": _FROM_READING,
    "due": _FROM_READING,
}


@dataclass
class Messages:
    """The messages of one Arrow batch."""

    #: (topic, messages), those of one topic in the order of the rows.
    now: list[tuple[str, Entries]] = field(default_factory=list)
    #: (topic, message, milliseconds, encoded headers), in the order of the rows.
    later: list[tuple[str, bytes, int, bytes]] = field(default_factory=list)


class RowReader:
    """Reads the Arrow batches of one partition."""

    def __init__(self, columns: Columns, options: SinkOptions, partition: int = 0) -> None:
        self._partition = partition
        self._columns = columns
        self._topic = options.topic
        self._skip_empty = options.on_empty == "skip"
        self._max_topics = options.max_topics
        self._max_message_bytes = options.max_message_bytes
        self._known_topics: set[str] = set()
        self._rows_before = 0

    def read(self, batch: pa.RecordBatch) -> Messages:
        """Return the messages of a batch. Raises RowError for a row that cannot become one."""
        rows = batch.num_rows
        batch = self._without_empties(batch)
        self._check_lengths(batch)
        messages = Messages()
        batch = self._take_later(batch, messages)
        if self._topic is not None:
            column = batch.column(self._columns.value)
            messages.now += [(self._topic, entries) for entries in entries_of(column, self._headers(batch))]
        else:
            messages.now += self._by_topic(batch)
        self._rows_before += rows
        return messages

    def _without_empties(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow.compute as pc

        filled = pc.fill_null(pc.greater(pc.binary_length(batch.column(self._columns.value)), 0), False)
        if pc.all(filled, min_count=0).as_py():
            return batch
        if self._skip_empty:
            return batch.filter(filled)
        place = self._rows_before + pc.index(filled, False).as_py()
        raise RowError(
            f'row {place} of partition {self._partition}: "value" is null or empty, which NSQ has no message for; '
            'set the option "onEmpty" to "skip" to leave such rows out'
        )

    def _check_lengths(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        longest = pc.max(pc.binary_length(batch.column(self._columns.value))).as_py() or 0
        if longest > self._max_message_bytes:
            raise RowError(
                f'a "value" has {longest} bytes; a message has {self._max_message_bytes} at most: shorten it, publish '
                'the place where it is stored, or set the option "maxMessageBytes", which is --max-message-bytes of '
                "nsqtw-spark replay, to the --max-msg-size of nsqd"
            )

    def _take_later(self, batch: pa.RecordBatch, messages: Messages) -> pa.RecordBatch:
        """Put the deferred rows into `messages`, and return the others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._columns.defer is None:
            return batch
        defers = pc.fill_null(batch.column(self._columns.defer), 0)
        shortest = pc.min(defers).as_py() or 0
        if shortest < 0:
            raise RowError(f'"defer" is {shortest} ms in a row; it cannot be negative')
        is_later = pc.greater(defers, 0)
        later = batch.filter(is_later)
        bodies = later.column(self._columns.value).cast(pa.large_binary()).to_pylist()
        milliseconds = later.column(self._columns.defer).to_pylist()
        encoded = self._headers(later)
        headers = repeat(b"", later.num_rows) if encoded is None else encoded.to_pylist()
        messages.later += zip(self._topics(later).to_pylist(), bodies, milliseconds, headers, strict=True)
        return batch.filter(pc.invert(is_later))

    def _topics(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the topic of each row, after checking the names."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._topic is not None:
            return pa.repeat(self._topic, batch.num_rows)
        assert self._columns.topic is not None
        topics = batch.column(self._columns.topic)
        new = set(pc.unique(topics).to_pylist()) - self._known_topics
        if len(self._known_topics) + len(new) > self._max_topics:
            raise RowError(
                f'the column "topic" has more than {self._max_topics} values in partition {self._partition}; if it is '
                'the right column, set the option "maxTopics" higher'
            )
        for topic in new:
            if topic is None:
                raise RowError('"topic" is null in a row; leave such rows out, or set the option "topic" for all rows')
            if not is_name(topic):
                raise RowError(f'"{topic}" in the column "topic" is no topic name; 1 to 64 of a-z A-Z 0-9 . _ -')
            self._known_topics.add(topic)
        return topics

    def _headers(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Return the encoded headers of each row; None when no row has any. Raises RowError."""
        columns = self._columns
        maps = None if columns.headers is None else batch.column(columns.headers)
        single = {
            name: batch.column(place) for name, place in (("key", columns.key), ("id", columns.id)) if place is not None
        }
        return encoded_headers(batch.num_rows, maps, single)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Entries]]:
        """Yield the rows by topic. Sorting keeps the order of the rows of a topic."""
        import pyarrow.compute as pc

        topics = self._topics(batch)
        order = pc.array_sort_indices(topics)
        values = batch.column(self._columns.value).take(order)
        headers = self._headers(batch)
        if headers is not None:
            headers = headers.take(order)
        runs = pc.run_end_encode(topics.take(order))
        start = 0
        for topic, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            of_topic = None if headers is None else headers.slice(start, stop - start)
            for entries in entries_of(values.slice(start, stop - start), of_topic):
                yield topic, entries
            start = stop
