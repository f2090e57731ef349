"""
The unfinished messages of a broker that takes no new ones, and which of them it can still deliver.

A drain waits for

    depth        messages that are ready in a channel which is not paused
    in flight    all of them: they are finished, requeued, or time out
    deferred     those of a channel whose next deferred message is due before the deadline

and leaves, in the data path,

    staying      deferred messages of a channel whose next one is due later, and messages that no consumer could get: in
                 a paused topic or channel, in a topic that has no channel or waits for those an nsqlookupd knows;
                 and those on their way to a dead-letter topic

A channel without a consumer is waited for: one may connect. Messages of ephemeral topics and channels count in the same
way, and are lost with the process as at any stop.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from nsqtw.core.channel import Channel
from nsqtw.core.topic import Topic


@define
class Unfinished:
    """Numbers of unfinished messages. `staying` are those that a drain leaves."""

    depth: int = 0
    in_flight: int = 0
    deferred: int = 0
    staying: int = 0

    def __str__(self) -> str:
        return f"depth {self.depth}, in flight {self.in_flight}, deferred {self.deferred}"

    @property
    def is_drained(self) -> bool:
        """Whether there is nothing to wait for."""
        return not (self.depth or self.in_flight or self.deferred)


def unfinished(topics: Iterable[Topic], deadline: float, now: float) -> Unfinished:
    """Return what all topics have. `deadline` is in the clock of `now`; infinity for none."""
    found = Unfinished()
    for topic in topics:
        found.staying += topic.depth
        for channel in topic.channels.values():
            _add(found, channel, deadline, now)
    return found


def is_drained(topics: Iterable[Topic], deadline: float, now: float) -> bool:
    """Return whether there is nothing to wait for. Looks no further than to the first topic that has something."""
    return all(unfinished((topic,), deadline, now).is_drained for topic in topics)


def _add(found: Unfinished, channel: Channel, deadline: float, now: float) -> None:
    found.in_flight += channel.in_flight_count
    deferred = channel.deferred_count
    if channel.paused:
        found.staying += channel.depth + deferred
        return
    found.depth += channel.depth - channel.held_count
    found.staying += channel.held_count
    if deferred:
        due = channel.position.next_due(now)
        if due is None or due > deadline:
            found.staying += deferred
        else:
            found.deferred += deferred
