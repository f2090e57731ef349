"""What the user of ``spark.read.format("nsq")`` and ``spark.readStream.format("nsq")`` may set.

| option               | for    | default  | meaning                                                               |
|----------------------|--------|----------|-----------------------------------------------------------------------|
| nsqdTcpAddresses     | both   | one of   | ``host:port,...`` of every nsqd to read from                          |
| lookupdHttpAddresses | both   | the two  | ``host:port,...`` of nsqlookupds, which know the nsqds of the topic   |
| lookupdPollMs        | both   | 15000    | how often these are asked                                             |
| nsqdHttpAddresses    | stream | none     | ``host:port,...`` of the nsqds, also https, which tell how many       |
|                      |        |          | messages wait: for the lag only. nsqlookupds know them, too           |
| topic, channel       | both   | required | one query, one channel: two on the same channel share its messages    |
| maxRowsPerTrigger    | stream | none     | most rows of a micro-batch                                            |
| maxBytesPerTrigger   | stream | none     | most bytes of values of a micro-batch, but at least one row           |
| spoolPath            | stream | required | file on a durable disk of the driver, as important as the checkpoint  |
| spoolMode            | stream | inline   | ``shared``: tasks read the spool file; it must be on their machine    |
| maxSpoolRows         | stream | 500000   | rows in the spool, beyond which no more are taken from NSQ            |
| idWindowSeconds      | stream | 3600     | how long the id of a message is known, so that another delivery of it |
|                      |        |          | is dropped                                                            |
| failOnDataLoss       | stream | true     | ``false`` goes on when the spool does not have what Spark asks for    |
| numPartitions        | both   | 2        | least tasks of a micro-batch or a batch with enough rows              |
| msgTimeoutMs         | both   | 60000    | the msg_timeout asked of nsqd                                         |
| maxInFlightMessages  | both   | 2500     | RDY, over all connections                                             |
| maxMessages          | batch  | 100000   | most rows                                                             |
| idleTimeoutMs        | both   | 1000     | a batch, or a stream with availableNow, ends after such a silence     |
| maxWaitMs            | both   | 60000    | and after this long in any case                                       |
| ackMode              | batch  | fin      | ``peek`` gives the messages back, with one attempt more               |
| tls                  | both   | false    | ``true`` turns TLS on after IDENTIFY                                  |
| showProgress         | both   | false    | ``true`` prints a line of JSON for each batch or micro-batch          |

and those of `security_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import (
    HOUR_MS,
    Choice,
    FilePath,
    HttpAddresses,
    Name,
    TcpAddresses,
    WholeNumber,
    YesNo,
    option,
    read_options,
)
from pyspark_nsq.options.security import Security

_MANY = 1 << 62
_MOST_TIMEOUT_MS = 24 * HOUR_MS


@dataclass(frozen=True, kw_only=True)
class ChannelOptions(Security):
    """The options of one read. Use `parse`: it is what checks them."""

    nsqds: tuple[tuple[str, int], ...] = option("nsqdTcpAddresses", TcpAddresses(), ())
    lookupds: tuple[str, ...] = option("lookupdHttpAddresses", HttpAddresses(), ())
    lookupd_poll_ms: int = option("lookupdPollMs", WholeNumber(1, HOUR_MS), 15_000)
    http_addresses: tuple[str, ...] = option("nsqdHttpAddresses", HttpAddresses(), ())
    topic: str = option("topic", Name("topic"))
    channel: str = option("channel", Name("channel"))
    max_rows: int | None = option("maxRowsPerTrigger", WholeNumber(1, _MANY), None)
    max_bytes: int | None = option("maxBytesPerTrigger", WholeNumber(1, _MANY), None)
    spool_path: str | None = option("spoolPath", FilePath(), None)
    spool_mode: str = option("spoolMode", Choice(("inline", "shared")), "inline")
    max_spool_rows: int = option("maxSpoolRows", WholeNumber(1, _MANY), 500_000)
    id_window_seconds: int = option("idWindowSeconds", WholeNumber(0, _MANY // 1000), 3600)
    fail_on_data_loss: bool = option("failOnDataLoss", YesNo(), True)
    partitions: int = option("numPartitions", WholeNumber(1, 100_000), 2)
    msg_timeout_ms: int = option("msgTimeoutMs", WholeNumber(1, _MOST_TIMEOUT_MS), 60_000)
    max_in_flight: int = option("maxInFlightMessages", WholeNumber(1, 1_000_000), 2500)
    max_messages: int = option("maxMessages", WholeNumber(1, _MANY), 100_000)
    idle_timeout_ms: int = option("idleTimeoutMs", WholeNumber(1, _MOST_TIMEOUT_MS), 1000)
    max_wait_ms: int = option("maxWaitMs", WholeNumber(1, _MOST_TIMEOUT_MS), 60_000)
    ack_mode: str = option("ackMode", Choice(("fin", "peek")), "fin")
    tls: bool = option("tls", YesNo(), False)
    show_progress: bool = option("showProgress", YesNo(), False)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """The options in `given`, whose keys Spark may have put into lower case.

        Raises OptionError for an option that is missing, unknown or has a bad value.
        """
        options = read_options(cls, given)
        if not options.nsqds and not options.lookupds:
            raise OptionError('one of the options "nsqdTcpAddresses" and "lookupdHttpAddresses" is required')
        if options.nsqds and options.lookupds:
            raise OptionError('"nsqdTcpAddresses" and "lookupdHttpAddresses" exclude each other')
        over_https = [one for one in (*options.lookupds, *options.http_addresses) if one.startswith("https")]
        if options.sets_tls and not options.tls and not over_https:
            raise OptionError('options "tls." are set, but "tls" is not true')
        return options
