"""A pipeline's configuration: a TOML file, checked against the sections and against itself.

Nothing here needs Spark. Statements and schemas are checked by Spark, when the pipeline is built.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark_nsq.errors import ConfigError
from pyspark_nsq.jobs.etl.kinds import AVAILABLE_NOW
from pyspark_nsq.jobs.etl.sections import (
    APPEND,
    CHANNEL_KIND,
    JSON,
    LOG,
    SECTIONS,
    DeadLetters,
    Nsq,
    Query,
    Run,
    Section,
    Sink,
    Source,
    Table,
    Target,
    View,
    Watermark,
)
from pyspark_nsq.jobs.etl.toml_lines import Lines, key_lines

_SECRETS = ("authsecret", "auth_secret", "secret", "password")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The content of a file. `file` is its path; relative paths in it start at the folder of the file."""

    file: Path
    nsq: Nsq
    source: Source
    watermark: Watermark | None
    table: tuple[Table, ...]
    view: tuple[View, ...]
    query: Query
    sink: Sink
    dead_letters: DeadLetters | None
    run: Run
    lines: Lines

    def path(self, text: str) -> str:
        """Return a path of the file as an absolute one; a URI stays as it is."""
        return text if "://" in text else str((self.file.parent / text).absolute())

    def until_caught_up(self) -> Config:
        """Return this configuration with the trigger ``available_now``."""
        return dataclasses.replace(self, run=dataclasses.replace(self.run, trigger=AVAILABLE_NOW))

    def where(self, section: str, number: int = 0, key: str | None = None) -> str:
        """Return the file and line of a key, with which errors begin."""
        return _place(self.file, self.lines, section, number, key)


def load(file: Path) -> Config:
    """Read a file. Raises ConfigError: one line with the file, the line and the remedy."""
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {file}: it is not UTF-8") from None
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    reader = _Reader(file, key_lines(text))
    config = Config(file=file, lines=reader.lines, **reader.sections(given))
    for section, number, key, problem in _contradictions(config):
        raise ConfigError(f"{config.where(section, number, key)}: {problem}")
    return config


class _Reader:
    """Makes the sections of a file from the result of the TOML parser."""

    def __init__(self, file: Path, lines: Lines) -> None:
        self.file, self.lines = file, lines

    def sections(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the sections by name; one that is absent is None, or an empty tuple."""
        names = [section.name for section in SECTIONS]
        for name, value in given.items():
            if name not in names:
                where = name if isinstance(value, dict | list) else ""
                raise self._error(where, 0, name, f'unknown {_what(value)} "{name}"{_suggestion(name, names)}')
        return {section.name: self._section(section, given.get(section.name)) for section in SECTIONS}

    def _section(self, section: Section, value: Any) -> Any:
        if value is None:
            if section.is_required:
                required = ", ".join(each.title for each in SECTIONS if each.is_required)
                raise ConfigError(f"{self.file}: {section.title} is missing; required are {required}")
            return () if section.is_array else None
        if section.is_array and isinstance(value, list):
            return tuple(self._keys(section, number, each) for number, each in enumerate(value))
        if not section.is_array and isinstance(value, dict):
            return self._keys(section, 0, value)
        raise self._error(section.name, 0, None, f"write {section.title} as the header of this section")

    def _keys(self, section: Section, number: int, given: dict[str, Any]) -> Any:
        fields = {field.name: field for field in dataclasses.fields(section.keys)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name.lower() in _SECRETS and name not in fields:
                raise self._error(section.name, number, name, _NO_SECRET)
            if name not in fields:
                problem = f'unknown key "{name}" in {section.title}{_suggestion(name, list(fields))}'
                raise self._error(section.name, number, name, problem)
            try:
                values[name] = fields[name].metadata["kind"].read(value)
            except ConfigError as error:
                raise self._error(section.name, number, name, f'"{name}" {error}') from None
        for name, field in fields.items():
            is_required = field.default is field.default_factory is dataclasses.MISSING
            if is_required and name not in values:
                raise self._error(section.name, number, None, f'{section.title} needs the key "{name}"')
        return section.keys(**values)

    def _error(self, section: str, number: int, key: str | None, problem: str) -> ConfigError:
        return ConfigError(f"{_place(self.file, self.lines, section, number, key)}: {problem}")


def _place(file: Path, lines: Lines, section: str, number: int, key: str | None) -> str:
    """Return the file with the line of the key, or of its section."""
    line = lines.get((section, number, key), lines.get((section, number, None)))
    return f"{file}, line {line}" if line is not None else str(file)


_NO_SECRET = 'a secret does not belong here: put it into a file, and name that in "auth_secret_file" of [nsq]'


def _what(value: Any) -> str:
    return "section" if isinstance(value, dict | list) else "key"


def _suggestion(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f'; did you mean "{near[0]}"?' if near else f"; known are: {', '.join(known)}"


#: Section, its number among those of that name, key, and the mistake.
_Problem = tuple[str, int, str | None, str]


def _contradictions(config: Config) -> Iterator[_Problem]:
    """Yield the contradictions between keys, and the keys that are missing beside others."""
    yield from _of_source(config.source)
    yield from _of_nsq(config.nsq, config.source)
    yield from _of_target("sink", config.sink, config)
    yield from _of_sink(config.sink)
    if config.dead_letters is not None:
        yield from _of_target("dead_letters", config.dead_letters, config)
        yield from _of_dead_letters(config.dead_letters, config)
    yield from _of_unused(config)
    yield from _of_statements(config)


def _of_source(source: Source) -> Iterator[_Problem]:
    if bool(source.topic) == bool(source.topic_pattern):
        yield "source", 0, "topic", '[source] needs either "topic" or "topic_pattern"'
    yield from _of_kind(source)
    if source.starting == "latest":
        yield "source", 0, "starting", '"starting" must be "earliest" or a time, such as the present one'
    if source.format == JSON and source.schema is None:
        yield "source", 0, "format", 'format = "json" needs the key "schema", for example "id string, at timestamp"'
    if source.format != JSON and source.schema is not None:
        yield "source", 0, "schema", f'"schema" needs format = "json", not "{source.format}"'
    for name in source.options:
        if name.lower() in _SECRETS:
            yield "source", 0, "options", _NO_SECRET


def _of_kind(source: Source) -> Iterator[_Problem]:
    if source.topic_pattern is not None and source.kind != LOG:
        yield "source", 0, "topic_pattern", f'"topic_pattern" needs kind = "{LOG}"'
    if source.kind == LOG:
        for key in ("channel", "spool"):
            if getattr(source, key) is not None:
                yield "source", 0, key, f'"{key}" needs kind = "{CHANNEL_KIND}"; a log is read without it'
    else:
        for key in ("channel", "spool"):
            if getattr(source, key) is None:
                yield "source", 0, "kind", f'kind = "{CHANNEL_KIND}" needs the key "{key}"'
        if source.starting is not None:
            yield "source", 0, "starting", f'"starting" needs kind = "{LOG}"; a channel starts with what it has'


def _of_nsq(nsq: Nsq, source: Source) -> Iterator[_Problem]:
    key = "nsqd_http_addresses" if source.kind == LOG else "nsqd_tcp_addresses"
    direct, lookups = getattr(nsq, key), nsq.lookupd_http_addresses
    if not direct and not lookups:
        yield "nsq", 0, None, f'"{key}" or "lookupd_http_addresses" is required to read a {source.kind}'
    if direct and lookups:
        yield (
            "nsq",
            0,
            "lookupd_http_addresses",
            f'"{key}" and "lookupd_http_addresses" exclude each other; leave one out',
        )


def _of_target(section: str, target: Target, config: Config) -> Iterator[_Problem]:
    if (target.topic is None) == (target.path is None):
        yield section, 0, "topic", f'[{section}] needs either "topic" or "path"'
    if target.topic is not None:
        for key in ("format", "partition_by"):
            if getattr(target, key):
                yield section, 0, key, f'"{key}" is for a table with "path", not for a topic'
        if not (target.nsqd_http_addresses or config.nsq.nsqd_http_addresses or config.nsq.lookupd_http_addresses):
            yield (
                section,
                0,
                "topic",
                'a topic is written over HTTP: "nsqd_http_addresses" of [nsq] or here is required',
            )
        is_elsewhere = target.nsqd_http_addresses and target.nsqd_http_addresses != config.nsq.nsqd_http_addresses
        is_read = target.topic in config.source.topic or re.fullmatch(config.source.topic_pattern or "", target.topic)
        if is_read and not is_elsewhere:
            yield (
                section,
                0,
                "topic",
                f'topic "{target.topic}" is read by [source]: the pipeline would read its own output',
            )
    elif target.nsqd_http_addresses:
        yield section, 0, "nsqd_http_addresses", '"nsqd_http_addresses" is for a topic, not for a table with "path"'


def _of_sink(sink: Sink) -> Iterator[_Problem]:
    if sink.path is not None:
        if sink.value is not None:
            yield "sink", 0, "value", '"value" is for a topic, not for a table with "path"'
        if sink.output_mode != APPEND:
            yield "sink", 0, "output_mode", f'a table can only "append"; "{sink.output_mode}" is for a topic'
    for name in sink.options:
        if name.lower() in _SECRETS:
            yield "sink", 0, "options", _NO_SECRET


def _of_dead_letters(dead: DeadLetters, config: Config) -> Iterator[_Problem]:
    if dead.channel is not None and config.source.kind == LOG:
        yield (
            "dead_letters",
            0,
            "channel",
            f'"channel" needs kind = "{CHANNEL_KIND}" in [source]; a log is read without it',
        )
    if dead.channel is not None and dead.channel == config.source.channel:
        yield "dead_letters", 0, "channel", "two queries on one channel share its messages: name another channel"
    sink = config.sink
    if dead.path is not None and sink.path is not None and config.path(dead.path) == config.path(sink.path):
        yield "dead_letters", 0, "path", '"path" is that of [sink]; name another folder'
    is_same_topic = dead.topic is not None and dead.topic == sink.topic
    if is_same_topic and dead.nsqd_http_addresses == sink.nsqd_http_addresses:
        yield "dead_letters", 0, "topic", '"topic" is that of [sink]; name another topic'


def _of_unused(config: Config) -> Iterator[_Problem]:
    """Yield the keys without effect, and the folder that is named twice."""
    nsq, targets = config.nsq, [each for each in (config.sink, config.dead_letters) if each is not None]
    if config.source.kind == LOG:
        if nsq.nsqd_tcp_addresses:
            problem = f'"nsqd_tcp_addresses" needs kind = "{CHANNEL_KIND}" in [source]; a log is read over HTTP'
            yield "nsq", 0, "nsqd_tcp_addresses", problem
        if nsq.tls:
            problem = f'"tls" needs kind = "{CHANNEL_KIND}" in [source]; write https:// before the HTTP addresses'
            yield "nsq", 0, "tls", problem
    elif nsq.nsqd_http_addresses and all(each.topic is None or each.nsqd_http_addresses for each in targets):
        problem = '"nsqd_http_addresses" is for topics that are written, and there is none; leave it out'
        yield "nsq", 0, "nsqd_http_addresses", problem
    for each in targets:
        if each.path is not None and config.path(each.path) == config.path(config.run.checkpoint):
            yield "run", 0, "checkpoint", '"checkpoint" is a folder that rows are written to; name another'


def _of_statements(config: Config) -> Iterator[_Problem]:
    taken = {config.source.view.lower(): "the view of [source]"}
    named = [("table", number, table.name) for number, table in enumerate(config.table)]
    named += [("view", number, view.name) for number, view in enumerate(config.view)]
    for section, number, name in named:
        if name.lower() in taken:
            problem = f'the name "{name}" is that of {taken[name.lower()]}, too; choose another'
            yield section, number, "name", problem
        taken[name.lower()] = f"a [[{section}]]"
    for number, view in enumerate(config.view):
        if (view.sql is None) == (view.file is None):
            yield "view", number, None, f'[[view]] "{view.name}" needs either "sql" or "file"'
    if (config.query.sql is None) == (config.query.file is None):
        yield "query", 0, None, '[query] needs either "sql" or "file"'
    for number, table in enumerate(config.table):
        if table.format in ("csv", "json") and table.schema is None:
            yield (
                "table",
                number,
                None,
                f'[[table]] "{table.name}" needs the key "schema" for format = "{table.format}"',
            )
