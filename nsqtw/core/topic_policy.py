"""
The policy of a topic: its settings, and the parts that are made or removed when they change.

The bounds of a topic are those of its channels (`core.channel_policy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsqtw.core.channel_base import ChannelBase, ChannelOwner
from nsqtw.core.context import Context
from nsqtw.core.log import Log
from nsqtw.core.policy.deduplication import Deduplication
from nsqtw.errors import InvalidPolicy
from nsqtw.options.policies import NO_TOPIC_POLICY, not_used
from nsqtw.options.types import whole_nanoseconds


class PolicyTopic(ChannelOwner):
    """A topic that follows its policy."""

    def __init__(self, context: Context, name: str, log: Log, to_serve: dict[ChannelBase, None]) -> None:
        super().__init__(context, name, log, to_serve)
        self.policy = NO_TOPIC_POLICY
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
        self._set_policy(given)
        self.touch()

    def _set_policy(self, given: Mapping[str, Any]) -> Sequence[str]:
        """
        Find the policy in force. Returns a line about each table of the config file that is not used. InvalidPolicy,
        and nothing is changed.
        """
        resolution = self.context.options.resolve_topic(self.name, given)
        self.policy = resolution.policy
        self.message_ttl_ns = whole_nanoseconds(self.policy.message_ttl)
        self.given_policy = dict(given)
        self._carry_out_policy()
        return resolution.unused

    def _follow_policy(self) -> None:
        """Find the policy in force, which the options may have changed."""
        given = self.given_policy
        try:
            unused = self._set_policy(given)
        except InvalidPolicy as error:
            self.context.log("error", "TOPIC({topic}): {error}", topic=self.name, error=not_used(error))
            unused = self._set_policy({})
            self.given_policy = given
        for complaint in unused:
            self.context.log("error", "TOPIC({topic}): {complaint}", topic=self.name, complaint=complaint)

    def _carry_out_policy(self) -> None:
        """Let the parts of the topic that carry its policy out know it. An ephemeral topic keeps no ids."""
        window = 0.0 if self.ephemeral else self.policy.dedupe_window
        if not window:
            self.deduplication = None
        elif self.deduplication is None:
            self.deduplication = Deduplication(self.context, self.name, window)
        else:
            self.deduplication.set_window(window)
