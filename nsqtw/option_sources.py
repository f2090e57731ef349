"""
Where options come from: the command line in Go's style, and a TOML file. A flag that was given wins over
the file, the file over the default (nsqd specification 4.1).

    -name value   --name value   -name=value   --name=value

A boolean flag takes its value only behind `=`; a bare one is true. Reading stops at the first word that is
no flag. The file has top-level keys, named in `nsqtw.options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from nsqtw.errors import OptionError
from nsqtw.option_values import BOOLEAN, TEXT, Kind
from nsqtw.options import BY_FLAG, BY_KEY, NSQ_COMPAT, TABLE, Options

_OTHER_FLAGS: dict[str, tuple[Kind, str]] = {
    "config": (TEXT, "config file (TOML)"),
    "version": (BOOLEAN, "print the version and exit"),
    "help": (BOOLEAN, "print this and exit; also -h"),
    "help-backend": (BOOLEAN, "print the storage backends that are installed and exit"),
    "help-protocol": (BOOLEAN, "print the protocols that are installed and exit"),
    "verbose": (BOOLEAN, "accepted, without effect: use --log-level"),
    "worker-id": (BOOLEAN, "accepted, without effect: use --node-id"),
}


@attrs.define
class CommandLine:
    """
    A command line, read. `given` has the options that were named, by name; `unread` the words from the first
    that is no flag on, which nothing looks at.
    """

    given: dict[str, Any] = attrs.Factory(dict)
    config: str = ""
    version: bool = False
    help: bool = False
    help_backend: bool = False
    help_protocol: bool = False
    unread: tuple[str, ...] = ()


def read_command_line(words: Sequence[str]) -> CommandLine:
    """Read the words after the program's name. OptionError for an unknown flag or a value that is none."""
    line = CommandLine()
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            position += 1
            break
        if not word.startswith("-") or word == "-":
            break
        position += 1
        flag, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        flag = "help" if flag == "h" else flag
        kind = _kind_of(flag, word)
        if equals:
            value = _read_flag(kind, flag, text)
        elif kind.bare is not None:
            value = kind.bare
        elif position < len(words):
            value = _read_flag(kind, flag, words[position])
            position += 1
        else:
            raise OptionError(f"flag needs an argument: -{flag}")
        _note(line, flag, kind, value)
    line.unread = tuple(words[position:])
    return line


def resolve(line: CommandLine) -> tuple[Options, list[str]]:
    """
    The options that a command line and the config file it names amount to, and warnings for the user.
    OptionError for a file that cannot be read or holds a value that does not fit.
    """
    values, warnings = read_config(line.config) if line.config else ({}, [])
    if line.unread:
        warnings.append(f"ignored, as every word after one that is no flag: {' '.join(line.unread)}")
    given = {**values, **line.given}
    if given.get("nsq_compat"):
        given = {**NSQ_COMPAT, **given}
    return Options(**given), warnings


def read_config(path: str) -> tuple[dict[str, Any], list[str]]:
    """The options set in a TOML file, by name, and warnings. OptionError as for `resolve`."""
    # Only a broker with a config file waits for the TOML reader.
    from tomllib import TOMLDecodeError, load

    try:
        with open(path, "rb") as file:
            found = load(file)
    except (OSError, TOMLDecodeError, UnicodeDecodeError) as failure:
        raise OptionError(f"failed to load config file {path} - {failure}") from failure
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for key, raw in found.items():
        option = BY_KEY.get(key)
        if option is None:
            warnings.append(f"config file {path}: unknown key {key!r}{_suggestion(key)}")
            continue
        try:
            values[option.name] = option.kind.coerce(raw)
        except ValueError as failure:
            raise OptionError(f"config file {path}: failed parsing {key} {raw!r} - {failure}") from failure
        if option.kind is BOOLEAN and type(raw) is int:
            shown = option.kind.show(values[option.name])
            warnings.append(f"config file {path}: {key} = {raw} means {shown}, as in nsqd; write true or false")
    return values, warnings


def usage(program: str) -> str:
    """What --help prints: every flag, its kind, meaning and default."""
    lines = {flag: (kind, text, "") for flag, (kind, text) in _OTHER_FLAGS.items()}
    lines |= {option.flag: (option.kind, option.help, option.default) for option in TABLE}
    shown = [f"Usage of {program}:"]
    for flag, (kind, text, default) in sorted(lines.items()):
        shown.append(f"  --{flag}" if kind is BOOLEAN else f"  --{flag} {kind.word}")
        shown.append(f"    \t{text}" + (f" (default {default})" if default else ""))
    return "\n".join(shown) + "\n"


def _kind_of(flag: str, word: str) -> Kind:
    if flag in BY_FLAG:
        return BY_FLAG[flag].kind
    if flag in _OTHER_FLAGS:
        return _OTHER_FLAGS[flag][0]
    if not flag or flag.startswith("-"):
        raise OptionError(f"bad flag syntax: {word}")
    raise OptionError(f"flag provided but not defined: -{flag}")


def _read_flag(kind: Kind, flag: str, text: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError as failure:
        raise OptionError(f'invalid value "{text}" for flag -{flag}: {failure}') from failure


def _note(line: CommandLine, flag: str, kind: Kind, value: Any) -> None:
    if flag not in BY_FLAG:
        name = flag.replace("-", "_")
        if hasattr(line, name):
            setattr(line, name, value)
        return
    name = BY_FLAG[flag].name
    if kind.add is not None and name in line.given:
        value = kind.add(line.given[name], value)
    line.given[name] = value


def _suggestion(key: str) -> str:
    from difflib import get_close_matches

    matches = get_close_matches(key.replace("-", "_"), BY_KEY, 1)
    return f", did you mean {matches[0]!r}?" if matches else ""
