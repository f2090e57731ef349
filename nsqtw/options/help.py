"""
Documentation of the options: --help, the tables of the pages of the daemons, and the man pages.

`python -m nsqtw.options.help` updates the pages in docs/reference of a checkout.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nsqtw.options.admin import NSQADMIN_READER
from nsqtw.options.command_line import NSQD_READER, OptionReader
from nsqtw.options.fields import Option
from nsqtw.options.lookupd import NSQLOOKUPD_READER
from nsqtw.options.types import BOOLEAN, TEXT, Kind
from nsqtw.printing import write_line

DOCS = Path(__file__).parents[2] / "docs/reference"
_OPTION_PAGES = {"nsqd": "configuration.md", "nsqlookupd": "nsqlookupd.md", "nsqadmin": "nsqadmin.md"}
_ZEROS = ("", "0", "0s", "false")


def usage(program: str, reader: OptionReader[Any, Any] = NSQD_READER) -> str:
    """Return the text of --help: every flag, its type, meaning and default, in the layout of nsqd."""
    lines = {flag: (kind, text, "") for flag, (kind, text) in reader.other_flags.items()}
    lines |= {option.flag: (option.kind, _meaning(option), _default(option)) for option in reader.table}
    shown = [f"Usage of {program}:"]
    for flag, (kind, text, default) in sorted(lines.items()):
        shown.append(f"  -{_form(flag, kind)}")
        shown.append(f"    \t{text}{default}")
    if reader.table.prefix:
        example = next(iter(reader.table))
        shown.append(
            f"Every option is also a variable, {example.variable} for -{example.flag}, and a key of the config file."
        )
    return "\n".join(shown) + "\n"


def options_table(reader: OptionReader[Any, Any] = NSQD_READER) -> str:
    """Return the table of the options, in Markdown."""
    rows: list[tuple[str, ...]] = []
    for option in reader.table:
        default = "" if option.default == "" else f"`{_shown_text(option.default)}`"
        if not reader.table.prefix:
            rows.append((f"`--{option.flag}`", option.kind.word, default, _meaning(option).replace("|", "\\|")))
            continue
        reload = "yes" if option.is_reloadable else ""
        rows.append((f"`--{option.flag}`", f"`{option.key}`", option.kind.word, default, reload, _meaning(option)))
    head = ("flag", "config key", "kind", "default", "reload", "meaning")
    return _markdown(head if reader.table.prefix else ("flag", "kind", "default", "meaning"), rows)


def flags_table(reader: OptionReader[Any, Any] = NSQD_READER) -> str:
    """Return the table of the command-line only flags, in Markdown."""
    rows = [(f"`--{_form(flag, kind)}`", text) for flag, (kind, text) in reader.other_flags.items()]
    return _markdown(("flag", "does"), rows)


def configuration_page(page: str, reader: OptionReader[Any, Any] = NSQD_READER) -> str:
    """Return `page` with current tables between its markers."""
    page = replaced(page, "flags", flags_table(reader))
    return replaced(page, "options", options_table(reader))


def man_page(reader: OptionReader[Any, Any] = NSQD_READER, head: str = "", tail: str = "") -> str:
    """Return the man page of a program, in roff. `head` and `tail` are those of a tool, which has flags only."""
    program = reader.table.program
    flags = [(_form(flag, kind), [_sentence(text)]) for flag, (kind, text) in reader.other_flags.items()]
    has_config = bool(reader.table.prefix)
    options = [(_form(option.flag, option.kind), _paragraph(option, has_config)) for option in reader.table]
    entries = [line for form, text in flags + options for line in _entry(form, text)]
    if not tail:
        tail = _MAN_TAIL.format(program=program, prefix=reader.table.prefix, example=_MAN_EXAMPLES[program])
    return "\n".join([*_roff((head or _MAN_HEADS[program]) + _MAN_FLAGS), *entries, *_roff(tail)]) + "\n"


def pages() -> dict[Path, str]:
    """Return the current text of every page, by path."""
    made = {}
    for reader in (NSQD_READER, NSQLOOKUPD_READER, NSQADMIN_READER):
        program = reader.table.program
        page = DOCS / _OPTION_PAGES[program]
        made[page] = configuration_page(page.read_text("utf-8"), reader)
        made[DOCS / f"{program}.1"] = man_page(reader)
    return made


_NSQD_HEAD = """
.TH NSQD 1 "" nsqtw "User Commands"
.SH NAME
nsqd - NSQ message broker that keeps what it acknowledged
.SH SYNOPSIS
.B nsqd
[\\fIoption\\fR]...
.SH DESCRIPTION
Receives messages of topics, keeps them, and delivers a copy of each to every channel of its topic, over NSQ's TCP
protocol (port 4150) and over HTTP (port 4151). It runs until SIGTERM or SIGINT.
"""

_NSQLOOKUPD_HEAD = """
.TH NSQLOOKUPD 1 "" nsqtw "User Commands"
.SH NAME
nsqlookupd - directory of the nsqds of an NSQ cluster and of their topics
.SH SYNOPSIS
.B nsqlookupd
[\\fIoption\\fR]...
.SH DESCRIPTION
Is told by each nsqd which topics and channels it has (port 4160), and tells consumers which nsqds have a topic, over
HTTP (port 4161). It runs until SIGTERM or SIGINT.
"""

_NSQADMIN_HEAD = """
.TH NSQADMIN 1 "" nsqtw "User Commands"
.SH NAME
nsqadmin - web page and HTTP API for an NSQ cluster
.SH SYNOPSIS
.B nsqadmin
[\\fIoption\\fR]...
.SH DESCRIPTION
Shows the topics, channels, consumers and nodes of a cluster, and changes them on all nodes, in a browser and over HTTP
(port 4171). It runs until SIGTERM or SIGINT.
"""

_MAN_FLAGS = """.PP
A flag has one dash or two, and its value behind \\fB=\\fR or as the next word; a switch takes its value only
behind \\fB=\\fR. A list is built by repeating its flag. A word that is no flag is refused.
Durations have a unit: 250ms, 1h30m, 7d. Sizes may have one: 64KB, 1MB, 2GB, 1TB, where 1KB is 1024 bytes.
.SH OPTIONS
"""

_MAN_TAIL = """
.SH ENVIRONMENT
Every option is also read from a variable: {prefix} and the flag in upper case, with _ for each dash.
The values of a list have commas between them. A flag wins over its variable, the variable over the config file.
.SH FILES
The config file is TOML with the keys named above at its top level. A whole number is milliseconds where a duration
is expected. An unknown key is refused.
.PP
\\fB{program} --print-config\\fR prints such a file.
.SH EXIT STATUS
0 after a clean stop, 1 when it cannot start, 2 for a wrong flag.
.SH EXAMPLE
.nf
{example}
.fi
"""

_MAN_HEADS = {"nsqd": _NSQD_HEAD, "nsqlookupd": _NSQLOOKUPD_HEAD, "nsqadmin": _NSQADMIN_HEAD}
_MAN_EXAMPLES = {
    "nsqd": "nsqd --data-path=/var/lib/nsq --max-rdy-count 5000",
    "nsqlookupd": "nsqlookupd --data-path=/var/lib/nsqlookupd --inactive-producer-timeout 2m",
    "nsqadmin": "nsqadmin --lookupd-http-address=127.0.0.1:4161 --auth=static:/etc/nsqadmin/users.toml",
}


def _form(flag: str, kind: Kind) -> str:
    return flag if kind is BOOLEAN else f"{flag} {kind.word}"


def _meaning(option: Option) -> str:
    return option.help if option.limit is None else f"{option.help} (must be {option.limit.text})"


def _default(option: Option) -> str:
    return "" if option.default in _ZEROS else f" (default {_shown_default(option)})"


def _shown_default(option: Option) -> str:
    return f'"{_shown_text(option.default)}"' if option.kind is TEXT else option.default


def _shown_text(default: str) -> str:
    return default.replace("\n", "\\n")


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (head, *rows)]
    return "".join([lines[0], "|" + "---|" * len(head) + "\n", *lines[1:]])


def replaced(page: str, name: str, table: str) -> str:
    """Return `page` with the text between the markers of `name` replaced."""
    before, start, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->")
    return before + start + table + end + after


def _paragraph(option: Option, has_config: bool) -> list[str]:
    default = "" if option.default == "" else f"default {_shown_default(option)}"
    if not has_config:
        return [_sentence(_meaning(option)), *([_sentence(default)] if default else [])]
    return [_sentence(_meaning(option)), f"Config key {'; '.join(filter(None, (option.key, default)))}."]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _entry(form: str, text: list[str]) -> list[str]:
    flag, _, kind = form.partition(" ")
    head = f"\\fB\\-\\-{roff_text(flag)}\\fR" + (f" \\fI{roff_text(kind)}\\fR" if kind else "")
    return [".TP", head, *map(roff_text, text)]


def _roff(text: str) -> list[str]:
    """Lines of prose with roff requests among them."""
    return text.strip("\n").replace(" --", " \\-\\-").splitlines()


def roff_text(text: str) -> str:
    """Return text as roff prints it."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    """Write the pages that changed, and name them."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            write_line(str(path))


if __name__ == "__main__":
    main()
