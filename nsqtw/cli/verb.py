"""The declaration of a verb, of the arguments and options that several verbs have, and the values that these take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from nsqtw.cli import PROGRAM, completion
from nsqtw.errors import OptionError
from nsqtw.names import is_valid_name
from nsqtw.options.addresses import MAX_PORT
from nsqtw.options.texts import parse_duration

MESSAGES, TOPICS, CLUSTER, FILES, SETTINGS = SECTIONS = (
    "Messages",
    "Topics and channels",
    "Cluster",
    "Files of a broker",
    "This command",
)
GROUPS = {
    "message": "cancel messages",
    "topic": "show and change topics",
    "channel": "show and change channels",
    "policy": "show and change what topics and channels promise",
    "replicate": "the copy of a broker in a replica store",
    "context": "named clusters with addresses and credentials",
}
STATES = {"waiting": "ready", "deferred": "deferred", "in-flight": "in_flight"}
"""The values of --state of `peek`: states of messages, as the nodes name them."""
SORTS = {
    "name": ("topic", False),
    "depth": ("depth", True),
    "in": ("in_rate", True),
    "out": ("out_rate", True),
    "age": ("oldest_message_age", True),
}
"""The values of --sort of `stat`: a key of the rows, and whether the largest value comes first."""
CHECKS = {"ready": "/readyz", "live": "/livez", "ping": "/ping"}
"""The values of --check of `health`: paths."""
DEFAULT = "default"
"""The value of the options of `topic set` that stands for what the options of the nodes say."""
PRIORITIES = ("high", "normal", "low")
"""The values of --priority of `pub`."""


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


def argument(name: str, help: str, **fields: Any) -> click.Argument:
    return click.Argument([name], help=help, **fields)


def option(words: str, help: str, **fields: Any) -> click.Option:
    """Return an option; `words` are its forms, and its name when that is not the long form."""
    return click.Option(words.split(), help=help, **fields)


def flag(words: str, help: str) -> click.Option:
    """Return an option without a value."""
    return click.Option(words.split(), help=help, is_flag=True)


def topic() -> click.Argument:
    return argument("topic", "Name of the topic.", shell_complete=completion.topics)


def channel(*, is_required: bool = True, help: str = "Name of the channel.") -> click.Argument:
    return argument("channel", help, required=is_required, shell_complete=completion.channels)


def nsqd_tcp_address() -> click.Option:
    """Return the option of nsqds to connect to."""
    return option(
        "--nsqd-tcp-address", "nsqd to connect to; unless given, nodes are asked for theirs. May be repeated.",
        multiple=True, metavar="HOST:PORT",
    )  # fmt: skip


def verb(name: str, summary: str, function: str, *parameters: click.Parameter, **fields: Any) -> Verb:
    """Return a verb; `name` is its words, `function` without the package."""
    return Verb(tuple(name.split()), summary, f"nsqtw.cli.{function}", parameters, **fields)


def port(words: str, what: str) -> click.Option:
    return option(words, f"{what}.", type=click.IntRange(0, MAX_PORT), metavar="PORT")


def check_name(name: str) -> None:
    """Check the name of a topic or channel. OptionError."""
    if not is_valid_name(name):
        raise OptionError(f"no topic or channel can have the name {name!r}: 1 to 64 of a-z A-Z 0-9 . _ -")


def duration_of(option: str, text: str, form: str) -> float:
    """Return the seconds of the value of an option; `form` is what it must be. OptionError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise OptionError(f"{option} {text!r} must be {form}") from error
