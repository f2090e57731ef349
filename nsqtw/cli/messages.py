"""Verbs about messages that a channel has: `nsqtw peek`, `seek`, `message cancel` and `channel redrive`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from twisted.internet.task import deferLater

from nsqtw.cli.failures import ExitCode, topic_not_found
from nsqtw.cli.output import Column, Document, ProgressBar, Table, body_fields, number
from nsqtw.cli.session import Session
from nsqtw.cli.verb import STATES
from nsqtw.cluster.cluster import Cluster
from nsqtw.cluster.model import Cancelled, Message, RedriveProgress, Seek
from nsqtw.errors import NoServerAnswered, NotFound, OptionError
from nsqtw.options.texts import brief_duration, parse_duration

_SHOWN_CHARACTERS = 200
_SHOWN_HEADERS = 60
_MOST_SHOWN = 1000
_DAY_SECONDS = 86_400
_UNITS = ((_DAY_SECONDS, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_LETTER_COLUMNS = (
    Column("failed_in", "FAILED IN", if_used=True),
    Column("reason", "REASON", if_used=True),
    Column("deliveries", "DELIVERIES", is_number=True, if_used=True),
)
"""What a dead letter says of the message that it was."""
_SEEK_COLUMNS = (
    Column("node", "NODE"),
    number("replayed", "DELIVERED AGAIN"),
    number("skipped", "SKIPPED"),
    number("depth", "DEPTH"),
    number("max_drops", "DROPPED UP TO", if_used=True),
)
_LOOK_SECONDS = 0.25
_REDRIVE_COLUMNS = (
    Column("node", "NODE"),
    Column("state", "STATE"),
    number("total", "MESSAGES"),
    number("redriven", "PUT BACK"),
    number("others", "OF OTHERS"),
    Column("error", "ERROR"),
)
Redrives = tuple[RedriveProgress, ...]


def time_text(nanoseconds: int | None) -> str:
    """Return a moment in the local time zone, to the millisecond."""
    if nanoseconds is None:
        return "-"
    return datetime.fromtimestamp(nanoseconds / 10**9).isoformat(" ", "milliseconds")


def _body_text(body: bytes) -> str:
    text = body.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(body)} bytes)"


def headers_text(headers: Mapping[str, str]) -> str:
    """Return headers for a line of text, a dash for none."""
    return ", ".join(f"{name}={value}" for name, value in headers.items()) or "-"


_COLUMNS = (
    Column("id", "ID"),
    Column("timestamp", "PUBLISHED", time_text),
    number("attempts", "ATTEMPTS"),
    Column("node", "NODE"),
)
_STATE_COLUMNS = {
    "waiting": (),
    "deferred": (Column("due", "DUE", time_text),),
    "in-flight": (Column("deadline", "TIMES OUT", time_text), Column("consumer", "CONSUMER")),
}


def _letter_row(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what the headers of a dead letter say; empty for any other message."""
    topic, channel, reason, deliveries = (
        headers.get(f"nsq-dead-{name}", "") for name in ("topic", "channel", "reason", "attempts")
    )
    return {"failed_in": f"{topic}/{channel}" if topic else "", "reason": reason, "deliveries": deliveries}


def _row(message: Message) -> dict[str, Any]:
    consumer = message.consumer
    return {
        "id": message.id,
        "timestamp": message.timestamp,
        "attempts": message.attempts,
        "node": message.node,
        "due": message.due,
        "deadline": message.deadline,
        "consumer": consumer and f"{consumer.hostname}/{consumer.client_id} {consumer.remote_address}",
        "headers": dict(message.headers),
        **body_fields(message.body),
    }


async def peek(session: Session, topic: str, channel: str | None, state: str, n: int, headers: bool) -> Table:
    """`nsqtw peek`."""
    async with session.cluster() as cluster:
        with _topic_must_exist(topic):
            found = session.value_of(await cluster.messages(topic, channel or "", state=STATES[state], limit=n))
    messages = sorted((message for node in found for message in node.messages), key=lambda message: message.timestamp)
    rows = [_row(message) for message in messages[:n]]
    if len(messages) > n or any(node.has_more for node in found):
        session.say(f"{n} shown, there are more: -n {min(10 * n, _MOST_SHOWN)} shows up to {min(10 * n, _MOST_SHOWN)}")
    if not session.output.is_json:
        rows = [
            {**row, **_letter_row(message.headers), "shown": _body_text(message.body)}
            for row, message in zip(rows, messages, strict=False)
        ]
        if not rows and channel is None:
            return Table((), [], await _why_none(session, topic))
    more = (Column("headers", "HEADERS", _headers_in_brief),) if headers else ()
    nodes = {row["node"] for row in rows}
    columns = [column for column in _COLUMNS if column.key != "node" or len(nodes) > 1]
    return Table(
        (*columns, *_STATE_COLUMNS[state], *_LETTER_COLUMNS, *more, Column("shown", "BODY")), rows, "no messages"
    )


def _headers_in_brief(headers: Mapping[str, str]) -> str:
    """Return the headers that have no column of their own, as much of them as a line has place for."""
    text = headers_text({name: value for name, value in headers.items() if not name.startswith("nsq-dead-")})
    return text if len(text) <= _SHOWN_HEADERS else f"{text[:_SHOWN_HEADERS]}..."


async def _why_none(session: Session, topic: str) -> str:
    """Return the words for a topic without messages of its own, with the channels that have them."""
    async with session.cluster() as cluster:
        channels = session.value_of(await cluster.topic(topic)).channels
    names = ", ".join(f"{found.channel_name} ({found.depth} waiting)" for found in channels)
    return f"no messages wait for all channels; name one: {names}" if names else "no messages, and no channels"


async def seek(session: Session, topic: str, channel: str, to: str, dry_run: bool) -> Document:
    """`nsqtw seek`."""
    target = target_of(to)
    async with session.cluster() as cluster:
        with _topic_must_exist(topic):
            preview = session.value_of(await cluster.seek(topic, channel, target, is_dry_run=True))
        if not preview:
            raise NotFound(f"no node has a channel {channel!r} of topic {topic!r}")
        if not any(seek.replayed for seek in preview) and to != "latest":
            await _explain_nothing(session, cluster, topic)
        if dry_run:
            return _document(topic, channel, preview, "would be moved")
        session.exit_code = ExitCode.DONE  # the warnings of the move itself count
        session.confirm(f"Move channel {channel} of topic {topic} {place_text(to)}: {_effect_text(preview)}. Continue?")
        done = session.value_of(await cluster.seek(topic, channel, target))
    return _document(topic, channel, done, "is moved")


async def cancel(session: Session, topic: str, id: str, publisher_id: bool, channel: str | None) -> Document:
    """`nsqtw message cancel`."""
    given = {"publisher_id": id} if publisher_id else {"message_id": id}
    async with session.cluster() as cluster:
        with _topic_must_exist(topic):
            cancelled = session.value_of(await cluster.cancel(topic, channel=channel or "", **given))
    rows = [
        {"node": one.node, "id": one.id, "released": one.is_released, "channels": list(one.channels)}
        for one in cancelled
    ]
    texts = [f"message {one.id} of topic {topic} is cancelled{_channels_text(one)}" for one in cancelled]
    return Document({"topic": topic, "cancelled": rows}, [*texts])


def _channels_text(cancelled: Cancelled) -> str:
    if not cancelled.is_released:
        return ": no channel had been given it"
    return f" in {'channel' if len(cancelled.channels) == 1 else 'channels'} {', '.join(cancelled.channels)}"


def target_of(text: str, now: float | None = None) -> str:
    """
    Return the place in a log as the nodes take it. `text` may also be a duration, 1h for an hour ago, and a local time
    without an offset. `now` is Unix time.
    """
    try:
        seconds = parse_duration(text)
    except ValueError:
        pass
    else:
        if seconds < 0:
            raise OptionError(f"TO {text!r} is in the future; {text.removeprefix('-')} is that long ago")
        if not text.isdigit():
            return str(int(((time.time() if now is None else now) - seconds) * 1000))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if text.isdigit():  # a date in ISO's basic form is Unix time here
        return text
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def place_text(text: str, now: float | None = None) -> str:
    """Return the words for a place in a log as the user gave it. `now` is Unix time."""
    try:
        seconds = 0.0 if text.isdigit() else parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not seconds:
        return f"to {text}"
    moment = datetime.fromtimestamp((time.time() if now is None else now) - seconds, UTC)
    form = "%Y-%m-%d %H:%M UTC" if seconds >= _DAY_SECONDS else "%H:%M:%S UTC" if seconds % 60 else "%H:%M UTC"
    return f"back to {moment:{form}} ({_length_text(seconds)} ago)"


def _length_text(seconds: float) -> str:
    """Return a duration in the largest unit of which it is a multiple."""
    for length, unit in _UNITS:
        count, rest = divmod(seconds, length)
        if count and not rest:
            return f"{count:.0f} {unit}{'' if count == 1 else 's'}"
    return brief_duration(seconds)


def _totals(moves: Sequence[Seek]) -> dict[str, int]:
    """Return the sums of all nodes."""
    return {
        "replayed": sum(move.replayed for move in moves),
        "skipped": sum(move.skipped for move in moves),
        "max_drops": sum(move.max_drops for move in moves),
    }


def _effect_text(moves: Sequence[Seek]) -> str:
    """Return the words for what a seek does."""
    replayed, skipped, max_drops = _totals(moves).values()
    again = "1 message is delivered again" if replayed == 1 else f"{replayed} messages are delivered again"
    dropped = f"; its bounds then drop up to {max_drops} of what waits" if max_drops else ""
    return f"{again}, {skipped} {'is' if skipped == 1 else 'are'} skipped{dropped}"


async def _explain_nothing(session: Session, cluster: Cluster, topic: str) -> None:
    """Tell the user when a topic keeps nothing that could be delivered again."""
    retention = (await cluster.topic(topic)).value.retention
    if retention is None or not (retention.time or retention.bytes):
        session.say(
            f"{topic} keeps no finished messages; from now on it does after:"
            f" nsqtw topic set {topic} --retention-time 24h"
        )


@contextmanager
def _topic_must_exist(topic: str) -> Iterator[None]:
    """Say which topic is missing, where no node was asked because none has it."""
    try:
        yield
    except NoServerAnswered as error:
        raise error if error.errors else topic_not_found(topic) from error


def _document(topic: str, channel: str, moves: tuple[Seek, ...], what: str) -> Document:
    rows = [
        {
            "node": move.node,
            "position": move.position,
            "replayed": move.replayed,
            "skipped": move.skipped,
            "depth": move.depth,
            "max_drops": move.max_drops,
        }
        for move in moves
    ]
    return Document(
        {"topic": topic, "channel": channel, **_totals(moves), "nodes": rows},
        [
            f"channel {channel} of topic {topic} {what}: {_effect_text(moves)}",
            Table(_SEEK_COLUMNS, rows),
        ],
    )


async def redrive(
    session: Session,
    topic: str,
    channel: str,
    rate: int | None,
    max: int | None,
    dry_run: bool,
    stop: bool,
    no_wait: bool,
) -> Table:
    """`nsqtw channel redrive`. Waits until the redrive has ended on all nodes."""
    given = {"rate": rate, "max": max, "dry_run": dry_run and "true", "stop": stop and "true"}
    parameters = {name: str(value) for name, value in given.items() if value}
    async with session.cluster() as cluster:
        try:
            found = session.value_of(await cluster.redrive(topic, channel, parameters))
        except NoServerAnswered as error:
            if error.errors:
                raise
            raise topic_not_found(topic) from error
        if not found:
            raise NotFound(f"no node has dead letters of channel {channel!r} of topic {topic!r}")
        if not (dry_run or no_wait):
            found = await _redrives_ended(session, cluster, topic, channel, found)
    if any(one.state == "failed" for one in found):
        session.exit_code = ExitCode.FAILED
    return Table(_REDRIVE_COLUMNS, [_redrive_row(one) for one in found])


async def _redrives_ended(session: Session, cluster: Cluster, topic: str, channel: str, found: Redrives) -> Redrives:
    """Wait until no node goes on. Return how far all came."""
    with ProgressBar(f"redrive of {topic}/{channel}") as bar:
        while any(one.is_running for one in found):
            bar.show(sum(one.redriven + one.others for one in found), sum(one.total for one in found))
            await deferLater(session.reactor, _LOOK_SECONDS)
            found = session.value_of(await cluster.redrive_progress(topic, channel))
    return found


def _redrive_row(one: RedriveProgress) -> dict[str, Any]:
    return {
        "node": one.node,
        "state": one.state,
        "total": one.total,
        "redriven": one.redriven,
        "others": one.others,
        "error": one.error,
    }
