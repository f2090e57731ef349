"""
Documentation of `nsqtw`, made from the declarations of its verbs: docs/reference/cli.md, and the man page.

`python -m nsqtw.cli.documentation` updates them in a checkout.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

import click

from nsqtw.cli import PROGRAM
from nsqtw.cli.commands import common_options, root_options
from nsqtw.cli.failures import ExitCode
from nsqtw.cli.verb import SECTIONS, Verb
from nsqtw.cli.verbs import VERBS
from nsqtw.options.help import DOCS, replaced, roff_text
from nsqtw.printing import write_line

PAGE = DOCS / "cli.md"
MAN_PAGE = DOCS / f"{PROGRAM}.1"
_WIDTH = 120

_MAN_HEAD = rf"""
.TH {PROGRAM.upper()} 1 "" nsqtw "User Commands"
.SH NAME
{PROGRAM} \- one command for an NSQ cluster, and for the files of a broker
.SH SYNOPSIS
.B {PROGRAM}
[\fIoption\fR]... \fIcommand\fR [\fIargument\fR]...
.SH DESCRIPTION
Publishes and reads messages, shows and changes topics and channels on all nodes of a cluster, runs a cluster on one
machine, and checks machines, files and nodes. Works with nsqd and nsqlookupd of nsqtw, and with the original ones for
what these can do.
""".strip("\n").splitlines()
_MAN_TAIL = r"""
.SH ENVIRONMENT
.TP
.B NSQTW_CONTEXT
The context of commands without \-\-context.
.TP
.B NSQTW_CONTEXTS
The config file.
.TP
.B NO_COLOR
When it is set, tables on a terminal have no colours.
.SH FILES
.TP
.I $XDG_CONFIG_HOME/nsqtw/config.toml
The contexts, by default in \fI~/.config\fR. Only its owner can read it.
.SH SEE ALSO
.BR nsqd (1),
.BR nsqlookupd (1),
.BR nsqadmin (1)
""".strip("\n").splitlines()


def pages() -> dict[Path, str]:
    """Return the current text of every page, by path."""
    page = PAGE.read_text("utf-8")
    page = replaced(page, "common options", _table(_records(None, root_options())))
    page = replaced(page, "exit codes", exit_code_table())
    page = replaced(page, "commands", "".join(_markdown()))
    return {PAGE: page, MAN_PAGE: man_page()}


def exit_code_table() -> str:
    """Return the table of exit codes, in Markdown."""
    rows = [f"| {code.value} | {code.text} |\n" for code in ExitCode]
    return "".join(["| exit code | |\n|---|---|\n", *rows])


def man_page() -> str:
    """Return the man page, in roff."""
    lines = [*_MAN_HEAD, ".SH OPTIONS", *_entries(_records(None, root_options())), ".SH COMMANDS"]
    for verb in _ordered():
        lines += _man_verb(verb)
    lines.append(".SH EXIT STATUS")
    for code in ExitCode:
        lines += [".TP", rf"\fB{code.value}\fR", roff_text(code.text)]
    return "\n".join([*lines, *_MAN_TAIL]) + "\n"


def _ordered() -> list[Verb]:
    return sorted(VERBS, key=lambda verb: SECTIONS.index(verb.section))


def _usage(verb: Verb) -> str:
    command = click.Command(verb.word, params=[*verb.parameters])
    pieces = command.collect_usage_pieces(click.Context(command))
    return " ".join([PROGRAM, *verb.words, *pieces])


def _description(verb: Verb) -> str:
    text = verb.description or f"{verb.summary[0].upper()}{verb.summary[1:]}."
    return f"{text} Also as '{PROGRAM} {verb.alias}'." if verb.alias else text


def _records(verb: Verb | None, options: list[click.Option]) -> list[tuple[str, str]]:
    """Return form and meaning of arguments and options."""
    parameters = [*(verb.parameters if verb is not None else ()), *options]
    context = click.Context(click.Command(PROGRAM))
    records: list[tuple[str, str]] = []
    for parameter in parameters:
        if isinstance(parameter, click.Argument):
            records.append((parameter.make_metavar(context), parameter.help or ""))
        elif (record := parameter.get_help_record(context)) is not None:
            records.append(record)
    return [(form, " ".join(meaning.split())) for form, meaning in records]


def _own_records(verb: Verb) -> list[tuple[str, str]]:
    """Return arguments and options of a verb without those that nearly all have."""
    return _records(verb, [option for option in common_options(verb) if "--yes" in option.opts])


def _markdown() -> Iterator[str]:
    section = ""
    for verb in _ordered():
        if verb.section != section:
            section = verb.section
            yield f"\n## {section}\n"
        description = fill(_description(verb), _WIDTH, break_long_words=False, break_on_hyphens=False)
        yield f"\n### {PROGRAM} {' '.join(verb.words)}\n\n{description}\n\n```\n{_usage(verb)}\n```\n"
        records = _own_records(verb)
        if records:
            yield f"\n{_table(records)}"
        if verb.exit_codes:
            yield f"\n{fill(f'Exit codes: {verb.exit_codes}', _WIDTH)}\n"
        if verb.examples:
            yield f"\n```\n{_examples(verb)}\n```\n"


def _examples(verb: Verb) -> str:
    return "\n".join(line.removeprefix("  ") for line in verb.example_lines().splitlines())


def _table(records: list[tuple[str, str]]) -> str:
    rows = [f"| `{form}` | {meaning} |\n" for form, meaning in map(_cells, records)]
    return "".join(["| | |\n|---|---|\n", *rows])


def _cells(record: tuple[str, str]) -> tuple[str, str]:
    """Return the cells of a row: a bar ends a cell, and a bracket pair may begin a link."""
    form, meaning = (text.replace("|", r"\|") for text in record)
    return form, meaning.replace("[", r"\[").replace("<", r"\<")


def _entries(records: list[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for form, meaning in records:
        lines += [".TP", rf"\fB{roff_text(form)}\fR", roff_text(meaning)]
    return lines


def _man_verb(verb: Verb) -> list[str]:
    lines = [f".SS {roff_text(_usage(verb))}", roff_text(_description(verb)), *_entries(_own_records(verb))]
    if verb.exit_codes:
        lines += [".PP", f"Exit codes: {roff_text(verb.exit_codes)}"]
    if verb.examples:
        lines += [".PP", ".nf", *map(roff_text, _examples(verb).splitlines()), ".fi"]
    return lines


def main() -> None:
    """Write the pages that changed, and name them."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            write_line(str(path))


if __name__ == "__main__":
    main()
