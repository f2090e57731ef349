"""The sections of a pipeline's configuration with all their keys: the one place where a key is declared.

`config` reads files by these declarations, and `reference` makes the page of the documentation from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark_nsq.jobs.etl.kinds import (
    CHANNEL,
    INTERVAL,
    PATTERN,
    TOPIC,
    TRIGGER,
    VIEW_NAME,
    Choice,
    Count,
    Flag,
    Options,
    Several,
    Text,
    key,
)

LOG, CHANNEL_KIND = "log", "channel"
JSON, TEXT = "json", "text"
APPEND, COMPLETE, UPDATE = "append", "complete", "update"
TABLE_FORMATS = ("parquet", "delta", "json", "csv")
DEFAULT_VIEW = "messages"


@dataclass(frozen=True, kw_only=True)
class Nsq:
    """The servers of NSQ, and the credentials for them. Secrets are in files of their own."""

    nsqd_http_addresses: tuple[str, ...] = key(
        Several(Text()), (), doc="HTTP addresses `host:port` of every nsqd: for a log, and for topics that are written"
    )
    nsqd_tcp_addresses: tuple[str, ...] = key(
        Several(Text()), (), doc="TCP addresses `host:port` of every nsqd: for a channel"
    )
    lookupd_http_addresses: tuple[str, ...] = key(
        Several(Text()), (), doc="`host:port` of nsqlookupds, in place of the addresses of nsqds"
    )
    auth_secret_file: str | None = key(Text(), None, doc="file with the secret of AUTH")
    tls: bool = key(Flag(), False, doc='use TLS on nsqd\'s TCP port (`kind = "channel"`)')
    tls_ca_file: str | None = key(Text(), None, doc="PEM file of the authorities that sign nsqd's certificate")
    tls_cert_file: str | None = key(Text(), None, doc="PEM file of the client's certificate")
    tls_key_file: str | None = key(Text(), None, doc="PEM file of its key")


@dataclass(frozen=True, kw_only=True)
class Source:
    """The messages that the pipeline reads, and the form of their bodies."""

    topic: tuple[str, ...] = key(Several(TOPIC), (), doc="topic, or several topics")
    topic_pattern: str | None = key(
        PATTERN,
        None,
        doc='regular expression that matches the whole name of each topic, in place of `topic`, with `kind = "log"`; '
        "new topics are found while the pipeline runs",
    )
    kind: str = key(
        Choice((LOG, CHANNEL_KIND)),
        LOG,
        doc="`log` reads the topic's log by position and takes nothing from any channel; the topic needs retention. "
        "`channel` consumes a channel",
    )
    channel: str | None = key(
        CHANNEL, None, doc='channel to consume, with `kind = "channel"`; no other consumer may use it'
    )
    spool: str | None = key(
        Text(), None, doc='folder on a durable disk of the driver for received messages, with `kind = "channel"`'
    )
    starting: str | None = key(
        Text(),
        None,
        doc='first messages to read, with `kind = "log"`: `earliest` or a time such as `2026-11-20T00:00:00Z`. '
        "Only the first start uses it",
        shown_default="`earliest`",
    )
    format: str = key(
        Choice((JSON, TEXT)), JSON, doc="`json`: an object of `schema`. `text`: UTF-8 in the column `value`"
    )
    schema: str | None = key(
        Text(),
        None,
        doc="columns of a JSON object, as in `CREATE TABLE`: `id string NOT NULL, at timestamp`. A message lacking a "
        "column that is `NOT NULL` does not match",
    )
    view: str = key(VIEW_NAME, DEFAULT_VIEW, doc="name of the messages in SQL")
    max_rows_per_trigger: int | None = key(Count(), None, doc="most messages of a micro-batch, for each topic")
    options: dict[str, str] = key(
        Options(), dict, doc='more options of `format("nsq")`, by their own names', shown_default="none"
    )


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """The time for which the pipeline waits for late messages before it completes a window."""

    column: str = key(Text(), doc="column of type timestamp, from the schema or `_timestamp`")
    delay: str = key(INTERVAL, doc="how much older than the newest message a late one may be")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file or folder to join with. Its files are listed when the pipeline starts."""

    name: str = key(VIEW_NAME, doc="name of the table in SQL")
    path: str = key(Text(), doc="file or folder")
    format: str = key(Choice(TABLE_FORMATS), "parquet", doc="format of the files")
    schema: str | None = key(Text(), None, doc="columns, as in `CREATE TABLE`; required for `csv` and `json`")
    options: dict[str, str] = key(
        Options(), dict, doc="more options of Spark's reader, such as `{ header = true }`", shown_default="none"
    )


@dataclass(frozen=True, kw_only=True)
class View:
    """A named statement, which later statements can select from."""

    name: str = key(VIEW_NAME, doc="name of the result in SQL")
    sql: str | None = key(Text(), None, doc="one SELECT statement")
    file: str | None = key(Text(), None, doc="file with the statement, in place of `sql`")


@dataclass(frozen=True, kw_only=True)
class Query:
    """The statement whose rows the pipeline writes."""

    sql: str | None = key(Text(), None, doc="one SELECT statement")
    file: str | None = key(Text(), None, doc="file with the statement, in place of `sql`")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A topic, or a folder of files. Base of the sections that name one."""

    topic: str | None = key(TOPIC, None, doc="topic to publish to")
    nsqd_http_addresses: tuple[str, ...] = key(
        Several(Text()),
        (),
        doc="HTTP addresses of the nsqds to publish to",
        shown_default="those of `[nsq]`",
    )
    path: str | None = key(Text(), None, doc="folder of the table to append to, in place of `topic`")
    format: str | None = key(Choice(TABLE_FORMATS), None, doc="format of the table", shown_default="`parquet`")
    partition_by: tuple[str, ...] = key(Several(Text()), (), doc="columns that the table is partitioned by")


@dataclass(frozen=True, kw_only=True)
class Sink(Target):
    """The target of the rows of the query: a topic or a table."""

    value: str | None = key(
        Choice(("json", "column")),
        None,
        doc="body of a message: `json` makes an object of all columns; `column` uses the column `value`, and passes "
        'the others to `format("nsq")`',
        shown_default="`json`",
    )
    output_mode: str = key(
        Choice((APPEND, COMPLETE, UPDATE)),
        APPEND,
        doc="`append` writes each row once, and a window when it is complete; `update` publishes each changed row; "
        "`complete` writes the whole result with each micro-batch. A table of files supports only `append`",
    )
    options: dict[str, str] = key(
        Options(), dict, doc='more options of `format("nsq")` or of the table\'s format', shown_default="none"
    )


@dataclass(frozen=True, kw_only=True)
class DeadLetters(Target):
    """The target of messages that cannot be parsed or do not match the schema: a topic or a table.

    Without this section the first such message ends the pipeline with an error.
    """

    channel: str | None = key(
        CHANNEL,
        None,
        doc='separate channel from which the dead letters are read, with `kind = "channel"`',
        shown_default="the channel of the source with `-dead` appended",
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """The checkpoint and the trigger of the pipeline."""

    checkpoint: str = key(Text(), doc="folder for the progress of the pipeline, from which the next start continues")
    trigger: str = key(
        TRIGGER,
        "1 second",
        doc="time between micro-batches; `available_now` ends when all present messages are written",
    )


@dataclass(frozen=True)
class Section:
    """A section: its name in the file, the dataclass with its keys, and how often it may occur."""

    name: str
    keys: type[Any]
    is_required: bool = False
    is_array: bool = False

    @property
    def title(self) -> str:
        """The header of the section in a file."""
        return f"[[{self.name}]]" if self.is_array else f"[{self.name}]"


SECTIONS = (
    Section("nsq", Nsq, is_required=True),
    Section("source", Source, is_required=True),
    Section("watermark", Watermark),
    Section("table", Table, is_array=True),
    Section("view", View, is_array=True),
    Section("query", Query, is_required=True),
    Section("sink", Sink, is_required=True),
    Section("dead_letters", DeadLetters),
    Section("run", Run, is_required=True),
)
