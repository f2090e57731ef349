"""
The declarations of all verbs, in the order of `nsqtw --help`. A new verb is an element of `VERBS`, and its function.

Help, completion and the man page are made of them without what the verbs need.
"""

from __future__ import annotations

from typing import Any

import attrs
import click

from nsqtw.cli import completion
from nsqtw.cli.choices import CHECKS, DEFAULT, SORTS, STATES
from nsqtw.cli.contexts import KEYS, LOCAL_NSQD
from nsqtw.cli.verb import (
    FILES,
    MESSAGES,
    SETTINGS,
    TOPICS,
    Verb,
    argument,
    channel,
    flag,
    nsqd_tcp_address,
    option,
    port,
    topic,
    verb,
)
from nsqtw.options.topics import DURABILITIES


def _context_option(key: attrs.Attribute[Any]) -> click.Option:
    """Return the option of `context add` for a key of a context."""
    name = key.name.removesuffix("es") if key.name.endswith("_addresses") else key.name
    words, help = f"--{name.replace('_', '-')} {key.name}", key.metadata["help"]
    if key.default is False:
        return flag(words, f"{help}.")
    if key.default == ():
        return option(words, f"{help}; may be repeated.", multiple=True, metavar=key.metadata["metavar"])
    is_file = key.metadata["metavar"] == "PATH"
    more: dict[str, Any] = {"type": click.Path()} if is_file else {"metavar": key.metadata["metavar"]}
    return option(words, f"{help}.", default="", **more)


_CONTEXT_NAME = argument("name", "Name of the context.", shell_complete=completion.contexts)
_DATA_PATH = "What the broker has as --data-path."

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
        nsqd_tcp_address(),
        description="Publish messages to one node. Each is stored when the command ends with exit code 0. Lines on"
        " stdin are published while they come; empty ones are skipped. Messages with headers are published over HTTP.",
        section=MESSAGES,
        examples=(
            ("One message", "pub greetings 'hello world'"),
            ("A message for each line", "pub orders < orders.jsonl"),
            ("In five minutes", "pub reminders --defer 5m 'call back'"),
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
        nsqd_tcp_address(),
        description="Print the messages of a topic until Ctrl-C. Without CHANNEL they are copies: what other channels"
        " get does not change, and only messages published from now on come. With CHANNEL the messages are consumed:"
        " each is finished after it was printed.",
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
    verb(
        "topic list",
        "list the topics of the cluster",
        "topics:list_topics",
        argument("pattern", "Pattern of names, such as 'orders.*'.", required=False, shell_complete=completion.topics),
        section=TOPICS,
    ),
    verb("topic show", "show a topic with its channels and nodes", "topics:show", topic(), section=TOPICS),
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
        "topics:change",
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
        "channels:list_channels",
        argument("topic", "Name of the topic.", required=False, shell_complete=completion.topics),
        section=TOPICS,
    ),
    verb(
        "channel show",
        "show a channel with its nodes and consumers",
        "channels:show",
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
        "policies:show",
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
        "policies:change",
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
        " once, are saved, and win over the config file.",
        section=TOPICS,
        examples=(
            ("Five attempts, the second after a second", "policy set orders archive max_attempts=5 requeue_delay=1s"),
            ("Messages of a topic expire", "policy set orders message_ttl=1h"),
        ),
    ),
    verb(
        "policy unset",
        "remove settings that were set",
        "policies:reset",
        topic(),
        argument(
            "words",
            "Name of a channel, unless the policy of the topic is meant; then names of settings.",
            nargs=-1,
            required=True,
            metavar="[CHANNEL] SETTING...",
            shell_complete=completion.settings,
        ),
        description="Remove what was set: the value of the config file, or the default, is in force again.",
        section=TOPICS,
        examples=(("As in the config file", "policy unset orders archive max_attempts"),),
    ),
    verb(
        "channel redrive",
        "put the dead letters of a channel back to it",
        "redrive:redrive",
        topic(),
        channel(),
        option("--rate", "Messages a second, on each node.", type=click.IntRange(1), metavar="COUNT"),
        option("--max", "Messages that are put back, at most, on each node.", type=click.IntRange(1), metavar="COUNT"),
        flag("--dry-run", "Only show how many messages the channel of the dead letters has."),
        flag("--stop", "End the redrive that runs."),
        flag("--no-wait", "Return when it has begun."),
        description="Put the dead letters of a channel back to that channel; other channels of the topic do not get"
        " them again. Ends when all that were there at the start are through. Ctrl-C ends the command only.",
        section=TOPICS,
        examples=(
            ("A hundred a second", "channel redrive orders billing --rate 100"),
            ("Stop that", "channel redrive orders billing --stop"),
        ),
    ),
    verb(
        "up",
        "run nsqd, nsqlookupd and nsqadmin on this machine",
        "up:up",
        option("--data-path", "Directory for the messages.", type=click.Path(), default="nsq-data", show_default=True),
        option(
            "--address",
            "Address to listen on; 0.0.0.0 for all of the machine.",
            default="127.0.0.1",
            show_default=True,
            metavar="HOST",
        ),
        option(
            "--port",
            "TCP port of nsqd; the other ports keep NSQ's distance to it. 0: any free ports.",
            type=click.IntRange(0, 65000),
            default=4150,
            show_default=True,
        ),
        port("--nsqd-tcp-port nsqd_tcp", "TCP port of nsqd"),
        port("--nsqd-http-port nsqd_http", "HTTP port of nsqd"),
        port("--lookupd-tcp-port lookupd_tcp", "TCP port of nsqlookupd"),
        port("--lookupd-http-port lookupd_http", "HTTP port of nsqlookupd"),
        option(
            "--nsqd-flag",
            "Flag for nsqd, such as --nsqd-flag=--durability=fsync; may be repeated.",
            multiple=True,
            metavar="FLAG",
        ),
        flag("--without-lookupd", "Start no nsqlookupd."),
        flag("--without-admin", "Start no nsqadmin."),
        flag("-v --verbose", "Print the logs of all, each line with the name of its daemon."),
        description="Run a cluster of one node until Ctrl-C. A line for each daemon says where it listens. When one of"
        " them ends by itself, its last lines are printed and the others are ended.",
        uses_cluster=False,
        examples=(("On other ports", "up --port 5150 --data-path /tmp/nsq"),),
    ),
    verb(
        "stat",
        "show depths and rates, live on a terminal",
        "stat:stat",
        argument("topic", "Only this topic.", required=False, shell_complete=completion.topics),
        argument("channel", "Only this channel.", required=False, shell_complete=completion.channels),
        option(
            "--interval",
            "Seconds between two looks.",
            type=click.FloatRange(0.1),
            default=1.0,
            show_default=True,
            metavar="SECONDS",
        ),
        option("-n", "End after so many looks. Rates need two.", type=click.IntRange(1), metavar="COUNT"),
        option(
            "--sort",
            "Order of the rows.",
            type=click.Choice(tuple(SORTS)),
            default="name",
            show_default=True,
        ),
        description="Show depth, in flight, deferred and rates of all channels. On a terminal the table is live until"
        " Ctrl-C; elsewhere, or with -n 1, it is printed once.",
        examples=(("The deepest channels first", "stat --sort depth"),),
    ),
    verb(
        "nodes",
        "list the nsqds of the cluster",
        "nodes:list_nodes",
        description="List the nsqds of the cluster: those that the nsqlookupds name, or those that are given. HEALTH is"
        " OK, draining, or the error of the node.",
    ),
    verb(
        "drain",
        "have a node deliver what it has, then stop",
        "maintenance:drain",
        argument(
            "node",
            "HTTP address of the node: the one that 'nsqtw nodes' shows, or one that was given.",
            shell_complete=completion.nodes,
        ),
        option(
            "--timeout",
            "Time after which it stops anyway, such as 5m; 0 for any. Unless given, the node's own.",
            metavar="DURATION",
        ),
        flag("--no-wait", "Return when the drain has begun."),
        description="Have a node refuse publishes, leave nsqlookupd, deliver what it has, and stop. Messages that no"
        " consumer takes before the timeout stay in its data path, and are exit code 1.",
        asks=True,
    ),
    verb(
        "reload",
        "have nodes read options and files again",
        "maintenance:reload",
        argument(
            "node", "HTTP address of a node; all nodes unless given.", required=False, shell_complete=completion.nodes
        ),
        description="Have nodes read their config files, and the certificates, secrets and grants that these name,"
        " again. A node whose files have a mistake changes nothing. Which options need a restart is shown.",
    ),
    verb(
        "doctor",
        "check machine, files and nodes, and say what to do",
        "doctor.command:doctor",
        option(
            "--data-path", "Data path of a broker on this machine: check its disk and file system.", type=click.Path()
        ),
        description="Check the limits of this machine, disk and file system of a data path, the config file, secrets"
        " and TLS files, and the nodes: whether they can be reached and are ready, their addresses, clocks,"
        " certificates and versions. Each problem says what to do. The exit code is 1 when one of them is an error.",
        examples=(("A machine with a broker", "doctor --data-path /var/lib/nsqd"),),
    ),
    verb(
        "health",
        "ask one daemon whether it works",
        "health:health",
        argument(
            "address",
            "HTTP address of nsqd, nsqlookupd or nsqadmin; unless given, $NSQTW_HEALTH_ADDRESS or 127.0.0.1:4151.",
            default=LOCAL_NSQD,
            envvar="NSQTW_HEALTH_ADDRESS",
        ),
        option(
            "--check",
            "What to ask for; a daemon without it is asked for /ping.",
            type=click.Choice(tuple(CHECKS)),
            default="ready",
            show_default=True,
        ),
        option(
            "--timeout",
            "Time for the answer.",
            type=click.FloatRange(0.1),
            default=3.0,
            show_default=True,
            metavar="SECONDS",
        ),
        option("--root-ca-file", "Authorities for its certificate (PEM).", default="", metavar="FILE"),
        description="Ask one daemon whether it works. The exit code is 0 when it does, 1 when it says no, and 4 when"
        " it cannot be reached. For the health check of a container.",
        uses_cluster=False,
        examples=(("In a Containerfile", "health 127.0.0.1:4151 --check live"),),
    ),
    verb(
        "backup",
        "copy a data path, while its broker runs",
        "data_verbs:backup",
        argument("directory", _DATA_PATH, metavar="DATA_PATH"),
        argument("target", "A directory that is not there yet, or empty."),
        option(
            "--nsqd-http-address",
            "The broker that uses the data path, as host:port or https://host:port; none if none runs.",
            default="",
            metavar="ADDRESS",
        ),
        option("--secret-file", "File with a secret that may administer it.", default="", metavar="FILE"),
        option("--root-ca-file", "Authorities for its certificate (PEM).", default="", metavar="FILE"),
        flag("--link must_link", "Link finished log files where the file system can, instead of copying them."),
        description="Copy everything that a broker has stored: what was acknowledged before it began is in the copy."
        " The broker goes on meanwhile, and keeps what it would delete.",
        exit_codes="0: the backup is complete; 1: there is none, and stderr says why; 2: wrong words; 3: it is"
        " complete, and has damage that the data path has.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
        examples=(("Of a broker that runs", "backup /var/lib/nsqd /backup/monday --nsqd-http-address 127.0.0.1:4151"),),
    ),
    verb(
        "restore",
        "check a backup, and make it a data path",
        "data_verbs:restore",
        argument("backup", "What nsqtw backup has made."),
        argument(
            "directory",
            "A directory that is not there yet, or empty; not with --check.",
            metavar="[DATA_PATH]",
            required=False,
        ),
        flag("--replace must_replace", "Rename what is at DATA_PATH to DATA_PATH.replaced.1."),
        flag("--check must_only_check", "Only check the backup."),
        description="Read all of a backup and refuse it when anything in it has changed. Then copy it to DATA_PATH and"
        " check it as fsck does.",
        exit_codes="0: it is there; 1: it is not, and stderr says why; 2: wrong words; 3: it is there, and has damage"
        " from before the backup.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "fsck",
        "check a data path, and repair it",
        "data_verbs:fsck",
        argument("directory", _DATA_PATH, metavar="DATA_PATH"),
        flag("--repair must_repair", "Repair what can be repaired; what is removed is kept."),
        description="Read everything in a data path and say what is wrong: a line for each finding, then a summary.",
        exit_codes="0: nothing is wrong; 1: something is, or a broker uses the data path; 2: wrong words, or no data"
        " path; 3: something was wrong, and all of it is repaired.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "migrate-backend",
        "move the messages of a data path to another storage backend",
        "data_verbs:migrate_backend",
        argument("source", "The backend that has the messages: disk, sqlite, ...", metavar="FROM"),
        argument("target", "The backend that is to have them.", metavar="TO"),
        option("--data-path", _DATA_PATH, metavar="PATH", default=".", show_default=True),
        description="Move all messages of a data path from one storage backend to another, while no broker runs."
        " Channels stay where they are. A run that was interrupted is finished by the same command. FROM and TO are as"
        " for --backend.",
        exit_codes="0: all messages are in TO; 1: they are not, and stderr says why; 2: wrong words.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "hash-secret",
        "hash a secret for a grants file",
        "data_verbs:hash_secret",
        flag("--generate", "Make a new secret, and print it, too."),
        option("--salt-of", "Hash it as the secrets in this file of grants are.", metavar="FILE"),
        description="Ask for a secret, or read it from stdin, and print its hash for the file of --auth=static.",
        section=FILES,
        uses_cluster=False,
        has_output=False,
    ),
    verb("context list", "list the contexts", "context_verbs:list_contexts", section=SETTINGS, uses_cluster=False),
    verb(
        "context show",
        "show a context",
        "context_verbs:show",
        argument(
            "name",
            "Name of the context; the one in use unless given.",
            required=False,
            shell_complete=completion.contexts,
        ),
        section=SETTINGS,
        uses_cluster=False,
    ),
    verb(
        "context add",
        "add a context, or replace it",
        "context_verbs:add",
        argument("name", "Name of the context."),
        *map(_context_option, KEYS.values()),
        flag("--replace", "Replace a context of this name."),
        description="Add a context. The first one is in use from then on. Secrets stay in their file or variable.",
        section=SETTINGS,
        uses_cluster=False,
        has_output=False,
        examples=(
            (
                "A cluster, known by its nsqlookupd",
                "context add prod --lookupd-http-address 10.0.0.1:4161 --secret-file ~/.nsq-secret",
            ),
            ("With TLS", "context add prod --nsqd-http-address https://nsq.example.org:4152 --tls-ca-file ca.pem"),
        ),
    ),
    verb(
        "context use",
        "use a context from now on",
        "context_verbs:use",
        _CONTEXT_NAME,
        section=SETTINGS,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "context remove",
        "remove a context",
        "context_verbs:remove",
        _CONTEXT_NAME,
        section=SETTINGS,
        uses_cluster=False,
        has_output=False,
    ),
    verb(
        "completion",
        "print the script that completes words in a shell",
        "completion:script",
        argument("shell", "The shell.", type=click.Choice(completion.SHELLS)),
        description="Print the completion script of a shell. It completes verbs, options, topics, channels and"
        " contexts.",
        section=SETTINGS,
        uses_cluster=False,
        has_output=False,
        examples=(
            ("bash, in ~/.bashrc", 'eval "$(nsqtw completion bash)"'),
            ("zsh, in ~/.zshrc", 'eval "$(nsqtw completion zsh)"'),
            ("fish", "nsqtw completion fish > ~/.config/fish/completions/nsqtw.fish"),
        ),
    ),
)
