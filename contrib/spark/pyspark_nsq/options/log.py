"""What may be set beside ``replay=log``: reading a topic's log by position, which nsqtw has and other nsqds do not.

| option               | for    | default   | meaning                                                              |
|----------------------|--------|-----------|----------------------------------------------------------------------|
| nsqdHttpAddresses    | both   | one of    | ``host:port,...`` of every nsqd that has the topic; https:// too     |
| lookupdHttpAddresses | both   | the two   | ``host:port,...`` of nsqlookupds, which know them                    |
| topic                | both   | required  |                                                                      |
| startingOffsets      | both   | see below | ``earliest``, ``latest``, or positions as a JSON object by address   |
| endingOffsets        | batch  | latest    | the same                                                             |
| startingTimestamp    | both   | none      | instead: messages published since; ms of Unix time, or RFC 3339      |
| endingTimestamp      | batch  | none      | instead: messages published before                                   |
| maxRowsPerTrigger    | stream | none      | most rows of a micro-batch                                           |
| maxBytesPerTrigger   | stream | none      | most bytes of a micro-batch, headers of messages included            |
| numPartitions        | both   | 2         | least tasks, for enough positions                                    |
| failOnDataLoss       | both   | true      | ``false`` goes on when messages that should be there are gone        |
| fetchBytes           | both   | 1048576   | bytes asked for at a time                                            |
| requestTimeoutMs     | both   | 10000     | for one whole attempt                                                |
| retries              | both   | 5         | attempts after the first one                                         |
| backoffMs            | both   | 100       | pause before the first retry, doubled for each next one              |
| maxBackoffMs         | both   | 5000      | longest such pause                                                   |
| showProgress         | both   | false     | ``true`` prints a line of JSON for each task, where it runs          |

and those of `security_options`. A stream starts at ``latest``, a batch at ``earliest``, as with Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import HOUR_MS, Choice, HttpAddresses, Name, WholeNumber, YesNo, option, read_options
from pyspark_nsq.options.security import Security

EARLIEST, LATEST = "earliest", "latest"
_MANY = 1 << 62
_MOST_FETCHED = 4 * 1024 * 1024

Positions = dict[str, int]


class Offsets:
    """``earliest``, ``latest``, or a dict of address to position."""

    def read(self, name: str, text: str) -> str | Positions:
        if text in (EARLIEST, LATEST):
            return text
        try:
            found = json.loads(text)
            addresses = {HttpAddresses().read(name, str(address))[0]: int(at) for address, at in found.items()}
        except (ValueError, AttributeError, TypeError):
            raise OptionError(
                f'option "{name}" must be "earliest", "latest" or like {{"127.0.0.1:4151": 4503599627370496}}'
            ) from None
        return addresses


class Moment:
    """Handed to nsqd as it is, which reads it."""

    def read(self, name: str, text: str) -> str:
        if not text:
            raise OptionError(f'option "{name}" names no moment')
        return text


@dataclass(frozen=True, kw_only=True)
class LogOptions(Security):
    """The options of one read of a log. Use `parse`: it is what checks them."""

    replay: str = option("replay", Choice(("log",)), "log")
    addresses: tuple[str, ...] = option("nsqdHttpAddresses", HttpAddresses(), ())
    lookupds: tuple[str, ...] = option("lookupdHttpAddresses", HttpAddresses(), ())
    topic: str = option("topic", Name("topic"))
    starting_offsets: str | Positions | None = option("startingOffsets", Offsets(), None)
    ending_offsets: str | Positions | None = option("endingOffsets", Offsets(), None)
    starting_timestamp: str | None = option("startingTimestamp", Moment(), None)
    ending_timestamp: str | None = option("endingTimestamp", Moment(), None)
    max_rows: int | None = option("maxRowsPerTrigger", WholeNumber(1, _MANY), None)
    max_bytes: int | None = option("maxBytesPerTrigger", WholeNumber(1, _MANY), None)
    partitions: int = option("numPartitions", WholeNumber(1, 100_000), 2)
    fail_on_data_loss: bool = option("failOnDataLoss", YesNo(), True)
    fetch_bytes: int = option("fetchBytes", WholeNumber(1, _MOST_FETCHED), 1024 * 1024)
    request_timeout_ms: int = option("requestTimeoutMs", WholeNumber(1, HOUR_MS), 10_000)
    retries: int = option("retries", WholeNumber(0, 1000), 5)
    backoff_ms: int = option("backoffMs", WholeNumber(0, HOUR_MS), 100)
    max_backoff_ms: int = option("maxBackoffMs", WholeNumber(0, HOUR_MS), 5000)
    show_progress: bool = option("showProgress", YesNo(), False)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """The options in `given`, whose keys Spark may have put into lower case.

        Raises OptionError for an option that is missing, unknown or has a bad value.
        """
        options = read_options(cls, given)
        if bool(options.addresses) == bool(options.lookupds):
            raise OptionError('either "nsqdHttpAddresses" or "lookupdHttpAddresses" is required')
        for which in ("starting", "ending"):
            if getattr(options, f"{which}_offsets") is not None and getattr(options, f"{which}_timestamp") is not None:
                raise OptionError(f'"{which}Offsets" and "{which}Timestamp" exclude each other')
        if options.sets_tls and not any(one.startswith("https") for one in options.addresses + options.lookupds):
            raise OptionError('options "tls." are set, but no address is https://host:port')
        return options
