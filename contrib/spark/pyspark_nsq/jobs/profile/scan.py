"""The Spark program of a profile: one pass for the figures, and one for the repeats."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark_nsq.jobs.profile.figures import Collector, Figures

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

VALUE, ID = "value", "id"


class Repeats(NamedTuple):
    """Messages that repeat another one.

    `distinct`: number of different ones; `most`: occurrences of the most frequent one.
    """

    messages: int
    distinct: int
    most: int


def scan(messages: DataFrame, event_time_field: str = "") -> dict[str, Figures]:
    """Return the figures of each topic. Each task collects its own, in one pass; the driver merges them."""
    from pyspark.sql import functions as f

    collect = f.arrow_udtf(_table_function(event_time_field), returnType="topic string, figures binary")
    columns = messages.select("topic", "nsqd", "position", "timestamp", "due", "value")
    merged: dict[str, Figures] = {}
    # The declared types of PySpark know no tables as arguments.
    partial = cast("DataFrame", collect(columns.asTable()))  # type: ignore[arg-type]
    for topic, pickled in partial.toLocalIterator():
        merged.setdefault(topic, Figures()).merge(pickle.loads(pickled))
    return merged


def _table_function(event_time_field: str) -> type:
    """Return the class of which each task makes an instance. (Spark's mapInArrow would need pandas.)"""

    class TopicFigures:
        def __init__(self) -> None:
            self._collectors: dict[str, Collector] = {}

        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
            import pyarrow.compute as pc

            topics = batch.column("topic")
            for topic in pc.unique(topics).to_pylist():
                collector = self._collectors.setdefault(topic, Collector(event_time_field))
                collector.add(batch.filter(pc.equal(topics, topic)))
            return iter(())

        def terminate(self) -> Iterator[pa.Table]:
            import pyarrow as pa

            figures = [pickle.dumps(collector.finish()) for collector in self._collectors.values()]
            yield pa.table(
                {"topic": pa.array(self._collectors, pa.string()), "figures": pa.array(figures, pa.binary())}
            )

    return TopicFigures


def count_repeats(messages: DataFrame) -> dict[tuple[str, str], Repeats]:
    """Count the messages that repeat another's value, or its id, by topic and `VALUE` or `ID`.

    Values and ids are compared by 64 bits of hash.
    """
    from pyspark.sql import functions as f

    keys = f.create_map(f.lit(VALUE), f.xxhash64("value"), f.lit(ID), f.xxhash64("nsqd", "id"))
    counted = messages.select("topic", f.explode(keys).alias("kind", "key")).groupBy("topic", "kind", "key").count()
    repeated = counted.where("count > 1").groupBy("topic", "kind")
    rows = repeated.agg(f.sum(f.col("count") - 1), f.count(f.lit(1)), f.max("count")).collect()
    return {(topic, kind): Repeats(*counts) for topic, kind, *counts in rows}
