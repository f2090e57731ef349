"""Kinds of options of ``format("nsq")``, and the reader of a class of options from Spark's strings.

A class of options is a dataclass whose fields are made by `option`; `read_options` fills it, and names every mistake.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pyspark_nsq.errors import OptionError
from pyspark_nsq.options import kafka
from pyspark_nsq.options.addresses import join_host_port

HOUR_MS = 3_600_000
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_MAX_NAME_LENGTH = 64
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRINTABLE = re.compile(r"[!-~]+")
_NOTHING: Mapping[str, str] = MappingProxyType({})

BATCH, STREAM = "batch", "stream"
_ONLY = {
    BATCH: "is for a batch, because a stream has no end; leave it out, or read with spark.read",
    STREAM: "is for a stream; leave it out, or read with spark.readStream",
}

#: The remedy for the option `checkpointLocation` of a read.
OF_WRITE_STREAM = "it is an option of writeStream; set it there"

T = TypeVar("T")


class Kind(Protocol):
    """The kind of an option: makes the value from its text."""

    def read(self, name: str, text: str) -> Any:
        """Return the value. Raises OptionError, which has the option's name."""


def option(
    name: str,
    kind: Kind,
    default: Any = dataclasses.MISSING,
    *,
    secret: bool = False,
    aliases: tuple[str, ...] = (),
    only: str = "",
    or_else: str = "",
    needs: tuple[str, ...] = (),
    not_with: str = "",
    at_most: str = "",
) -> Any:
    """Declare a field of a class of options.

    The repr of the class does not show a secret field. `aliases` are other names of the option, Kafka's or Spark's.
    `only` is BATCH or STREAM for an option that has no meaning for the other one. `or_else` is what to do instead of
    setting an option that is required. The others name options of the same class: the option has an effect only with
    one of `needs`, and none with `not_with`; its value must not exceed that of `at_most`.
    """
    metadata = {"name": name, "kind": kind, "aliases": aliases, "only": only, "or_else": or_else}
    pairs = {"needs": needs, "not_with": not_with, "at_most": at_most}
    return field(default=default, repr=not secret, metadata=metadata | pairs)


def check_mode(cls: type[Any], given: Iterable[str], mode: str) -> None:
    """Raise OptionError when one of the `given` options, in any case, has no meaning for `mode`, BATCH or STREAM."""
    by_key = {name.lower(): (name, each) for each in dataclasses.fields(cls) for name in names(each)}
    for key in given:
        name, each = by_key.get(key.lower(), ("", None))
        if each is not None and each.metadata["only"] not in ("", mode):
            raise OptionError(f'option "{name}" {_ONLY[each.metadata["only"]]}')


def read_options(
    cls: type[T],
    given: Mapping[str, str],
    not_ours: Container[str] = (),
    elsewhere: Mapping[str, str] = _NOTHING,
) -> T:
    """Return the options in `given`, whose keys Spark may have put into lower case.

    `not_ours` are keys, in lower case, that Spark itself reads. `elsewhere` has a remedy for each option, in lower
    case, that exists for another way of reading or writing. Raises OptionError for an option that is missing, unknown,
    contradictory or has a bad value.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    by_key = {name.lower(): (name, each) for each in fields for name in names(each)}
    values: dict[str, Any] = {}
    used: dict[str, str] = {}
    for key, text in given.items():
        lowered = key.lower()
        if lowered not in by_key:
            if lowered in not_ours:
                continue
            raise OptionError(_unknown(key, [each.metadata["name"] for each in fields], elsewhere))
        name, each = by_key[lowered]
        value = each.metadata["kind"].read(name, text)
        if each.name in used and values[each.name] != value:
            raise OptionError(f'"{used[each.name]}" and "{name}" are names of one option; give it once')
        values[each.name], used[each.name] = value, name
    for each in fields:
        if each.default is dataclasses.MISSING and each.name not in values:
            example, or_else = each.metadata["kind"].example, each.metadata["or_else"]
            raise OptionError(f'option "{each.metadata["name"]}" is required, for example "{example}"{or_else}')
    options = cls(**values)
    by_name = {each.metadata["name"]: getattr(options, each.name) for each in fields}
    for each in fields:
        _check_pairs(each, by_name, used)
    return options


def is_given(name: str, given: Iterable[str]) -> bool:
    """Return whether the option `name` is one of the `given` keys, in any case."""
    return name.lower() in {key.lower() for key in given}


def _check_pairs(each: dataclasses.Field[Any], by_name: Mapping[str, Any], used: Mapping[str, str]) -> None:
    """Raise OptionError when an option is without effect because of another one, or contradicts it.

    `by_name` are the values of all options, and `used` the names of those that are given, by their fields. An option
    that is not given, or has its default, contradicts no other one.
    """
    needs, not_with, at_most = (each.metadata[key] for key in ("needs", "not_with", "at_most"))
    name, value, most = used.get(each.name), by_name[each.metadata["name"]], by_name.get(at_most)
    if name is None or value == each.default:
        return
    if value is not None and most is not None and value > most:
        raise OptionError(
            f'option "{name}" is {value}, more than "{at_most}", which is {most}; lower the one, or raise the other'
        )
    if needs and not any(by_name[other] for other in needs):
        others = " or ".join(f'"{other}"' for other in needs)
        raise OptionError(f'option "{name}" is of no use without {others}; leave it out, or set that, too')
    if not_with and by_name[not_with]:
        raise OptionError(f'option "{name}" is of no use with "{not_with}"; leave it out')


def names(each: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the name of an option and its other names."""
    return (each.metadata["name"], *each.metadata["aliases"])


def _unknown(key: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    hint = elsewhere.get(key.lower()) or kafka.remedy(key, known) or _use_or_near(key, known)
    return f'unknown option "{key}"; {hint}'


def _use_or_near(key: str, known: list[str]) -> str:
    """Return the uses that have the option `key`, if any, and the most similar one of the known options."""
    from pyspark_nsq.options.uses import uses  # its classes are made of the kinds of this module

    name, found = uses(key)
    lowered = {each.lower(): each for each in known}
    near = [f'did you mean "{lowered[each]}"?' for each in difflib.get_close_matches(key.lower(), lowered, n=1)]
    if found:
        return "; ".join([f'"{name}" is for {" or ".join(found)}', *(near or ["leave it out"])])
    return near[0] if near else f"known are: {', '.join(known)}"


def is_name(name: str) -> bool:
    """Return whether NSQ accepts this as the name of a topic or a channel."""
    return len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class WholeNumber:
    low: int
    high: int

    def read(self, name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f'option "{name}" must be a whole number, not "{text}"') from None
        if not self.low <= number <= self.high:
            raise OptionError(f'option "{name}" must be between {self.low} and {self.high}, not {number}')
        return number


@dataclass(frozen=True)
class Choice:
    choices: tuple[str, ...]

    def read(self, name: str, text: str) -> str:
        if text.lower() not in self.choices:
            raise OptionError(f'option "{name}" must be one of {", ".join(self.choices)}, not "{text}"')
        return text.lower()


class YesNo:
    def read(self, name: str, text: str) -> bool:
        return Choice(("true", "false")).read(name, text) == "true"


@dataclass(frozen=True)
class Name:
    """A name of a topic or a channel."""

    what: str

    @property
    def example(self) -> str:
        return f"my-{self.what}"

    def read(self, name: str, text: str) -> str:
        if not is_name(text):
            raise OptionError(
                f'option "{name}": "{text}" is no {self.what} name; 1 to {_MAX_NAME_LENGTH} of a-z A-Z 0-9 . _ -'
            )
        return text


class TopicNames:
    """Comma-separated names of topics; a tuple of them without repeats, at least one."""

    def read(self, name: str, text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not names:
            raise OptionError(f'option "{name}" names no topic, for example "clicks,orders"')
        return tuple(Name("topic").read(name, one) for one in names)


class TopicPattern:
    """A regular expression of Python that has to match the whole name of a topic."""

    def read(self, name: str, text: str) -> re.Pattern[str]:
        if not text:
            raise OptionError(f'option "{name}" is an empty pattern; ".*" matches all topics')
        try:
            return re.compile(text)
        except re.error as error:
            raise OptionError(f'option "{name}": "{text}" is no regular expression: {error}') from None


class FilePath:
    def read(self, name: str, text: str) -> str:
        if not text:
            raise OptionError(f'option "{name}" names no file')
        return text


class Variable:
    """The name of an environment variable."""

    def read(self, name: str, text: str) -> str:
        if _VARIABLE.fullmatch(text) is None:
            raise OptionError(f'option "{name}" must be the name of an environment variable')
        return text


class Secret:
    """Printable ASCII without spaces, because it is sent in a header. It is never shown."""

    def read(self, name: str, text: str) -> str:
        if _PRINTABLE.fullmatch(text) is None:
            raise OptionError(f'option "{name}" must be printable ASCII without spaces')
        return text


class HttpAddresses:
    """``host:port,...`` or URLs; a tuple of base URLs without a trailing slash, at least one."""

    example = "127.0.0.1:4151"

    def read(self, name: str, text: str) -> tuple[str, ...]:
        urls = tuple(_base_url(name, part.strip()) for part in text.split(",") if part.strip())
        if not urls:
            raise OptionError(f'option "{name}" names no address, for example "{self.example}"')
        return urls


def _base_url(name: str, address: str) -> str:
    wrong = OptionError(f'option "{name}": "{address}" is not host:port or http(s)://host:port')
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    extra = parts.username or parts.query or parts.fragment or parts.path not in ("", "/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or extra:
        raise wrong
    return f"{parts.scheme}://{join_host_port(parts.hostname, port)}"


class TcpAddresses:
    """``host:port,...``; a tuple of (host, port), at least one."""

    example = "127.0.0.1:4150"

    def read(self, name: str, text: str) -> tuple[tuple[str, int], ...]:
        found = tuple(host_and_port(name, part.strip()) for part in text.split(",") if part.strip())
        if not found:
            raise OptionError(f'option "{name}" names no address, for example "{self.example}"')
        return found


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Return host and port of an address. Raises OptionError, which has the option's `name`."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.username or parts.path or parts.query or parts.fragment:
        raise OptionError(f'option "{name}": "{address}" is not host:port')
    return host, port
