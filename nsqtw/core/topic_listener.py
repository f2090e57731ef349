"""Listener for new and deleted topics and channels, which reports them to nsqlookupds."""

# mypyc: compiled

from __future__ import annotations

from typing import Protocol

from nsqtw.core.topic import Topic


class TopicListener(Protocol):
    """Told by a broker in the middle of a turn; what takes time is for later. None of it may raise."""

    def on_new_topic(self, topic: Topic) -> None:
        """
        There is a new topic. A listener that calls `topic.hold()` must call `topic.start()` later, whatever happens.
        """

    def on_created(self, topic: str, channel: str) -> None:
        """A topic has a new channel."""

    def on_deleted(self, topic: str, channel: str = "") -> None:
        """A channel is deleted, or "": a topic, of whose channels this was said before."""


class NullListener:
    """The listener of a broker without nsqlookupd."""

    def on_new_topic(self, topic: Topic) -> None:
        """TopicListener API."""

    def on_created(self, topic: str, channel: str) -> None:
        """TopicListener API."""

    def on_deleted(self, topic: str, channel: str = "") -> None:
        """TopicListener API."""
