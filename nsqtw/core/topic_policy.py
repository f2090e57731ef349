"""
The policy of a topic: its settings, and the parts that are made or removed when they change.

The bounds of a topic are those of its channels (`core.channel_policy`).
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqtw.core.channel_base import ChannelOwner
from nsqtw.core.policy.deduplication import Deduplication
from nsqtw.options.resolution import Resolution, resolve_what_fits
from nsqtw.options.settings import TopicPolicy
from nsqtw.options.texts import whole_nanoseconds


class TopicPolicies:
    """The policy of `topic`, which does not refer to this object: it goes when it is not used."""

    def __init__(self, topic: ChannelOwner) -> None:
        self._topic = topic

    def set(self, given: Mapping[str, Any]) -> None:
        """Replace the settings that were made while a broker ran. InvalidPolicy, and nothing is changed."""
        topic = self._topic
        resolution = self._resolve(given)
        topic.given_policy = dict(given)
        self._carry_out(resolution)
        topic.touch()

    def follow(self) -> bool:
        """Find the policy in force, which the options may have changed. Returns whether it has changed."""
        topic = self._topic
        resolution = resolve_what_fits(self._resolve, topic.given_policy)
        if resolution == topic.resolution:
            return False
        self._carry_out(resolution)
        for text in resolution.unused:
            topic.context.log("error", "TOPIC({topic}): {text}", topic=topic.name, text=text)
        return True

    def _resolve(self, given: Mapping[str, Any]) -> Resolution[TopicPolicy]:
        topic = self._topic
        return topic.context.options.resolve_topic(topic.name, given)

    def _carry_out(self, resolution: Resolution[TopicPolicy]) -> None:
        """Let the parts of the topic that carry out its policy know it. An ephemeral topic keeps no ids."""
        topic = self._topic
        topic.resolution, topic.policy = resolution, resolution.policy
        topic.message_ttl_ns = whole_nanoseconds(topic.policy.message_ttl)
        window = 0.0 if topic.ephemeral else topic.policy.dedupe_window
        if not window:
            topic.deduplication = None
        elif topic.deduplication is None:
            topic.deduplication = Deduplication(topic.context, topic.name, window)
        else:
            topic.deduplication.set_window(window)
