"""
Sources of options: the command line in Go's style, the environment, and a TOML file. A flag that was given
wins over a variable, a variable over the file, the file over the default.

    -name value   --name value   -name=value   --name=value

A boolean flag takes its value only behind `=`; a bare one is true. Reading stops at the first word that is
no flag, and at a flag that asks for help. Words that are not read, and keys of the file that do not exist, are
refused: an option that is lost this way may be the one that protects the broker. With --nsq-compat they get a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import attrs

from nsqtw.errors import FlagError, OptionError, UnfitValue
from nsqtw.gocompat.values import quoted
from nsqtw.options.broker import NSQD
from nsqtw.options.environment import Environment
from nsqtw.options.fields import Option, OptionTable
from nsqtw.options.types import BOOLEAN, FRACTIONS, TEXT, Kind, did_you_mean, unfit

_NOTHING: Mapping[str, str] = MappingProxyType({})
_HELP = ("h", "help")
_COMPAT = "nsq-compat"

O = TypeVar("O")  # noqa: E741
L = TypeVar("L", bound="CommandLine")


def _flag(kind: Kind, default: Any, text: str) -> Any:
    return attrs.field(default=default, metadata={"kind": kind, "help": text})


@attrs.define
class CommandLine:
    """
    A command line, read, and the table of the flags that are no options. `given` has the options that were named,
    by name; `unread` the words from the first that is no flag on, and `stray` says why that one is none. The class
    says which flags a program has beside its options.
    """

    name = "flag"

    given: dict[str, Any] = attrs.Factory(dict)
    unread: tuple[str, ...] = ()
    stray: str = ""

    config: str | None = _flag(TEXT, None, "config file (TOML); also {prefix}CONFIG")
    print_config: bool = _flag(BOOLEAN, False, "print the options in effect as a config file and exit")
    version: bool = _flag(BOOLEAN, False, "print the version and exit")
    help: bool = _flag(BOOLEAN, False, "print every flag and exit; also -h")
    verbose: bool = _flag(BOOLEAN, False, "accepted, without effect: use --log-level")

    def holds(self, option: Option) -> bool:
        """Return whether the option is set here."""
        return option.name in self.given

    def read(self, option: Option) -> Any:
        """The value of an option that is set here."""
        return self.given[option.name]

    def mistakes(self) -> list[OptionError]:
        """One for the first word that is no flag; nsqd looks at no word from there on."""
        return [FlagError(self.stray)] if self.unread else []

    def warnings(self) -> list[str]:
        """Nothing is odd about one that was read."""
        return []


@attrs.define
class NsqdCommandLine(CommandLine):
    """The command line of a broker."""

    help_backend: bool = _flag(BOOLEAN, False, "print the storage backends that are installed and exit")
    help_auth: bool = _flag(BOOLEAN, False, "print the authorizers that are installed and exit")
    help_protocol: bool = _flag(BOOLEAN, False, "print the protocols that are installed and exit")
    worker_id: bool = _flag(BOOLEAN, False, "accepted, without effect: use --node-id")


class Source(Protocol):
    """Something that options come from."""

    @property
    def name(self) -> str:
        """The name of the source in --print-config."""

    def holds(self, option: Option) -> bool:
        """Return whether the option is set here."""

    def read(self, option: Option) -> Any:
        """The value of an option that is set here. OptionError."""

    def mistakes(self) -> list[OptionError]:
        """The warnings: mistakes that nsqd ignores."""

    def warnings(self) -> list[str]:
        """A line for everything in it that is odd."""


@attrs.frozen
class Resolved(Generic[O]):
    """
    The options of a start. `sources` says of each that is no default where it came from, by its name; `warnings`
    are lines for the user.
    """

    options: O
    sources: dict[str, str]
    warnings: list[str]


class OptionReader(Generic[O, L]):
    """Reads the options of a program with this `table`, whose command lines are of the class `line`."""

    def __init__(self, table: OptionTable[O], line: type[L]) -> None:
        self.table = table
        self._line = line
        self.other_flags: dict[str, tuple[Kind, str]] = {
            field.name.replace("_", "-"): (field.metadata["kind"], field.metadata["help"].format(prefix=table.prefix))
            for field in attrs.fields(line)
            if field.metadata
        }
        """The flags that are no options, with kind and help."""

    def read_command_line(self, words: Sequence[str], variables: Mapping[str, str] = _NOTHING) -> L:
        """
        Read the words after the program's name. FlagError for an unknown flag or a value that is none, in nsqd's words
        where --nsq-compat stands among these, or is set by a variable; UnfitValue for a percentile that is no number.
        """
        line = self._line()
        is_compatible = self._is_asked_to_be_compatible(words, variables)
        position, previous = 0, ""
        while position < len(words):
            word = words[position]
            if word == "--":
                position += 1
                break
            if not word.startswith("-") or word == "-":
                break
            position += 1
            flag, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
            if flag in _HELP:
                line.help = True
                return line
            kind = self._kind_of(flag, word)
            if equals:
                value = _read_flag(kind, flag, text, is_compatible)
            elif kind.bare is not None:
                value = kind.bare
            elif position < len(words):
                value = _read_flag(kind, flag, words[position], is_compatible)
                position += 1
            else:
                raise FlagError(f"flag needs an argument: -{flag}")
            self._record(line, flag, kind, value)
            previous = flag if kind.bare is not None and not equals else ""
        line.unread = tuple(words[position:])
        if line.unread:
            line.stray = self._why_stray(line.unread[0], previous)
        return line

    def resolve(self, line: CommandLine, variables: Mapping[str, str] = _NOTHING) -> Resolved[O]:
        """
        The options that a command line, environment variables and the config file they name amount to. OptionError for
        a file that cannot be read, and for a value that does not fit.
        """
        environment = Environment(variables, self.table)
        layers: list[Source] = [line, environment]
        values: dict[str, Any] = {}
        path = self.config_path(line, variables)
        if path:
            # Most daemons have no config file.
            from nsqtw.options.files import ConfigFile

            file = ConfigFile(path, self.table)
            layers.append(file)
            values |= file.rules
            file.is_compatible = self._is_compatible(layers)
        warnings = self._warnings(layers)
        sources: dict[str, str] = {}
        wrong: list[OptionError] = []
        for option in self.table:
            source = next((source for source in layers if source.holds(option)), None)
            if source is not None:
                try:
                    values[option.name], sources[option.name] = source.read(option), source.name
                except UnfitValue:  # in nsqd's words, which has one
                    raise
                except OptionError as error:
                    wrong.append(error)
        if wrong:
            raise _all_of(wrong)
        return Resolved(self._effective(values, sources), sources, warnings)

    def _effective(self, values: dict[str, Any], sources: dict[str, str]) -> O:
        """The options with what some of them make of others, which is noted in `sources`."""
        for name, preset in self.table.presets.items():
            if values.get(name):
                flag = f"--{name.replace('_', '-')}"
                sources.update({other: flag for other in preset if other not in values})
                values = {**preset, **values}
        options = self.table.options(**values)
        if getattr(options, "tls_required", 0) != values.get("tls_required", 0):
            sources["tls_required"] = "--tls-client-auth-policy"
        return options

    def config_path(self, line: CommandLine, variables: Mapping[str, str]) -> str:
        """The config file that a command line names, else a variable; empty for none."""
        return Environment(variables, self.table).config if line.config is None else line.config

    def _warnings(self, layers: Sequence[Source]) -> list[str]:
        """A line for everything that is odd. OptionError for what is wrong, unless nsqd's leniency is asked for."""
        mistakes = [error for source in layers for error in source.mistakes()]
        if mistakes and not self._is_compatible(layers):
            raise _all_of(mistakes)
        return [*map(_ignored, mistakes), *(text for source in layers for text in source.warnings())]

    def _is_compatible(self, layers: Sequence[Source]) -> bool:
        """Return whether --nsq-compat is in effect."""
        option = self.table.by_flag[_COMPAT]
        source = next((source for source in layers if source.holds(option)), None)
        return source is not None and bool(source.read(option))

    def _is_asked_to_be_compatible(self, words: Sequence[str], variables: Mapping[str, str]) -> bool:
        """
        Like `_is_compatible`, as far as it is known before the words are parsed. A program without that option, one of
        NSQ's tools, always uses NSQ's words.
        """
        option = self.table.by_flag.get(_COMPAT)
        if option is None:
            return True
        texts = [text for word in words for text in _texts_of(word, option) if word.startswith("-")]
        texts = texts or [variables.get(option.variable, "false")]
        try:
            return bool(option.kind.parse(texts[-1]))
        except ValueError:
            return False

    def _flags(self) -> list[str]:
        return [f"--{flag}" for flag in (*self.table.by_flag, *self.other_flags)]

    def _why_stray(self, word: str, previous: str) -> str:
        """Return the error for `word`, which is no flag. It follows the switch `previous`, if that is not empty."""
        if previous:
            return f"unexpected word {quoted(word)}: write --{previous}={word}, a switch takes its value behind '='"
        hint = did_you_mean(f"--{word.partition('=')[0]}", self._flags(), "--")
        return f"unexpected word {quoted(word.partition('=')[0])}: a flag begins with --{hint}"

    def _kind_of(self, flag: str, word: str) -> Kind:
        if flag in self.table.by_flag:
            return self.table.by_flag[flag].kind
        if flag in self.other_flags:
            return self.other_flags[flag][0]
        if not flag or flag.startswith("-"):
            raise FlagError(f"bad flag syntax: {word}")
        hint = did_you_mean(f"--{flag.replace('_', '-')}", self._flags(), "--")
        raise FlagError(f"flag provided but not defined: -{flag}{hint}")

    def _record(self, line: CommandLine, flag: str, kind: Kind, value: Any) -> None:
        if flag not in self.table.by_flag:
            setattr(line, flag.replace("-", "_"), value)
            return
        name = self.table.by_flag[flag].name
        if kind.add is not None and name in line.given:
            value = kind.add(line.given[name], value)
        line.given[name] = value


def _all_of(errors: Sequence[OptionError]) -> OptionError:
    """Return the error that names all mistakes of options; only the first one where that is a wrong flag."""
    if len(errors) == 1 or isinstance(errors[0], FlagError):
        return errors[0]
    return OptionError("; ".join(map(str, errors)))


def _ignored(error: OptionError) -> str:
    what = "ignored, with every word behind it" if isinstance(error, FlagError) else "ignored"
    return f"{what}, as nsqd does: {error}"


def _texts_of(word: str, option: Option) -> list[str]:
    """The value of a switch, if `word` is that."""
    name, equals, text = word.partition("=")
    if name.removeprefix("-").removeprefix("-") != option.flag:
        return []
    return [text if equals else "true"]


def _read_flag(kind: Kind, flag: str, text: str, is_compatible: bool) -> Any:
    try:
        return kind.parse(text)
    except ValueError as failure:
        if not is_compatible:
            raise FlagError(f"invalid value {quoted(text)} for --{flag}: {unfit(kind, text, failure)}") from failure
        if kind is FRACTIONS:
            raise UnfitValue(f"{failure}; --{flag} must be {kind.form}") from failure
        what = f"value {quoted(text)} for flag -{flag}"
        if kind.bare is not None:
            what = f"boolean value {quoted(text)} for -{flag}"
        raise FlagError(f"invalid {what}: {failure}; must be {kind.form}") from failure


NSQD_READER = OptionReader(NSQD, NsqdCommandLine)
OTHER_FLAGS = NSQD_READER.other_flags
read_command_line = NSQD_READER.read_command_line
resolve = NSQD_READER.resolve
