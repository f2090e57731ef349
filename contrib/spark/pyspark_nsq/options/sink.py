"""Options of a write by ``df.write.format("nsq")`` and ``df.writeStream.format("nsq")``.

| option               | default  | meaning                                                           |
|----------------------|----------|-------------------------------------------------------------------|
| nsqdHttpAddresses    | one of   | ``host:port,...``; ``https://host:port`` too. Tasks start at      |
|                      |          | different ones, and go on to the next when one fails              |
| lookupdHttpAddresses | the two  | ``host:port,...`` of nsqlookupds: all nsqds that they know        |
| lookupdPollMs        | 15000    | time between two questions to them while tasks run                |
| topic                | none     | the topic of all rows; overrides the column ``topic``             |
| channel              | none     | the only channel that gets the messages; only for nsqds of nsqtw  |
| maxTopics            | 1000     | most topics that the column ``topic`` of a task may have          |
| batchSize            | 10000    | most messages in one request                                      |
| batchBytes           | 2097152  | most bytes in one request; a larger message is sent alone         |
| maxMessageBytes      | 1048576  | most bytes of a message: the --max-msg-size of nsqd               |
| maxInFlight          | 2        | requests under way at a time, for each task                       |
| maxRowsPerSecond     | none     | most rows a second, for each task                                 |
| burstRows            | 0        | more rows at once after a pause, and at the start of a task       |
| requestTimeoutMs     | 10000    | for one whole attempt, the reading of the answer included         |
| retries              | 5        | attempts after the first one                                      |
| backoffMs            | 100      | pause before the first retry, doubled for each next one           |
| maxBackoffMs         | 5000     | longest such pause                                                |
| onEmpty              | fail     | ``fail`` or ``skip`` rows whose value is null or empty            |
| showProgress         | false    | ``true`` prints a line of JSON for each job or micro-batch        |

and those of `pyspark_nsq.options.security`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options.kinds import (
    HOUR_MS,
    Choice,
    HttpAddresses,
    Name,
    WholeNumber,
    YesNo,
    option,
    read_options,
)
from pyspark_nsq.options.security import Security

#: The defaults of nsqd's --max-msg-size and --max-body-size, in bytes.
MAX_MESSAGE_BYTES = 1024 * 1024
MAX_BODY_BYTES = 5 * 1024 * 1024
#: A request body of MAX_BODY_BYTES holds no more messages than this: 4 bytes of count, then 4 + 1 for each.
MAX_BATCH_SIZE = (MAX_BODY_BYTES - 4) // 5
_MANY = 1 << 40
_MOST_MESSAGE_BYTES = 1 << 30

#: Spark's own options, which it passes to the sink of a stream.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})

_REMEDIES = {
    "nsqdtcpaddresses": 'messages are published over HTTP; use "nsqdHttpAddresses", usually with port 4151',
    "lookupdtcpaddresses": 'use "lookupdHttpAddresses", usually with port 4161',
    "tls": 'write https:// before the addresses in "nsqdHttpAddresses" instead',
    "mode": 'the mode is set by mode("append")',
    "path": 'a topic is named by the option "topic"',
    "numpartitions": "each partition of the DataFrame is a task; use repartition(n)",
    "includeheaders": 'the columns "headers", "key" and "id" become headers without it',
    "defer": 'the column "defer" has the delay of each message',
    "key": 'the column "key" becomes the header "key" of a message',
    "authsecretconf": 'tasks do not see Spark\'s settings; use "authSecretFile" or "authSecretEnv"',
}


@dataclass(frozen=True, kw_only=True)
class SinkOptions(Security):
    """The options of one write. Use `parse`, which checks them."""

    #: Base URLs without a trailing slash. Empty with `lookupds`.
    addresses: tuple[str, ...] = option("nsqdHttpAddresses", HttpAddresses(), ())
    lookupds: tuple[str, ...] = option("lookupdHttpAddresses", HttpAddresses(), ())
    lookupd_poll_ms: int = option("lookupdPollMs", WholeNumber(1, HOUR_MS), 15_000, needs=("lookupdHttpAddresses",))
    topic: str | None = option("topic", Name("topic"), None)
    channel: str | None = option("channel", Name("channel"), None)
    max_topics: int = option("maxTopics", WholeNumber(1, 1_000_000), 1000, not_with="topic")
    batch_size: int = option("batchSize", WholeNumber(1, MAX_BATCH_SIZE), 10_000)
    batch_bytes: int = option("batchBytes", WholeNumber(1, MAX_BODY_BYTES), 2 * 1024 * 1024)
    max_message_bytes: int = option("maxMessageBytes", WholeNumber(1, _MOST_MESSAGE_BYTES), MAX_MESSAGE_BYTES)
    max_in_flight: int = option("maxInFlight", WholeNumber(1, 1000), 2)
    max_rows_per_second: int | None = option("maxRowsPerSecond", WholeNumber(1, _MANY), None)
    burst_rows: int = option("burstRows", WholeNumber(0, _MANY), 0, needs=("maxRowsPerSecond",))
    request_timeout_ms: int = option("requestTimeoutMs", WholeNumber(1, HOUR_MS), 10_000)
    retries: int = option("retries", WholeNumber(0, 1000), 5)
    backoff_ms: int = option("backoffMs", WholeNumber(0, HOUR_MS), 100, needs=("retries",), at_most="maxBackoffMs")
    max_backoff_ms: int = option("maxBackoffMs", WholeNumber(0, HOUR_MS), 5000, needs=("retries",))
    on_empty: str = option("onEmpty", Choice(("fail", "skip")), "fail")
    show_progress: bool = option("showProgress", YesNo(), False)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Return the options in `given`, whose keys Spark may have put into lower case.

        Raises OptionError for an option that is missing, unknown or has a bad value.
        """
        options = read_options(cls, given, _SPARKS_OWN, elsewhere=_REMEDIES)
        if not options.addresses and not options.lookupds:
            raise OptionError(
                'one of the options "nsqdHttpAddresses" and "lookupdHttpAddresses" is required, '
                'for example "127.0.0.1:4151" for the first'
            )
        if options.addresses and options.lookupds:
            raise OptionError('"nsqdHttpAddresses" and "lookupdHttpAddresses" exclude each other; leave one out')
        if options.sets_tls and not any(one.startswith("https://") for one in options.addresses + options.lookupds):
            name = "nsqdHttpAddresses" if options.addresses else "lookupdHttpAddresses"
            raise OptionError(f'options "tls." are set, but no address in "{name}" is https://host:port')
        return options
