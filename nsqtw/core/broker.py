"""
The broker: all topics, and the steps of a turn.

Theory of operation. The edges change topics, channels and consumers at any time of a reactor turn; at its end the
pump calls, in this order,

    commit   everything published in the turn goes to the backends at once; then it is released to the channels,
             or the publishers are told what failed. What takes longer than a turn may waits for a flight instead
    serve    each channel with something new hands it out to its ready consumers

and then writes what the sessions have to say. `tick` does what has become due. None of it reads a clock.

Sequences are handed to topics in blocks. Blocks are reserved durably ahead of use, so none is ever handed out twice.

This module is hot, once per turn and topic.
"""

from __future__ import annotations

from secrets import randbelow

from nsqtw.core.channel import Channel
from nsqtw.core.checkpointer import Checkpointer
from nsqtw.core.client import Client
from nsqtw.core.damage import DamageLedger
from nsqtw.core.group_commit import GroupCommit, Sealed, Writes, commit_to
from nsqtw.core.latency import Measure
from nsqtw.core.log import Cache, Log
from nsqtw.core.metadata_sync import MetadataSync
from nsqtw.core.pending import PAGE_ROWS, Pages
from nsqtw.core.pending_clock import PendingClock
from nsqtw.core.publish_buffer import BLOCK_SIZE
from nsqtw.core.quotas import Quotas
from nsqtw.core.segment import SEQUENCE_BITS
from nsqtw.core.storage_health import StorageHealth
from nsqtw.core.timers import TimerQueue
from nsqtw.core.topic import Topic
from nsqtw.core.topic_listener import NullListener, TopicListener
from nsqtw.core.wall_clock import WallClock
from nsqtw.core.write_behind import WriteBehind
from nsqtw.errors import BackendError, Exiting
from nsqtw.interfaces import IBackend, IBackendQueue, IDamagedBackend, IPositions, OperatorLog, Waiter
from nsqtw.names import is_ephemeral
from nsqtw.options.broker import Options
from nsqtw.rights import Authorizations

RESERVED_BLOCKS = 1024
RETRY_SECONDS = 1.0
_ALL_BLOCKS = 1 << (SEQUENCE_BITS - BLOCK_SIZE.bit_length() + 1)


class Broker:
    """
    Everything a broker knows. `backend` keeps durable topics, `memory_backend` ephemeral ones; `positions`
    makes durable that blocks are taken, and has the held rows that are not in memory: of a channel about `page_rows` to
    twice as many deferred ones are. `measure` is None when no latencies are measured.
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
        self.options = options
        self.node_id: int = options.node_id
        self.start_time = start_time
        self.measure = measure
        self.log = log
        self.authorizations: Authorizations | None = None
        """Where rights are asked for; None: everybody may do everything."""
        self.directory: TopicListener = NullListener()
        """Who is told what topics and channels there are."""
        self.timers = TimerQueue(lambda: log("critical", "NSQ: something that was due failed"))
        self.metadata_sync = MetadataSync(self)
        self.quotas = Quotas(options)
        self.topics: dict[str, Topic] = {}
        self.clients: dict[int, Client] = {}
        self.stopping = False
        self.wall_offset_ns = 0
        """Wall clock minus the clock of `now`; the edge keeps it right with `follow_wall`."""
        self._wall = WallClock()
        self.to_commit: list[Topic] = []
        self.to_serve: dict[Channel, None] = {}
        self.checkpointer = Checkpointer(self)
        self.health = StorageHealth(self)
        self.backend = backend
        self.damage: DamageLedger = backend.damage if IDamagedBackend.providedBy(backend) else DamageLedger()
        self.damage.on_lost = self._lost
        self._memory_backend = memory_backend
        self.positions = positions
        self.page_rows = page_rows
        self.pending_clock = PendingClock()
        self._cache = Cache()
        self._write_behind = WriteBehind(self)
        self.group_commit = GroupCommit(self)
        self._next_block = randbelow(_ALL_BLOCKS // 2) + 1
        self._reserved_blocks = self._next_block

    # -- topics

    def _lost(self, topic: str, first: int, end: int) -> None:
        """A read found that messages of a topic, from the sequence `first` up to `end`, are lost."""
        topic_object = self.topics.get(topic)
        if topic_object is not None:
            topic_object.forget_lost(first, end)

    def topic(self, name: str) -> Topic:
        """
        The topic of that name, created when there is none. Exiting while an older one is still being deleted
        and when the broker stops; BackendError when its storage cannot be made; InvalidName; CapReached.
        """
        existing = self.topics.get(name)
        if existing is not None:
            return existing
        if self.checkpointer.is_dying(name) or self.stopping:
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

    def open_log(self, name: str) -> Log:
        """The log of a topic. BackendError."""
        in_memory = is_ephemeral(name)
        backend = self._memory_backend if in_memory else self.backend
        return Log(backend, backend.queue(name), self._cache, is_in_memory=in_memory)

    def pages(self, topic: str, channel: str) -> Pages:
        """The held rows of a channel that are saved."""
        return Pages(self.positions, topic, channel)

    def move_out_of_memory(self, topic: Topic) -> None:
        """
        An ephemeral topic gets a durable channel, which may hold back more than memory has room for: from now on
        its log is in the backend, though not longer than this process lives. BackendError.
        """
        if topic.log.is_in_memory:
            topic.log.move(self.backend, topic.name)

    def flush_write_behind(self, topic: Topic) -> None:
        """Store what class memory still owes. BackendError when some of the topic cannot be stored."""
        self._write_behind.flush()
        if self._write_behind.has_unwritten(topic):
            raise self._write_behind.error

    def timestamp_ns(self, now: float) -> int:
        """The wall clock at `now`."""
        return int(now * 1e9) + self.wall_offset_ns

    def follow_wall(self, offset_ns: int, now: float) -> None:
        """The wall clock is `offset_ns` ahead of the clock of `now`. What is saved says so (`pending_clock`)."""
        self.wall_offset_ns = offset_ns
        jump_ms = self._wall.record(offset_ns, now)
        if jump_ms:
            text = "NSQ: the wall clock jumped by {seconds} s - what waits here goes by another clock"
            self.log("warn", text, seconds=round(jump_ms / 1000, 3))

    def age_ns(self, timestamp_ns: int, now: float) -> int:
        """Return how long ago a message with this timestamp was published, whatever the wall clock did meanwhile."""
        return self._wall.age_ns(timestamp_ns, now, self.wall_offset_ns)

    # -- the turn

    def commit(self, now: float) -> None:
        """Store what was published since the last time and release it. Waiters are called."""
        topics, self.to_commit = self.to_commit, []
        sealed = self.seal([topic for topic in topics if not self.group_commit.take(topic)], now)
        self.complete_commit(sealed, self._store(sealed, now), now)

    def seal(self, topics: list[Topic], now: float) -> list[Sealed]:
        """Everything that was published to `topics`, with its place in their logs."""
        timestamp_ns = self.timestamp_ns(now)
        sealed: list[Sealed] = []
        for topic in topics:
            waiters = topic.take_waiters()
            try:
                sealed.append((topic, topic.seal(timestamp_ns), waiters))
            except Exception as error:
                failure = self._foreseen(error, f"TOPIC({topic.name}): collecting its messages failed")
                self.health.record_commit(failure)
                self.answer(waiters, failure)
        return sealed

    def complete_commit(
        self, sealed: list[Sealed], failed: dict[IBackendQueue, BackendError], now: float, *, is_async: bool = False
    ) -> None:
        """Release what is stored now, or `is_async` in the thread, and answer the waiters."""
        for topic, segments, waiters in sealed:
            failure: Exception | None = Exiting() if topic.exiting else failed.get(topic.log.queue)
            if segments and failure is None:
                try:
                    topic.accept(segments, now, pinned=topic.is_write_behind and not is_async)
                except Exception:  # they are stored, and so they are answered
                    self.log("critical", "TOPIC({topic}): releasing its messages failed", topic=topic.name)
            self.answer(waiters, failure)

    def answer(self, waiters: list[Waiter], error: Exception | None) -> None:
        """Call them all, whatever one of them does."""
        for waiter in waiters:
            try:
                waiter(error)
            except Exception:
                self.log("critical", "NSQ: answering a publisher failed")

    def serve(self, now: float) -> bool:
        """Hand out what is new. Returns whether some consumer should get more in the next turn."""
        channels, self.to_serve = self.to_serve, {}
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
        """Take nothing more; write out what is held back in memory. The last cut comes after this."""
        self.stopping = True
        self.commit(now)
        for topic in self.topics.values():
            topic.say_closing()
        self._write_behind.stop()
        for topic in list(self.topics.values()):
            if topic.ephemeral and not topic.log.is_in_memory:
                self.delete_topic(topic.name)

    # -- sequences

    def start_blocks(self, next_block: int | None, highest_end: int) -> None:
        """
        Never hand out a block under `next_block`, nor one at or under `highest_end`, the highest end of a log, whatever
        was saved. When `next_block` is not known, start at random. BackendError when no block can be reserved.
        """
        lowest = self._next_block if next_block is None else next_block
        next_block = self._next_block = max(lowest, highest_end // BLOCK_SIZE + 1)
        self._reserve_up_to(next_block + RESERVED_BLOCKS)

    def take_blocks(self, count: int) -> int:
        """The first of `count` adjoining blocks that belong to the caller from now on. BackendError."""
        if self._next_block + count > self._reserved_blocks:
            self._reserve_up_to(self._next_block + count + RESERVED_BLOCKS)
        first = self._next_block
        self._next_block += count
        return first

    def blocks_to_reserve(self) -> int | None:
        """Up to where to reserve ahead, when half of the reserve is used up."""
        if self._reserved_blocks - self._next_block >= RESERVED_BLOCKS // 2:
            return None
        return self._next_block + RESERVED_BLOCKS

    def blocks_reserved(self, block: int | None) -> None:
        """Up to this one they are; None: as far as before."""
        self._reserved_blocks = max(self._reserved_blocks, block or 0)

    # -- inside

    def _reserve_up_to(self, block: int) -> None:
        self.positions.reserve(block)
        self._reserved_blocks = block

    def _foreseen(self, error: Exception, what: str) -> BackendError:
        """The error to answer with. One nobody foresaw is logged with its traceback; called while it is handled."""
        if isinstance(error, BackendError):
            return error
        self.log("critical", what)
        return BackendError(f"{type(error).__name__}: {error}")

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
