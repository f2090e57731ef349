"""The command ``nsqtw-spark replay``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from pyspark_nsq.jobs.connection import Connection, optional_connection_options
from pyspark_nsq.jobs.messages import Messages, message_options
from pyspark_nsq.jobs.replay.checkpoint import Checkpoint
from pyspark_nsq.jobs.replay.plan import count_by_hour, print_counts
from pyspark_nsq.jobs.replay.publish import Replay, Target
from pyspark_nsq.jobs.spark import SparkChoice, spark_options
from pyspark_nsq.options.kinds import HttpAddresses, is_name

#: Options that a move of a channel does not support: nsqd moves the channel to a position in the topic's log.
_NOT_FOR_A_MOVE = (
    "archive",
    "end_ms",
    "where",
    "limit",
    "rate",
    "ordered",
    "max_message_bytes",
    "checkpoint",
    "to_nsqd_http_address",
    "allow_data_loss",
    "allow_same_topic",
)


@click.command(short_help="Publish messages of an archive or a log again.")
@click.option("--topic", required=True, help="The topic whose messages are replayed.")
@message_options
@click.option("--to-topic", default="", metavar="TOPIC", help="Publish the messages to this topic.")
@click.option("--to-channel", default="", metavar="CHANNEL", help="Replay into one channel.")
@click.option(
    "--to-nsqd-http-address",
    multiple=True,
    metavar="HOST:PORT",
    help="An nsqd to publish to; the default is those of --nsqd-http-address.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many messages, the lowest positions first.")
@click.option("--rate", type=click.IntRange(min=1), help="At most so many messages a second.")
@click.option("--ordered", is_flag=True, help="Keep the order of the positions.")
@click.option(
    "--max-message-bytes",
    type=click.IntRange(min=1),
    help="The --max-msg-size of the nsqds to publish to; the default is that of nsqd.",
)
@click.option("--dry-run", is_flag=True, help="Print counts by hour, and publish nothing.")
@click.option(
    "--checkpoint",
    default="",
    metavar="FILE",
    help="A file for the progress, from which a run continues after a crash.",
)
@click.option("--allow-same-topic", is_flag=True, help="Allow a topic to be replayed into itself.")
@optional_connection_options
@spark_options
def replay(
    spark: SparkChoice,
    connection: Connection,
    to_topic: str,
    to_channel: str,
    to_nsqd_http_address: tuple[str, ...],
    **given: Any,
) -> None:
    """Publish messages of an archive, or of the log of a topic, again.

    With --to-channel and without --to-topic the channel is moved back in its topic's log, and nothing is published.
    With both, the channel is created, and no other channel of the topic gets the messages.
    """
    for flag, name in (("--to-topic", to_topic), ("--to-channel", to_channel)):
        if name and not is_name(name):
            raise click.UsageError(f'{flag} "{name}" is no name for NSQ; 1 to 64 of a-z A-Z 0-9 . _ -')
    if not to_topic and not to_channel:
        raise click.UsageError("give --to-topic or --to-channel")
    if not to_topic:
        _check_move(to_channel, {**given, "to_nsqd_http_address": to_nsqd_http_address})
        if not connection.options:
            raise click.UsageError("give either --nsqd-http-address or --lookupd-http-address")
        from pyspark_nsq.jobs.replay.channel import move_channel

        move_channel(connection, given["topic"], to_channel, given["start_ms"], dry_run=given["dry_run"])
        return
    messages = Messages(
        Connection({}) if given["archive"] else connection,
        topics=(given["topic"],),
        **{name: given[name] for name in ("archive", "start_ms", "end_ms", "where", "allow_data_loss")},
    )
    target = Target(
        _target(connection, to_nsqd_http_address),
        to_topic,
        given["rate"],
        given["ordered"],
        max_message_bytes=given["max_message_bytes"],
    )
    is_same = _is_same_topic(messages, target)
    if is_same and not to_channel and not given["allow_same_topic"]:
        raise click.UsageError(
            f'topic "{to_topic}" would be replayed into itself, and have more to replay after each run; '
            "give another --to-topic, a --to-channel, or --allow-same-topic"
        )
    if given["dry_run"]:
        with spark.session() as session:
            print_counts(count_by_hour(messages.frame(session)), given["limit"])
        return
    if to_channel:
        from pyspark_nsq.jobs.replay.channel import create_channel

        has_others = create_channel(Connection(target.connection), to_topic, to_channel)
        if is_same or has_others:
            target = replace(target, channel=to_channel)
    request = {
        "--topic": given["topic"],
        "--archive, --nsqd-http-address or --lookupd-http-address": messages.place,
        "--from": given["start_ms"],
        "--to": given["end_ms"],
        "--where": given["where"],
        "--limit": given["limit"],
        "--to-topic": to_topic,
        "--to-channel": target.channel or None,
        "--to-nsqd-http-address": target.connection["nsqdHttpAddresses"],
    }
    with Checkpoint(given["checkpoint"]) as checkpoint:
        progress = checkpoint.read(request)
        if progress is not None and progress.is_done:
            click.echo(
                f"all {progress.published:,} messages have been replayed; give another --checkpoint to repeat it"
            )
            return
        with spark.session() as session:
            Replay(session, messages, target, given["limit"], checkpoint).run(request, progress)


def _check_move(channel: str, given: dict[str, Any]) -> None:
    """Raise UsageError for options that a move of a channel does not support."""
    for name in _NOT_FOR_A_MOVE:
        if given[name]:
            flag = "--to" if name == "end_ms" else f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{flag} needs --to-topic: nsqd moves a channel back in the log of its own topic, as a whole; "
                f"to publish a selection to the channel alone, add --to-topic {given['topic']}"
            )


def _target(connection: Connection, addresses: tuple[str, ...]) -> dict[str, str]:
    """Return the options of the sink for its addresses. Raises UsageError and OptionError."""
    options = dict(connection.options)
    options.pop("lookupdHttpAddresses", None)
    if addresses:
        options["nsqdHttpAddresses"] = text = ",".join(addresses)
        HttpAddresses().read("--to-nsqd-http-address", text)
    if "nsqdHttpAddresses" not in options:
        raise click.UsageError("give --to-nsqd-http-address, an nsqd to publish to")
    return options


def _is_same_topic(messages: Messages, target: Target) -> bool:
    """Return whether the topic would be replayed into itself."""
    (topic,) = messages.topics
    if topic != target.topic or messages.archive:
        return False
    from pyspark_nsq.jobs.brokers import Brokers

    ours, theirs = (Brokers(each).addresses() for each in (messages.connection, Connection(target.connection)))
    return not set(ours).isdisjoint(theirs)
