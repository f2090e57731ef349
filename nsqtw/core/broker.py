"""
The broker: all topics, and the steps of a turn.

Theory of operation. Servers change topics, channels and consumers at any time of a reactor turn. At its end the pump
calls, in this order,

    commit   stores everything published in the turn with one call per backend; then releases it to the channels, or
             tells the publishers what failed. Commits that may take longer than a turn wait for `GroupCommit`
    serve    has each channel with new messages deliver them to its ready consumers

and then writes the output of the sessions. `tick` runs the timers that are due. No step reads a clock.

Performance: called once per turn and topic.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.checkpointer import Checkpointer
from nsqtw.core.client import Client
from nsqtw.core.committer import Committer, Sealed, Writes, commit_to
from nsqtw.core.damage import DamageLedger
from nsqtw.core.group_commit import GroupCommit
from nsqtw.core.latency import Measure
from nsqtw.core.log import Cache, Log
from nsqtw.core.metadata_sync import MetadataSync
from nsqtw.core.pending import PAGE_ROWS
from nsqtw.core.positions import IPositions
from nsqtw.core.reconfiguration import Reconfiguration
from nsqtw.core.storage_health import StorageHealth
from nsqtw.core.topic import Topic, TopicOwner
from nsqtw.core.topic_listener import NullListener, TopicListener
from nsqtw.core.write_behind import WriteBehind
from nsqtw.errors import BackendError, Exiting
from nsqtw.interfaces import IBackend, IBackendQueue, IDamagedBackend, IStoppingQueue, OperatorLog, Waiter
from nsqtw.names import is_ephemeral
from nsqtw.options.broker import Options
from nsqtw.rights import Authorizations

RETRY_SECONDS = 1.0


class Broker(TopicOwner):
    """
    The topics, channels and clients of one broker.

    `backend` stores durable topics, `memory_backend` ephemeral ones. `positions` stores cursors, reserved blocks of
    sequences, and the pending rows that are not in memory: each channel keeps `page_rows` to twice as many deferred
    ones in memory. `measure` is None when no latencies are measured.
    """

    def __init__(
        self,
        options: Options,
        backend: IBackend,
        memory_backend: IBackend,
        *,
        positions: IPositions,
        log: OperatorLog,
        start_time: int,
        measure: Measure | None = None,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        damage = backend.damage if IDamagedBackend.providedBy(backend) else DamageLedger()
        super().__init__(options, log, positions, damage, measure, page_rows)
        self.start_time = start_time
        self.authorizations: Authorizations | None = None
        """The permissions of clients; None: all clients may do everything."""
        self.directory: TopicListener = NullListener()
        """The listener for new and deleted topics and channels."""
        self.topics: dict[str, Topic] = {}
        self.clients: dict[int, Client] = {}
        self.backend = backend
        self.damage.on_lost = self._lost
        self._memory_backend = memory_backend
        self._cache = Cache()
        self.health = StorageHealth(self, self.topics)
        self.metadata_sync = MetadataSync(self, self.topics, lambda waiter: self.checkpointer.ask(waiter))
        self._write_behind = WriteBehind(self, self.health)
        self.checkpointer = Checkpointer(
            self, self.topics, self.touched, self.health, self.metadata_sync, self._write_behind
        )
        self._committer = Committer(self, self.health)
        self._reconfiguration = Reconfiguration(self, self.topics)
        self.group_commit = GroupCommit(self, self._committer, self.health, backend)

    # -- topics

    def _lost(self, topic: str, first: int, end: int, only: str) -> None:
        """A read found that messages of a topic, from the sequence `first` up to `end`, are lost."""
        topic_object = self.topics.get(topic)
        if topic_object is not None:
            topic_object.forget_lost(first, end, only)

    def topic(self, name: str) -> Topic:
        """
        The topic of that name, created when there is none. Exiting while an older one is still being deleted
        and when the broker stops; Draining; BackendError when its storage cannot be made; InvalidName; CapReached.
        """
        existing = self.topics.get(name)
        if existing is not None:
            return existing
        if not self.is_taking_publishes:
            raise self.refusal()
        if self.checkpointer.is_dying(name):
            raise Exiting
        self.quotas.check_topic(name, len(self.topics))
        topic = self.topics[name] = Topic(self, name, self.open_log(name))
        self.log("info", "TOPIC({topic}): created", topic=name)
        topic.touch()
        topic.change_names()
        self.directory.on_new_topic(topic)
        return topic

    def delete_topic(self, name: str, waiter: Waiter | None = None) -> None:
        """Remove a topic with all its channels and messages. KeyError. The waiter is called when it is gone."""
        topic = self.topics.pop(name)
        self.log("info", "TOPIC({topic}): deleting", topic=name)
        topic.exit()
        self.damage.forget(name)
        self.directory.on_deleted(name)
        self.checkpointer.deleted(topic, waiter)
        if not topic.log.is_in_memory:
            topic.change_names(at_once=True)

    def save(self, waiter: Waiter) -> None:
        """Have a checkpoint saved that has everything up to now; then the waiter is called."""
        self.checkpointer.ask(waiter)

    def open_log(self, name: str) -> Log:
        """The log of a topic. BackendError."""
        in_memory = is_ephemeral(name)
        backend = self._memory_backend if in_memory else self.backend
        return Log(backend, backend.queue(name), self._cache, is_in_memory=in_memory)

    def move_out_of_memory(self, topic: Topic) -> None:
        """
        An ephemeral topic gets a durable channel, which may hold back more than memory has room for: from now on
        its log is in the backend, though not longer than this process lives. BackendError.
        """
        if topic.log.is_in_memory:
            topic.log.move(self.backend, topic.name)

    @property
    def has_uncommitted(self) -> bool:
        """Whether publishes were taken that are not stored or refused yet."""
        return bool(self.to_commit) or self.group_commit.is_busy

    def store_write_behind(self) -> None:
        """Store what class memory has not stored yet. BackendError when a part of it cannot be stored."""
        self._write_behind.flush()
        if any(map(self._write_behind.has_unwritten, self.topics.values())):
            raise self._write_behind.error

    def follow_options(self, now: float) -> None:
        """The options about durability and retention, or the tables of the config file, have new values."""
        self._reconfiguration.begin(now)

    def flush_write_behind(self, topic: Topic) -> None:
        """Store what class memory has not stored yet. BackendError when messages of the topic cannot be stored."""
        self._write_behind.flush()
        if self._write_behind.has_unwritten(topic):
            raise self._write_behind.error

    def on_channel_created(self, topic: str, channel: str) -> None:
        self.directory.on_created(topic, channel)

    def on_channel_deleted(self, topic: str, channel: str, *, is_stored: bool) -> None:
        self.directory.on_deleted(topic, channel)
        if is_stored:
            self.checkpointer.deleted_channel(topic, channel)

    def on_names_changed(self, *, at_once: bool) -> None:
        self.metadata_sync.change(at_once=at_once)

    # -- the turn

    def commit(self, now: float) -> int:
        """
        Store what was published since the last time and release it. Waiters are called. Returns how many; those of a
        group commit are called later.
        """
        topics, self.to_commit = self.to_commit, []
        sealed = self._committer.seal([topic for topic in topics if not self.group_commit.take(topic, now)], now)
        return self._committer.complete(sealed, self._store(sealed, now), now)

    def serve(self, now: float) -> bool:
        """Hand out what is new. Returns whether some consumer should get more in the next turn."""
        channels = list(self.to_serve)
        self.to_serve.clear()
        for channel in channels:
            try:
                if channel.serve(now):
                    self.to_serve[channel] = None
            except Exception:
                topic_name = channel.topic.name
                self.log("critical", "CHANNEL({channel}): serving it failed", topic=topic_name, channel=channel.name)
                self.timers.schedule(now + RETRY_SECONDS, channel)
        return bool(self.to_serve)

    def tick(self, now: float) -> float | None:
        """Do what is due; returns when it is next needed. A turn begins with it."""
        self.quotas.begin_turn()
        return self.timers.run(now)

    def stop(self, now: float) -> None:
        """Refuse publishes, and store what is only in memory. The last checkpoint follows."""
        self.begin_stop()
        self.commit(now)
        for topic in self.topics.values():
            topic.say_closing()
        self._write_behind.stop()
        for topic in list(self.topics.values()):
            if topic.ephemeral and not topic.log.is_in_memory:
                self.delete_topic(topic.name)
            elif IStoppingQueue.providedBy(topic.log.queue) and topic.log.queue.begin_stop():
                self.checkpointer.free_whole_log(topic)

    # -- inside

    def _store(self, sealed: list[Sealed], now: float) -> dict[IBackendQueue, BackendError]:
        """Commit to each backend at once. Returns the queues that failed."""
        writes: dict[IBackend, Writes] = {}
        failed: dict[IBackendQueue, BackendError] = {}
        for topic, segments, _ in sealed:
            if not segments:
                continue
            if not topic.is_write_behind:
                writes.setdefault(topic.log.backend, []).append((topic.log.queue, segments))
            elif not self._write_behind.has_room():
                failed[topic.log.queue] = self._write_behind.error
            else:
                self._write_behind.add(topic, segments, now)
        for backend, of_backend in writes.items():
            failed.update(commit_to(backend, of_backend, False, self.log))
            if backend is self.backend:
                self.group_commit.stored(now)
        if failed:
            self.health.record_commit(next(iter(failed.values())))
        elif writes:
            self.health.record_commit(None)
        return failed
