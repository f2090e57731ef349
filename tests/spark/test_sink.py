"""``df.write.format("nsq")`` in a real Spark, into the fake nsqd."""

from collections import Counter

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.fake_nsqd import FakeNsqd, Misbehaviour
from tests.spark.test_sink_lookup import FakeLookupd


def write(frame: DataFrame, nsqd: FakeNsqd, mode: str = "append", **options: str) -> None:
    settings = {"nsqdHttpAddresses": nsqd.address, "backoffMs": "1"} | options
    frame.write.format("nsq").mode(mode).options(**settings).save()


def test_every_row_arrives_once_in_full_batches(spark: SparkSession, nsqd: FakeNsqd) -> None:
    numbers = spark.range(0, 5000, numPartitions=2).selectExpr("cast(id as string) as value")
    write(numbers, nsqd, topic="numbers", batchSize="400")
    expected = sorted(b"%d" % number for number in range(5000))
    assert expected == sorted(nsqd.messages["numbers"])
    assert Counter({400: 12, 100: 2}) == Counter(nsqd.batches)


def test_topic_and_defer_columns_and_binary_values(spark: SparkSession, nsqd: FakeNsqd) -> None:
    rows = [(b"\xff1", "a", None), (b"\xff2", "b", 0), (b"\xff3", "a", 1500)]
    write(spark.createDataFrame(rows, "value binary, topic string, defer long"), nsqd)
    assert nsqd.messages == {"a": [b"\xff1"], "b": [b"\xff2"]}
    assert nsqd.deferred == [("a", b"\xff3", 1500)]


def test_the_option_topic_overrides_the_column(spark: SparkSession, nsqd: FakeNsqd) -> None:
    write(spark.createDataFrame([("v", "a")], "value string, topic string"), nsqd, topic="b")
    assert nsqd.messages == {"b": [b"v"]}


def test_a_lost_answer_repeats_and_loses_nothing(spark: SparkSession, nsqd: FakeNsqd) -> None:
    nsqd.script.extend([Misbehaviour.TAKE_AND_DROP, (503, b"EXITING"), Misbehaviour.DROP])
    numbers = spark.range(0, 300, numPartitions=1).selectExpr("cast(id as string) as value")
    write(numbers, nsqd, topic="t", batchSize="100")
    assert {b"%d" % number for number in range(300)} == set(nsqd.messages["t"])
    assert len(nsqd.messages["t"]) == 400


def test_an_empty_frame_writes_nothing(spark: SparkSession, nsqd: FakeNsqd) -> None:
    write(spark.createDataFrame([], "value string"), nsqd, topic="t")
    assert nsqd.requests == 0


def test_empty_values(spark: SparkSession, nsqd: FakeNsqd) -> None:
    frame = spark.createDataFrame([("a",), (None,), ("",)], "value string").coalesce(1)
    with pytest.raises(PythonException, match='"value" is null or empty'):
        write(frame, nsqd, topic="t")
    write(frame, nsqd, topic="t", onEmpty="skip")
    assert nsqd.messages["t"] == [b"a"]


def test_a_wrong_column_for_the_topic_creates_no_topics(spark: SparkSession, nsqd: FakeNsqd) -> None:
    wrong = spark.range(0, 5000, numPartitions=1).selectExpr("cast(id AS string) AS value", "concat('t', id) AS topic")
    with pytest.raises(PythonException, match=r'more than 1000 values in partition 0; .* "maxTopics" higher'):
        write(wrong, nsqd)
    assert nsqd.messages == {}
    write(wrong.limit(30).coalesce(1), nsqd, maxTopics="30")
    assert len(nsqd.messages) == 30


def test_nsqds_by_nsqlookupd(spark: SparkSession, nsqd: FakeNsqd) -> None:
    with FakeNsqd() as other, FakeLookupd(nsqd, other) as lookupd:
        numbers = spark.range(0, 1000, numPartitions=2).selectExpr("cast(id AS string) AS value")
        numbers.write.format("nsq").mode("append").options(topic="t", lookupdHttpAddresses=lookupd.address).save()
        assert [len(each.messages["t"]) for each in (nsqd, other)] == [500, 500]


def test_a_refused_topic_fails_the_job_with_nsqds_word(spark: SparkSession, nsqd: FakeNsqd) -> None:
    nsqd.script.append((400, b'{"message":"INVALID_TOPIC"}'))
    with pytest.raises(PythonException, match="INVALID_TOPIC"):
        write(spark.createDataFrame([("a",)], "value string").coalesce(1), nsqd, topic="t")


@pytest.mark.parametrize(
    ("columns", "mode", "options", "said"),
    [
        ("value string", "overwrite", {"topic": "t"}, 'use mode("append")'),
        ("value string", "append", {"topic": "t", "batchSize": "none"}, '"batchSize" must be a whole number'),
        ("value string", "append", {"topic": "t", "bachSize": "1"}, 'did you mean "batchSize"'),
        ("value string", "append", {}, 'set the option "topic" or add a column "topic"'),
        (
            "value string, partition string",
            "append",
            {"topic": "t"},
            'column "partition": NSQ topics have no partitions',
        ),
        ("value string", "append", {"topic": "t", "kafka.acks": "1"}, "options of Kafka's client mean nothing to NSQ"),
        ("value string", "append", {"topic": "t", "lookupdHttpAddresses": "h:1"}, "exclude each other"),
        ("value string", "append", {"topic": "t", "authSecret": "a", "authSecretEnv": "B"}, "exclude each other"),
        ("body string", "append", {"topic": "t"}, 'column "body" has no place'),
    ],
)
def test_mistakes_are_told_before_the_job_starts(
    spark: SparkSession, nsqd: FakeNsqd, columns: str, mode: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        write(spark.createDataFrame([("a",) * len(columns.split(","))], columns), nsqd, mode, **options)
    assert said in str(caught.value)
    assert nsqd.requests == 0
