"""
Changes of the registrations, for watchers.

Every change says how something is from now on, never by how much it changed: to be told one twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from nsqtw.lookupd.model import Producer


@frozen
class ProducerAdded:
    """An nsqd identified. It has no registrations yet."""

    producer: Producer


@frozen
class ProducerRemoved:
    """An nsqd is gone, and with it every registration of its own. Topics and channels stay."""

    producer: Producer


@frozen
class ProducerSilent:
    """Nothing was heard of an nsqd for longer than the inactive timeout: no lookup shows it."""

    producer: Producer


@frozen
class ProducerBack:
    """A silent one was heard of."""

    producer: Producer


@frozen
class TopicCreated:
    """A topic is known, whether it has producers or not."""

    topic: str


@frozen
class TopicDeleted:
    """A topic is removed, and no producer is registered for it."""

    topic: str


@frozen
class ChannelCreated:
    """A channel is known, whether it has producers or not."""

    topic: str
    channel: str


@frozen
class ChannelDeleted:
    """A channel is removed, and no producer is registered for it."""

    topic: str
    channel: str


@frozen
class Registered:
    """An nsqd has this topic (`channel` is None) or this channel of it, which is known therefore."""

    topic: str
    channel: str | None
    producer: Producer


@frozen
class Unregistered:
    """An nsqd does not have this topic (`channel` is None) or this channel of it any more."""

    topic: str
    channel: str | None
    producer: Producer


@frozen
class Tombstoned:
    """Lookups of this topic hide the producer while the tombstone lasts."""

    topic: str
    producer: Producer


@frozen
class TombstoneEnded:
    """The time of a tombstone is over."""

    topic: str
    producer: Producer


Change: TypeAlias = (
    ProducerAdded
    | ProducerRemoved
    | ProducerSilent
    | ProducerBack
    | TopicCreated
    | TopicDeleted
    | ChannelCreated
    | ChannelDeleted
    | Registered
    | Unregistered
    | Tombstoned
    | TombstoneEnded
)
Watcher: TypeAlias = Callable[[Change], None]


@frozen
class StateFollows:
    """To a watcher only: forget what you were told; what follows is all there is."""


@frozen
class StateComplete:
    """To a watcher only: you know all there is. From here on there are changes."""


StreamItem: TypeAlias = Change | StateFollows | StateComplete
