"""Config files, command lines and environment variables, up to the point where a broker would be started."""

from __future__ import annotations

from random import Random
from typing import Any

from nsqtw.daemon.logs import start_up_failure
from nsqtw.errors import OptionError
from nsqtw.options.broker import CHECKS_AFTER_TLS, CHECKS_BEFORE_TLS, TABLE, Options, check
from nsqtw.options.command_line import read_command_line, resolve
from nsqtw.options.files import config_text
from tests.fuzz.meter import Broken
from tests.fuzz.oddities import NAMES, NUMBERS, TEXTS, mostly
from tests.fuzz.target import Bound, Target
from tests.fuzz.targets.directory import directory

_KEYS = tuple(option.key for option in TABLE) + ("unknown", "topic", "verbose", "ID")
_DURATIONS = (
    *(b"1s", b"250ms", b"1h30m", b"0", b"1.5s", b".5s", b"5", b"1", b"-1s", b"1e3s", b"1\xc2\xb5s", b"s", b"1 s"),
    *(b"9223372036854775807ns", b"9223372036854775808ns", b"0." + b"0" * 400 + b"1s", b"9" * 400 + b"h"),
    *(b"1." + b"9" * 5000 + b"s", b"9" * 5000 + b"s", b"1h" * 2000),
)
_USUAL = (
    *(b"true", b"false", b"info", b"debug", b"os", b"fsync", b"memory", b"tls1.2", b"disk", b"json", b"tcp-https"),
    *(b"127.0.0.1:0", b"0.0.0.0:4150", b"/tmp/x.sock", b"0.99,0.5", b"a:1,b:2", b"10", b"100", b"post"),
)
_ODD_TOML = (
    *(b"inf", b"nan", b"-inf", b"1979-05-27T07:32:00Z", b"07:32:00", b"[1, 'a']", b"{a = 1}", b"'''x\ny'''", b"0x_1"),
    *(b"[[]]", b"[" * 900 + b"]" * 900, b"'" + b"x" * 20_000 + b"'", b'"\\ud800"', b'"\\U00110000"', b"9" * 5000),
    *(b"1e400", b"['a','\\u0000']"),
)
_GOOD_LINES = [
    line.partition("  #")[0].encode()
    for line in config_text(Options(node_id=1, data_path="."), {}).splitlines()
    if not line.startswith("#")
]
_TABLES = (b'[topic."a.*"]', b"[topic.t]")
_ODD_TABLES = (b"[topic]", b"[[topic]]", b'[topic."["]', b"[other]", b"[topic.''.x]")
_CLASSES = (b'"os"', b'"fsync"', b'"memory"')


class Configuration(Target):
    name = "config"
    kind = "config files, resolved as at a start"
    examples = 600
    tokens = (
        *(f"{key} = ".encode() for key in _KEYS),
        *(b'[topic."a*"]\n', b'durability = "fsync"\n', b"true", b"false", b'"1s"', b"[", b"]", b'"', b"'", b"\n"),
    )
    steps = Bound(60_000, 400)
    memory = Bound(4 << 20, 400)

    def make(self, chance: Random) -> bytes:
        lines = [_line(chance) for _ in range(chance.randint(1, 6))]
        if chance.random() < 0.2:
            lines.append(mostly(chance, _TABLES, _ODD_TABLES))
            lines.append(b"durability = " + mostly(chance, _CLASSES, (b"1", b'""', b"[]")))
        return b"\n".join(lines)

    def run(self, data: bytes) -> str:
        with directory() as path:
            file = path / "nsqd.toml"
            file.write_bytes(data)
            outcome = started([f"--config={file}", "--data-path=."], {})
            if isinstance(outcome, str):
                return outcome
            file.write_text(config_text(outcome.options, outcome.sources), "utf-8")
            again = started([f"--config={file}"], {})
            if isinstance(again, str) or config_text(again.options, {}) != config_text(outcome.options, {}):
                raise Broken(f"what --print-config writes is read as {again}")
        return "accepted"


class Flags(Target):
    """The words of a command line have NUL between them; those that begin with NSQTW_ are variables."""

    name = "flags"
    kind = "command lines and environment variables"
    examples = 600
    tokens = (
        *(f"--{option.flag}=".encode() for option in TABLE),
        *(b"\0", b"=", b"--", b"-h", b"--version", b"NSQTW_MSG_TIMEOUT="),
    )
    steps = Bound(60_000, 400)
    memory = Bound(4 << 20, 400)

    def make(self, chance: Random) -> bytes:
        words = []
        for _ in range(chance.randint(1, 4)):
            option = chance.choice(TABLE)
            value = _text(chance)
            form = chance.randrange(6)
            if form == 0:
                words += [b"-" + option.flag.encode(), value]
            elif form == 1:
                words.append(option.variable.encode() + b"=" + value)
            else:
                words.append(b"--" + option.flag.encode() + b"=" + value)
        return b"\0".join(words)

    def run(self, data: bytes) -> str:
        words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]
        variables = dict(word.split("=", 1) for word in words if word.startswith("NSQTW_") and "=" in word)
        variables.pop("NSQTW_CONFIG", None)
        flags = [word for word in words if not word.startswith("NSQTW_") and "config" not in word]
        outcome = started(flags, variables)
        if isinstance(outcome, str):
            return outcome
        try:
            config_text(outcome.options, outcome.sources)
        except OptionError:
            return "accepted, and no config file can say it"
        return "accepted"


def started(flags: list[str], variables: dict[str, str]) -> Any:
    """The options of a start; or, when it is refused with one line, a word for that."""
    try:
        found = resolve(read_command_line(flags), variables)
        check(found.options, CHECKS_BEFORE_TLS)
        check(found.options, CHECKS_AFTER_TLS)
    except OptionError as refused:
        line = start_up_failure(str(refused), 0.0)
        if line.count("\n") != 1 or "Traceback" in line:
            raise Broken(f"no single line: {line!r}") from refused
        return "refused with one line"
    for warning in found.warnings:
        str(warning).encode("utf-8", "backslashreplace")
    return found


def _line(chance: Random) -> bytes:
    if chance.random() < 0.6:
        return chance.choice(_GOOD_LINES)
    key = chance.choice(_KEYS).encode()
    value = _text(chance)
    kind = chance.randrange(10)
    if kind == 0:
        written = chance.choice(_ODD_TOML)
    elif kind <= 2:
        written = mostly(chance, (b"1", b"10", b"1000", b"true", b"false"), NUMBERS)
    elif kind == 3:
        written = b"[%s]" % b", ".join(b'"%s"' % _text(chance) for _ in range(chance.randrange(3)))
    else:
        written = b'"%s"' % value
    return key + b" = " + written


def _text(chance: Random) -> bytes:
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice(TEXTS)
    if kind == 1:
        return chance.choice(NAMES)
    if kind <= 3:
        return chance.choice(_DURATIONS)
    if kind == 4:
        return chance.choice(NUMBERS)
    return chance.choice(_USUAL)
