"""
The declarations of all verbs, in the order of `nsqtw --help`. A new verb is a `Verb` here, and its function.

Only click is imported: help, completion and the man page are made without what the verbs need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from nsqtw.cli import PROGRAM, completion
from nsqtw.options.topics import DURABILITIES

MESSAGES, TOPICS, CLUSTER, FILES, SETTINGS = SECTIONS = (
    "Messages",
    "Topics and channels",
    "Cluster",
    "Files of a broker",
    "This command",
)
GROUPS = {
    "topic": "show and change topics",
    "channel": "show and change channels",
    "context": "named clusters with addresses and credentials",
}


@attrs.frozen
class Verb:
    """
    A verb. `words` is its name: one word, or a group and a word. `function` is module:name of its function (see
    `commands`), which adds -o with `has_output`, addresses and credentials with `uses_cluster`, and --yes with `asks`.
    `examples` are pairs of a comment and a command line without `nsqtw`.
    """

    words: tuple[str, ...]
    summary: str
    function: str
    parameters: Sequence[click.Parameter] = ()
    description: str = ""
    section: str = CLUSTER
    has_output: bool = True
    uses_cluster: bool = True
    asks: bool = False
    examples: Sequence[tuple[str, str]] = ()
    alias: str = ""
    exit_codes: str = ""
    """Its own meaning of exit codes, where they differ from `ExitCode`."""

    @property
    def word(self) -> str:
        """The last word of the name."""
        return self.words[-1]

    @property
    def group(self) -> str:
        """The group that it stands in, "" for none."""
        return self.words[0] if len(self.words) > 1 else ""

    def example_lines(self) -> str:
        """Return the examples for --help."""
        lines: list[str] = []
        for comment, command in self.examples:
            is_whole = command.startswith(f"{PROGRAM} ") or "$(" in command
            lines += [f"  # {comment}", f"  {command if is_whole else f'{PROGRAM} {command}'}"]
        return "\n".join(lines)


def _argument(name: str, help: str, **fields: Any) -> click.Argument:
    return click.Argument([name], help=help, **fields)


def _option(words: str, help: str, **fields: Any) -> click.Option:
    return click.Option(words.split(), help=help, **fields)


def _flag(words: str, help: str) -> click.Option:
    return click.Option(words.split(), help=help, is_flag=True)


def _topic() -> click.Argument:
    return _argument("topic", "Name of the topic.", shell_complete=completion.topics)


def _channel(*, is_required: bool = True, help: str = "Name of the channel.") -> click.Argument:
    return _argument("channel", help, required=is_required, shell_complete=completion.channels)


def _nsqd_tcp_address() -> click.Option:
    return _option(
        "--nsqd-tcp-address", "nsqd to connect to; unless given, nodes are asked for theirs. May be repeated.",
        multiple=True, metavar="HOST:PORT",
    )  # fmt: skip


def _verb(name: str, summary: str, function: str, *parameters: click.Parameter, **fields: Any) -> Verb:
    return Verb(tuple(name.split()), summary, f"nsqtw.cli.{function}", parameters, **fields)


def _port(words: str, what: str) -> click.Option:
    return _option(words, f"{what}.", type=click.IntRange(0, 65535), metavar="PORT")


_UP = _verb(
    "up",
    "run nsqd, nsqlookupd and nsqadmin on this machine",
    "up:up",
    _option("--data-path", "Directory for the messages.", type=click.Path(), default="nsq-data", show_default=True),
    _option("--address", "Address to listen on; 0.0.0.0 for all of the machine.", default="127.0.0.1",
            show_default=True, metavar="HOST"),
    _option("--port", "TCP port of nsqd; the other ports keep NSQ's distance to it. 0: any free ports.",
            type=click.IntRange(0, 65000), default=4150, show_default=True),
    _port("--nsqd-tcp-port nsqd_tcp", "TCP port of nsqd"),
    _port("--nsqd-http-port nsqd_http", "HTTP port of nsqd"),
    _port("--lookupd-tcp-port lookupd_tcp", "TCP port of nsqlookupd"),
    _port("--lookupd-http-port lookupd_http", "HTTP port of nsqlookupd"),
    _option("--nsqd-flag", "Flag for nsqd, such as --nsqd-flag=--durability=fsync; may be repeated.", multiple=True,
            metavar="FLAG"),
    _flag("--without-lookupd", "Start no nsqlookupd."),
    _flag("--without-admin", "Start no nsqadmin."),
    _flag("-v --verbose", "Print the logs of all, each line with the name of its daemon."),
    description="Run a cluster of one node until Ctrl-C. A line for each daemon says where it listens. When one of them"
    " ends by itself, its last lines are printed and the others are ended.",
    uses_cluster=False,
    examples=(("On other ports", "up --port 5150 --data-path /tmp/nsq"),),
)  # fmt: skip
_PUB = _verb(
    "pub",
    "publish messages",
    "publish:publish",
    _topic(),
    _argument("bodies", "The messages; without any, stdin is read.", nargs=-1, metavar="[BODY]..."),
    _option(
        "--delimiter",
        r"End of a message on stdin: a text, with \n, \t, \0 and \xHH. Empty: stdin is one message.",
        default=r"\n", show_default=True,
    ),
    _option("--defer", "Deliver the messages so much later, such as 30s.", metavar="DURATION", default="0s"),
    _option("--count", "Publish each message so often.", type=click.IntRange(1), default=1, show_default=True),
    _nsqd_tcp_address(),
    description="Publish messages to one node. Each is stored when the command ends with exit code 0. Lines on stdin"
    " are published while they come; empty ones are skipped.",
    section=MESSAGES,
    examples=(
        ("One message", "pub greetings 'hello world'"),
        ("A message for each line", "pub orders < orders.jsonl"),
        ("In five minutes", "pub reminders --defer 5m 'call back'"),
    ),
)  # fmt: skip
_TAIL = _verb(
    "tail",
    "print messages as they come",
    "tail:tail",
    _topic(),
    _channel(is_required=False, help="Channel to consume from; unless given, an ephemeral one that no other has."),
    _option("-n", "End after so many messages.", type=click.IntRange(1), metavar="COUNT"),
    _flag("--json", "Print an object a line: time, id, attempts, node and body."),
    _option("--delimiter", "End of a message on stdout.", default=r"\n"),
    _nsqd_tcp_address(),
    description="Print the messages of a topic until Ctrl-C. Without CHANNEL they are copies: what other channels get"
    " does not change, and only messages published from now on come. With CHANNEL the messages are consumed: each is"
    " finished after it was printed.",
    section=MESSAGES,
    has_output=False,
    examples=(
        ("Copies of new messages", "tail orders"),
        ("Consume ten messages of a channel", "tail orders archive -n 10"),
        ("Bodies only, with jq", "tail orders --json | jq -r .body"),
    ),
    alias="sub",
)
_TOPIC_LIST = _verb(
    "topic list",
    "list the topics of the cluster",
    "topics:list_topics",
    _argument("pattern", "Pattern of names, such as 'orders.*'.", required=False, shell_complete=completion.topics),
    section=TOPICS,
)
_TOPIC_SHOW = _verb("topic show", "show a topic with its channels and nodes", "topics:show", _topic(), section=TOPICS)
_TOPIC_CREATE = _verb("topic create", "create a topic on all nodes", "topics:create", _topic(), section=TOPICS)
_TOPIC_PAUSE = _verb("topic pause", "stop the flow to the channels", "topics:pause", _topic(), section=TOPICS)
_TOPIC_UNPAUSE = _verb("topic unpause", "resume the flow to the channels", "topics:unpause", _topic(), section=TOPICS)
_TOPIC_EMPTY = _verb(
    "topic empty", "drop the messages that no channel has got yet", "topics:empty", _topic(), section=TOPICS, asks=True
)
_TOPIC_DELETE = _verb(
    "topic delete", "delete a topic with all its channels and messages", "topics:delete", _topic(), section=TOPICS,
    asks=True,
)  # fmt: skip
_TOPIC_SET = _verb(
    "topic set",
    "set durability and retention of a topic",
    "topics:change",
    _topic(),
    _option("--durability", "What an OK to a publisher means.", type=click.Choice((*DURABILITIES, "default"))),
    _option("--retention-time", "Time that finished messages are kept, such as 24h; 0 for no limit, or default.",
            metavar="DURATION"),
    _option("--retention-bytes", "Size of finished messages that are kept, such as 10GB; 0 for no limit, or default.",
            metavar="SIZE"),
    description="Set durability and retention of a topic on all its nodes, which must be nsqtw. 'default' is what the"
    " options of each node say.",
    section=TOPICS,
    examples=(("Keep a week of finished messages", "topic set orders --retention-time 7d"),),
)  # fmt: skip
_CHANNEL_LIST = _verb(
    "channel list",
    "list channels of the cluster, or of a topic",
    "channels:list_channels",
    _argument("topic", "Name of the topic.", required=False, shell_complete=completion.topics),
    section=TOPICS,
)
_CHANNEL_SHOW = _verb(
    "channel show", "show a channel with its nodes and consumers", "channels:show", _topic(), _channel(), section=TOPICS
)
_CHANNEL_CREATE = _verb(
    "channel create", "create a channel on all nodes of its topic", "channels:create", _topic(), _channel(),
    section=TOPICS,
)  # fmt: skip
_CHANNEL_PAUSE = _verb(
    "channel pause", "stop the deliveries of a channel", "channels:pause", _topic(), _channel(), section=TOPICS
)
_CHANNEL_UNPAUSE = _verb(
    "channel unpause", "resume the deliveries of a channel", "channels:unpause", _topic(), _channel(), section=TOPICS
)
_CHANNEL_EMPTY = _verb(
    "channel empty", "drop all messages of a channel", "channels:empty", _topic(), _channel(), section=TOPICS, asks=True
)
_CHANNEL_DELETE = _verb(
    "channel delete", "delete a channel with its messages", "channels:delete", _topic(), _channel(), section=TOPICS,
    asks=True,
)  # fmt: skip
_PEEK = _verb(
    "peek",
    "look at messages without consuming them",
    "messages:peek",
    _topic(),
    _channel(is_required=False, help="Channel; unless given, what waits for all channels of the topic."),
    _option("--state", "Which messages of the channel.", type=click.Choice(("waiting", "deferred", "in-flight")),
            default="waiting", show_default=True),
    _option("-n", "Messages to show.", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="COUNT"),
    section=MESSAGES,
    examples=(
        ("What a channel waits for", "peek orders archive"),
        ("Who has the messages in flight", "peek orders archive --state in-flight"),
    ),
)  # fmt: skip
_SEEK = _verb(
    "seek",
    "move a channel to another place in its topic's log",
    "messages:seek",
    _topic(),
    _channel(),
    _argument("to", "earliest, latest, a duration (1h: an hour ago), a time (RFC 3339, local without an offset, or Unix"
              " time), or the id of a message."),
    _flag("--dry-run", "Only show how many messages would come again."),
    description="Move a channel, so that messages come again, or are skipped. How many is shown before it is done. Only"
    " what the retention of the topic keeps can come again.",
    section=MESSAGES,
    asks=True,
    examples=(
        ("The last hour again", "seek orders archive 1h"),
        ("Skip everything", "seek orders archive latest --yes"),
    ),
)  # fmt: skip
_STAT = _verb(
    "stat",
    "show depths and rates, live on a terminal",
    "stat:stat",
    _argument("topic", "Only this topic.", required=False, shell_complete=completion.topics),
    _argument("channel", "Only this channel.", required=False, shell_complete=completion.channels),
    _option("--interval", "Seconds between two looks.", type=click.FloatRange(0.1), default=1.0, show_default=True,
            metavar="SECONDS"),
    _option("-n", "End after so many looks. Rates need two.", type=click.IntRange(1), metavar="COUNT"),
    _option("--sort", "Order of the rows.", type=click.Choice(("name", "depth", "in", "out", "age")), default="name",
            show_default=True),
    description="Show depth, in flight, deferred and rates of all channels. On a terminal the table is live until"
    " Ctrl-C; elsewhere, or with -n 1, it is printed once.",
    examples=(("The deepest channels first", "stat --sort depth"),),
)  # fmt: skip
_NODES = _verb("nodes", "list the nsqds of the cluster", "nodes:list_nodes")
_DRAIN = _verb(
    "drain",
    "have a node deliver what it has, then stop",
    "maintenance:drain",
    _argument("node", "HTTP address of the node, as 'nsqtw nodes' shows it.", shell_complete=completion.nodes),
    _option("--timeout", "Time after which it stops anyway, such as 5m; 0 for any. Unless given, the node's own.",
            metavar="DURATION"),
    _flag("--no-wait", "Return when the drain has begun."),
    description="Have a node refuse publishes, leave nsqlookupd, deliver what it has, and stop. Messages that no"
    " consumer takes before the timeout stay in its data path.",
    asks=True,
)  # fmt: skip
_RELOAD = _verb(
    "reload",
    "have nodes read options and files again",
    "maintenance:reload",
    _argument("node", "HTTP address of a node; all nodes unless given.", required=False,
              shell_complete=completion.nodes),
    description="Have nodes read their config files, and the certificates, secrets and grants that these name, again."
    " A node whose files have a mistake changes nothing. Which options need a restart is shown.",
)  # fmt: skip
_DOCTOR = _verb(
    "doctor",
    "check machine, files and nodes, and say what to do",
    "doctor.command:doctor",
    _option("--data-path", "Data path of a broker on this machine: check its disk and file system.",
            type=click.Path()),
    description="Check the limits of this machine, disk and file system of a data path, the config file, secrets and"
    " TLS files, and the nodes: whether they can be reached and are ready, their addresses, clocks, certificates and"
    " versions. Each problem says what to do. The exit code is 1 when one of them is an error.",
    examples=(("A machine with a broker", "doctor --data-path /var/lib/nsqd"),),
)  # fmt: skip
_HEALTH = _verb(
    "health",
    "ask one daemon whether it works",
    "health:health",
    _argument("address", "HTTP address of nsqd, nsqlookupd or nsqadmin; unless given, $NSQTW_HEALTH_ADDRESS or"
              " 127.0.0.1:4151.", default="127.0.0.1:4151", envvar="NSQTW_HEALTH_ADDRESS"),
    _option("--check", "What to ask for; a daemon without it is asked for /ping.",
            type=click.Choice(("ready", "live", "ping")), default="ready", show_default=True),
    _option("--timeout", "Time for the answer.", type=click.FloatRange(0.1), default=3.0, show_default=True,
            metavar="SECONDS"),
    _option("--root-ca-file", "Authorities for its certificate (PEM).", default="", metavar="FILE"),
    description="Ask one daemon whether it works. The exit code is 0 when it does, 1 when it says no, and 4 when it"
    " cannot be reached. For the health check of a container.",
    uses_cluster=False,
    examples=(("In a Containerfile", "health 127.0.0.1:4151 --check live"),),
)  # fmt: skip
_CONTEXT_NAME = _argument("name", "Name of the context.", shell_complete=completion.contexts)
_CONTEXT_LIST = _verb(
    "context list", "list the contexts", "context_verbs:list_contexts", section=SETTINGS, uses_cluster=False
)
_CONTEXT_SHOW = _verb(
    "context show",
    "show a context",
    "context_verbs:show",
    _argument("name", "Name of the context; the one in use unless given.", required=False,
              shell_complete=completion.contexts),
    section=SETTINGS, uses_cluster=False,
)  # fmt: skip
_CONTEXT_ADD = _verb(
    "context add",
    "add a context, or replace it",
    "context_verbs:add",
    _argument("name", "Name of the context."),
    _option("--nsqd-http-address nsqd_http_addresses", "HTTP address of an nsqd; may be repeated.",
            multiple=True, metavar="HOST:PORT"),
    _option("--lookupd-http-address lookupd_http_addresses", "HTTP address of an nsqlookupd; may be repeated.",
            multiple=True, metavar="HOST:PORT"),
    _option("--nsqd-tcp-address nsqd_tcp_addresses", "TCP address of an nsqd, where nodes name one that cannot be"
            " reached from here; may be repeated.", multiple=True, metavar="HOST:PORT"),
    _option("--nsqadmin-http-address", "HTTP address of nsqadmin.", metavar="HOST:PORT", default=""),
    _option("--secret-file", "File with the secret for nodes with --auth.", type=click.Path(), default=""),
    _option("--secret-variable", "Environment variable with the secret.", metavar="NAME", default=""),
    _option("--tls-ca-file", "Certificates of the authorities that signed those of the nodes.", type=click.Path(),
            default=""),
    _option("--tls-cert-file", "Client certificate.", type=click.Path(), default=""),
    _option("--tls-key-file", "Key of the client certificate.", type=click.Path(), default=""),
    _flag("--tls-insecure", "Accept any certificate."),
    _flag("--replace", "Replace a context of this name."),
    description="Add a context. The first one is in use from then on. Secrets stay in their file or variable.",
    section=SETTINGS, uses_cluster=False, has_output=False,
    examples=(
        ("A cluster, known by its nsqlookupd",
         "context add prod --lookupd-http-address 10.0.0.1:4161 --secret-file ~/.nsq-secret"),
        ("With TLS", "context add prod --nsqd-http-address https://nsq.example.org:4152 --tls-ca-file ca.pem"),
    ),
)  # fmt: skip
_CONTEXT_USE = _verb(
    "context use", "use a context from now on", "context_verbs:use", _CONTEXT_NAME,
    section=SETTINGS, uses_cluster=False, has_output=False,
)  # fmt: skip
_CONTEXT_REMOVE = _verb(
    "context remove", "remove a context", "context_verbs:remove", _CONTEXT_NAME,
    section=SETTINGS, uses_cluster=False, has_output=False,
)  # fmt: skip
_COMPLETION = _verb(
    "completion",
    "print the script that completes words in a shell",
    "completion:script",
    _argument("shell", "The shell.", type=click.Choice(completion.SHELLS)),
    description="Print the completion script of a shell. It completes verbs, options, topics, channels and contexts.",
    section=SETTINGS, uses_cluster=False, has_output=False,
    examples=(
        ("bash, in ~/.bashrc", 'eval "$(nsqtw completion bash)"'),
        ("zsh, in ~/.zshrc", 'eval "$(nsqtw completion zsh)"'),
        ("fish", "nsqtw completion fish > ~/.config/fish/completions/nsqtw.fish"),
    ),
)  # fmt: skip
_DATA_PATH = "What the broker has as --data-path."
_BACKUP = _verb(
    "backup",
    "copy a data path, while its broker runs",
    "data_verbs:backup",
    _argument("directory", _DATA_PATH, metavar="DATA_PATH"),
    _argument("target", "A directory that is not there yet, or empty."),
    _option("--nsqd-http-address", "The broker that uses the data path, as host:port or https://host:port; none if none"
            " runs.", default="", metavar="ADDRESS"),
    _option("--secret-file", "File with a secret that may administer it.", default="", metavar="FILE"),
    _option("--root-ca-file", "Authorities for its certificate (PEM).", default="", metavar="FILE"),
    _flag("--link must_link", "Link finished log files where the file system can, instead of copying them."),
    description="Copy everything that a broker has stored: what was acknowledged before it began is in the copy. The"
    " broker goes on meanwhile, and keeps what it would delete.",
    exit_codes="0: the backup is complete; 1: there is none, and stderr says why; 2: wrong words; 3: it is complete,"
    " and has damage that the data path has.",
    section=FILES, uses_cluster=False, has_output=False,
    examples=(("Of a broker that runs", "backup /var/lib/nsqd /backup/monday --nsqd-http-address 127.0.0.1:4151"),),
)  # fmt: skip
_RESTORE = _verb(
    "restore",
    "check a backup, and make it a data path",
    "data_verbs:restore",
    _argument("backup", "What nsqtw backup has made."),
    _argument("directory", "A directory that is not there yet, or empty.", metavar="DATA_PATH"),
    _flag("--replace must_replace", "Move what is in DATA_PATH aside, to DATA_PATH.replaced.1."),
    _flag("--check must_only_check", "Only check the backup."),
    description="Read all of a backup and refuse it when anything in it has changed. Then copy it to DATA_PATH and"
    " check it as fsck does.",
    exit_codes="0: it is there; 1: it is not, and stderr says why; 2: wrong words; 3: it is there, and has damage from"
    " before the backup.",
    section=FILES, uses_cluster=False, has_output=False,
)  # fmt: skip
_FSCK = _verb(
    "fsck",
    "check a data path, and repair it",
    "data_verbs:fsck",
    _argument("directory", _DATA_PATH, metavar="DATA_PATH"),
    _flag("--repair must_repair", "Repair what can be repaired; what is removed is kept."),
    description="Read everything in a data path and say what is wrong: a line for each finding, then a summary.",
    exit_codes="0: nothing is wrong; 1: something is, or a broker uses the data path; 2: wrong words, or no data path;"
    " 3: something was wrong, and all of it is repaired.",
    section=FILES, uses_cluster=False, has_output=False,
)  # fmt: skip
_MIGRATE = _verb(
    "migrate-backend",
    "move the messages of a data path to another storage backend",
    "data_verbs:migrate_backend",
    _argument("source", "The backend that has the messages: disk, sqlite, ...", metavar="FROM"),
    _argument("target", "The backend that is to have them.", metavar="TO"),
    _option("--data-path", _DATA_PATH, metavar="PATH", default=".", show_default=True),
    description="Move all messages of a data path from one storage backend to another, while no broker runs. Channels"
    " stay where they are. A run that was interrupted is finished by the same command. FROM and TO are as for"
    " --backend.",
    exit_codes="0: all messages are in TO; 1: they are not, and stderr says why; 2: wrong words.",
    section=FILES, uses_cluster=False, has_output=False,
)  # fmt: skip
_HASH_SECRET = _verb(
    "hash-secret",
    "make the line of a secret for a file of grants",
    "data_verbs:hash_secret",
    _flag("--generate", "Make a new secret, and print it, too."),
    _option("--salt-of", "Hash it as the secrets in this file of grants are.", metavar="FILE"),
    description="Ask for a secret, or read it from stdin, and print its hash for the file of --auth=static.",
    section=FILES, uses_cluster=False, has_output=False,
)  # fmt: skip

VERBS: tuple[Verb, ...] = (
    *(_PUB, _TAIL, _PEEK, _SEEK),
    *(_TOPIC_LIST, _TOPIC_SHOW, _TOPIC_CREATE, _TOPIC_PAUSE, _TOPIC_UNPAUSE, _TOPIC_EMPTY, _TOPIC_DELETE, _TOPIC_SET),
    *(_CHANNEL_LIST, _CHANNEL_SHOW, _CHANNEL_CREATE, _CHANNEL_PAUSE, _CHANNEL_UNPAUSE, _CHANNEL_EMPTY, _CHANNEL_DELETE),
    *(_UP, _STAT, _NODES, _DRAIN, _RELOAD, _DOCTOR, _HEALTH),
    *(_BACKUP, _RESTORE, _FSCK, _MIGRATE, _HASH_SECRET),
    *(_CONTEXT_LIST, _CONTEXT_SHOW, _CONTEXT_ADD, _CONTEXT_USE, _CONTEXT_REMOVE, _COMPLETION),
)
