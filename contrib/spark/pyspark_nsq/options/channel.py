"""Options of a read of a channel, by ``spark.read.format("nsq")`` and ``spark.readStream.format("nsq")``.

| option               | for    | default  | meaning                                                               |
|----------------------|--------|----------|-----------------------------------------------------------------------|
| nsqdTcpAddresses     | both   | one of   | ``host:port,...`` of every nsqd to read from                          |
| lookupdHttpAddresses | both   | the two  | ``host:port,...`` of nsqlookupds, which know the nsqds of the topic   |
| lookupdPollMs        | both   | 15000    | time between two questions to the nsqlookupds                         |
| nsqdHttpAddresses    | stream | none     | ``host:port,...`` of the nsqds, also https, to ask for the depth of   |
|                      |        |          | the channel. Only for the lag, and not with lookupdHttpAddresses      |
| topic, channel       | both   | required | two queries on one channel share its messages                         |
| maxRowsPerTrigger    | stream | none     | most rows of a micro-batch                                            |
| maxBytesPerTrigger   | stream | none     | most bytes of values of a micro-batch, but at least one row; 128 MiB  |
|                      |        |          | when neither this nor maxRowsPerTrigger is set                        |
| spoolPath            | stream | required | folder on a durable disk of the driver, as important as the checkpoint|
| spoolMode            | stream | auto     | ``inline``: the driver sends the rows; ``shared``: tasks read the     |
|                      |        |          | spool, on the machine of the driver; ``auto``: shared in a local      |
|                      |        |          | Spark, else inline                                                    |
| maxSpoolRows         | stream | 2000000  | rows in the spool, beyond which no more are taken from NSQ            |
| maxSpoolBytes        | stream | 1 GiB    | the same for the bytes of these rows                                  |
| idWindowSeconds      | stream | 3600     | time for which the id of a message is remembered: another delivery    |
|                      |        |          | within it is dropped                                                  |
| failOnDataLoss       | stream | true     | ``false`` goes on when the spool lacks rows that Spark requests       |
| numPartitions        | both   | 2        | least tasks of a micro-batch or a batch with enough rows              |
| msgTimeoutMs         | both   | 60000    | the msg_timeout asked of nsqd                                         |
| maxInFlightMessages  | both   | 2500     | RDY, over all connections                                             |
| maxMessages          | batch  | 100000   | most rows                                                             |
| idleTimeoutMs        | both   | 1000     | time without a message after which a batch, or a stream with          |
|                      |        |          | availableNow, ends                                                    |
| maxWaitMs            | both   | 60000    | time after which it ends in any case                                  |
| ackMode              | batch  | fin      | ``peek`` gives the messages back, with one attempt more               |
| tls                  | both   | false    | ``true`` turns TLS on after IDENTIFY                                  |
| showProgress         | both   | false    | ``true`` prints a line of JSON for each batch or micro-batch          |

and those of `options.values` and `options.security`. `maxRowsPerTrigger` may be written `maxOffsetsPerTrigger`, and
`numPartitions` `minPartitions`, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import (
    BATCH,
    HOUR_MS,
    OF_WRITE_STREAM,
    STREAM,
    Choice,
    FilePath,
    HttpAddresses,
    Name,
    TcpAddresses,
    WholeNumber,
    YesNo,
    is_given,
    option,
    read_options,
)
from pyspark_nsq.options.security import Security
from pyspark_nsq.options.values import Values

SCHEMA = StructType(
    [
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("channel", StringType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("attempts", IntegerType()),
        StructField("nsqd", StringType()),
    ]
)

_ONE_TOPIC = 'a channel is of one topic: set "topic"; several are read with the option "replay" set to "log"'
_REPLAY = 'it is for reading a log: set the option "replay" to "log", or leave it out'
_OR_REPLAY = '; or set "replay" to "log" to read the log of the topic'
#: Options of logs, in lower case, that a channel does not have, with the remedy.
_OF_LOGS = {
    "subscribe": _ONE_TOPIC,
    "subscribepattern": _ONE_TOPIC,
    "startingoffsets": _REPLAY,
    "endingoffsets": _REPLAY,
    "startingtimestamp": _REPLAY,
    "endingtimestamp": _REPLAY,
    "topicdiscoveryms": _REPLAY,
    "maxrecordsperpartition": _REPLAY,
    "fetchbytes": _REPLAY,
    "prefetchbytes": _REPLAY,
    "pushfilters": _REPLAY,
    "timestampslackms": _REPLAY,
    "path": 'a topic is named by the option "topic"',
    "checkpointlocation": OF_WRITE_STREAM,
}
_MANY = 1 << 62
_MOST_TIMEOUT_MS = 24 * HOUR_MS
#: A micro-batch is in the memory of Spark's Java as a whole.
_MICRO_BATCH_BYTES = 128 << 20


@dataclass(frozen=True, kw_only=True)
class ChannelOptions(Security, Values):
    """The options of one read. Use `parse`, which checks them."""

    nsqds: tuple[tuple[str, int], ...] = option("nsqdTcpAddresses", TcpAddresses(), ())
    lookupds: tuple[str, ...] = option("lookupdHttpAddresses", HttpAddresses(), ())
    lookupd_poll_ms: int = option("lookupdPollMs", WholeNumber(1, HOUR_MS), 15_000, needs=("lookupdHttpAddresses",))
    http_addresses: tuple[str, ...] = option("nsqdHttpAddresses", HttpAddresses(), (), only=STREAM)
    topic: str = option("topic", Name("topic"))
    channel: str = option("channel", Name("channel"), or_else=_OR_REPLAY)
    max_rows: int | None = option(
        "maxRowsPerTrigger",
        WholeNumber(1, _MANY),
        None,
        aliases=("maxOffsetsPerTrigger",),
        only=STREAM,
        at_most="maxSpoolRows",
    )
    max_bytes: int | None = option(
        "maxBytesPerTrigger", WholeNumber(1, _MANY), None, only=STREAM, at_most="maxSpoolBytes"
    )
    spool_path: str | None = option("spoolPath", FilePath(), None, only=STREAM)
    spool_mode: str = option("spoolMode", Choice(("auto", "inline", "shared")), "auto", only=STREAM)
    max_spool_rows: int = option("maxSpoolRows", WholeNumber(1, _MANY), 2_000_000, only=STREAM)
    max_spool_bytes: int = option("maxSpoolBytes", WholeNumber(1, _MANY), 1 << 30, only=STREAM)
    id_window_seconds: int = option("idWindowSeconds", WholeNumber(0, _MANY // 1000), 3600, only=STREAM)
    fail_on_data_loss: bool = option("failOnDataLoss", YesNo(), True, only=STREAM)
    partitions: int = option("numPartitions", WholeNumber(1, 100_000), 2, aliases=("minPartitions",))
    msg_timeout_ms: int = option("msgTimeoutMs", WholeNumber(1, _MOST_TIMEOUT_MS), 60_000)
    max_in_flight: int = option("maxInFlightMessages", WholeNumber(1, 1_000_000), 2500)
    max_messages: int = option("maxMessages", WholeNumber(1, _MANY), 100_000, only=BATCH)
    idle_timeout_ms: int = option("idleTimeoutMs", WholeNumber(1, _MOST_TIMEOUT_MS), 1000, at_most="maxWaitMs")
    max_wait_ms: int = option("maxWaitMs", WholeNumber(1, _MOST_TIMEOUT_MS), 60_000)
    ack_mode: str = option("ackMode", Choice(("fin", "peek")), "fin", only=BATCH)
    tls: bool = option("tls", YesNo(), False)
    show_progress: bool = option("showProgress", YesNo(), False)

    @property
    def most_bytes(self) -> int | None:
        """The limit of bytes of a micro-batch."""
        return _MICRO_BATCH_BYTES if self.max_bytes is None and self.max_rows is None else self.max_bytes

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Return the options in `given`, whose keys Spark may have put into lower case.

        Raises OptionError for an option that is missing, unknown, contradictory or has a bad value.
        """
        options = read_options(cls, given, elsewhere=_OF_LOGS)
        if options.include_headers:
            raise OptionError('option "includeHeaders": a channel gives no headers; read the log with "replay"')
        options.check_values(SCHEMA)
        if not options.nsqds and not options.lookupds and options.http_addresses:
            raise OptionError(
                'a channel is read over TCP: set "nsqdTcpAddresses", or set "replay" to "log" to read a log'
            )
        if not options.nsqds and not options.lookupds:
            raise OptionError('one of the options "nsqdTcpAddresses" and "lookupdHttpAddresses" is required')
        if options.nsqds and options.lookupds:
            raise OptionError('"nsqdTcpAddresses" and "lookupdHttpAddresses" exclude each other; leave one out')
        over_https = [one for one in (*options.lookupds, *options.http_addresses) if one.startswith("https")]
        if options.sets_tls and not options.tls and not over_https:
            raise OptionError('options "tls." are set, but "tls" is not true; set it to "true"')
        options._check_peek(given)
        return options

    def _check_peek(self, given: Iterable[str]) -> None:
        """Raise OptionError when messages that are given back in the end cannot be so many, or wait so long."""
        if self.ack_mode != "peek":
            return
        if is_given("maxMessages", given) and self.max_messages > self.max_in_flight:
            raise OptionError(
                f'"maxMessages" is {self.max_messages}, but with the "ackMode" peek a batch has at most the '
                f'{self.max_in_flight} of "maxInFlightMessages"; raise that one'
            )
        if self.msg_timeout_ms <= self.idle_timeout_ms:
            raise OptionError(
                f'"msgTimeoutMs" is {self.msg_timeout_ms}, not above the {self.idle_timeout_ms} of "idleTimeoutMs", so '
                'that messages come again before a batch with the "ackMode" peek ends; raise it'
            )
