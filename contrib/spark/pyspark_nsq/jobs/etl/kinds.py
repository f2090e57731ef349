"""Kinds of values in a pipeline's configuration, and the declaration of a key."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark_nsq.errors import ConfigError
from pyspark_nsq.options.kinds import is_name

AVAILABLE_NOW = "available_now"
_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")
_VIEW_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Kind(Protocol):
    """A kind of value. `type_name` is its name in the reference."""

    @property
    def type_name(self) -> str: ...

    def read(self, value: Any) -> Any:
        """Return the value for the program. Raises ConfigError that completes "KEY must be ...": the rest alone."""


def key(kind: Kind, default: Any = dataclasses.MISSING, *, doc: str, shown_default: str = "") -> Any:
    """Declare a key of a section: a field of the section's dataclass. Without a default the key is required.

    `shown_default` is the text of the reference for a default that depends on other keys.
    """
    metadata = {"kind": kind, "doc": doc, "shown_default": shown_default}
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Text:
    """A string that is not empty."""

    type_name = "string"

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ConfigError("must be a string that is not empty")
        return value


class Flag:
    """true or false."""

    type_name = "boolean"

    def read(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ConfigError("must be true or false")
        return value


class Count:
    """A whole number of at least 1."""

    type_name = "integer"

    def read(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError("must be a whole number of at least 1")
        return value


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    words: tuple[str, ...]

    @property
    def type_name(self) -> str:
        return " or ".join(f"`{word}`" for word in self.words)

    def read(self, value: Any) -> str:
        if value not in self.words:
            raise ConfigError(f"must be {' or '.join(self.words)}, not {value!r}")
        return str(value)


@dataclass(frozen=True)
class Matching:
    """A string of a certain form."""

    type_name: str
    matches: Callable[[str], object]
    form: str

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or not self.matches(value):
            raise ConfigError(f"must be {self.form}, not {value!r}")
        return value


@dataclass(frozen=True)
class Several:
    """One value or an array of values of the same kind; a tuple."""

    item: Kind

    @property
    def type_name(self) -> str:
        return f"{self.item.type_name}, or an array"

    def read(self, value: Any) -> tuple[Any, ...]:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise ConfigError("must not be an empty array")
        return tuple(self.item.read(each) for each in values)


class Options:
    """A table of options in Spark's form; its values are text, numbers or booleans, and become text."""

    type_name = "table"

    def read(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(each, str | int | float) for each in value.values()):
            raise ConfigError("must be a table of options, for example { header = true }")
        return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return bool(text)


PATTERN = Matching("regular expression", _is_pattern, 'a regular expression such as "clicks-.*"')
TOPIC = Matching("topic name", is_name, "the name of a topic: 1 to 64 of a-z A-Z 0-9 . _ -")
CHANNEL = Matching("channel name", is_name, "the name of a channel: 1 to 64 of a-z A-Z 0-9 . _ -")
VIEW_NAME = Matching("name", _VIEW_NAME.fullmatch, "a name: a letter, then letters, digits and _")
INTERVAL = Matching("interval", _INTERVAL.fullmatch, 'an interval such as "10 minutes"')
TRIGGER = Matching(
    "interval or `available_now`",
    lambda text: text == AVAILABLE_NOW or _INTERVAL.fullmatch(text),
    f'"{AVAILABLE_NOW}" or an interval such as "10 seconds"',
)
