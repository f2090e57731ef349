"""Verbs about the settings of the command: contexts and completion."""

from __future__ import annotations

from typing import Any

import attrs
import click

from nsqtw.cli import completion
from nsqtw.cli.contexts import KEYS
from nsqtw.cli.verb import (
    SETTINGS,
    Verb,
    argument,
    flag,
    option,
    verb,
)


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

VERBS: tuple[Verb, ...] = (
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
