"""
The broker: all topics, and the steps of a turn.

Theory of operation. The edges change topics, channels and consumers at any time of a reactor turn; at its end the
pump calls, in this order,

    commit   everything published in the turn goes to the backends at once; then it is released to the channels,
             or the publishers are told what failed. What takes longer than a turn may waits for a flight instead
    serve    each channel with something new hands it out to its ready consumers

and then writes what the sessions have to say. `tick` does what has become due. None of it reads a clock.

What must outlive the process is collected as a cut (`begin_save`), written by the writer thread, and reported back
(`end_save`). A cut is due about once a second, and at once when somebody waits for a birth, a deletion or a pause.
Where much has changed a cut is in parts: each has some of the topics, all of them whole, and the next one is due at
once; what changes between the parts waits until it is about a second later again. Who waits is told after the last
part, with which come the names there were at the first one: what they name is saved.

Sequences are handed to topics in blocks. Blocks are reserved durably ahead of use, so none is ever handed out twice.

This module is hot, once per turn and topic.
"""

from __future__ import annotations

from itertools import islice
from secrets import randbelow

from nsqtw.core.agenda import Agenda
from nsqtw.core.caps import Caps
from nsqtw.core.channel import Channel
from nsqtw.core.client import Client
from nsqtw.core.cut import Cut, NamedTopic
from nsqtw.core.directory import Directory, Unlisted
from nsqtw.core.flight import Flights, Sealed, Writes, commit_to
from nsqtw.core.health import Health
from nsqtw.core.held import PAGE_ROWS, Pages
from nsqtw.core.held_clock import HeldClock
from nsqtw.core.intake import BLOCK_SIZE
from nsqtw.core.late import LateCommit
from nsqtw.core.latency import Measure
from nsqtw.core.log import Cache, Log
from nsqtw.core.naming import Naming
from nsqtw.core.save import Save
from nsqtw.core.segment import SEQUENCE_BITS
from nsqtw.core.topic import Topic
from nsqtw.core.wall import Wall
from nsqtw.errors import BackendError, Exiting
from nsqtw.interfaces import IBackend, IBackendQueue, IPositions, OperatorLog, Waiter
from nsqtw.names import is_ephemeral
from nsqtw.options import Options
from nsqtw.rights import Door

SAVED_AT_ONCE = 100
"""Topics and channels that go into one part of a cut, about: each takes up to 40 us of a turn."""
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
        self.door: Door | None = None
        """Where rights are asked for; None: everybody may do everything."""
        self.directory: Directory = Unlisted()
        """Who is told what topics and channels there are."""
        self.agenda = Agenda(lambda: log("critical", "NSQ: something that was due failed"))
        self.naming = Naming(self)
        self.caps = Caps(options)
        self.topics: dict[str, Topic] = {}
        self.clients: dict[int, Client] = {}
        self.stopping = False
        self.wall_offset_ns = 0
        """Wall clock minus the clock of `now`; the edge keeps it right with `follow_wall`."""
        self._wall = Wall()
        self.to_commit: list[Topic] = []
        self.to_serve: dict[Channel, None] = {}
        self.touched: dict[Topic, None] = {}
        self.health = Health(self)
        self.backend = backend
        self._memory_backend = memory_backend
        self.positions = positions
        self.page_rows = page_rows
        self.held_clock = HeldClock()
        self._cache = Cache()
        self._late = LateCommit(self)
        self.flights = Flights(self)
        self._next_block = randbelow(_ALL_BLOCKS // 2) + 1
        self._reserved_blocks = self._next_block
        self._deleted_topics: list[str] = []
        self._deleted_queues: list[tuple[str, IBackendQueue]] = []
        self._deleted_channels: list[tuple[str, str]] = []
        self._dying: set[str] = set()
        self._save_waiters: list[Waiter] = []
        self._part_waiters: list[Waiter] = []
        self._part_names: tuple[NamedTopic, ...] | None = None
        """What goes with the last part of the cut that is being saved. Who comes meanwhile waits for the next cut."""
        self._left_to_save = 0
        """Of `touched`, how many are still to be saved at once: the oldest."""

    # -- topics

    def topic(self, name: str) -> Topic:
        """
        The topic of that name, created when there is none. Exiting while an older one is still being deleted
        and when the broker stops; BackendError when its storage cannot be made; InvalidName; CapReached.
        """
        found = self.topics.get(name)
        if found is not None:
            return found
        if name in self._dying or self.stopping:
            raise Exiting
        self.caps.check_topic(name, len(self.topics))
        topic = self.topics[name] = Topic(self, name, self.open_log(name))
        self.log("info", "TOPIC({topic}): created", topic=name)
        topic.touch()
        topic.change_names()
        self.directory.born(topic)
        return topic

    def delete_topic(self, name: str, waiter: Waiter | None = None) -> None:
        """Remove a topic with all its channels and messages. KeyError. The waiter is called when it is gone."""
        topic = self.topics.pop(name)
        self.log("info", "TOPIC({topic}): deleting", topic=name)
        topic.exit()
        self.directory.gone(name)
        self.touched.pop(topic, None)
        self._left_to_save = min(self._left_to_save, len(self.touched))
        if topic.log.is_in_memory:
            topic.log.queue.delete()
            if waiter is not None:
                waiter(None)
            return
        self._dying.add(name)
        self._deleted_topics.append(name)
        self._deleted_queues.append((name, topic.log.queue))
        self._save_waiters += [waiter or _nobody]
        topic.change_names(at_once=True)

    def forget_channel(self, topic: str, channel: str) -> None:
        """A durable channel was deleted; the next cut says so."""
        self._deleted_channels.append((topic, channel))

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

    def settle_late(self, topic: Topic) -> None:
        """Store what class memory still owes. BackendError when some of the topic cannot be stored."""
        self._late.flush()
        if self._late.owes(topic):
            raise self._late.error

    def timestamp_ns(self, now: float) -> int:
        """The wall clock at `now`."""
        return int(now * 1e9) + self.wall_offset_ns

    def follow_wall(self, offset_ns: int, now: float) -> None:
        """The wall clock is `offset_ns` ahead of the clock of `now`. What is saved says so (`held_clock`)."""
        self.wall_offset_ns = offset_ns
        jump_ms = self._wall.note(offset_ns, now)
        if jump_ms:
            text = "NSQ: the wall clock jumped by {seconds} s - what waits here goes by another clock"
            self.log("warn", text, seconds=round(jump_ms / 1000, 3))

    def age_ns(self, timestamp_ns: int, now: float) -> int:
        """How long ago a message with this timestamp was published, whatever the wall clock did meanwhile."""
        return self._wall.age_ns(timestamp_ns, now, self.wall_offset_ns)

    # -- the turn

    def commit(self, now: float) -> None:
        """Store what was published since the last time and release it. Waiters are called."""
        topics, self.to_commit = self.to_commit, []
        sealed = self.seal([topic for topic in topics if not self.flights.take(topic)], now)
        self.settle(sealed, self._store(sealed, now), now)

    def seal(self, topics: list[Topic], now: float) -> list[Sealed]:
        """Everything that was published to `topics`, with its place in their logs."""
        timestamp_ns = self.timestamp_ns(now)
        sealed: list[Sealed] = []
        for topic in topics:
            waiters = topic.take_waiters()
            try:
                sealed.append((topic, topic.seal(timestamp_ns), waiters))
            except Exception as error:
                refusal = self._foreseen(error, f"TOPIC({topic.name}): collecting its messages failed")
                self.health.note_commit(refusal)
                self._answer(waiters, refusal)
        return sealed

    def settle(
        self, sealed: list[Sealed], failed: dict[IBackendQueue, BackendError], now: float, *, flown: bool = False
    ) -> None:
        """Release what is stored now, or `flown` in the thread, and answer the waiters."""
        for topic, segments, waiters in sealed:
            failure: Exception | None = Exiting() if topic.exiting else failed.get(topic.log.queue)
            if segments and failure is None:
                try:
                    topic.accept(segments, now, pinned=topic.is_late and not flown)
                except Exception:  # they are stored, and so they are answered
                    self.log("critical", "TOPIC({topic}): releasing its messages failed", topic=topic.name)
            self._answer(waiters, failure)

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
                self.agenda.at(now + RETRY_SECONDS, channel)
        return bool(self.to_serve)

    def tick(self, now: float) -> float | None:
        """Do what is due; returns when it is next needed. A turn begins with it."""
        self.caps.begin_turn()
        return self.agenda.run(now)

    # -- saving

    def save(self, waiter: Waiter) -> None:
        """Have everything up to now saved soon; the waiter is told when it is."""
        self._save_waiters.append(waiter)

    @property
    def save_is_urgent(self) -> bool:
        """Somebody waits for the next cut, or the last one left something for it."""
        return bool(self._save_waiters or self._part_waiters or self._left_to_save)

    @property
    def save_is_wanted(self) -> bool:
        """Something changed since the last cut."""
        waiters = self._save_waiters or self._part_waiters
        changed = self.touched or waiters or self._deleted_topics or self._deleted_channels
        return bool(
            changed or self.health.cannot_save or self.held_clock.shift_to_save(self.wall_offset_ns) is not None
        )

    def begin_save(self, now: float) -> Save:
        """
        What changed since the last time, as a job for the writer thread, as much as a turn has time for; then
        `end_save`. One at a time. If it breaks, that is raised, and the save has failed: who waits is told so, and all
        is there for the next one.
        """
        save = Save(Cut(), None)
        try:
            self._collect(save, now)
        except Exception as error:
            self._part_waiters += self._save_waiters
            self._save_waiters = []
            self.end_save(save, BackendError(f"{type(error).__name__}: {error}"))
            raise
        return save

    def _collect(self, save: Save, now: float) -> None:
        if not self._left_to_save or (self._save_waiters and not self._part_waiters):
            self._begin_cut(now)
        is_waited_for = bool(self._part_waiters)
        touched = self._take_touched()
        save.reserve = self._blocks_to_reserve()
        if not self._left_to_save:
            self._take_last_part(save)
        save.cut.deleted_topics, save.deleted = self._deleted_topics, self._deleted_queues
        save.cut.deleted_channels = self._deleted_channels
        save.cut.wall_shift_ms = self.held_clock.shift_to_save(self.wall_offset_ns)
        self._deleted_topics, self._deleted_queues, self._deleted_channels = [], [], []
        save.cut.durable = is_waited_for and any(topic.durability == "fsync" for topic in touched)
        try:
            for topic in touched:
                self._save_topic(topic, save, now)
        except Exception:
            for topic in touched:
                self._end_save_of(topic, failed=True)
            raise

    def _save_topic(self, topic: Topic, save: Save, now: float) -> None:
        if topic.log.is_in_memory:
            topic.log.queue.trim(*topic.unfinished())
        elif topic.ephemeral:
            save.trims.append((topic.name, topic.log.queue, topic.unfinished()))
        else:
            save.cut.topics.append(topic.saved(now))
            save.trims.append((topic.name, topic.log.queue, None))

    def _begin_cut(self, now: float) -> None:
        """Everything that has changed up to now is to be saved at once."""
        names = self.naming.take(now)
        self._part_names = self._part_names if names is None else names
        self._left_to_save = len(self.touched)
        self._part_waiters += self._save_waiters
        self._save_waiters = []

    def _take_last_part(self, save: Save) -> None:
        """With this the cut is saved, or nothing more of it will be."""
        if self._part_names is not None:
            save.names, self._part_names = self._part_names, None
        save.waiters += self._part_waiters
        self._part_waiters = []

    def _take_touched(self) -> list[Topic]:
        """Of those that are to be saved at once those that have waited longest, about as many as a part has."""
        taken, count = [], 0
        for topic in islice(self.touched, self._left_to_save):
            if count >= SAVED_AT_ONCE:
                break
            taken.append(topic)
            count += 1 + len(topic.channels)
        for topic in taken:
            del self.touched[topic]
        self._left_to_save -= len(taken)
        return taken

    def end_save(self, save: Save, error: BackendError | None) -> None:
        """The job is done, or failed with `error` and left the saved state as it was."""
        self.health.note_save(error)
        if error is None:
            self._reserved_blocks = max(self._reserved_blocks, save.reserve or 0)
            self._dying.difference_update(save.cut.deleted_topics)
            if save.cut.wall_shift_ms is not None:
                self.held_clock.saved(save.cut.wall_shift_ms)
        else:
            self._left_to_save = 0
            self._take_last_part(save)
            self._deleted_topics = save.cut.deleted_topics + self._deleted_topics
            self._deleted_queues = save.deleted + self._deleted_queues
            self._deleted_channels = save.cut.deleted_channels + self._deleted_channels
        if save.names is not None:
            self.naming.written(error or save.names_error)
        for saved in save.cut.topics:
            if saved.name in self.topics:
                self._end_save_of(self.topics[saved.name], failed=error is not None)
        self._answer(save.waiters, error)

    def _end_save_of(self, topic: Topic, *, failed: bool) -> None:
        """Whatever breaks in there, the others come to their end, and this one is saved again."""
        try:
            topic.end_of_save(failed=failed)
        except Exception:
            self.log("critical", "TOPIC({topic}): ending its save failed", topic=topic.name)
            topic.touch()

    def stop(self, now: float) -> None:
        """Take nothing more; write out what is held back in memory. The last cut comes after this."""
        self.stopping = True
        self.commit(now)
        for topic in self.topics.values():
            topic.say_closing()
        self._late.stop()
        for topic in list(self.topics.values()):
            if topic.ephemeral and not topic.log.is_in_memory:
                self.delete_topic(topic.name)

    # -- sequences

    def start_blocks(self, next_block: int | None, highest_end: int) -> None:
        """
        Never hand out a block under `next_block`, nor one at or under `highest_end`, the highest end of a log, whatever
        was saved. When `next_block` is not known, start at random. BackendError when no block can be reserved.
        """
        known = self._next_block if next_block is None else next_block
        next_block = self._next_block = max(known, highest_end // BLOCK_SIZE + 1)
        self._reserve_up_to(next_block + RESERVED_BLOCKS)

    def take_blocks(self, count: int) -> int:
        """The first of `count` adjoining blocks that belong to the caller from now on. BackendError."""
        if self._next_block + count > self._reserved_blocks:
            self._reserve_up_to(self._next_block + count + RESERVED_BLOCKS)
        first = self._next_block
        self._next_block += count
        return first

    # -- inside

    def _reserve_up_to(self, block: int) -> None:
        self.positions.reserve(block)
        self._reserved_blocks = block

    def _blocks_to_reserve(self) -> int | None:
        """Up to where to reserve ahead, when half of the reserve is used up."""
        if self._reserved_blocks - self._next_block >= RESERVED_BLOCKS // 2:
            return None
        return self._next_block + RESERVED_BLOCKS

    def _answer(self, waiters: list[Waiter], error: Exception | None) -> None:
        for waiter in waiters:
            try:
                waiter(error)
            except Exception:
                self.log("critical", "NSQ: answering a publisher failed")

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
            if not topic.is_late:
                writes.setdefault(topic.log.backend, []).append((topic.log.queue, segments))
            elif not self._late.has_room():
                failed[topic.log.queue] = self._late.error
            else:
                self._late.add(topic, segments, now)
        for backend, of_backend in writes.items():
            failed.update(commit_to(backend, of_backend, False, self.log))
            if backend is self.backend:
                self.flights.stored(now)
        if failed:
            self.health.note_commit(next(iter(failed.values())))
        elif writes:
            self.health.note_commit(None)
        return failed


def _nobody(error: Exception | None) -> None:
    """Nobody waits for this."""
