"""Every mistake in an option of reading is named in one line, with a remedy, before a job starts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from pyspark_nsq.errors import OptionError
from pyspark_nsq.log.batch import log_batch_reader
from pyspark_nsq.options.avro_schema import avro_type
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.ddl import struct_of
from pyspark_nsq.options.kinds import BATCH, STREAM, check_mode
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.sink import SinkOptions

LOG = {"replay": "log", "nsqdHttpAddresses": "127.0.0.1:4151", "topic": "t"}
CHANNEL = {"nsqdTcpAddresses": "127.0.0.1:4150", "topic": "t", "channel": "c"}
SEVERAL = {"topic": "", "subscribe": "a,b"}
AVRO = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'

Given = dict[str, str]

#: The options on top of LOG, "" takes one away, and the words of the error.
LOG_MISTAKES: list[tuple[Given, str]] = [
    ({"topic": ""}, 'one of the options "topic", "subscribe" and "subscribePattern" is required'),
    ({"subscribe": "t"}, '"topic" and "subscribe" exclude each other'),
    ({"subscribePattern": "t"}, '"topic" and "subscribePattern" exclude each other'),
    (SEVERAL | {"subscribePattern": "t"}, '"subscribe" and "subscribePattern" exclude each other'),
    ({"topic": "", "subscribe": " , "}, 'option "subscribe" names no topic, for example'),
    ({"topic": "", "subscribe": "a,b c"}, '"b c" is no topic name'),
    ({"topic": "", "subscribePattern": "a["}, 'option "subscribePattern": "a[" is no regular expression: '),
    ({"topic": "t#ephemeral"}, '"t#ephemeral" is ephemeral and has no log; read it from a channel'),
    ({"lookupdHttpAddresses": "x:1"}, '"nsqdHttpAddresses" and "lookupdHttpAddresses" exclude each other; leave one'),
    ({"nsqdHttpAddresses": ""}, '"lookupdHttpAddresses" is required, for example "127.0.0.1:4151" for the first'),
    ({"startingOffsets": "first"}, '"startingOffsets" must be "earliest", "latest" or like {"127.0.0.1:4151"'),
    ({"startingOffsets": '{"t": {"127.0.0.1:4151": 1}, "127.0.0.1:4151": 2}'}, 'must be "earliest", "latest"'),
    ({"startingOffsets": '{"127.0.0.1:4151": -3}'}, "-3 of http://127.0.0.1:4151 is no position; -2 is the earliest"),
    ({"startingOffsets": '{"127.0.0.1:9": 1}'}, 'http://127.0.0.1:9 is not in "nsqdHttpAddresses"'),
    ({"startingOffsets": '{"u": {"127.0.0.1:4151": 1}}'}, 'the topic "u" is not among those that are read'),
    (SEVERAL | {"startingOffsets": '{"127.0.0.1:4151": 1}'}, 'with several topics write {"clicks": '),
    ({"endingOffsets": "earliest"}, '"endingOffsets" cannot be the earliest ones'),
    ({"endingOffsets": '{"127.0.0.1:4151": -2}'}, '"endingOffsets" cannot be the earliest ones'),
    ({"startingOffsets": "latest", "startingTimestamp": "1"}, '"startingOffsets" and "startingTimestamp" exclude'),
    (
        {"startingOffsets": '{"127.0.0.1:4151": 9}', "endingOffsets": '{"t": {"127.0.0.1:4151": 8}}'},
        '"endingOffsets" is 8 for "t" on http://127.0.0.1:4151, before the 9 of "startingOffsets"',
    ),
    ({"startingTimestamp": "yesterday"}, '"yesterday" is no moment; write ms of Unix time as "1767225600000", or'),
    ({"startingTimestamp": "2026-01-01T00:00:00"}, "a date and a time with its zone as"),
    ({"startingTimestamp": "1767225600001", "endingTimestamp": "1767225600000"}, '"endingTimestamp" is before'),
    ({"maxRowsPerTrigger": "5", "maxOffsetsPerTrigger": "6"}, "are names of one option; give it once"),
    ({"numPartitions": "5", "minPartitions": "6"}, "are names of one option; give it once"),
    ({"minPartitions": "0"}, 'option "minPartitions" must be between 1 and '),
    ({"maxRecordsPerPartition": "0"}, 'option "maxRecordsPerPartition" must be between 1'),
    ({"fetchBytes": "2000", "prefetchBytes": "1999"}, '"prefetchBytes" is less than "fetchBytes"'),
    ({"prefetchBytes": str(1 << 27)}, 'option "prefetchBytes" must be between 0 and 67108864'),
    ({"includeHeaders": "1"}, 'option "includeHeaders" must be one of true, false'),
    ({"columns": "value,offset"}, 'there is no column "offset"; there are value, topic, id, timestamp, nsqd, position'),
    ({"columns": ","}, 'option "columns" names no column'),
    ({"columns": "value,headers"}, 'for the column "headers" set the option "includeHeaders" to "true"'),
    ({"columns": "value", "includeHeaders": "true"}, 'the column "headers" is not among "columns"; name it there'),
    ({"valueFormat": "xml"}, 'option "valueFormat" must be one of binary, string, json, avro, not "xml"'),
    ({"valueFormat": "json"}, '"valueFormat" is "json", which needs the option "valueSchema"'),
    ({"valueSchema": "a INT"}, '"valueSchema" is set, which needs the option "valueFormat" to be "json" or "avro"'),
    ({"onMalformed": "null"}, '"onMalformed" is set, but with the "valueFormat" binary no value is malformed'),
    ({"valueFormat": "string", "columns": "id"}, '"valueFormat" is set, but the column "value" is not among'),
    (
        {"valueFormat": "json", "valueSchema": "a INTT"},
        'option "valueSchema" is no schema: "INTT" is no type; there are',
    ),
    ({"valueFormat": "json", "valueSchema": "{}"}, "it is not a struct in Spark's JSON form"),
    ({"valueFormat": "avro", "valueSchema": "a INT"}, 'option "valueSchema" is no schema of Avro: '),
    ({"valueFormat": "avro", "valueSchema": AVRO.replace("int", "intt")}, 'there is no type "intt"'),
    ({"topick": "t"}, 'unknown option "topick"; did you mean "topic"?'),
    ({"channel": "c"}, 'unknown option "channel"; a log is read without a channel; leave it out'),
    ({"spoolPath": "x"}, 'unknown option "spoolpath"; a stream from a log needs no spool'),
    ({"kafka.bootstrap.servers": "x:1"}, 'here it is "nsqdHttpAddresses" or "lookupdHttpAddresses"'),
    ({"kafka.group.id": "g"}, "readers of a log have no group, and take nothing from each other"),
    ({"assign": "{}"}, 'unknown option "assign"; Kafka\'s option; here it is "subscribe" or "topic"'),
    ({"startingOffsetsByTimestamp": "{}"}, 'here it is "startingTimestamp"'),
    ({"minOffsetsPerTrigger": "1"}, "a micro-batch has no least size"),
    ({"kafka.interceptor.classes": "x"}, "options of Kafka's client mean nothing to NSQ; leave it out"),
    ({"replay": "channel"}, 'option "replay" must be "log", not "channel"; leave it out to read a channel'),
    ({"timestampSlackMs": "5"}, 'option "timestampSlackMs" is of no use without "pushFilters"'),
    ({"topicDiscoveryMs": "5"}, 'of no use without "subscribePattern" or "lookupdHttpAddresses"; leave it out, or set'),
    ({"backoffMs": "6", "maxBackoffMs": "5"}, 'option "backoffMs" is 6, more than "maxBackoffMs", which is 5; lower'),
    ({"backoffMs": "5001"}, 'option "backoffMs" is 5001, more than "maxBackoffMs", which is 5000; lower the one'),
    ({"retries": "0", "backoffMs": "5"}, 'option "backoffMs" is of no use without "retries"; leave it out'),
    ({"retries": "0", "maxBackoffMs": "500"}, 'option "maxBackoffMs" is of no use without "retries"; leave it out'),
    ({"path": "t"}, 'unknown option "path"; topics are named by "topic", "subscribe" or "subscribePattern"'),
    ({"checkpointLocation": "x"}, "it is an option of writeStream; set it there"),
    ({"ackMode": "peek"}, 'unknown option "ackmode"; "ackMode" is for reading a channel; leave it out'),
    ({"msgTimeoutMs": "5"}, '"msgTimeoutMs" is for reading a channel; did you mean "requestTimeoutMs"?'),
    ({"batchSize": "5"}, '"batchSize" is for writing; leave it out'),
    ({"lookupdPollMs": "5"}, '"lookupdPollMs" is for reading a channel or writing; leave it out'),
]

CHANNEL_MISTAKES: list[tuple[Given, str]] = [
    ({"subscribe": "a,b"}, 'a channel is of one topic: set "topic"; several are read with the option "replay"'),
    ({"startingOffsets": "earliest"}, 'it is for reading a log: set the option "replay" to "log"'),
    (
        {"nsqdTcpAddresses": "", "nsqdHttpAddresses": "x:1"},
        'a channel is read over TCP: set "nsqdTcpAddresses", or set "replay" to "log"',
    ),
    ({"kafka.group.id": "g"}, 'Kafka\'s option; here it is "channel"'),
    ({"kafka.bootstrap.servers": "x:1"}, 'here it is "nsqdTcpAddresses" or "lookupdHttpAddresses"'),
    ({"minPartitions": "3", "numPartitions": "4"}, "are names of one option"),
    (
        {"columns": "position"},
        'there is no column "position"; there are value, topic, channel, id, timestamp, attempts',
    ),
    ({"valueFormat": "json"}, "needs the option"),
    ({"includeHeaders": "true"}, 'a channel gives no headers; read the log with "replay"'),
    ({"lookupdPollMs": "5"}, 'option "lookupdPollMs" is of no use without "lookupdHttpAddresses"'),
    ({"idleTimeoutMs": "60001"}, 'option "idleTimeoutMs" is 60001, more than "maxWaitMs", which is 60000; lower'),
    ({"maxOffsetsPerTrigger": "2000001"}, 'option "maxOffsetsPerTrigger" is 2000001, more than "maxSpoolRows", which'),
    ({"maxBytesPerTrigger": "9", "maxSpoolBytes": "8"}, 'is 9, more than "maxSpoolBytes", which is 8; lower the one'),
    ({"ackMode": "peek", "maxMessages": "2501"}, 'at most the 2500 of "maxInFlightMessages"; raise that one'),
    (
        {"ackMode": "peek", "msgTimeoutMs": "900"},
        'is 900, not above the 1000 of "idleTimeoutMs", so that',
    ),
    ({"channel": ""}, 'for example "my-channel"; or set "replay" to "log" to read the log of the topic'),
    ({"path": "t"}, 'unknown option "path"; a topic is named by the option "topic"'),
    ({"backoffMs": "5"}, '"backoffMs" is for reading a log or writing; leave it out'),
    ({"requestTimeoutMs": "5"}, 'is for reading a log or writing; did you mean "msgTimeoutMs"?'),
    ({"pushFilters": "true"}, 'it is for reading a log: set the option "replay" to "log", or leave it out'),
]


def with_(base: Given, more: Given) -> Given:
    return {name: text for name, text in (base | more).items() if text}


@pytest.mark.parametrize(("given", "said"), LOG_MISTAKES)
def test_mistakes_of_a_log(given: Given, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        LogOptions.parse({name.lower(): text for name, text in with_(LOG, given).items()})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("given", "said"), CHANNEL_MISTAKES)
def test_mistakes_of_a_channel(given: Given, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        ChannelOptions.parse(with_(CHANNEL, given))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "mistake"),
    [(LOG, LOG_MISTAKES[at]) for at in (0, 5, 13, 21, 27, 36, 42)] + [(CHANNEL, CHANNEL_MISTAKES[at]) for at in (0, 8)],
)
def test_a_batch_and_a_stream_name_a_mistake_when_they_are_made(
    spark: SparkSession, base: Given, mistake: tuple[Given, str]
) -> None:
    given, said = mistake
    for reader in (spark.read, spark.readStream):
        with pytest.raises(AnalysisException) as caught:
            reader.format("nsq").options(**with_(base, given)).load()
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "given", "mode"),
    [
        (LogOptions, "topicDiscoveryMs", STREAM),
        (LogOptions, "maxrowspertrigger", STREAM),
        (LogOptions, "maxOffsetsPerTrigger", STREAM),
        (LogOptions, "endingOffsets", BATCH),
        (LogOptions, "pushFilters", BATCH),
        (ChannelOptions, "spoolPath", STREAM),
        (ChannelOptions, "ackMode", BATCH),
    ],
)
def test_an_option_of_the_other_mode_is_refused(options: type[Any], given: str, mode: str) -> None:
    check_mode(options, [given, "topic", "unknown"], mode)
    with pytest.raises(OptionError, match=f'(?i)option "{given}" is for a {mode}.*leave it out, or read'):
        check_mode(options, [given], BATCH if mode == STREAM else STREAM)


def test_a_batch_refuses_an_option_of_streams(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match='option "maxBytesPerTrigger" is for a stream'):
        spark.read.format("nsq").options(**LOG, maxBytesPerTrigger="1").load().collect()


def test_a_batch_from_the_latest_offset_would_be_empty() -> None:
    with pytest.raises(OptionError, match='"startingOffsets" is "latest", behind which a batch finds nothing; set'):
        log_batch_reader(LogOptions.parse(LOG | {"startingOffsets": "latest"}))


def test_an_option_that_has_its_default_contradicts_no_other_one() -> None:
    assert ChannelOptions.parse(CHANNEL | {"maxWaitMs": "500"}).max_wait_ms == 500
    assert LogOptions.parse(LOG | {"maxBackoffMs": "50"}).max_backoff_ms == 50
    assert LogOptions.parse(LOG | {"retries": "0", "backoffMs": "100"}).retries == 0


@pytest.mark.parametrize("cls", [ChannelOptions, LogOptions, SinkOptions])
def test_options_name_only_options_of_their_class(cls: type[Any]) -> None:
    data = [each.metadata for each in dataclasses.fields(cls)]
    named = {other for each in data for other in (*each["needs"], each["not_with"], each["at_most"])}
    assert named - {""} <= {each["name"] for each in data}
    assert named - {""}


def test_two_names_of_one_option() -> None:
    given = LOG | {"maxOffsetsPerTrigger": "7", "minPartitions": "3"}
    options = LogOptions.parse(given)
    assert (options.max_rows, options.partitions) == (7, 3)
    assert options == LogOptions.parse(given | {"numPartitions": "3"}), "twice the same is no contradiction"
    channel = ChannelOptions.parse(CHANNEL | {"maxoffsetspertrigger": "7", "minpartitions": "3"})
    assert (channel.max_rows, channel.partitions) == (7, 3)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1767225600123", 1767225600123),
        ("1767225600", 1767225600000),
        ("1767225600.25", 1767225600250),
        ("0", 0),
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01 01:00:00.5+01:00", 1767225600500),
    ],
)
def test_moments(text: str, milliseconds: int) -> None:
    assert milliseconds == LogOptions.parse(LOG | {"startingTimestamp": text}).starting_timestamp


DDLS = [
    "a INT",
    "a int, b string,c Double",
    "`a b` BIGINT, c: BOOLEAN",
    "a ARRAY<INT>, b MAP<STRING, ARRAY<STRUCT<x: DATE, y: TIMESTAMP_NTZ>>>",
    "a STRUCT<b: STRUCT<c: DECIMAL(10,2)>, d DECIMAL>, e DECIMAL(5)",
    "a TINYINT, b SMALLINT, c FLOAT, d BINARY, e TIMESTAMP, f LONG, g REAL, h BYTE, i SHORT",
    "a INT COMMENT 'it''s, <here>', b STRING",
]


@pytest.mark.parametrize("text", DDLS)
def test_schemas_are_read_as_spark_reads_them(spark: SparkSession, text: str) -> None:
    sparks = DataType.fromDDL(text)
    assert isinstance(sparks, StructType)
    ours = struct_of("valueSchema", text)
    assert sparks.simpleString() == ours.simpleString()
    assert ours.simpleString() == struct_of("valueSchema", sparks.json()).simpleString()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", 'a word is missing before "the end"'),
        ("a INT b INT", '"b" is one too many'),
        ("a INT,", "a word is missing"),
        ("a ARRAY", '< is missing before "the end"'),
        ("a STRUCT<b INT", '> is missing before "the end"'),
        ("a INT, a STRING", "a field is there twice"),
        ("a MAP<INT, INT>", "the key of a map must be STRING"),
        ("a DECIMAL(50)", "DECIMAL(50, 0) is not possible"),
        ("a VARIANT", '"VARIANT" is no type'),
        ("a; INT", '"; INT" is not understood'),
    ],
)
def test_schemas_that_are_none(text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        struct_of("valueSchema", text)
    assert said in str(caught.value)


def test_schemas_of_avro() -> None:
    text = {
        "type": "record",
        "name": "R",
        "namespace": "x",
        "fields": [
            {"name": "a", "type": ["null", "long"]},
            {"name": "b", "type": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 4}}},
            {"name": "c", "type": "F"},
            {"name": "d", "type": {"type": "record", "name": "S", "fields": [{"name": "x", "type": "x.F"}]}},
            {"name": "e", "type": {"type": "int", "logicalType": "date"}},
            {"name": "f", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "g", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "h", "type": {"type": "int", "logicalType": "time-millis"}},
        ],
    }
    kinds: list[DataType] = [
        LongType(),
        ArrayType(BinaryType()),
        BinaryType(),
        StructType([StructField("x", BinaryType())]),
        DateType(),
        TimestampType(),
        StringType(),
        IntegerType(),
    ]
    expected = StructType([StructField(name, kind) for name, kind in zip("abcdefgh", kinds, strict=True)])
    assert expected == avro_type("valueSchema", json.dumps(text))


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ('["int", "string"]', "a union of several types is not supported, except with null"),
        ('["null", "R"]', '"R" contains itself'),
        ('{"type": "record", "name": "E", "fields": []}', "a record has no field"),
    ],
)
def test_schemas_of_avro_without_a_column(field: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        avro_type("valueSchema", f'{{"type": "record", "name": "R", "fields": [{{"name": "a", "type": {field}}}]}}')
    assert said in str(caught.value)
