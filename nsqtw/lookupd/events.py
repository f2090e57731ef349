"""
Events for a watcher, as server-sent events.

    event: registered                        what happened
    id: 7                                    the seventh event of this connection
    data: {"id":12,"topic":"t","channel":"c","producer":{"remote_address":...}}
                                             an empty line
    reset                                    forget what you were told: what follows is all there is
    complete                                 you know all there is; from here on there are changes
    producer        id producer              an nsqd has come, and has no registrations yet
    producer_gone   id                       ... is gone, with all its registrations
    silent  back    id                       ... is not shown by lookups, because nothing is heard of it; is again
    topic  topic_deleted          topic
    channel  channel_deleted      topic channel
    registered      id topic channel producer    the nsqd has the topic (channel is null), or the channel of it
    unregistered    id topic channel             ... has not any more
    tombstoned  tombstone_ended   id topic       ... is not shown by lookups of this topic; is again

`id` is a number that no other connection of an nsqd to this nsqlookupd has, below 0 for one that a snapshot brought.
Each event says how something is from now on: an event that says what is known already means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from nsqtw.lookupd.changes import (
    ChannelCreated,
    ChannelDeleted,
    ProducerAdded,
    ProducerBack,
    ProducerRemoved,
    ProducerSilent,
    Registered,
    StateComplete,
    StateFollows,
    StreamItem,
    Tombstoned,
    TombstoneEnded,
    TopicCreated,
    TopicDeleted,
    Unregistered,
)

CONTENT_TYPE = b"text/event-stream"
KEEP_ALIVE = b":\n\n"
"""A comment, which says that the connection is good."""

NAMES: dict[type[StreamItem], str] = {
    StateFollows: "reset",
    StateComplete: "complete",
    ProducerAdded: "producer",
    ProducerRemoved: "producer_gone",
    ProducerSilent: "silent",
    ProducerBack: "back",
    TopicCreated: "topic",
    TopicDeleted: "topic_deleted",
    ChannelCreated: "channel",
    ChannelDeleted: "channel_deleted",
    Registered: "registered",
    Unregistered: "unregistered",
    Tombstoned: "tombstoned",
    TombstoneEnded: "tombstone_ended",
}


def events(changes: Iterable[StreamItem], first: int) -> bytes:
    """Return all events, numbered from `first` on."""
    return "".join(
        [
            f"event: {NAMES[type(change)]}\nid: {number}\ndata: {_data(change)}\n\n"
            for number, change in enumerate(changes, first)
        ]
    ).encode()


def _data(change: StreamItem) -> str:
    """A JSON object. A valid name has nothing to escape, and the document of a producer has no line ends."""
    match change:
        case ProducerAdded(producer):
            return f'{{"id":{producer.peer_id},"producer":{producer.document.decode()}}}'
        case ProducerRemoved(producer) | ProducerSilent(producer) | ProducerBack(producer):
            return f'{{"id":{producer.peer_id}}}'
        case TopicCreated(topic) | TopicDeleted(topic):
            return f'{{"topic":"{topic}"}}'
        case ChannelCreated(topic, channel) | ChannelDeleted(topic, channel):
            return f'{{"topic":"{topic}","channel":"{channel}"}}'
        case Registered(topic, which, producer):
            shown = producer.document.decode()
            return f'{{"id":{producer.peer_id},"topic":"{topic}","channel":{_or_null(which)},"producer":{shown}}}'
        case Unregistered(topic, which, producer):
            return f'{{"id":{producer.peer_id},"topic":"{topic}","channel":{_or_null(which)}}}'
        case Tombstoned(topic, producer) | TombstoneEnded(topic, producer):
            return f'{{"id":{producer.peer_id},"topic":"{topic}"}}'
        case _:
            return "{}"


def _or_null(channel: str | None) -> str:
    return "null" if channel is None else f'"{channel}"'
