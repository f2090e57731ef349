"""
The combinations of settings that are refused: one table, which the model of the tests and the documentation follow.

Some are refused in every channel, others in some, where the rest of the channels can have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from nsqtw.errors import InvalidPolicy
from nsqtw.names import dead_letter_name, is_ephemeral, is_valid_name
from nsqtw.options.message_keys import read_key_place
from nsqtw.options.settings import DEAD_LETTER, ChannelPolicy, PolicyClass, TopicPolicy
from nsqtw.options.types import (
    DURATION,
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


def check_together(policy: PolicyClass, values: Mapping[str, Any]) -> None:
    """Raise InvalidPolicy, one line, when settings contradict each other."""
    why = contradiction(policy(**values))
    if why is not None:
        raise InvalidPolicy(why)
