"""A broker whose topics have a dedupe_window, for tests."""

from __future__ import annotations

from typing import Any

from nsqtw.message_headers import NO_HEADERS, encode_headers
from nsqtw.options.topics import TopicRule
from tests.core.harness import BrokerHarness


def _rules(window: float) -> tuple[TopicRule, ...]:
    return (TopicRule("*", policy={"dedupe_window": window}),) if window else ()


class DeduplicatingHarness(BrokerHarness):
    """All topics have the `window`, also after a crash, as a config file would say it."""

    def __init__(self, *arguments: Any, window: float = 0.0, **options: Any) -> None:
        super().__init__(*arguments, topic_rules=_rules(window), **options)

    def change_window(self, window: float) -> None:
        self.options.topic_rules = _rules(window)
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
