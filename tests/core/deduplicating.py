"""A broker whose topics have a dedupe_window, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from nsqtw.core.headers import NO_HEADERS, encode_headers
from nsqtw.options.broker import Options
from nsqtw.options.policies import TopicPolicy, resolve
from tests.core.harness import BrokerHarness


@attrs.define(kw_only=True)
class WindowOptions(Options):
    """Options that say of all topics what their window is: so it holds after a crash, too."""

    window: float = 0.0

    def topic_policy_of(self, topic: str, given: Mapping[str, Any] = MappingProxyType({})) -> TopicPolicy:
        return resolve(TopicPolicy, {"dedupe_window": self.window}, given)


class DeduplicatingHarness(BrokerHarness):
    make_options = WindowOptions
    options: WindowOptions

    def change_window(self, window: float) -> None:
        self.options.window = window
        self.broker.follow_options(self.now)

    def publish(
        self, *messages: tuple[str, bytes], topic: str = "t", delay_ms: int = 0, **more: Any
    ) -> list[Exception | None]:
        """Publish (publisher's id, body) of each message; "" for no id."""
        answers: list[Exception | None] = []
        headers = [encode_headers({"id": one}) if one else NO_HEADERS for one, _ in messages]
        self.topic(topic).put([body for _, body in messages], delay_ms, answers.append, headers, **more)
        return answers

    def repeats(self, topic: str = "t") -> int | None:
        return self.topic(topic).deduplicated_count
