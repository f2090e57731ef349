"""
Files that options name: config files in TOML, and the file of a shared secret.

A config file is read as nsqd reads it. It has top-level keys, named in `nsqtw.options.broker`,
and tables about topics and channels (`nsqtw.options.topics`, `nsqtw.options.channels`). A value is checked when it is
used: one that a flag or a variable overrides may be invalid, as in nsqd. Only the names of keys, options with a fixed
set of words, and the tables are always checked first.

The secret file is shared by an nsqd and an nsqlookupd. It has one line of ASCII; surrounding space is ignored.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from nsqtw.errors import OptionError, UnfitValue
from nsqtw.gocompat.values import shown
from nsqtw.options.broker import NSQD, Options
from nsqtw.options.channels import channel_rules_text, read_channel_rules
from nsqtw.options.fields import Option, OptionTable
from nsqtw.options.redaction import MASK
from nsqtw.options.tables import CHANNEL_KEY, TOPIC_KEY
from nsqtw.options.topics import read_rules, rules_text
from nsqtw.options.types import ADDRESSES, AUTHORIZER, BOOLEAN, did_you_mean, toml_value

_CAPITALS = {
    **{word: word.upper() for word in ("id", "tcp", "http", "https", "e2e", "udp", "tls", "ca")},
    "nsqlookupd": "NSQLookupd",
}


class ConfigFile:
    """
    A config file as a source of options. OptionError when it cannot be read, or a word in it is none. `is_compatible`:
    what does not fit is refused in nsqd's words.
    """

    name = "file"

    def __init__(self, path: str, table: OptionTable[Any] = NSQD) -> None:
        self.is_compatible = False
        self._path = path
        self._table = table
        self._found = _load(path)
        self.rules: dict[str, Any] = {}
        """The values of `topic_rules` and `channel_rules`, where the program has them."""
        if table.has_rules:
            self.rules["topic_rules"] = read_rules(path, self._found.pop(TOPIC_KEY, {}))
            self.rules["channel_rules"] = read_channel_rules(path, self._found.pop(CHANNEL_KEY, {}))
        for option in table:
            if self.holds(option) and option.kind.words:
                self._check_word(option)

    def holds(self, option: Option) -> bool:
        """Return whether the option is set here."""
        return option.key in self._found

    def read(self, option: Option) -> Any:
        """The value of an option that is set here. OptionError, naming file and key, when it does not fit."""
        raw = self._found[option.key]
        try:
            return option.kind.coerce(raw)
        except ValueError as failure:
            if not self.is_compatible:
                text = json.dumps(raw, ensure_ascii=False) if isinstance(raw, str) else shown(raw)
                raise OptionError(f"{self._must_be(option)}, not {text}") from failure
            default = shown(option.kind.plain(getattr(self._table.options(), option.name)))
            raise UnfitValue(
                f"ERROR: Resolve failed to coerce value {shown(raw)} ({default}) for field {_field(option)}"
                f" - {failure} ({self._must_be(option)})"
            ) from failure

    def mistakes(self) -> list[OptionError]:
        """One about all keys that are unknown. nsqd does not look at them."""
        unknown = [(key, raw) for key, raw in self._found.items() if key not in self._table.by_key]
        texts = "; ".join(_unknown(self._table, key, raw) for key, raw in unknown)
        return [OptionError(f"config file {self._path}: {texts}")] if texts else []

    def warnings(self) -> list[str]:
        """Return a warning for each boolean whose meaning differs from its look."""
        lines = []
        for key, raw in self._found.items():
            option = self._table.by_key.get(key)
            if option is not None and option.kind is BOOLEAN and type(raw) is int:
                means = option.kind.show(option.kind.coerce(raw))
                lines.append(f"config file {self._path}: {key} = {raw} means {means}, as in nsqd; write true or false")
        return lines

    def _check_word(self, option: Option) -> None:
        raw = self._found[option.key]
        try:
            option.kind.coerce(raw)
        except ValueError as failure:
            hint = "" if isinstance(raw, list | dict) else did_you_mean(str(raw).lower(), option.kind.words)
            raise OptionError(f"failed parsing {option.key} {shown(raw)} ({self._must_be(option)}{hint})") from failure

    def _must_be(self, option: Option) -> str:
        return f"config file {self._path}: {option.key} must be {option.kind.form}"


def _unknown(table: OptionTable[Any], key: str, raw: Any) -> str:
    """Return the error for an unknown key."""
    if isinstance(raw, dict):
        meant = did_you_mean(key, [TOPIC_KEY, CHANNEL_KEY]) if table.has_rules else ""
        if meant:
            meant_key = next(name for name in (TOPIC_KEY, CHANNEL_KEY) if repr(name) in meant)
            pattern = next(iter(raw), "*")
            return f'unknown table [{key}."{pattern}"], did you mean [{meant_key}."{pattern}"]?'
        return f"unknown table {key!r}; keys stand before the first table"
    named = table.by_flag.get(key.replace("_", "-"))
    hint = f", did you mean {named.key!r}?" if named else did_you_mean(key.replace("-", "_"), table.by_key)
    return f"unknown key {key!r}{hint}"


def read_file(path: str) -> bytes:
    """Read a file. OptionError, in Go's words, when that fails."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as failure:
        doing = "read" if isinstance(failure, IsADirectoryError) else "open"
        reason = (failure.strerror or str(failure)).lower()
        raise OptionError(f"{doing} {path}: {reason}") from failure


def config_text(options: object, sources: Mapping[str, str], table: OptionTable[Any] = NSQD) -> str:
    """
    The config file, for the program of `table`, that gives these options, with a comment behind each value that says
    where it came from; `sources` has that by the option's name. Options that are not in it are defaults, derived ones
    only a comment. OptionError when a value cannot be written as TOML.
    """
    lines = [f"# The options in effect, and where each comes from. {table.program} --config reads this file."]
    for option in table:
        try:
            value = toml_value(option.kind.plain(getattr(options, option.name)))
        except UnicodeEncodeError as failure:
            raise OptionError(f"--{option.flag} is no UTF-8 text, and a config file cannot hold it") from failure
        source = sources.get(option.name, "default")
        if MASK in value and option.kind in (ADDRESSES, AUTHORIZER):
            source += ", without what may be a password"
        # One file may serve many machines: what each derives for itself must not be fixed in it.
        comment = "# " if option.is_derived and option.name not in sources else ""
        lines.append(f"{comment}{option.key} = {value}  # {source}")
    rules = ""
    if isinstance(options, Options):
        rules = rules_text(options.topic_rules) + channel_rules_text(options.channel_rules)
    return "\n".join(lines) + "\n" + rules


def _load(path: str) -> dict[str, Any]:
    # Only a broker with a config file waits for the TOML reader.
    from tomllib import loads

    try:
        return loads(read_file(path).decode("utf-8-sig"))
    except OptionError as failure:
        raise OptionError(f"failed to load config file {path} - {failure}") from failure
    except ValueError as failure:
        raise OptionError(f"failed to load config file {path} - toml: {failure}") from failure
    except RecursionError as failure:
        raise OptionError(f"failed to load config file {path} - toml: nested too deep") from failure


def _field(option: Option) -> str:
    """nsqd's name for an option in its error text: its key in camel case."""
    if option.field:
        return option.field
    return "".join(_CAPITALS.get(word, word.capitalize()) for word in option.key.split("_"))


MAX_SECRET_BYTES = 4096


def read_secret(path: str, flag: str) -> str:
    """
    The secret in the file that `flag` names; "" when it names none. OptionError when there is no such file, or what it
    holds cannot be a secret.
    """
    if not path:
        return ""
    try:
        secret = read_file(path).strip().decode("ascii")
    except OptionError as error:
        raise OptionError(f"{flag} cannot be used - {error}") from error
    except UnicodeDecodeError:
        secret = ""
    if not 0 < len(secret) <= MAX_SECRET_BYTES or not secret.isprintable():
        text = f"must hold a secret: 1 to {MAX_SECRET_BYTES} printable characters of ASCII on one line"
        raise OptionError(f"{flag} cannot be used - {path} {text}")
    return secret


def exposures(files: Mapping[str, str]) -> list[str]:
    """A warning for each file, by the option that names it, that every user of the machine can read."""
    lines = []
    for flag, path in files.items():
        try:
            mode = os.stat(path).st_mode if path else 0
        except OSError:
            continue
        if mode & stat.S_IROTH:
            lines.append(f"{flag}: every user of this machine can read {path}: chmod 600 {path}")
    return lines
