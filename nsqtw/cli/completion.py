"""
Shell completion: the scripts, and the names that complete a word.

Names of topics and channels are those of the cluster. A cluster that does not answer within a second has no names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from nsqtw.cli import PROGRAM
from nsqtw.cli.failures import ExitCode
from nsqtw.errors import NsqtwError
from nsqtw.printing import write_lines

if TYPE_CHECKING:
    from nsqtw.cli.server_answers import ClusterNames
    from nsqtw.cli.session import Session

SHELLS = ("bash", "zsh", "fish")


def contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of contexts that begin with a text."""
    from nsqtw.cli.contexts import read_contexts

    try:
        return [name for name in read_contexts(os.environ).by_name if name.startswith(incomplete)]
    except NsqtwError:
        return []


def topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of topics that begin with a text."""
    return _beginning(incomplete, lambda cluster: cluster.topics(), context)


def channels(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of channels of the topic on the command line that begin with a text."""
    topic = context.params.get("topic")
    return _beginning(incomplete, lambda cluster: cluster.channels(topic), context) if topic else []


def settings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """
    Return the settings of a policy that begin with a text. The first word may be a channel, or a setting of the topic.
    """
    from nsqtw.options.settings import ChannelPolicy, TopicPolicy, settings_of  # of no use to --help

    words: tuple[str, ...] = context.params.get(parameter.name or "") or ()
    is_of_channel = bool(words) and words[0].partition("=")[0] not in settings_of(TopicPolicy)
    known = settings_of(ChannelPolicy if is_of_channel else TopicPolicy)
    names = [name for name in known if name.startswith(incomplete)]
    return names if words else [*channels(context, parameter, incomplete), *names]


def nodes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the HTTP addresses of nodes that begin with a text."""
    return _beginning(incomplete, lambda cluster: cluster.nodes(), context)


def _beginning(incomplete: str, ask: Callable[[ClusterNames], Iterable[str]], context: click.Context) -> list[str]:
    from nsqtw.cli.server_answers import ClusterNames  # of no use to --help
    from nsqtw.cli.session import Globals, Session

    try:
        access = Session(Globals(**(context.find_root().obj or {}))).access()
        return sorted({name for name in ask(ClusterNames(access)) if name.startswith(incomplete)})
    except NsqtwError:
        return []


def script(session: Session, shell: str) -> int:
    """`nsqtw completion`: print the script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(click.Command(PROGRAM), {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    write_lines(source)
    return ExitCode.DONE
