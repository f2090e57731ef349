"""
Settings of the policies of topics and channels, and how they are read and shown.

A setting is a field of `TopicPolicy` or `ChannelPolicy`, and is declared nowhere else: the keys of the config file, the
API and its description, the command line and the table of the documentation follow from the field. The default of every
setting is NSQ's behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import attrs

from nsqtw.errors import InvalidPolicy
from nsqtw.options.types import (
    BOOLEAN,
    DURATION,
    INTEGER,
    NUMBER,
    SIZE,
    TEXT,
    Kind,
    choice,
    did_you_mean,
    toml_value,
)

DROP, DEAD_LETTER = "drop", "dead_letter"
REJECT, DROP_OLDEST = "reject", "drop_oldest"
_DEAD_LETTER_TOPIC = "dead_letter_topic"
_MAX = 2**53
_MAX_SECONDS = 10.0 * 365 * 86_400
_MAX_TEXT = 1000
_MAX_NAME_SHOWN = 64
_JSON_TYPES = {BOOLEAN: "boolean", INTEGER: "integer", SIZE: "integer", NUMBER: "number"}
"""The types of JSON values that are no strings."""


@attrs.frozen
class Setting:
    """One setting of a policy. A number must be between `low` and `high`, where they are given."""

    name: str
    kind: Kind
    default: Any
    help: str
    low: float | None = None
    high: float | None = None

    def read(self, raw: object) -> Any:
        """Return the value that a config file, a JSON document or a command line has. InvalidPolicy."""
        if (type(raw) is bool) is not (self.kind is BOOLEAN) and not isinstance(raw, str):
            raise self._refusal()
        try:
            value = self.kind.coerce(raw)
        except ValueError:
            raise self._refusal() from None
        if self.bounds and not self.low <= value <= self.high:
            raise InvalidPolicy(f"{self.name} must be {self.bounds}")
        if isinstance(value, str) and not (len(value) <= _MAX_TEXT and value.isprintable()):
            raise InvalidPolicy(f"{self.name} must be at most {_MAX_TEXT} characters, all of them printable")
        return value

    @property
    def bounds(self) -> str:
        """The lowest and the highest value in words; empty where there are none."""
        if self.low is None or self.high is None:
            return ""
        low, high = (self.kind.show(type(self.default)(bound)) for bound in (self.low, self.high))
        return f"{low} to {high}"

    def json(self, value: Any) -> Any:
        """Return a value as JSON documents have it; `read` reads it."""
        return self.kind.plain(value)

    def text(self, value: Any) -> str:
        """Return a value for people, as they would write it."""
        return self.kind.show(value)

    def toml(self, value: Any) -> str:
        """Return a value as it stands in a config file."""
        return toml_value(self.kind.plain(value))

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a value."""
        schema = {"type": _JSON_TYPES.get(self.kind, "string"), "default": self.json(self.default)}
        schema["description"] = f"{self.kind.form}{f', {self.bounds}' if self.bounds else ''}: {self.help}"
        if self.kind.words:
            schema["enum"] = list(self.kind.words)
        elif self.kind in _JSON_TYPES and self.bounds:
            schema |= {"minimum": self.low, "maximum": self.high}
        return schema

    def _refusal(self) -> InvalidPolicy:
        return InvalidPolicy(f"{self.name} must be {self.kind.form}")


def setting(kind: Kind, default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Declare a setting as a field of a policy."""
    return attrs.field(default=default, metadata={"kind": kind, "help": help, "low": low, "high": high})


@attrs.frozen
class TopicPolicy:
    """The policy of a topic. 0 of a duration: not at all."""

    message_ttl: float = setting(
        DURATION,
        0.0,
        "time after its publish in which a message is delivered; 0: messages do not expire",
        0,
        _MAX_SECONDS,
    )
    dedupe_window: float = setting(
        DURATION,
        0.0,
        "time in which a publish that repeats a publisher's id is answered OK and not stored; 0: ids have no effect",
        0,
        _MAX_SECONDS,
    )


@attrs.frozen
class ChannelPolicy:
    """The policy of a channel. 0 of a number: no bound."""

    max_attempts: int = setting(
        INTEGER,
        0,
        "failed deliveries, after which a message is moved to the dead-letter topic; 0: any number",
        0,
        65535,
    )
    dead_letter_topic: str = setting(
        TEXT, "", "name of the dead-letter topic; empty: the name of the topic with '.dead'"
    )
    expired: str = setting(
        choice(DROP, DEAD_LETTER),
        DROP,
        "finish messages whose time to live has ended, or move them to the dead-letter topic",
    )
    requeue_delay: float = setting(
        DURATION,
        0.0,
        "delay before a message that was requeued without one, or that timed out, is delivered again; doubled with "
        "each attempt, and varied by a fifth; 0: at once",
        0,
        _MAX_SECONDS,
    )
    max_requeue_delay: float = setting(DURATION, 900.0, "the longest requeue_delay, after doubling", 0, _MAX_SECONDS)
    max_depth: int = setting(INTEGER, 0, "most messages that may wait in the channel; 0: no bound", 0, _MAX)
    max_bytes: int = setting(SIZE, 0, "most bytes of messages that may wait in the channel; 0: no bound", 0, _MAX)
    max_age: float = setting(
        DURATION, 0.0, "greatest age of a message that may wait in the channel; 0: no bound", 0, _MAX_SECONDS
    )
    overflow: str = setting(
        choice(REJECT, DROP_OLDEST),
        REJECT,
        "at max_depth, max_bytes or max_age: refuse publishes to the topic, or drop the oldest messages of the channel",
    )
    ordered_by: str = setting(
        TEXT,
        "",
        "header:NAME or json:PATH, the key of a message: of messages with one key, only one is in flight at a time, in "
        "the order of publication; empty: no order",
    )
    order_window: int = setting(
        INTEGER,
        10_000,
        "most messages that are set aside because their key is busy; then no further message is read from the log",
        1,
        1_000_000,
    )
    max_rate: float = setting(NUMBER, 0.0, "most messages that are delivered in a second; 0: any number", 0, _MAX)
    priority: bool = setting(
        BOOLEAN, False, "deliver messages with the header 'priority: high' first, and those with 'low' last"
    )


PolicyClass = type[TopicPolicy] | type[ChannelPolicy]
_OTHERS: Final[dict[Any, str]] = {
    TopicPolicy: "channels, not of topics",
    ChannelPolicy: "topics, not of channels",
}


def settings_of(policy: PolicyClass) -> dict[str, Setting]:
    """Return the settings of a policy by name."""
    return _settings_of(policy)  # type: ignore[arg-type]


@cache
def _settings_of(policy: Any) -> dict[str, Setting]:
    return {field.name: Setting(field.name, default=field.default, **field.metadata) for field in attrs.fields(policy)}


def read_setting(policy: PolicyClass, name: str, raw: object) -> Any:
    """Return the value of one setting. InvalidPolicy, one line."""
    return setting_named(policy, name).read(raw)


def setting_named(policy: PolicyClass, name: str) -> Setting:
    """Return a setting. InvalidPolicy, one line, when there is none of this name."""
    settings = settings_of(policy)
    if name in settings:
        return settings[name]
    if is_setting(name):
        raise InvalidPolicy(f"{name} is a setting of {_OTHERS[policy]}")
    raise InvalidPolicy(f"unknown setting {name[:_MAX_NAME_SHOWN]!a}{did_you_mean(name, settings)}")


def topics_named(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the topics that settings name and that need a right of their own, in values as they were given."""
    name = values.get(_DEAD_LETTER_TOPIC)
    return (name,) if name and isinstance(name, str) else ()


def is_setting(name: str) -> bool:
    """Return whether topics or channels have a setting of this name."""
    return any(name in settings_of(policy) for policy in (TopicPolicy, ChannelPolicy))


def read_policy(policy: PolicyClass, values: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings that a config file or a JSON document has, converted. InvalidPolicy, one line."""
    return {name: read_setting(policy, name, raw) for name, raw in values.items()}


def policy_json(policy: PolicyClass, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as a JSON object has them; `read_policy` reads it."""
    settings = settings_of(policy)
    return {name: settings[name].json(value) for name, value in values.items()}


def changed_settings(policy: TopicPolicy | ChannelPolicy) -> dict[str, Any]:
    """Return the settings that are not at their default, as a JSON object has them."""
    settings = settings_of(type(policy)).values()
    values = {setting.name: getattr(policy, setting.name) for setting in settings}
    return policy_json(type(policy), {s.name: values[s.name] for s in settings if values[s.name] != s.default})
