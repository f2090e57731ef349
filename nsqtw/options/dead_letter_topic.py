"""The dead-letter topic that the policy of a channel names, and the topics that cannot be one."""

from __future__ import annotations

from typing import Final

from nsqtw.names import dead_letter_name, is_ephemeral, is_valid_name
from nsqtw.options.policies import DEAD_LETTER, ChannelPolicy

LETTER_SETTINGS: Final = frozenset({"max_attempts", "dead_letter_topic", "expired"})
"""The settings that say what becomes a dead letter, and where it goes."""


def dead_letter_topic(policy: ChannelPolicy, topic: str) -> str:
    """Return the name of the dead-letter topic for the channels of a topic."""
    return policy.dead_letter_topic or dead_letter_name(topic)


def uses_dead_letters(policy: ChannelPolicy) -> bool:
    """Return whether messages may become dead letters."""
    return bool(policy.max_attempts) or policy.expired == DEAD_LETTER


def misfit(policy: ChannelPolicy, topic: str) -> str | None:
    """Return why the dead-letter topic of a policy cannot be that of a topic, in one line; None if it can."""
    name = dead_letter_topic(policy, topic)
    if not is_valid_name(name):
        return f"topic {name!r} for dead letters has an invalid name: set dead_letter_topic to another one"
    if name == topic:
        return f"dead_letter_topic {name!r} is the topic itself: set it to another one"
    if is_ephemeral(name) and not is_ephemeral(topic):
        return f"dead_letter_topic {name!r} is ephemeral, and topic {topic!r} is not: set it to a durable one"
    return None
