"""
The click commands, made from the declarations: groups, common options, help in sections.

A verb's function gets the session and a keyword argument for each of its parameters. It is a function or a coroutine
function, and returns a result to print, an exit code, or None.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs
import click

from nsqtw.cli import PROGRAM, completion
from nsqtw.cli.failures import ExitCode
from nsqtw.cli.output import FORMATS, TABLE
from nsqtw.cli.verb import GROUPS, SECTIONS, Verb
from nsqtw.cli.verbs import VERBS
from nsqtw.errors import ConnectFailed, NoServerAnswered
from nsqtw.printing import complain, discard_stdout, is_stderr_terminal, write_line, write_lines
from nsqtw.version import command_version_line

if TYPE_CHECKING:
    from nsqtw.cli.session import Session
    from nsqtw.runtime.reactor import Reactor

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_SUMMARY = "One command for an NSQ cluster, and for the files of a broker."


def _stored(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return the callback of a common option: it stores the value for the session when the option was given."""

    def store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        source = context.get_parameter_source(parameter.name or "")
        if source is click.core.ParameterSource.COMMANDLINE:
            context.find_root().ensure_object(dict)[name] = value

    return store


def _common(words: list[str], name: str, **fields: Any) -> click.Option:
    return click.Option(words, expose_value=False, callback=_stored(name), **fields)


def _debug_option() -> click.Option:
    return _common(["--debug"], "is_debug", is_flag=True, help="Log to stderr, and show tracebacks.")


def _output_option() -> click.Option:
    return _common(
        ["-o", "--output"], "output", type=click.Choice(FORMATS), default=TABLE, help="Form of the output.",
        show_default=True,
    )  # fmt: skip


def _cluster_options() -> list[click.Option]:
    return [
        _common(
            ["--context"], "context", metavar="NAME", shell_complete=completion.contexts,
            help="Context with the addresses and credentials; also $NSQTW_CONTEXT.",
        ),
        _common(
            ["--nsqd-http-address"], "nsqd_http_address", multiple=True, metavar="HOST:PORT",
            help="nsqd to use instead of those of the context; may be repeated.",
        ),
        _common(
            ["--lookupd-http-address"], "lookupd_http_address", multiple=True, metavar="HOST:PORT",
            help="nsqlookupd that names the nsqds; may be repeated.",
        ),
        _common(
            ["--secret-file"], "secret_file", metavar="FILE", type=click.Path(),
            help="File with the secret for nodes with --auth.",
        ),
    ]  # fmt: skip


def _yes_option() -> click.Option:
    return _common(["-y", "--yes"], "is_yes", is_flag=True, help="Do not ask for confirmation.")


def common_options(verb: Verb) -> list[click.Option]:
    """Return the options that `commands` adds to a verb."""
    options: list[click.Option] = []
    if verb.has_output:
        options.append(_output_option())
    if verb.uses_cluster:
        options += _cluster_options()
    if verb.asks:
        options.append(_yes_option())
    return [*options, _debug_option()]


def root_options() -> list[click.Option]:
    """Return the options that may stand before the verb as well."""
    return [_output_option(), *_cluster_options(), _yes_option(), _debug_option()]


def _show_help(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        write_lines(context.get_help())
        context.exit()


class _PrintsHelp(click.Command):
    """A command whose --help is written as all other output."""

    def get_help_option(self, context: click.Context) -> click.Option | None:
        option = super().get_help_option(context)
        if option is not None:
            option.callback = _show_help
        return option


class _Group(_PrintsHelp, click.Group):
    """A group whose help lists its verbs by section, and whose errors name the nearest verb."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(context):
            command = self.get_command(context, name)
            assert command is not None
            sections.setdefault(getattr(command, "section", ""), []).append((name, command.short_help or ""))
        for section in sorted(sections, key=lambda title: [*SECTIONS, title].index(title)):
            with formatter.section(section or "Commands"):
                formatter.write_dl(sections[section])

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


class _Command(_PrintsHelp, click.Command):
    section = ""


def make_root() -> click.Group:
    """Return the command `nsqtw` with all verbs."""
    root = _Group(
        PROGRAM,
        help=_SUMMARY,
        context_settings=_SETTINGS,
        params=[*root_options(), _version_option()],
        epilog="'nsqtw COMMAND --help' describes a command.",
    )
    groups: dict[str, _Group] = {}
    for verb in VERBS:
        command = _command_of(verb)
        if not verb.group:
            root.add_command(command)
            if verb.alias:
                same = attrs.evolve(verb, words=(verb.alias,), summary=f"the same as {verb.word}")
                root.add_command(_command_of(same))
            continue
        if verb.group not in groups:
            groups[verb.group] = group = _Group(
                verb.group, help=GROUPS[verb.group], short_help=GROUPS[verb.group], context_settings=_SETTINGS
            )
            group.section = verb.section  # type: ignore[attr-defined]
            root.add_command(group)
        groups[verb.group].add_command(command)
    return root


def _command_of(verb: Verb) -> click.Command:
    command = _Command(
        verb.word,
        callback=_callback(verb),
        params=[*verb.parameters, *common_options(verb)],
        help=verb.description or f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        short_help=verb.summary,
        epilog=f"\b\nExamples:\n{verb.example_lines()}" if verb.examples else None,
        context_settings=_SETTINGS,
    )
    command.section = "" if verb.group else verb.section
    return command


def _version_option() -> click.Option:
    def show(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            write_line(command_version_line())
            context.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Print the version."
    )


def _callback(verb: Verb) -> Callable[..., int]:
    def call(**parameters: Any) -> int:
        from nsqtw.cli.session import Globals, Session  # attrs classes of more than --help needs

        context = click.get_current_context()
        options = Globals(**(context.find_root().obj or {}))
        module, _, name = verb.function.rpartition(":")
        function = getattr(import_module(module), name)
        session = Session(options)
        try:
            result = _called(function, session, parameters)
            if result is None or isinstance(result, int):
                return ExitCode.DONE if result is None else result
            session.output.show(result)
            return session.exit_code
        except KeyboardInterrupt:
            if is_stderr_terminal():  # the line has ^C on it
                complain()
            return ExitCode.INTERRUPTED
        except BrokenPipeError:  # the reader of stdout has enough
            discard_stdout()
            return ExitCode.DONE
        except (NoServerAnswered, ConnectFailed) as error:
            if not verb.uses_cluster:
                raise
            from nsqtw.cli.server_answers import wrong_program  # not needed without an error

            raise wrong_program(session.access()) or error from error

    return call


def _called(function: Callable[..., Any], session: Session, parameters: dict[str, Any]) -> Any:
    """Call the function of a verb; a coroutine function with the reactor."""
    if not inspect.iscoroutinefunction(function):
        return function(session, **parameters)
    from nsqtw.cli.run import run  # loads Twisted

    async def main(reactor: Reactor) -> Any:
        session.reactor = reactor
        return await function(session, **parameters)

    return run(main, is_debug=session.options.is_debug)
