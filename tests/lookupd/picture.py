"""What somebody who watches knows: the meaning of every change, spelled out."""

from __future__ import annotations

from attrs import define, field

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
from nsqtw.lookupd.model import Producer


@define
class Picture:
    """Made of what a watcher is told. Members are numbers of connections."""

    producers: dict[int, Producer] = field(factory=dict)
    silent: set[int] = field(factory=set)
    topics: dict[str, set[int]] = field(factory=dict)
    channels: dict[tuple[str, str], set[int]] = field(factory=dict)
    tombstones: set[tuple[str, int]] = field(factory=set)
    is_complete: bool = False

    def clear(self) -> None:
        """Forget everything."""
        for known in (self.producers, self.silent, self.topics, self.channels, self.tombstones):
            known.clear()
        self.is_complete = False

    def apply(self, told: StreamItem) -> None:
        """The meaning of each change."""
        match told:
            case StateFollows():
                self.clear()
            case StateComplete():
                self.is_complete = True
            case ProducerAdded(who):
                self.producers[who.peer_id] = who
            case ProducerRemoved(who):
                self.producers.pop(who.peer_id, None)
                for members in [*self.topics.values(), *self.channels.values()]:
                    members.discard(who.peer_id)
                self.silent.discard(who.peer_id)
                self.tombstones = {one for one in self.tombstones if one[1] != who.peer_id}
            case ProducerSilent(who):
                self.silent.add(who.peer_id)
            case ProducerBack(who):
                self.silent.discard(who.peer_id)
            case _:
                self._apply_to_topic(told)

    def _apply_to_topic(self, told: StreamItem) -> None:
        match told:
            case TopicCreated(topic):
                self.topics.setdefault(topic, set())
            case TopicDeleted(topic):
                self.topics.pop(topic, None)
                self.tombstones = {one for one in self.tombstones if one[0] != topic}
            case ChannelCreated(topic, channel):
                self.channels.setdefault((topic, channel), set())
            case ChannelDeleted(topic, channel):
                self.channels.pop((topic, channel), None)
            case Registered(topic, None, who):
                self.topics.setdefault(topic, set()).add(who.peer_id)
            case Registered(topic, str(channel), who):
                self.channels.setdefault((topic, channel), set()).add(who.peer_id)
            case Unregistered(topic, None, who):
                self.topics.get(topic, set()).discard(who.peer_id)
                self.tombstones.discard((topic, who.peer_id))
            case Unregistered(topic, str(channel), who):
                self.channels.get((topic, channel), set()).discard(who.peer_id)
            case Tombstoned(topic, who):
                self.tombstones.add((topic, who.peer_id))
            case TombstoneEnded(topic, who):
                self.tombstones.discard((topic, who.peer_id))
