"""What an option of ``format("nsq")`` can be, and how the options of a class are read from Spark's strings.

A class of options is a dataclass whose fields are made by `option`; `read_options` fills it, and names every mistake.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pyspark_nsq.errors import OptionError

HOUR_MS = 3_600_000
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_MAX_NAME_LENGTH = 64
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRINTABLE = re.compile(r"[!-~]+")

T = TypeVar("T")


class Kind(Protocol):
    """How the text of an option becomes its value."""

    def read(self, name: str, text: str) -> Any:
        """Raises OptionError, with the option's name in it."""


def option(name: str, kind: Kind, default: Any = dataclasses.MISSING, *, secret: bool = False) -> Any:
    """A field of a class of options. What is secret is not shown by the class's repr."""
    return field(default=default, repr=not secret, metadata={"name": name, "kind": kind})


def read_options(
    cls: type[T],
    given: Mapping[str, str],
    not_ours: Container[str] = (),
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> T:
    """
    The options in `given`, whose keys Spark may have put into lower case. `not_ours`: keys in lower case that are there
    for somebody else. `remedies`: what to say of an unknown option, by its key in lower case, or by the part of the key
    up to its first dot. Raises OptionError for an option that is missing, unknown or has a bad value.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    by_key = {each.metadata["name"].lower(): each for each in fields}
    values: dict[str, Any] = {}
    for key, text in given.items():
        known = by_key.get(key.lower())
        if known is not None:
            values[known.name] = known.metadata["kind"].read(known.metadata["name"], text)
        elif key.lower() not in not_ours:
            prefix = key.lower().partition(".")[0] + "."
            remedy = remedies.get(key.lower()) or remedies.get(prefix)
            if remedy is not None:
                raise OptionError(f'unknown option "{key}": {remedy}')
            raise OptionError(_unknown(key, [each.metadata["name"] for each in fields]))
    for each in fields:
        if each.default is dataclasses.MISSING and each.name not in values:
            kind = each.metadata["kind"]
            raise OptionError(f'option "{each.metadata["name"]}" is required, for example "{kind.example}"')
    return cls(**values)


def _unknown(key: str, names: list[str]) -> str:
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f'did you mean "{lowered[near[0]]}"?' if near else f"known are: {', '.join(names)}"
    return f'unknown option "{key}"; {hint}'


def is_name(name: str) -> bool:
    """Whether NSQ takes this as the name of a topic or a channel."""
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
    """Of a topic or a channel."""

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
    """Printable ASCII without spaces: it travels in a header. Never shown."""

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
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


class TcpAddresses:
    """``host:port,...``; a tuple of (host, port), at least one."""

    example = "127.0.0.1:4150"

    def read(self, name: str, text: str) -> tuple[tuple[str, int], ...]:
        found = tuple(host_and_port(name, part.strip()) for part in text.split(",") if part.strip())
        if not found:
            raise OptionError(f'option "{name}" names no address, for example "{self.example}"')
        return found


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Raises OptionError, with the option's `name` in it."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.username or parts.path or parts.query or parts.fragment:
        raise OptionError(f'option "{name}": "{address}" is not host:port')
    return host, port
