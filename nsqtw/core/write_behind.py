"""
Durability class `memory`: the same log, committed late.

A publish is released at once. It reaches the backend within a second, or when a topic has more of it waiting
than a memory queue holds, or all have WRITE_BEHIND_BYTES; what every durable channel has finished by then is left out.
When that commit fails it is tried again, and publishes fail only once WRITE_BEHIND_BYTES wait.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.committer import commit_to
from nsqtw.core.context import Context
from nsqtw.core.segment import Segment
from nsqtw.core.storage_health import StorageHealth
from nsqtw.core.timers import Timer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackend, IBackendQueue, ICopyingBackend

WRITE_BEHIND_SECONDS = 1.0
WRITE_BEHIND_BYTES = 8 * 1024 * 1024
STOP_ATTEMPTS = 3
"""Attempts of a stop to commit: it is the last chance, and a medium may fail once."""


class WriteBehind(Timer):
    """The segments of all topics that are not committed yet."""

    def __init__(self, context: Context, health: StorageHealth) -> None:
        super().__init__()
        self._context = context
        self._health = health
        self._segments: dict[Topic, list[Segment]] = {}
        self._counts: dict[Topic, int] = {}
        self._bytes = 0
        self.error = BackendError("")
        """Why the last commit failed."""

    def has_room(self) -> bool:
        """Return whether more may be added: not when so much waits and cannot be committed."""
        if self._bytes >= WRITE_BEHIND_BYTES:
            self.flush()
        return self._bytes < WRITE_BEHIND_BYTES

    def has_unwritten(self, topic: Topic) -> bool:
        """Return whether something of the topic is not stored yet."""
        return topic in self._segments

    def add(self, topic: Topic, segments: list[Segment], now: float) -> None:
        """Take segments that the topic releases now."""
        self._segments.setdefault(topic, []).extend(segments)
        self._bytes += sum(segment.size for segment in segments)
        self._counts[topic] = self._counts.get(topic, 0) + sum(segment.count for segment in segments)
        is_full = self._counts[topic] > topic.mem_queue_size
        self._context.timers.schedule(now if is_full else now + WRITE_BEHIND_SECONDS, self)

    def on_timer(self, now: float) -> float | None:
        self.flush()
        return now + WRITE_BEHIND_SECONDS if self._segments else None

    def flush(self) -> None:
        """Commit the messages that are still unfinished. Those of a failed commit stay."""
        waiting, self._segments, self._bytes = self._segments, {}, 0
        self._counts.clear()
        writes = {topic: self._unfinished(topic, segments) for topic, segments in waiting.items() if not topic.exiting}
        failed: dict[IBackendQueue, BackendError] = {}
        by_backend: dict[IBackend, list[Topic]] = {}
        for topic, segments in writes.items():
            if segments:
                by_backend.setdefault(topic.log.backend, []).append(topic)
        for backend, topics in by_backend.items():
            of_backend = [(topic.log.queue, writes[topic]) for topic in topics]
            local = backend.local if ICopyingBackend.providedBy(backend) else backend
            failed.update(commit_to(local, of_backend, False, self._context.log))
        for topic in writes:
            if topic.log.queue in failed:
                self._segments[topic] = waiting[topic]
                self._bytes += sum(segment.size for segment in waiting[topic])
            else:
                topic.log.committed(waiting[topic])
                topic.reader.notify()
        if failed:
            self.error = next(iter(failed.values()))
            self._health.record_commit(self.error)
        elif by_backend:
            self._health.record_commit(None)

    def stop(self) -> None:
        """The broker stops: commit what waits, and say how much it is."""
        for topic, segments in self._segments.items():
            count = sum(segment.count for segment in segments)
            text = "TOPIC({topic}): flushing {count} memory messages to backend"
            self._context.log("info", text, topic=topic.name, count=count)
        for _ in range(STOP_ATTEMPTS):
            self.flush()
            if not self._segments:
                return
        for topic, segments in self._segments.items():
            count = sum(segment.count for segment in segments)
            text = "TOPIC({topic}): {count} memory messages could not be stored - {error}"
            self._context.log("error", text, topic=topic.name, count=count, error=self.error)

    def _unfinished(self, topic: Topic, segments: list[Segment]) -> list[Segment]:
        """The segments that some durable channel, or the first one to come, still wants; all when they are retained."""
        if topic.reader.retention_policy.is_on:
            return segments
        cursors = [channel for channel in topic.channels.values() if channel.cursor is not None]
        if not cursors:
            return [segment for segment in segments if segment.end > topic.released]
        finished_below = min(channel.finished_below() for channel in cursors)
        return [segment for segment in segments if segment.end > finished_below]
