"""
Policies of topics and channels: what each promises beyond NSQ.

A setting of a policy is a field of `TopicPolicy` or `ChannelPolicy`, and is declared nowhere else: the keys of the
config file, the API, its documentation and the command line follow from the field. The default of every setting is
NSQ's behaviour.

The policy in force has three sources; of several the last one that has a setting wins: the defaults, the tables of the
config file whose pattern matches, and the settings that were made while a broker ran, which are saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import attrs

from nsqtw.errors import InvalidPolicy
from nsqtw.names import is_valid_name
from nsqtw.options.message_keys import read_key_place
from nsqtw.options.types import BOOLEAN, DURATION, INTEGER, SIZE, TEXT, Kind, choice, did_you_mean

DROP, DEAD_LETTER = "drop", "dead_letter"
REJECT, DROP_OLDEST = "reject", "drop_oldest"

_MAX = 2**53
_MAX_SECONDS = 10.0 * 365 * 86_400


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
        """Return the value that a config file or a JSON document has. InvalidPolicy."""
        if type(raw) is bool and self.kind is not BOOLEAN:
            raise InvalidPolicy(f"{self.name} must be {self.kind.form}")
        try:
            value = self.kind.coerce(raw)
        except ValueError:
            raise InvalidPolicy(f"{self.name} must be {self.kind.form}") from None
        if self.low is not None and self.high is not None and not self.low <= value <= self.high:
            low, high = self.kind.show(type(value)(self.low)), self.kind.show(type(value)(self.high))
            raise InvalidPolicy(f"{self.name} must be {low} to {high}")
        return value


def setting(kind: Kind, default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Declare a setting as a field of a policy."""
    return attrs.field(default=default, metadata={"kind": kind, "help": help, "low": low, "high": high})


@attrs.frozen
class TopicPolicy:
    """The policy of a topic. 0 of a duration: not at all."""

    message_ttl: float = setting(
        DURATION,
        0.0,
        "messages that were published longer ago are not delivered; 0: they do not expire",
        0,
        _MAX_SECONDS,
    )
    dedupe_window: float = setting(
        DURATION,
        0.0,
        "a publish that repeats the id of one that is not older is answered OK and not stored; 0: ids mean nothing",
        0,
        _MAX_SECONDS,
    )

    def contradiction(self) -> str | None:
        """Return which settings contradict each other, in one line."""
        return None


@attrs.frozen
class ChannelPolicy:
    """The policy of a channel. 0 of a number: no bound."""

    max_attempts: int = setting(
        INTEGER, 0, "deliveries of a message, after which it goes to the dead-letter topic; 0: any number", 0, 65535
    )
    dead_letter_topic: str = setting(TEXT, "", "topic of dead letters; empty: the name of the topic and '.dead'")
    expired: str = setting(choice(DROP, DEAD_LETTER), DROP, "what becomes of messages whose time to live has ended")
    requeue_delay: float = setting(
        DURATION,
        0.0,
        "delay before a message that was requeued without one, or that timed out, is delivered again; doubled with "
        "each attempt, and varied by a fifth; 0: at once",
        0,
        _MAX_SECONDS,
    )
    max_requeue_delay: float = setting(DURATION, 900.0, "the longest requeue_delay, after doubling", 0, _MAX_SECONDS)
    max_depth: int = setting(INTEGER, 0, "messages that wait in the channel", 0, _MAX)
    max_bytes: int = setting(SIZE, 0, "bytes of messages that wait in the channel", 0, _MAX)
    max_age: float = setting(DURATION, 0.0, "age of the oldest message that waits in the channel", 0, _MAX_SECONDS)
    overflow: str = setting(
        choice(REJECT, DROP_OLDEST),
        REJECT,
        "at max_depth, max_bytes or max_age: refuse publishes to the topic, or drop the oldest messages of the channel",
    )
    ordered_by: str = setting(
        TEXT,
        "",
        "header:NAME or json:PATH: of messages with the same value one is in flight at a time, in the order of their "
        "publication",
    )
    order_window: int = setting(
        INTEGER,
        10_000,
        "messages that wait for an earlier one of their key; when there are so many, no message is read from the log",
        1,
        1_000_000,
    )
    max_rate: float = setting(INTEGER, 0, "messages a second that are delivered", 0, _MAX)
    priority: bool = setting(
        BOOLEAN, False, "deliver messages with the header 'priority: high' first, and those with 'low' last"
    )

    def contradiction(self) -> str | None:
        """Return which settings contradict each other, in one line. InvalidPolicy for one that is wrong by itself."""
        if self.dead_letter_topic and not is_valid_name(self.dead_letter_topic):
            return f"dead_letter_topic {self.dead_letter_topic!r} is not a valid name of a topic"
        if self.ordered_by:
            read_key_place(self.ordered_by)
        if self.priority and self.ordered_by:
            return "priority and ordered_by cannot be used together: a priority changes the order"
        return None


Policy = TypeVar("Policy", TopicPolicy, ChannelPolicy)

NO_CHANNEL_POLICY: Final = ChannelPolicy()


def settings_of(policy: type[TopicPolicy] | type[ChannelPolicy]) -> dict[str, Setting]:
    """Return the settings of a policy by name."""
    return {field.name: Setting(field.name, default=field.default, **field.metadata) for field in attrs.fields(policy)}


_SETTINGS: Final = {policy: settings_of(policy) for policy in (TopicPolicy, ChannelPolicy)}


def read_policy(policy: type[Policy], values: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings that a config file or a JSON document has, converted. InvalidPolicy, one line."""
    settings = _SETTINGS[policy]
    read = {}
    for name, raw in values.items():
        if name not in settings:
            raise InvalidPolicy(f"unknown setting {name!r}{did_you_mean(name, settings)}")
        read[name] = settings[name].read(raw)
    return read


def resolve(policy: type[Policy], *sources: Mapping[str, Any]) -> Policy:
    """Return the policy that these settings give, the last ones first. InvalidPolicy if they contradict each other."""
    values: dict[str, Any] = {}
    for source in sources:
        values.update(source)
    resolved = policy(**values)
    contradiction = resolved.contradiction()
    if contradiction is not None:
        raise InvalidPolicy(contradiction)
    return resolved
