"""The logs that an archive takes its rows from: those of some topics, or of all that match a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyspark_nsq.archive.layout import ATTEMPTS
from pyspark_nsq.errors import ReadError
from pyspark_nsq.monitoring.figures import figures_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Attempts of a request before the stream fails: half a minute and more, in which a broker restarts.
_RETRIES = "12"
#: The same before it starts.
_FIRST_RETRIES = "2"
_PATTERN = "pattern "
#: The header of a dead letter with the deliveries in the channel that it comes from.
_DEAD_ATTEMPTS = "nsq-dead-attempts"


@dataclass(frozen=True)
class Subscription:
    """The topics of an archive, or the pattern of their names, and the options with their addresses."""

    topics: tuple[str, ...]
    pattern: str | None
    connection: Mapping[str, str]
    max_rows: int = 1_000_000
    tasks: int = 2
    allow_data_loss: bool = False
    has_headers: bool = False

    @classmethod
    def of(cls, text: str, connection: Mapping[str, str]) -> Self:
        """Return the subscription that the identity of an archive has as `text`."""
        if text.startswith(_PATTERN):
            return cls((), text.removeprefix(_PATTERN), connection)
        return cls(tuple(text.split(",")), None, connection)

    @property
    def text(self) -> str:
        """The topics or the pattern, as the identity of an archive has them."""
        return ",".join(sorted(self.topics)) if self.pattern is None else f"{_PATTERN}{self.pattern}"

    def stream(self, spark: SparkSession, *, with_attempts: bool = True) -> DataFrame:
        """Return the rows of the logs, from the oldest one that is kept."""
        given = self._options(maxRowsPerTrigger=str(self.max_rows))
        if not with_attempts:
            return spark.readStream.format("nsq").options(**given).load()
        rows = spark.readStream.format("nsq").options(**given | {"includeHeaders": "true"}).load()
        rows = rows.selectExpr("*", f"coalesce(try_cast(headers['{_DEAD_ATTEMPTS}'] AS INT), 0) AS {ATTEMPTS.name}")
        return rows if self.has_headers else rows.drop("headers")

    def batch(self, spark: SparkSession) -> DataFrame:
        """Return the rows that the logs have now."""
        return spark.read.format("nsq").options(**self._options()).load()

    def check(self) -> list[str]:
        """Return warnings. Raise ReadError or OptionError unless there are logs, and all of them can be read."""
        from pyspark_nsq.log.client import LogClient
        from pyspark_nsq.log.discovery import Discovery
        from pyspark_nsq.log.retention import missing_retentions
        from pyspark_nsq.options.log import LogOptions

        options = LogOptions.parse(self._options(retries=_FIRST_RETRIES))
        client = LogClient(options)
        found = client.extents(Discovery(client, options).logs()[0])
        known = [log for log, extent in found.items() if extent is not None]
        where = ", ".join(options.addresses) or f"any nsqd that {', '.join(options.lookupds)} knows"
        for topic in self.topics:
            if topic not in {log.topic for log in known}:
                raise ReadError(f'topic "{topic}" is unknown at {where}; create it, or correct --topic')
        if not known:
            raise ReadError(f'no topic at {where} matches "{self.pattern}"; create one, or correct --topic-pattern')
        return [f"warning: {text}" for text in missing_retentions(client, known)]

    def _options(self, **more: str) -> dict[str, str]:
        topics = {"subscribe": ",".join(self.topics)} if self.pattern is None else {"subscribePattern": self.pattern}
        return {
            **self.connection,
            **topics,
            "replay": "log",
            "startingOffsets": "earliest",
            "numPartitions": str(self.tasks),
            "failOnDataLoss": str(not self.allow_data_loss).lower(),
            "includeHeaders": str(self.has_headers).lower(),
            "retries": _RETRIES,
            **more,
        }


def lag(source: Any) -> int | None:
    """Return how many messages the source of a progress has not read, or None when it is unknown."""
    figures = figures_of(source["latestOffset"] or "")
    return None if figures is None else sum(int(one["messages"]) for one in figures["lag"])
