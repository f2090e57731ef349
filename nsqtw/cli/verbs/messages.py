"""Verbs about messages: publish, read, look at, cancel."""

from __future__ import annotations

import click

from nsqtw.cli import completion
from nsqtw.cli.verb import (
    MESSAGES,
    PRIORITIES,
    STATES,
    Verb,
    argument,
    channel,
    flag,
    nsqd_tcp_address,
    option,
    topic,
    verb,
)

VERBS: tuple[Verb, ...] = (
    verb(
        "pub",
        "publish messages",
        "publish:publish",
        topic(),
        argument("bodies", "The messages; without any, stdin is read.", nargs=-1, metavar="[BODY]..."),
        option(
            "--delimiter",
            r"End of a message on stdin: a text, with \n, \t, \0 and \xHH. Empty: stdin is one message.",
            default=r"\n",
            show_default=True,
        ),
        option("--defer", "Deliver after this delay, such as 30s.", metavar="DURATION", default="0s"),
        option(
            "--count", "Publish each message this many times.", type=click.IntRange(1), default=1, show_default=True
        ),
        option("--header", "Header of each message; may be repeated.", multiple=True, metavar="NAME=VALUE"),
        option("--ttl", "Time to live of each message, such as 60s.", metavar="DURATION", default=""),
        option("--id message_id", "Id of the message, for deduplication.", metavar="TEXT", default=""),
        option("--priority", "Priority of each message.", type=click.Choice(PRIORITIES)),
        option(
            "--deliver-at",
            "Deliver at this time: RFC 3339, local without an offset, or Unix time.",
            metavar="TIME",
            default="",
        ),
        option(
            "--channel",
            "Only for this channel of the topic.",
            metavar="CHANNEL",
            default="",
            shell_complete=completion.channels,
        ),
        nsqd_tcp_address(),
        description="Publish messages to one node. Each is stored when the command ends with exit code 0. Lines on"
        " stdin are published while they come; empty ones are skipped. With headers, --deliver-at or --channel they"
        " are published over HTTP.",
        section=MESSAGES,
        examples=(
            ("One message", "pub greetings 'hello world'"),
            ("A message for each line", "pub orders < orders.jsonl"),
            ("In five minutes", "pub reminders --defer 5m 'call back'"),
            ("At a time", "pub reminders --deliver-at 2026-01-31T08:00 'call back'"),
            ("For one channel", "pub orders --channel archive --priority high 'hello world'"),
            ("With headers", "pub orders --header tenant=acme --ttl 60s 'hello world'"),
        ),
    ),
    verb(
        "tail",
        "print messages as they come",
        "tail:tail",
        topic(),
        channel(is_required=False, help="Channel to consume from; unless given, an ephemeral one that no other has."),
        option("-n", "End after so many messages.", type=click.IntRange(1), metavar="COUNT"),
        flag("--json", "Print an object a line: time, id, attempts, node and body."),
        flag("--headers", "Print the headers, too: before the body and a tab, in JSON as an object."),
        option("--delimiter", "End of a message on stdout.", default=r"\n"),
        flag("--create", "Create the topic, and CHANNEL, if they do not exist."),
        nsqd_tcp_address(),
        description="Print the messages of a topic until Ctrl-C. Without CHANNEL they are copies: what other channels"
        " get does not change, and only messages published from now on come. With CHANNEL the messages are consumed:"
        " each is finished after it was printed, or after the reader of a pipe has taken it.",
        section=MESSAGES,
        has_output=False,
        examples=(
            ("Copies of new messages", "tail orders"),
            ("Consume ten messages of a channel", "tail orders archive -n 10"),
            ("Bodies only, with jq", "tail orders --json | jq -r .body"),
        ),
        alias="sub",
    ),
    verb(
        "peek",
        "look at messages without consuming them",
        "messages:peek",
        topic(),
        channel(is_required=False, help="Channel; unless given, what waits for all channels of the topic."),
        option(
            "--state",
            "Which messages of the channel.",
            type=click.Choice(tuple(STATES)),
            default="waiting",
            show_default=True,
        ),
        option("-n", "Messages to show.", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="COUNT"),
        flag("--headers", "Show the headers of the messages, too. JSON always has them."),
        section=MESSAGES,
        examples=(
            ("What a channel waits for", "peek orders archive"),
            ("Consumers that hold messages", "peek orders archive --state in-flight"),
        ),
    ),
    verb(
        "seek",
        "move a channel to another place in its topic's log",
        "messages:seek",
        topic(),
        channel(),
        argument(
            "to",
            "earliest, latest, a duration (1h: an hour ago), a time (RFC 3339, local without an offset, or Unix"
            " time), or the id of a message.",
        ),
        flag("--dry-run", "Only show how many messages would be delivered again."),
        description="Move a channel, so that messages are delivered again, or are skipped. How many is shown before it"
        " is done. Only what the retention of the topic keeps can be delivered again.",
        section=MESSAGES,
        asks=True,
        examples=(
            ("The last hour again", "seek orders archive 1h"),
            ("Skip everything", "seek orders archive latest --yes"),
        ),
    ),
    verb(
        "message cancel",
        "cancel a deferred message before its time",
        "messages:cancel",
        topic(),
        argument("id", "Id of the message, 16 hex digits; with --publisher-id, the one that its publisher gave it."),
        flag("--publisher-id", "ID is the publisher's; the topic needs a dedupe_window."),
        option("--channel", "Cancel it in this channel only.", metavar="CHANNEL"),
        description="Cancel a deferred message that was never delivered and is not due, in all channels of its topic."
        " It is not delivered, also after a crash.",
        section=MESSAGES,
        examples=(
            ("A message", "message cancel reminders 0a1b2c3d4e5f6071"),
            ("By the id of its publisher", "message cancel reminders appointment-7 --publisher-id"),
        ),
    ),
)
