"""The messages of a pipeline as a stream: each topic with format("nsq"), and all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_nsq.errors import ConfigError, OptionError
from pyspark_nsq.jobs.etl import parsing
from pyspark_nsq.jobs.etl.config import Config
from pyspark_nsq.jobs.etl.sections import LOG
from pyspark_nsq.jobs.failures import explained
from pyspark_nsq.options.channel import ChannelOptions
from pyspark_nsq.options.kinds import STREAM, check_mode
from pyspark_nsq.options.log import LogOptions
from pyspark_nsq.options.values import Values


def messages(spark: SparkSession, config: Config, query: str, channel: str | None) -> DataFrame:
    """Return the messages for one query of the pipeline.

    A channel's messages go to one query only: each query has a channel and a spool of its own.
    Raises ConfigError for wrong options.
    """
    source = config.source
    if source.kind == LOG:
        return parsing.union([_loaded(spark, config, _log_options(config))])
    return parsing.union([_channel(spark, config, topic, query, str(channel)) for topic in source.topic])


def unknown_topics(config: Config) -> list[str]:
    """Return the topics of a pipeline on logs that no nsqd has. Raises ReadError."""
    from pyspark_nsq.log.client import LogClient
    from pyspark_nsq.log.discovery import Discovery
    from pyspark_nsq.log.plan import unknown_topics

    if config.source.kind != LOG:
        return []
    options = LogOptions.parse(_log_options(config) | config.source.options)
    client = LogClient(options)
    found = client.extents(Discovery(client, options).logs()[0])
    return unknown_topics(options, [log for log, extent in found.items() if extent is not None])


def _log_options(config: Config) -> dict[str, str]:
    source = config.source
    options = connection(config, "nsqdHttpAddresses") | {"replay": "log"}
    if source.topic_pattern is not None:
        options["subscribePattern"] = source.topic_pattern
    else:
        options["subscribe"] = ",".join(source.topic)
    if source.starting in (None, "earliest"):
        options["startingOffsets"] = "earliest"
    else:
        options["startingTimestamp"] = str(source.starting)
    return options


def _channel(spark: SparkSession, config: Config, topic: str, query: str, channel: str) -> DataFrame:
    spool = config.path(f"{config.source.spool}/{query}-{topic}.spool")
    options = connection(config, "nsqdTcpAddresses") | {"topic": topic, "channel": channel, "spoolPath": spool}
    if config.nsq.tls:
        options["tls"] = "true"
    return _loaded(spark, config, options)


def _loaded(spark: SparkSession, config: Config, options: dict[str, str]) -> DataFrame:
    source = config.source
    if source.max_rows_per_trigger is not None:
        options["maxRowsPerTrigger"] = str(source.max_rows_per_trigger)
    check_options(config, "source", options, source.options)
    _check_form(config)
    try:
        check_mode(LogOptions if source.kind == LOG else ChannelOptions, source.options, STREAM)
        return spark.readStream.format("nsq").options(**options | source.options).load()
    except (PySparkException, OptionError) as error:
        raise ConfigError(f"{config.where('source')}: {explained(error)}") from error


def _check_form(config: Config) -> None:
    """Raise ConfigError for an option that changes the rows, which a pipeline parses by itself."""
    place, given = config.where("source", 0, "options"), {name.lower() for name in config.source.options}
    for name in (field.metadata["name"] for field in fields(Values)):
        if name.lower() in given:
            remedy = 'use the keys "format" and "schema", and select columns in SQL'
            raise ConfigError(f'{place}: "{name}" is of no use in a pipeline; {remedy}')


def check_options(config: Config, section: str, own: Iterable[str], more: Iterable[str]) -> None:
    """Raise ConfigError for one of the options `more` of a section that a key of its own sets."""
    given = {name.lower() for name in more}
    for name in own:
        if name.lower() in given:
            raise ConfigError(
                f'{config.where(section, 0, "options")}: "{name}" is set by a key of its own, leave it out'
            )


def connection(config: Config, addresses: str, instead: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the options of format("nsq") for the connection. `instead`: addresses in place of those of [nsq]."""
    nsq = config.nsq
    direct = instead or (nsq.nsqd_http_addresses if addresses == "nsqdHttpAddresses" else nsq.nsqd_tcp_addresses)
    options = (
        {addresses: ",".join(direct)} if direct else {"lookupdHttpAddresses": ",".join(nsq.lookupd_http_addresses)}
    )
    files = {
        "authSecretFile": nsq.auth_secret_file,
        "tls.caFile": nsq.tls_ca_file,
        "tls.certFile": nsq.tls_cert_file,
        "tls.keyFile": nsq.tls_key_file,
    }
    return options | {name: config.path(file) for name, file in files.items() if file is not None}
