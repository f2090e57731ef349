"""Arrow batches become messages; what cannot become one is named."""

import struct

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructField, StructType
from pyspark_nsq.errors import RowError, SchemaError
from pyspark_nsq.options.sink import MAX_MESSAGE_BYTES, SinkOptions
from pyspark_nsq.sink.rows import Columns, RowReader

from tests.spark.fake_nsqd import unpack

ONE_TOPIC = SinkOptions(addresses=("http://x:1",), topic="t")
BY_COLUMN = SinkOptions(addresses=("http://x:1",))
SKIPPING = SinkOptions(addresses=("http://x:1",), topic="t", on_empty="skip")


def find(columns: dict[str, str], options: SinkOptions = ONE_TOPIC) -> Columns:
    """`columns`: name to type, by the names Spark gives its types."""
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return Columns.find(schema, options)


def reader(batch: pa.RecordBatch, options: SinkOptions) -> RowReader:
    names = batch.schema.names
    places = {"topic": None, "defer": None, **{name: at for at, name in enumerate(names)}}
    return RowReader(Columns(**places), options, partition=7)  # type: ignore[arg-type]


Read = tuple[dict[str, list[bytes]], list[tuple[str, bytes, int, bytes]]]


def read(options: SinkOptions = ONE_TOPIC, **columns: pa.Array | list[object]) -> Read:
    """The messages to be published now, by topic, and those for later."""
    batch = pa.record_batch(columns)
    messages = reader(batch, options).read(batch)
    now: dict[str, list[bytes]] = {}
    for topic, entries in messages.now:
        now.setdefault(topic, []).extend(unpack(struct.pack(">i", len(entries)) + entries.cut(0, len(entries))))
    return now, messages.later


def test_where_the_columns_are() -> None:
    assert Columns(value=0, topic=None, defer=None) == find({"value": "string"})
    assert Columns(value=2, topic=1, defer=0) == find({"defer": "long", "Topic": "string", "VALUE": "binary"})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": "string"}, '"value" is missing'),
        ({"value": "string", "extra": "integer"}, '"extra" has no place in a message'),
        ({"value": "integer"}, '"value" is int, but must be string or binary'),
        ({"value": "string", "topic": "binary"}, '"topic" is binary, but must be string'),
        ({"value": "string", "defer": "string"}, '"defer" is string, but must be'),
        ({"value": "string", "headers": "string"}, '"headers" is string, but must be map'),
        ({"value": "string", "key": "binary"}, '"key" is binary, but must be string'),
    ],
)
def test_a_schema_that_does_not_fit(columns: dict[str, str], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        find(columns)


def test_headers_are_a_map_of_strings() -> None:
    def with_values(kind: DataType) -> StructType:
        return StructType().add("value", "string").add("headers", MapType(StringType(), kind))

    assert Columns.find(with_values(StringType()), ONE_TOPIC).headers == 1
    with pytest.raises(SchemaError, match="is map<string,binary>, but must be map<string,string>"):
        Columns.find(with_values(BinaryType()), ONE_TOPIC)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("partition", "NSQ topics have no partitions"),
        ("timestamp", "NSQ sets the time of a message when it is published"),
        ("attempts", "it comes from reading NSQ"),
        ("position", "it comes from reading NSQ"),
    ],
)
def test_a_column_of_other_systems_is_named_with_its_remedy(column: str, said: str) -> None:
    with pytest.raises(SchemaError, match=f'column "{column.upper()}": {said}') as caught:
        find({"value": "string", column.upper(): "string"})
    assert "\n" not in str(caught.value)


def test_the_same_column_twice() -> None:
    twice = StructType([StructField("value", StringType()), StructField("Value", StringType())])
    with pytest.raises(SchemaError, match='"Value" is there twice'):
        Columns.find(twice, ONE_TOPIC)


def test_no_topic_at_all() -> None:
    with pytest.raises(SchemaError, match='set the option "topic" or add a column "topic"'):
        Columns.find(StructType([StructField("value", StringType())]), BY_COLUMN)


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long"])
def test_integers_of_any_width_defer(kind: str) -> None:
    assert find({"value": "string", "defer": kind}).defer == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes(kind: pa.DataType) -> None:
    assert read(value=pa.array(["a", "ä"], kind)) == ({"t": [b"a", b"\xc3\xa4"]}, [])


def test_the_option_overrides_the_column_topic() -> None:
    assert read(value=["a"], topic=["elsewhere"]) == ({"t": [b"a"]}, [])


def test_the_column_topic() -> None:
    messages = read(BY_COLUMN, value=["1", "2", "3"], topic=["a", "b", "a"])
    assert messages == ({"a": [b"1", b"3"], "b": [b"2"]}, [])


def test_null_and_zero_defer_nothing() -> None:
    messages = read(value=["1", "2", "3", "4"], defer=[None, 250, 0, 1])
    assert messages == ({"t": [b"1", b"3"]}, [("t", b"2", 250, b""), ("t", b"4", 1, b"")])


def test_deferred_rows_have_their_headers() -> None:
    batch = pa.record_batch({"value": ["1", "2", "3"], "defer": [5, None, 6], "id": ["a", "b", None]})
    messages = reader(batch, ONE_TOPIC).read(batch)
    assert messages.later == [("t", b"1", 5, b"\x02id\x00\x01a"), ("t", b"3", 6, b"")]
    assert [(topic, len(entries)) for topic, entries in messages.now] == [("t", 1)]


def test_columns_become_headers_of_their_rows() -> None:
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.record_batch(
        {
            "value": ["1", "2", "3"],
            "topic": ["b", "a", "b"],
            "headers": pa.array([[("Tenant", "acme"), ("key", "x"), ("none", None)], None, []], kind),
            "key": ["k", None, None],
            "id": [None, "ä", None],
        }
    )
    found = {topic: bytes(entries.cut(0, len(entries))) for topic, entries in reader(batch, BY_COLUMN).read(batch).now}
    first = b"\x03key\x00\x01k" + b"\x06tenant\x00\x04acme"
    second = b"\x02id\x00\x02\xc3\xa4"
    assert {
        "a": struct.pack(">i", len(second)) + second + b"\0\0\0\x012",
        "b": struct.pack(">i", len(first)) + first + b"\0\0\0\x011" + b"\0\0\0\0" + b"\0\0\0\x013",
    } == found


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"a b": "x"}, '"a b" is no name of a header'),
        ({"nsq-reason": "x"}, "is no name of a header"),
        ({"a": "x\n"}, "has a control character"),
        ({"a": "x" * 16385}, "more than 16384 bytes"),
        ({str(number): "" for number in range(65)}, "64 headers at most"),
    ],
)
def test_headers_that_no_message_can_have(headers: dict[str, str], said: str) -> None:
    with pytest.raises(RowError, match=said):
        read(value=["1"], headers=pa.array([list(headers.items())], pa.map_(pa.string(), pa.string())))


def test_an_empty_batch() -> None:
    assert read(value=pa.array([], pa.string())) == ({}, [])


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_value_is_named_by_its_row(empty: str | None) -> None:
    first = pa.record_batch({"value": ["a", "b"]})
    rows = reader(first, ONE_TOPIC)
    rows.read(first)
    with pytest.raises(RowError, match='row 3 of partition 7: "value" is null or empty'):
        rows.read(pa.record_batch({"value": ["c", empty]}))


def test_empty_values_are_skipped_on_demand_and_the_other_columns_stay_beside_theirs() -> None:
    messages = read(SKIPPING, value=["1", None, "", "4"], defer=[0, 7, 8, 9])
    assert messages == ({"t": [b"1"]}, [("t", b"4", 9, b"")])
    assert read(SKIPPING, value=pa.array([None, ""], pa.string())) == ({}, [])


def test_the_biggest_message_and_one_byte_more() -> None:
    biggest = b"x" * MAX_MESSAGE_BYTES
    assert ({"t": [biggest]}, []) == read(value=[biggest])
    with pytest.raises(RowError, match=f"{MAX_MESSAGE_BYTES + 1} bytes"):
        read(value=[biggest + b"x"])


def test_a_larger_message_where_nsqd_allows_it() -> None:
    larger = b"x" * (MAX_MESSAGE_BYTES + 1)
    allowing = SinkOptions.parse({"nsqdHttpAddresses": "x:1", "topic": "t", "maxMessageBytes": str(len(larger))})
    assert ({"t": [larger]}, []) == read(allowing, value=[larger])
    with pytest.raises(RowError, match=f'{len(larger) + 1} bytes.*"maxMessageBytes", .* to the --max-msg-size of nsqd'):
        read(allowing, value=[larger + b"x"])


def test_a_column_with_too_many_topics_publishes_none_of_its_batch() -> None:
    few = SinkOptions(addresses=("http://x:1",), max_topics=3)
    first = pa.record_batch({"value": ["1", "2", "3"], "topic": ["a", "b", "a"]})
    rows = reader(first, few)
    rows.read(first)
    rows.read(pa.record_batch({"value": ["4", "5"], "topic": ["c", "b"]}))
    said = 'the column "topic" has more than 3 values in partition 7; .* "maxTopics" higher'
    with pytest.raises(RowError, match=said) as caught:
        rows.read(pa.record_batch({"value": ["6", "7"], "topic": ["a", "d"]}))
    assert "\n" not in str(caught.value)
    rows.read(pa.record_batch({"value": ["6", "7"], "topic": ["a", "c"]}))


def test_rows_that_cannot_be_published() -> None:
    with pytest.raises(RowError, match='"topic" is null'):
        read(BY_COLUMN, value=["1", "2"], topic=["a", None])
    with pytest.raises(RowError, match='"no such" in the column "topic" is no topic name'):
        read(BY_COLUMN, value=["1"], topic=["no such"])
    with pytest.raises(RowError, match='"defer" is -5 ms'):
        read(value=["1", "2"], defer=[1, -5])
