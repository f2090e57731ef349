"""
Subscription of one watcher: the whole state first, then every change.

Theory of operation. A subscription records changes from its start on, and walks over the state beside that, a step
whenever it has nothing else to send. Steps and changes are sent in the order in which they happened; a change describes
the new state, so changes of what the walk has not reached yet are harmless. At the end of the walk a watcher that has
applied everything knows the state.

A slow watcher does not get less, and its queue does not grow: beyond `limit` changes the queue is dropped and
everything is sent again, `StateFollows` first. So a subscription holds at most that many changes and one step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from nsqtw.lookupd.changes import (
    Change,
    ProducerAdded,
    ProducerBack,
    ProducerRemoved,
    ProducerSilent,
    Registered,
    StateComplete,
    StateFollows,
    StreamItem,
    TopicDeleted,
    Unregistered,
)
from nsqtw.lookupd.registrations import Registrations

LIMIT = 10_000


class Subscription:
    """
    One watcher of all topics, or of one. `wake` is called, in the middle of a change, when there is something to take
    after `take` had nothing.
    """

    def __init__(
        self, registrations: Registrations, wake: Callable[[], None], topic: str | None = None, *, limit: int = LIMIT
    ) -> None:
        self._registrations = registrations
        self._wake = wake
        self._topic = topic
        self._limit = limit
        self._line: deque[list[StreamItem]] = deque()
        self._walk: Iterator[list[Change]] | None = None
        self._starts_over = True
        self._is_waiting = False
        self._now = 0
        self._sent_peers: set[int] = set()  # the known members of one topic
        self._end = registrations.subscribe(self._record, topic)

    def take(self, count: int, now: int) -> list[StreamItem]:
        """Return what is to be sent next: up to `count` changes and the rest of a step. [] until `wake` is called."""
        self._now = now
        if self._starts_over:
            self._starts_over = False
            self._sent_peers.clear()
            self._line.append([StateFollows()])
            self._walk = self._registrations.state(lambda: self._now, self._topic)
        changes: list[StreamItem] = []
        while len(changes) < count:
            if self._line:
                changes += self._line.popleft()
            elif self._walk is not None:
                changes += self._step(self._walk)
            else:
                break
        self._is_waiting = not changes
        return changes

    def close(self) -> None:
        """Nobody is watching any more."""
        self._end()
        self._line.clear()
        self._walk = None

    def _step(self, walk: Iterator[list[Change]]) -> list[StreamItem]:
        step = next(walk, None)
        if step is None:
            self._walk = None
            return [StateComplete()]
        return [change for change in step if self._concerns(change)]

    def _record(self, change: Change) -> None:
        if self._starts_over or not self._concerns(change):
            return
        if len(self._line) >= self._limit:
            self._line.clear()
            self._starts_over = True
        else:
            self._line.append([change])
        if self._is_waiting:
            self._is_waiting = False
            self._wake()

    def _concerns(self, change: Change) -> bool:
        """Return whether a watcher of the topic gets this event. Remember the producers it was told of."""
        if self._topic is None:
            return True
        if isinstance(change, ProducerAdded):
            return False
        if isinstance(change, ProducerRemoved | ProducerSilent | ProducerBack):
            is_sent = change.producer.peer_id in self._sent_peers
            if isinstance(change, ProducerRemoved):
                self._sent_peers.discard(change.producer.peer_id)
            return is_sent
        if isinstance(change, Registered):
            self._sent_peers.add(change.producer.peer_id)
        elif isinstance(change, Unregistered) and change.channel is None:
            self._sent_peers.discard(change.producer.peer_id)
        elif isinstance(change, TopicDeleted):
            self._sent_peers.clear()
        return True
