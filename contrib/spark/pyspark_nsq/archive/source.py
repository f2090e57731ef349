"""The stream of an archive: the logs of one topic, of several, or of all that match a pattern."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Self

from pyspark_nsq.errors import ReadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pyspark_nsq.options.log import LogOptions

#: Attempts of a request before the stream fails: half a minute and more, in which a broker restarts.
_RETRIES = "12"


@dataclass(frozen=True)
class Subscription:
    """The topics of an archive, and the options of ``format("nsq")`` that say where they are."""

    topics: tuple[str, ...]
    connection: Mapping[str, str]
    max_rows: int = 1_000_000
    tasks: int = 2
    allow_data_loss: bool = False

    @classmethod
    def of(cls, text: str, connection: Mapping[str, str]) -> Self:
        """Return the subscription that an archive's identity has as `text`."""
        return cls(tuple(text.split(",")), connection)

    @property
    def text(self) -> str:
        """The topics as the archive's identity has them."""
        return ",".join(sorted(self.topics))

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the rows of all topics, from the oldest one that is kept."""
        share = max(1, self.max_rows // len(self.topics))
        streams = [
            spark.readStream.format("nsq").options(**self._options(topic, maxRowsPerTrigger=str(share))).load()
            for topic in self.topics
        ]
        return reduce(lambda one, other: one.union(other), streams)

    def batch(self, spark: SparkSession) -> DataFrame:
        """Return the rows that the logs have now."""
        frames = [spark.read.format("nsq").options(**self._options(topic)).load() for topic in self.topics]
        return reduce(lambda one, other: one.union(other), frames)

    def check(self) -> None:
        """Raise ReadError or OptionError unless each topic has a log that can be read."""
        from pyspark_nsq.log.client import NOTHING, LogClient

        for topic in self.topics:
            options = self._parsed(topic)
            client = LogClient(options)
            addresses = client.addresses()
            if all(client.extent(address) == NOTHING for address in addresses):
                where = ", ".join(addresses) or "any nsqd that nsqlookupd knows"
                raise ReadError(f'topic "{topic}" is unknown at {where}; create it, or correct --topic')

    def _parsed(self, topic: str) -> LogOptions:
        from pyspark_nsq.options.log import LogOptions

        return LogOptions.parse(self._options(topic, retries="2"))

    def _options(self, topic: str, **more: str) -> dict[str, str]:
        return {
            **self.connection,
            "replay": "log",
            "topic": topic,
            "startingOffsets": "earliest",
            "numPartitions": str(self.tasks),
            "failOnDataLoss": str(not self.allow_data_loss).lower(),
            "retries": _RETRIES,
            **more,
        }


def lag(source: Any) -> int | None:
    """Return how many positions the source of a progress is behind its logs, or None when it does not say."""
    try:
        latest, end = json.loads(source["latestOffset"]), json.loads(source["endOffset"])
    except (KeyError, TypeError, ValueError):
        return None
    return sum(_behind(end.get(key), value) for key, value in latest.items())


def _behind(end: Any, latest: Any) -> int:
    if isinstance(latest, dict):
        return sum(_behind((end or {}).get(key), value) for key, value in latest.items())
    return max(0, int(latest) - int(end or 0)) if end else 0
