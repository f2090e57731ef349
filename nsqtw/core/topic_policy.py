"""
The policy of a topic: its settings, and the parts that are made or removed when they change.

The bounds of a topic are those of its channels (`core.channel_policy`).
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqtw.core.channel_base import ChannelBase, ChannelOwner
from nsqtw.core.context import Context
from nsqtw.core.log import Log
from nsqtw.core.policy.deduplication import Deduplication
from nsqtw.options.policies import NO_TOPIC_POLICY, NO_TOPIC_RESOLUTION, Resolution, TopicPolicy, resolve_what_fits
from nsqtw.options.texts import whole_nanoseconds


class PolicyTopic(ChannelOwner):
    def __init__(self, context: Context, name: str, log: Log, to_serve: dict[ChannelBase, None]) -> None:
        super().__init__(context, name, log, to_serve)
        self.policy = NO_TOPIC_POLICY
        self._resolution = NO_TOPIC_RESOLUTION
        self.message_ttl_ns = 0
        self.given_policy: dict[str, Any] = {}
        """The settings that were made while a broker ran."""
        self.deduplication: Deduplication | None = None
        self._follow_policy()

    @property
    def deduplicated_count(self) -> int | None:
        """Messages that repeated others and were not stored; None without a `dedupe_window`."""
        return None if self.deduplication is None else self.deduplication.repeat_count

    def set_policy(self, given: Mapping[str, Any]) -> None:
        """Replace the settings that were made while a broker ran. InvalidPolicy, and nothing is changed."""
        resolution = self._resolve(given)
        self.given_policy = dict(given)
        self._carry_out(resolution)
        self.touch()

    def _follow_policy(self) -> bool:
        """Find the policy in force, which the options may have changed. Returns whether it has changed."""
        resolution = resolve_what_fits(self._resolve, self.given_policy)
        if resolution == self._resolution:
            return False
        self._carry_out(resolution)
        for text in resolution.unused:
            self.context.log("error", "TOPIC({topic}): {text}", topic=self.name, text=text)
        return True

    def _resolve(self, given: Mapping[str, Any]) -> Resolution[TopicPolicy]:
        return self.context.options.resolve_topic(self.name, given)

    def _carry_out(self, resolution: Resolution[TopicPolicy]) -> None:
        """Let the parts of the topic that carry out its policy know it. An ephemeral topic keeps no ids."""
        self._resolution, self.policy = resolution, resolution.policy
        self.message_ttl_ns = whole_nanoseconds(self.policy.message_ttl)
        window = 0.0 if self.ephemeral else self.policy.dedupe_window
        if not window:
            self.deduplication = None
        elif self.deduplication is None:
            self.deduplication = Deduplication(self.context, self.name, window)
        else:
            self.deduplication.set_window(window)
