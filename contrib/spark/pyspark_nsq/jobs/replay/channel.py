"""The channel of a replay: nsqd moves it back in its topic's log, or it is created for the messages."""

from __future__ import annotations

import click

from pyspark_nsq.errors import ReadError
from pyspark_nsq.jobs.brokers import Brokers
from pyspark_nsq.jobs.connection import Connection
from pyspark_nsq.jobs.failures import unknown

EARLIEST = "earliest"


def move_channel(connection: Connection, topic: str, channel: str, start_ms: int | None, *, dry_run: bool) -> None:
    """Move the channel on every nsqd that has it, and print a line for each.

    Raises OptionError for a topic or a channel that does not exist, and ReadError.
    """
    brokers = Brokers(connection)
    channels = brokers.channels()
    by_address = channels.get(topic)
    if by_address is None:
        raise unknown("topic", topic, channels, "NSQ")
    having = [address for address, names in by_address.items() if channel in names]
    if not having:
        raise unknown("channel", channel, {name for names in by_address.values() for name in names}, f'topic "{topic}"')
    to = EARLIEST if start_ms is None else str(start_ms)
    moved: list[str] = []
    total = 0
    try:
        for address in having:
            # A channel with an earlier position would be moved forward, and would skip messages.
            found = brokers.seek(address, topic, channel, to, dry_run=True)
            if found["skipped"]:
                click.echo(f"{address}: not moved, the channel is behind --from and delivers all of it yet")
                continue
            if not dry_run:
                found = brokers.seek(address, topic, channel, to, dry_run=False)
                moved.append(address)
            total += found["replayed"]
            click.echo(f"{address}: {found['replayed']:,} messages come again, depth {found['depth']:,}")
    except ReadError as error:
        raise ReadError(f"{error}; moved so far: {', '.join(moved) or 'none'}") from error
    verb = "would replay" if dry_run else "replayed"
    click.echo(f'{verb} {total:,} messages of topic "{topic}" into channel "{channel}"')


def create_channel(connection: Connection, topic: str, channel: str) -> bool:
    """Create a topic and a channel on every nsqd. Return whether the topic has other channels. Raises ReadError."""
    brokers = Brokers(connection)
    others = {name for names in brokers.channels().get(topic, {}).values() for name in names} - {channel}
    for address in brokers.addresses():
        brokers.create(address, topic, channel)
    return bool(others)
