"""Verbs about topics, channels and their policies."""

from __future__ import annotations

import click

from nsqtw.cli import completion
from nsqtw.cli.verb import (
    DEFAULT,
    TOPICS,
    Verb,
    argument,
    channel,
    flag,
    option,
    topic,
    verb,
)
from nsqtw.options.topics import DURABILITIES

VERBS: tuple[Verb, ...] = (
    verb(
        "topic list",
        "list the topics of the cluster",
        "topics:list_topics",
        argument("pattern", "Pattern of names, such as 'orders.*'.", required=False, shell_complete=completion.topics),
        section=TOPICS,
    ),
    verb("topic show", "show a topic with its channels and nodes", "topics:show_topic", topic(), section=TOPICS),
    verb("topic create", "create a topic on all nodes", "actions:create", topic(), section=TOPICS),
    verb("topic pause", "stop the flow to the channels", "actions:pause", topic(), section=TOPICS),
    verb("topic unpause", "resume the flow to the channels", "actions:unpause", topic(), section=TOPICS),
    verb(
        "topic empty",
        "drop the messages that no channel has got yet",
        "actions:empty",
        topic(),
        section=TOPICS,
        asks=True,
    ),
    verb(
        "topic delete",
        "delete a topic with all its channels and messages",
        "actions:delete",
        topic(),
        section=TOPICS,
        asks=True,
    ),
    verb(
        "topic set",
        "set durability and retention of a topic",
        "topics:set_topic",
        topic(),
        option("--durability", "What an OK to a publisher means.", type=click.Choice((*DURABILITIES, DEFAULT))),
        option(
            "--retention-time",
            "Time that finished messages are kept, such as 24h, or default. 0: this limit is off.",
            metavar="DURATION",
        ),
        option(
            "--retention-bytes",
            "Size of finished messages that are kept, such as 10GB, or default. 0: this limit is off.",
            metavar="SIZE",
        ),
        description="Set durability and retention of a topic on all its nodes, which must be nsqtw. 'default' is what"
        " the options of each node say. If both limits of the retention are 0, finished messages are deleted at once.",
        section=TOPICS,
        examples=(("Keep a week of finished messages", "topic set orders --retention-time 7d"),),
    ),
    verb(
        "channel list",
        "list channels of the cluster, or of a topic",
        "topics:list_channels",
        argument("topic", "Name of the topic.", required=False, shell_complete=completion.topics),
        section=TOPICS,
    ),
    verb(
        "channel show",
        "show a channel with its nodes and consumers",
        "topics:show_channel",
        topic(),
        channel(),
        section=TOPICS,
    ),
    verb(
        "channel create",
        "create a channel on all nodes of its topic",
        "actions:create",
        topic(),
        channel(),
        section=TOPICS,
    ),
    verb("channel pause", "stop the deliveries of a channel", "actions:pause", topic(), channel(), section=TOPICS),
    verb(
        "channel unpause",
        "resume the deliveries of a channel",
        "actions:unpause",
        topic(),
        channel(),
        section=TOPICS,
    ),
    verb(
        "channel empty",
        "drop all messages of a channel",
        "actions:empty",
        topic(),
        channel(),
        section=TOPICS,
        asks=True,
    ),
    verb(
        "channel delete",
        "delete a channel with its messages",
        "actions:delete",
        topic(),
        channel(),
        section=TOPICS,
        asks=True,
    ),
    verb(
        "policy show",
        "show the policy of a topic or channel",
        "actions:show_policy",
        topic(),
        channel(is_required=False, help="Name of the channel; unless given, the policy of the topic is shown."),
        description="Show every setting of the policy of a topic, or of a channel, on all nodes: its value, and whether"
        " that is the default, stands in a table of the config file, or was set.",
        section=TOPICS,
        examples=(("A channel", "policy show orders archive"),),
    ),
    verb(
        "policy set",
        "set settings of the policy of a topic or channel",
        "actions:set_policy",
        topic(),
        argument(
            "words",
            "Name of a channel, unless the policy of the topic is meant; then settings with their values.",
            nargs=-1,
            required=True,
            metavar="[CHANNEL] SETTING=VALUE...",
            shell_complete=completion.settings,
        ),
        description="Set settings of a policy on all nodes of the topic, which must be nsqtw. They are in force at"
        " once, are saved, and win over the config file. A bound that would drop messages of a backlog is set after a"
        " question.",
        section=TOPICS,
        asks=True,
        examples=(
            ("Five attempts, the second after a second", "policy set orders archive max_attempts=5 requeue_delay=1s"),
            ("Messages of a topic expire", "policy set orders message_ttl=1h"),
        ),
    ),
    verb(
        "policy unset",
        "remove settings that were set",
        "actions:unset_policy",
        topic(),
        argument(
            "words",
            "Name of a channel, unless the policy of the topic is meant; then names of settings.",
            nargs=-1,
            required=True,
            metavar="[CHANNEL] SETTING...",
            shell_complete=completion.settings,
        ),
        description="Remove what was set: the value of the config file, or the default, is in force again. If a bound"
        " would drop messages of a backlog then, there is a question before.",
        section=TOPICS,
        asks=True,
        examples=(("As in the config file", "policy unset orders archive max_attempts"),),
    ),
    verb(
        "channel redrive",
        "put the dead letters of a channel back to it",
        "messages:redrive",
        topic(),
        channel(),
        option("--rate", "Messages a second, on each node.", type=click.IntRange(1), metavar="COUNT"),
        option("--max", "Messages that are put back, at most, on each node.", type=click.IntRange(1), metavar="COUNT"),
        flag(
            "--dry-run", "Only show how many messages the channel of the dead letters has, and how many are of others."
        ),
        flag("--stop", "End the redrive that runs."),
        flag("--no-wait", "Return when it has begun."),
        description="Put the dead letters of a channel back to that channel; other channels of the topic do not get"
        " them again. Messages of others in the channel of the dead letters stay there. Ends when all that were there"
        " at the start are through. Ctrl-C ends the command only.",
        section=TOPICS,
        examples=(
            ("A hundred a second", "channel redrive orders billing --rate 100"),
            ("Stop that", "channel redrive orders billing --stop"),
        ),
    ),
)
