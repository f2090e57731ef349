"""
Policies of topics and channels: their settings.

Theory of operation. A setting of a policy is a field of `TopicPolicy` or `ChannelPolicy`, and is declared nowhere else:
the keys of the config file, the API and its description, the command line and the table of the documentation follow
from the field. The default of every setting is NSQ's behaviour.

The policy in force has three sources; of several the last one that has a setting wins:

    the defaults  ─▶  tables of the config file whose pattern matches, in their order  ─▶  what was set and saved

What was set is refused when it contradicts the rest. A table that contradicts the tables before it is left out as a
whole, and reported: which tables meet in a topic or channel is known only when it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs

from nsqtw.errors import InvalidPolicy
from nsqtw.names import dead_letter_name, is_ephemeral, is_valid_name
from nsqtw.options.message_keys import read_key_place
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


class Refused(NamedTuple):
    """A combination of settings that a channel cannot have."""

    settings: tuple[str, ...]
    channels: str
    """
    The channels that cannot have it, where the rest of the channels can: there, a table of the config file that matches
    has no effect. Empty: no channel can.
    """
    why: Callable[[ChannelPolicy, str, str], str | None]
    """Return the reason, in one line, for a policy, a topic and a channel; None: it is not refused."""


def dead_letter_topic(policy: ChannelPolicy, topic: str) -> str:
    """Return the name of the dead-letter topic for the channels of a topic."""
    return policy.dead_letter_topic or dead_letter_name(topic)


def uses_dead_letters(policy: ChannelPolicy) -> bool:
    """Return whether messages may become dead letters."""
    return bool(policy.max_attempts) or policy.expired == DEAD_LETTER


def misfit(policy: ChannelPolicy, topic: str) -> str | None:
    """Return why messages of a topic cannot become dead letters, though the policy says so; None if they can."""
    name = dead_letter_topic(policy, topic)
    if not uses_dead_letters(policy):
        return None
    if not is_valid_name(name):
        return f"topic {name!r} for dead letters has an invalid name: set dead_letter_topic to another one"
    if name == topic:
        return f"dead_letter_topic {name!r} is the topic itself: set it to another one"
    if is_ephemeral(name) and not is_ephemeral(topic):
        return f"dead_letter_topic {name!r} is ephemeral, and topic {topic!r} is not: set it to a durable one"
    return None


def _wrong_letter_topic(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
    if not policy.dead_letter_topic or is_valid_name(policy.dead_letter_topic):
        return None
    return f"dead_letter_topic {policy.dead_letter_topic!r} is not a valid name of a topic"


def _wrong_key_place(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
    try:
        if policy.ordered_by:
            read_key_place(policy.ordered_by)
    except InvalidPolicy as error:
        return str(error)
    return None


def _two_orders(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
    both = policy.priority and policy.ordered_by
    return "priority and ordered_by cannot be used together: a priority changes the order" if both else None


def _too_short(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
    if policy.requeue_delay <= policy.max_requeue_delay:
        return None
    first, longest = map(DURATION.show, (policy.requeue_delay, policy.max_requeue_delay))
    return f"requeue_delay {first} is longer than max_requeue_delay {longest}"


def _misfit_of(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
    return misfit(policy, topic)


def _in_ephemeral(name: str, text: str) -> Refused:
    """Return that an ephemeral channel has no setting `name`. `text` is the reason, with {name} and {channel}."""

    def why(policy: ChannelPolicy, topic: str, channel: str) -> str | None:
        is_refused = getattr(policy, name) and is_ephemeral(channel)
        return text.format(name=name, channel=channel) if is_refused else None

    return Refused((name,), "ephemeral", why)


LETTER_SETTINGS: Final = ("max_attempts", "expired", "dead_letter_topic")
"""The settings that say what becomes a dead letter, and where it goes."""
_NEEDS_LOG: Final = "{name} is for durable channels, and {channel} is ephemeral"
_IS_BOUNDED: Final = "an ephemeral channel has no max_depth, max_bytes or max_age: --mem-queue-size bounds it"
REFUSED: Final = (
    Refused(("dead_letter_topic",), "", _wrong_letter_topic),
    Refused(("ordered_by",), "", _wrong_key_place),
    Refused(("priority", "ordered_by"), "", _two_orders),
    Refused(("requeue_delay", "max_requeue_delay"), "", _too_short),
    *(_in_ephemeral(name, _NEEDS_LOG) for name in ("ordered_by", "priority")),
    *(_in_ephemeral(name, _IS_BOUNDED) for name in ("max_depth", "max_bytes", "max_age")),
    Refused(LETTER_SETTINGS, "of a topic that cannot have the dead-letter topic", _misfit_of),
)
"""All combinations that are refused."""


def contradiction(policy: TopicPolicy | ChannelPolicy) -> str | None:
    """Return which settings contradict each other in any channel, in one line."""
    if isinstance(policy, TopicPolicy):
        return None
    rows = (row for row in REFUSED if not row.channels)
    return next((why for row in rows if (why := row.why(policy, "", ""))), None)


def contradiction_of(topic: str, channel: str, policy: ChannelPolicy, given: Collection[str]) -> str | None:
    """Return why the channel cannot have one of the settings that are `given`, in one line."""
    rows = (row for row in REFUSED if row.channels and not {*row.settings}.isdisjoint(given))
    return next((why for row in rows if (why := row.why(policy, topic, channel))), None)


PolicyClass = type[TopicPolicy] | type[ChannelPolicy]
Policy = TypeVar("Policy", TopicPolicy, ChannelPolicy)


NOTHING_GIVEN: Final[Mapping[str, Any]] = MappingProxyType({})
DEFAULT, SET = "default", "set"
"""Names of sources beside the tables of the config file."""


@attrs.frozen
class Source:
    """Settings that stand together: a table of the config file, by its head, with its values."""

    name: str
    values: Mapping[str, Any]


@attrs.frozen
class Resolution(Generic[Policy]):
    """
    A policy with the source of each setting that is no default. `unused`: a line about each table that was left out.
    """

    policy: Policy
    sources: Mapping[str, str]
    unused: tuple[str, ...] = ()


NO_TOPIC_POLICY: Final = TopicPolicy()
NO_CHANNEL_POLICY: Final = ChannelPolicy()
"""The policies of topics and channels of which nothing is said: always these objects."""
NO_TOPIC_RESOLUTION: Final = Resolution(NO_TOPIC_POLICY, {})
NO_CHANNEL_RESOLUTION: Final = Resolution(NO_CHANNEL_POLICY, {})
_DEFAULTS: Final[dict[Any, Any]] = {TopicPolicy: NO_TOPIC_RESOLUTION, ChannelPolicy: NO_CHANNEL_RESOLUTION}

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


def check_together(policy: PolicyClass, values: Mapping[str, Any]) -> None:
    """Raise InvalidPolicy, one line, when settings contradict each other."""
    why = contradiction(policy(**values))
    if why is not None:
        raise InvalidPolicy(why)


def resolve(policy: type[Policy], tables: Sequence[Source], given: Mapping[str, Any]) -> Resolution[Policy]:
    """Return the policy that the tables and the settings `given` at run time give. InvalidPolicy for the latter."""
    if not tables and not given:
        default: Resolution[Policy] = _DEFAULTS[policy]
        return default
    values, sources = dict[str, Any](), dict[str, str]()
    unused: list[str] = []
    for table in tables:
        try:
            check_together(policy, {**values, **table.values})
        except InvalidPolicy as error:
            guilty = _contradicting(policy, values, sources, table.values)
            unused.append(f"{table.name} is not used, because it contradicts {guilty}: {error}")
        else:
            values.update(table.values)
            sources |= dict.fromkeys(table.values, table.name)
    values.update(given)
    try:
        check_together(policy, values)
    except InvalidPolicy as error:
        check_together(policy, given)
        raise InvalidPolicy(
            f"{error} (with the settings of {_contradicting(policy, values, sources, given)})"
        ) from None
    return Resolution(policy(**values), {**sources, **dict.fromkeys(given, SET)}, tuple(unused))


def _contradicting(
    policy: PolicyClass, values: Mapping[str, Any], sources: Mapping[str, str], others: Mapping[str, Any]
) -> str:
    """
    Return the first table whose settings contradict `others` by themselves; all tables when only several together do.
    `values` have the settings of the tables, `sources` the table of each.
    """
    names = dict.fromkeys(sources.values())
    for name in names:
        of_table = {key: values[key] for key, source in sources.items() if source == name}
        try:
            check_together(policy, {**of_table, **others})
        except InvalidPolicy:
            return name
    return ", ".join(names)


def resolve_what_fits(
    resolved: Callable[[Mapping[str, Any]], Resolution[Policy]], given: Mapping[str, Any]
) -> Resolution[Policy]:
    """
    Return what `resolved` returns for `given`; without settings, and with a line in `unused`, if the config file
    contradicts them since they were made.
    """
    try:
        return resolved(given)
    except InvalidPolicy as error:
        line = "the settings that were made at run time are not used, because the config file contradicts them: "
        without: Resolution[Policy] = resolved(NOTHING_GIVEN)
        return attrs.evolve(without, unused=(*without.unused, f"{line}{error}"))
