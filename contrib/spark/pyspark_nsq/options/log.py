"""Options of ``replay=log``, which reads topics' logs by position. nsqtw has such logs, other nsqds do not.

| option               | for    | default   | meaning                                                              |
|----------------------|--------|-----------|----------------------------------------------------------------------|
| nsqdHttpAddresses    | both   | one of    | ``host:port,...`` of every nsqd that has the topics; https:// too    |
| lookupdHttpAddresses | both   | the two   | ``host:port,...`` of nsqlookupds, which know the nsqds               |
| topic                | both   | one of    | one topic                                                            |
| subscribe            | both   | the three | several topics: ``clicks,orders``                                    |
| subscribePattern     | both   |           | a regular expression that matches the whole name of each topic       |
| topicDiscoveryMs     | stream | 10000     | least time between two searches for new topics and nsqds, by a       |
|                      |        |           | pattern or nsqlookupds                                               |
| startingOffsets      | both   | see below | ``earliest``, ``latest``, or positions as a JSON object              |
| endingOffsets        | batch  | latest    | ``latest``, or positions                                             |
| startingTimestamp    | both   | none      | in place of offsets: messages published at or after a time; ms of    |
|                      |        |           | Unix time, or RFC 3339                                               |
| endingTimestamp      | batch  | none      | in place of offsets: messages published before a time                |
| pushFilters          | batch  | false     | ``true``: filters of a query narrow what is read. Correct only if    |
|                      |        |           | the DataFrame is used once, see `log.filters`                        |
| timestampSlackMs     | batch  | 60000     | with `pushFilters`: most time by which a clock of nsqd was set back  |
| maxRowsPerTrigger    | stream | none      | most rows of a micro-batch; also ``maxOffsetsPerTrigger``            |
| maxBytesPerTrigger   | stream | none      | most bytes of a micro-batch, headers of messages included            |
| numPartitions        | both   | 2         | least tasks, for enough positions; also ``minPartitions``            |
| maxRecordsPerPartition | both | none      | most positions, and so most rows, of a task                          |
| failOnDataLoss       | both   | true      | ``false`` goes on without messages that are no longer kept           |
| fetchBytes           | both   | 1048576   | bytes asked for at a time                                            |
| prefetchBytes        | both   | fetchBytes | bytes that a task requests before Spark takes the rows; 0: none     |
| requestTimeoutMs     | both   | 10000     | for one whole attempt                                                |
| retries              | both   | 5         | attempts after the first one                                         |
| backoffMs            | both   | 100       | pause before the first retry, doubled for each next one              |
| maxBackoffMs         | both   | 5000      | longest such pause                                                   |
| showProgress         | both   | false     | ``true`` prints a line of JSON for each log a task read              |

and those of `options.values` and `options.security`. A stream starts at ``latest``, a batch at ``earliest``, as with
Kafka. Positions are ``{"clicks": {"127.0.0.1:4151": 4503599627370496}}``; for a single topic also without its name. -2
is the earliest position and -1 the latest one, as with Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType, TimestampType

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import (
    BATCH,
    HOUR_MS,
    OF_WRITE_STREAM,
    STREAM,
    HttpAddresses,
    Name,
    TopicNames,
    TopicPattern,
    WholeNumber,
    YesNo,
    is_name,
    option,
    read_options,
)
from pyspark_nsq.options.security import Security
from pyspark_nsq.options.values import HEADERS_COLUMN, Values

LOG_SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("nsqd", StringType()),
        StructField("position", LongType()),
        StructField("due", TimestampType()),
    ]
)
HEADERS = StructField(HEADERS_COLUMN, MapType(StringType(), StringType()))
"""The column that `includeHeaders` adds."""

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_POSITION, LATEST_POSITION = -2, -1
_MANY = 1 << 62
_MOST_FETCHED = 4 * 1024 * 1024
_MOST_PREFETCHED = 64 * 1024 * 1024
_EPHEMERAL = "#ephemeral"
_LOG = "log"

#: Options, in lower case, that a log does not have, with the remedy.
_OF_CHANNELS = {
    "channel": 'a log is read without a channel; leave it out, or leave out "replay" to read the channel',
    "nsqdtcpaddresses": 'a log is read over HTTP; here it is "nsqdHttpAddresses"',
    "spoolpath": "a stream from a log needs no spool; leave it out",
    "tls": 'a log is read over HTTP; write the address as "https://host:port"',
    "path": 'topics are named by "topic", "subscribe" or "subscribePattern"',
    "checkpointlocation": OF_WRITE_STREAM,
}

#: Positions by address.
ByAddress = dict[str, int]
#: Positions by address, by topic. The topic is "" as long as it is not known.
ByTopic = dict[str, ByAddress]


class Replay:
    """The word ``log``."""

    def read(self, name: str, text: str) -> str:
        if text.lower() != _LOG:
            raise OptionError(f'option "{name}" must be "{_LOG}", not "{text}"; leave it out to read a channel')
        return _LOG


class Offsets:
    """``earliest``, ``latest``, or positions by topic and address."""

    def read(self, name: str, text: str) -> str | ByTopic:
        if text.lower() in (EARLIEST, LATEST):
            return text.lower()
        wrong = OptionError(
            f'option "{name}" must be "earliest", "latest" or like {{"127.0.0.1:4151": 4503599627370496}}, '
            'for several topics like {"clicks": {"127.0.0.1:4151": 4503599627370496}}'
        )
        try:
            found = json.loads(text)
        except ValueError:
            raise wrong from None
        if not isinstance(found, dict) or not found:
            raise wrong
        nested = {topic: each for topic, each in found.items() if isinstance(each, dict)}
        if nested and len(nested) < len(found):
            raise wrong
        try:
            return {topic: _positions(name, each) for topic, each in (nested or {"": found}).items()}
        except (ValueError, TypeError):
            raise wrong from None


def _positions(name: str, found: dict[str, Any]) -> ByAddress:
    positions = {HttpAddresses().read(name, str(address))[0]: int(at) for address, at in found.items()}
    for address, at in positions.items():
        if at < EARLIEST_POSITION:
            raise OptionError(f'option "{name}": {at} of {address} is no position; -2 is the earliest, -1 the latest')
    return positions


class Moment:
    """A time as milliseconds of Unix time; as nsqd reads one, or a number of up to 11 digits as seconds."""

    _NUMBER = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?", re.ASCII)
    _DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[Zz]|[-+]\d\d:\d\d)", re.ASCII)
    _MOST_SECONDS_DIGITS = 11

    def read(self, name: str, text: str) -> int:
        found = self._milliseconds(text.strip())
        if found is None:
            raise OptionError(
                f'option "{name}": "{text}" is no moment; write ms of Unix time as "1767225600000", or a date and a '
                'time with its zone as "2026-01-01T00:00:00Z"'
            )
        return found

    def _milliseconds(self, text: str) -> int | None:
        number = self._NUMBER.fullmatch(text)
        if number is not None and len(number[1]) > self._MOST_SECONDS_DIGITS:
            return int(number[1]) if number[2] is None else None
        if number is not None:
            return int(number[1]) * 1000 + int(f"{number[2] or ''}000"[:3])
        if self._DATE.fullmatch(text) is None:
            return None
        try:
            return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None


@dataclass(frozen=True, kw_only=True)
class LogOptions(Security, Values):
    """The options of one read of logs. Use `parse`, which checks them."""

    replay: str = option("replay", Replay(), _LOG)
    addresses: tuple[str, ...] = option("nsqdHttpAddresses", HttpAddresses(), ())
    lookupds: tuple[str, ...] = option("lookupdHttpAddresses", HttpAddresses(), ())
    topic: str | None = option("topic", Name("topic"), None)
    subscribe: tuple[str, ...] = option("subscribe", TopicNames(), ())
    pattern: re.Pattern[str] | None = option("subscribePattern", TopicPattern(), None)
    topic_discovery_ms: int = option(
        "topicDiscoveryMs",
        WholeNumber(0, HOUR_MS),
        10_000,
        only=STREAM,
        needs=("subscribePattern", "lookupdHttpAddresses"),
    )
    starting_offsets: str | ByTopic | None = option("startingOffsets", Offsets(), None)
    ending_offsets: str | ByTopic | None = option("endingOffsets", Offsets(), None, only=BATCH)
    starting_timestamp: int | None = option("startingTimestamp", Moment(), None)
    ending_timestamp: int | None = option("endingTimestamp", Moment(), None, only=BATCH)
    push_filters: bool = option("pushFilters", YesNo(), False, only=BATCH)
    timestamp_slack_ms: int = option(
        "timestampSlackMs", WholeNumber(0, 24 * HOUR_MS), 60_000, only=BATCH, needs=("pushFilters",)
    )
    max_rows: int | None = option(
        "maxRowsPerTrigger", WholeNumber(1, _MANY), None, aliases=("maxOffsetsPerTrigger",), only=STREAM
    )
    max_bytes: int | None = option("maxBytesPerTrigger", WholeNumber(1, _MANY), None, only=STREAM)
    partitions: int = option("numPartitions", WholeNumber(1, 100_000), 2, aliases=("minPartitions",))
    max_records: int | None = option("maxRecordsPerPartition", WholeNumber(1, _MANY), None)
    fail_on_data_loss: bool = option("failOnDataLoss", YesNo(), True)
    fetch_bytes: int = option("fetchBytes", WholeNumber(1, _MOST_FETCHED), 1024 * 1024)
    prefetch_bytes: int | None = option("prefetchBytes", WholeNumber(0, _MOST_PREFETCHED), None)
    request_timeout_ms: int = option("requestTimeoutMs", WholeNumber(1, HOUR_MS), 10_000)
    retries: int = option("retries", WholeNumber(0, 1000), 5)
    backoff_ms: int = option("backoffMs", WholeNumber(0, HOUR_MS), 100, needs=("retries",), at_most="maxBackoffMs")
    max_backoff_ms: int = option("maxBackoffMs", WholeNumber(0, HOUR_MS), 5000, needs=("retries",))
    show_progress: bool = option("showProgress", YesNo(), False)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Return the options in `given`, whose keys Spark may have put into lower case.

        Raises OptionError for an option that is missing, unknown, contradictory or has a bad value.
        """
        options = read_options(cls, given, elsewhere=_OF_CHANNELS)
        options._check_topics()
        if HEADERS_COLUMN in options.columns and not options.include_headers:
            raise OptionError('option "columns": for the column "headers" set the option "includeHeaders" to "true"')
        options.check_values(options.schema)
        if options.addresses and options.lookupds:
            raise OptionError('"nsqdHttpAddresses" and "lookupdHttpAddresses" exclude each other; leave one out')
        if not options.addresses and not options.lookupds:
            raise OptionError(
                'one of the options "nsqdHttpAddresses" and "lookupdHttpAddresses" is required, '
                'for example "127.0.0.1:4151" for the first'
            )
        for which in ("starting", "ending"):
            if getattr(options, f"{which}_offsets") is not None and getattr(options, f"{which}_timestamp") is not None:
                raise OptionError(f'"{which}Offsets" and "{which}Timestamp" exclude each other; leave one out')
        if options.sets_tls and not any(one.startswith("https") for one in options.addresses + options.lookupds):
            raise OptionError('options "tls." are set, but no address is https://host:port')
        options._check_range()
        if options.prefetch_bytes and options.prefetch_bytes < options.fetch_bytes:
            raise OptionError(
                '"prefetchBytes" is less than "fetchBytes", so that nothing can be fetched ahead; 0 says so'
            )
        options = replace(
            options,
            starting_offsets=options._by_topic("startingOffsets", options.starting_offsets),
            ending_offsets=options._by_topic("endingOffsets", options.ending_offsets),
        )
        options._check_positions()
        return options

    @property
    def schema(self) -> StructType:
        """The columns that a read can have."""
        return StructType([*LOG_SCHEMA.fields, HEADERS]) if self.include_headers else LOG_SCHEMA

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics by name; None when there is a pattern."""
        return (self.topic,) if self.topic is not None else self.subscribe or None

    @property
    def most_prefetched(self) -> int:
        return self.fetch_bytes if self.prefetch_bytes is None else self.prefetch_bytes

    def selects(self, topic: str) -> bool:
        """Return whether this topic is read."""
        if self.pattern is not None:
            return not topic.endswith(_EPHEMERAL) and self.pattern.fullmatch(topic) is not None
        return topic in (self.topics or ())

    def _check_topics(self) -> None:
        given = {"topic": self.topic, "subscribe": self.subscribe, "subscribePattern": self.pattern}
        names = [f'"{name}"' for name, value in given.items() if value]
        if not names:
            raise OptionError('one of the options "topic", "subscribe" and "subscribePattern" is required')
        if len(names) > 1:
            raise OptionError(f"{' and '.join(names)} exclude each other; leave one out")
        for topic in self.topics or ():
            if topic.endswith(_EPHEMERAL):
                raise OptionError(f'"{topic}" is ephemeral and has no log; read it from a channel')

    def _check_range(self) -> None:
        if self.ending_offsets == EARLIEST or EARLIEST_POSITION in _all_positions(self.ending_offsets):
            raise OptionError('"endingOffsets" cannot be the earliest ones, before which there is nothing')
        start, end = self.starting_timestamp, self.ending_timestamp
        if start is not None and end is not None and end < start:
            raise OptionError('"endingTimestamp" is before "startingTimestamp"; correct one of them')

    def _check_positions(self) -> None:
        """Raise OptionError when a log ends before it starts."""
        if not isinstance(self.starting_offsets, dict) or not isinstance(self.ending_offsets, dict):
            return
        for topic, starts in self.starting_offsets.items():
            for address, start in starts.items():
                end = self.ending_offsets.get(topic, {}).get(address, LATEST_POSITION)
                if 0 <= end < start:
                    raise OptionError(
                        f'"endingOffsets" is {end} for "{topic}" on {address}, before the {start} of "startingOffsets"'
                    )

    def _by_topic(self, name: str, offsets: str | ByTopic | None) -> str | ByTopic | None:
        """Return the offsets with a topic for all positions. Raises OptionError for a topic that is not read."""
        if not isinstance(offsets, dict):
            return offsets
        if "" in offsets:
            if self.topics is None or len(self.topics) > 1:
                raise OptionError(
                    f'option "{name}": with several topics write {{"clicks": {{"127.0.0.1:4151": 4503599627370496}}}}'
                )
            offsets = {self.topics[0]: offsets[""]}
        for topic, positions in offsets.items():
            if not is_name(topic) or not self.selects(topic):
                raise OptionError(f'option "{name}": the topic "{topic}" is not among those that are read')
            for address in positions:
                if self.addresses and address not in self.addresses:
                    raise OptionError(f'option "{name}": {address} is not in "nsqdHttpAddresses"')
        return offsets


def _all_positions(offsets: str | ByTopic | None) -> list[int]:
    return [at for positions in offsets.values() for at in positions.values()] if isinstance(offsets, dict) else []
