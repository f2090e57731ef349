"""Listener for new and deleted topics and channels, which reports them to nsqlookupds."""

from __future__ import annotations

from typing import Protocol

from nsqtw.core.topic import Topic


class TopicListener(Protocol):
    """Told by a broker in the middle of a turn; what takes time is for later. None of it may raise."""

    def on_new_topic(self, topic: Topic) -> None:
        """A new topic. Who calls `topic.hold()` here calls `topic.start()` later, whatever happens."""

    def on_created(self, topic: str, channel: str) -> None:
        """A topic has a new channel."""

    def on_deleted(self, topic: str, channel: str = "") -> None:
        """A channel is deleted, or "": a topic, of whose channels this was said before."""


class NullListener:
    """The directory of a broker that nobody looks for."""

    def on_new_topic(self, topic: Topic) -> None:
        """TopicListener API."""

    def on_created(self, topic: str, channel: str) -> None:
        """TopicListener API."""

    def on_deleted(self, topic: str, channel: str = "") -> None:
        """TopicListener API."""
