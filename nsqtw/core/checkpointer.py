"""
Collection of the state that must survive the process, in checkpoints.

Theory of operation. Changes are collected (`begin`), written by the storage thread, and reported back (`end`).
A checkpoint is due about once a second, and at once when a waiter needs a creation, a deletion or a pause to be
durable. A large checkpoint is saved in parts, one at a time: each part contains some of the topics completely. Changes
between two parts belong to the next checkpoint. Waiters are told after the last part, which also contains the names as
they were at the first one, so everything they name is saved.

Performance: called once for each topic that changed in a second.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from nsqtw.core.checkpoint import Checkpoint, NamedTopic
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.context import Context
from nsqtw.core.file_hold import FileHold
from nsqtw.core.metadata_sync import MetadataSync
from nsqtw.core.storage_health import StorageHealth
from nsqtw.core.topic import Topic
from nsqtw.core.write_behind import WriteBehind
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackendQueue, IFreeingQueue, Waiter

SAVED_AT_ONCE = 100
"""Topics and channels in one part of a checkpoint, about: each takes up to 40 us of a turn."""


class Checkpointer:
    """The unsaved changes of `topics`, and the waiters for them. `touched` are the topics that changed."""

    def __init__(
        self,
        context: Context,
        topics: dict[str, Topic],
        touched: dict[Topic, None],
        health: StorageHealth,
        metadata_sync: MetadataSync,
        write_behind: WriteBehind,
    ) -> None:
        self._context = context
        self._topics = topics
        self._touched = touched
        self._health = health
        self._metadata_sync = metadata_sync
        self._write_behind = write_behind
        self._deleted_topics: list[str] = []
        self._deleted_queues: list[tuple[str, IBackendQueue]] = []
        self._deleted_channels: list[tuple[str, str]] = []
        self._dying: set[str] = set()
        self._waiters: list[Waiter] = []
        self._part_waiters: list[Waiter] = []
        self._part_names: tuple[NamedTopic, ...] | None = None
        """The names and waiters of the last part. Later waiters wait for the next checkpoint."""
        self._left = 0
        """How many of `_touched`, the oldest ones, the current checkpoint does not contain yet."""
        self.file_hold = FileHold(context.timers, self._free_held)
        """While it is on, nothing of the stored messages is trimmed."""
        self._held: dict[Topic, None] = {}
        """The topics that were not trimmed."""
        self._frees_whole_logs: set[str] = set()
        """
        Topics of which the trim after their next save may remove the whole log. That save is synced: if a power loss
        undid it, a start would take the finished messages for lost ones.
        """

    # -- what is to be saved

    def deleted(self, topic: Topic, waiter: Waiter | None) -> None:
        """A topic is gone; the waiter is called when what is stored of it is, too."""
        self._touched.pop(topic, None)
        self._frees_whole_logs.discard(topic.name)
        self._left = min(self._left, len(self._touched))
        if topic.log.is_in_memory:
            topic.log.queue.delete()
            if waiter is not None:
                waiter(None)
            return
        self._dying.add(topic.name)
        self._deleted_topics.append(topic.name)
        self._deleted_queues.append((topic.name, topic.log.queue))
        self._waiters += [waiter or _nobody]

    def is_dying(self, name: str) -> bool:
        """Return whether a topic of this name is deleted, and that is not saved yet."""
        return name in self._dying

    def deleted_channel(self, topic: str, channel: str) -> None:
        """A durable channel is deleted, which the next checkpoint records."""
        self._deleted_channels.append((topic, channel))

    def ask(self, waiter: Waiter) -> None:
        """Have everything up to now saved soon; the waiter is told when it is."""
        self._waiters.append(waiter)

    def free_whole_log(self, topic: Topic) -> None:
        """The trim after the next save may remove the whole log of a topic: that save contains it, and is synced."""
        topic.touch()
        self._frees_whole_logs.add(topic.name)

    # -- when

    @property
    def are_waited_for(self) -> bool:
        """Somebody is to be told when something is saved."""
        return bool(self._waiters or self._part_waiters)

    @property
    def are_in_parts(self) -> bool:
        """Whether the current checkpoint has more parts."""
        return bool(self._left)

    @property
    def are_wanted(self) -> bool:
        """Whether anything changed since the last checkpoint."""
        changed = self._touched or self.are_waited_for or self._deleted_topics or self._deleted_channels
        return bool(changed or self._health.cannot_save or self._wall_shift() is not None)

    # -- how

    def begin(self, now: float) -> CheckpointJob:
        """
        Collect changes for the storage thread, as many as a turn has time for; call `end` with the result. One job at a
        time. An exception fails the checkpoint: it is raised, the waiters are told, and the changes are kept for the
        next one.
        """
        save = CheckpointJob(Checkpoint(), None)
        try:
            self._collect(save, now)
        except Exception as error:
            self._part_waiters += self._waiters
            self._waiters = []
            self.end(save, BackendError(f"{type(error).__name__}: {error}"))
            raise
        return save

    def end(self, save: CheckpointJob, error: BackendError | None) -> None:
        """The job is done, or failed with `error` and left the saved state as it was."""
        self._health.record_save(error)
        if error is None:
            self._context.sequences.reserved(save.reserve)
            self._dying.difference_update(save.checkpoint.deleted_topics)
            if save.checkpoint.wall_shift_ms is not None:
                self._context.pending_clock.saved(save.checkpoint.wall_shift_ms)
        else:
            self._left = 0
            self._take_last_part(save)
            self._deleted_topics = save.checkpoint.deleted_topics + self._deleted_topics
            self._deleted_queues = save.deleted + self._deleted_queues
            self._deleted_channels = save.checkpoint.deleted_channels + self._deleted_channels
        if save.names is not None:
            self._metadata_sync.written(error or save.names_error)
        for saved in save.checkpoint.topics:
            if saved.name in self._topics:
                self._end_of(self._topics[saved.name], failed=error is not None)
        for name, queue, _ in save.trims:
            if name in self._topics and _may_free_later(queue):
                self.free_whole_log(self._topics[name])
        self._context.answer(save.waiters, error)

    # -- inside

    def _collect(self, save: CheckpointJob, now: float) -> None:
        if self.file_hold.is_on:
            self._write_behind.flush()
        if not self._left or (self._waiters and not self._part_waiters):
            self._begin_checkpoint(now)
        is_waited_for = bool(self._part_waiters)
        touched = self._take_touched()
        save.reserve = self._context.sequences.to_reserve()
        if not self._left:
            self._take_last_part(save)
        save.checkpoint.deleted_topics, save.deleted = self._deleted_topics, self._deleted_queues
        save.checkpoint.deleted_channels = self._deleted_channels
        save.checkpoint.wall_shift_ms = self._wall_shift()
        save.checkpoint.pending_ms = self._context.pending_clock.ms_at(now)
        self._deleted_topics, self._deleted_queues, self._deleted_channels = [], [], []
        frees = self._frees_whole_logs.intersection(topic.name for topic in touched) if self._frees_whole_logs else ()
        self._frees_whole_logs.difference_update(frees)
        save.checkpoint.durable = bool(frees) or (
            is_waited_for and any(topic.durability == "fsync" for topic in touched)
        )
        try:
            for topic in touched:
                _collect_topic(topic, save, now)
        except Exception:
            for topic in touched:
                self._end_of(topic, failed=True)
            raise
        if self.file_hold.is_on:
            save.trims.clear()
            self._held.update(dict.fromkeys(touched))

    def _free_held(self) -> None:
        """Allow the next checkpoint to trim the messages of the holds."""
        held, self._held = self._held, {}
        for topic in held:
            if self._topics.get(topic.name) is topic:
                topic.touch()

    def _begin_checkpoint(self, now: float) -> None:
        """Everything that has changed up to now is to be saved."""
        names = self._metadata_sync.take(now)
        self._part_names = self._part_names if names is None else names
        self._left = len(self._touched)
        self._part_waiters += self._waiters
        self._waiters = []

    def _take_last_part(self, save: CheckpointJob) -> None:
        """Add what belongs to the last part: the checkpoint is complete, or has failed."""
        if self._part_names is not None:
            save.names, self._part_names = self._part_names, None
        save.waiters += self._part_waiters
        self._part_waiters = []

    def _take_touched(self) -> list[Topic]:
        """Return the topics of the next part, those first that have waited longest."""
        taken: list[Topic] = []
        count = 0
        for topic in islice(self._touched, self._left):
            if count >= SAVED_AT_ONCE:
                break
            taken.append(topic)
            count += 1 + len(topic.channels)
        self._take(taken)
        self._left -= len(taken)
        return taken + self._take_partners(taken)

    def _take(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            del self._touched[topic]

    def _take_partners(self, taken: list[Topic]) -> list[Topic]:
        """Return the topics that must be saved together with those that are taken (see `Topic.saved_with`)."""
        partners: dict[Topic, None] = {}
        found = [topic for topic in taken if topic.saved_with]
        while found:
            for partner in found.pop().saved_with:
                if partner in self._touched and partner not in partners:
                    partners[partner] = None
                    found.append(partner)
        if partners:
            self._left -= len(partners.keys() & islice(self._touched, self._left))
            self._take(partners)
        return [*partners]

    def _end_of(self, topic: Topic, *, failed: bool) -> None:
        """Whatever breaks in there, the others come to their end, and this one is saved again."""
        try:
            topic.end_checkpoint(failed=failed)
        except Exception:
            self._context.log("critical", "TOPIC({topic}): ending its save failed", topic=topic.name)
            topic.touch()

    def _wall_shift(self) -> int | None:
        return self._context.pending_clock.shift_to_save(self._context.wall_offset_ns)


def _collect_topic(topic: Topic, save: CheckpointJob, now: float) -> None:
    if topic.log.is_in_memory:
        topic.log.queue.trim(*topic.unfinished())
    elif topic.ephemeral:
        save.trims.append((topic.name, topic.log.queue, topic.unfinished()))
    else:
        save.checkpoint.topics.append(topic.state(now))
        save.trims.append((topic.name, topic.log.queue, None))


def _may_free_later(queue: IBackendQueue) -> bool:
    """A third party's queue may be older than the attribute."""
    return IFreeingQueue.providedBy(queue) and bool(getattr(queue, "may_free_later", False))


def _nobody(error: Exception | None) -> None:
    """Nobody waits for this."""
