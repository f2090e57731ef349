"""
The whole import, before the broker is loaded.

Each topic is imported by itself, in this order; each step is on stable storage before the next one begins:

    1  its queue files are read into the scratch database
    2  the journal records where its log ends
    3  the messages are written to the log, then the journal records its new end
    4  the cursors are saved, in one transaction
    5  the old files are moved to nsqd.files/
    6  the journal entry is removed

Interrupted before 4, the topic starts over: a log that was empty before is deleted, and in another one the half import
is dropped in the transaction of the next attempt. Interrupted after 4, only its files are left to be moved. So each
message is imported once, whenever the process dies, because what is on disk survives it. If an nsqd was started on
these files in between, they are imported again: our log does not have its new messages.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count

from nsqtw.backends.files import Files, backend_error
from nsqtw.core.broker import Broker
from nsqtw.core.checkpoint import Checkpoint, CursorState, NamedTopic, SavedState, TopicState
from nsqtw.core.positions import IPositions
from nsqtw.core.recovery import repair
from nsqtw.errors import BackendError
from nsqtw.nsqd_import.bodies import Bodies
from nsqtw.nsqd_import.diskqueue import QueueFiles, QueueReader
from nsqtw.nsqd_import.journal import Journal, JournalEntry
from nsqtw.nsqd_import.log_copy import LogCopy
from nsqtw.nsqd_import.records import TOPIC, Records, remove_scratch
from nsqtw.nsqd_import.sources import SourceTopic, find_topics
from nsqtw.nsqd_import.topic import MAX_RETRIED, Counts, TopicImport

OLD_FILES = "nsqd.files"
"""The directory of the old files. No topic's directory has a dot in its name."""


def take_over(
    directory: str,
    names: Sequence[NamedTopic],
    broker: Broker,
    positions: IPositions,
    saved: SavedState,
    stored: Sequence[str],
) -> None:
    """
    Take over what an nsqd left in the data path `directory`, and finish what an earlier start has begun of that.
    `names` are those of its nsqd.dat, `saved` are the positions as they were loaded, and then as they are saved,
    `stored` the names of the topics that the backend has something of. NsqtwError when it cannot be done: nothing is
    lost, the next start tries again.
    """
    if broker.options.backend.partition(":")[0] == "dummy":
        broker.log("warn", "IMPORT: nsqd's files are left alone, for the backend dummy keeps nothing")
        return
    with _errors():
        sources = find_topics(directory, names, broker.log)
        with closing(Journal(directory)) as journal:
            for name in journal.entries:
                sources[0].setdefault(name, SourceTopic(name))
            for topics in filter(None, sources):
                broker.log("info", f"IMPORT: taking over {len(topics)} topics that an nsqd left in {directory}")
                _Import(directory, broker, positions, saved, journal).run(list(topics.values()), stored)
            remove_scratch(directory)


class _Import:
    """One run of it."""

    def __init__(
        self, directory: str, broker: Broker, positions: IPositions, saved: SavedState, journal: Journal
    ) -> None:
        self._directory = directory
        self._broker = broker
        self._positions = positions
        self._saved = saved
        self._journal = journal
        self._files = Files()
        self._known = {state.name: state for state in saved.topics}

    def run(self, topics: Sequence[SourceTopic], stored: Sequence[str]) -> None:
        broker = self._broker
        ends = [broker.backend.queue(name).end for name in {*stored, *self._known}]
        broker.sequences.start(self._saved.next_block, max(ends, default=0))
        quiet = [topic for topic in topics if not self._import_messages(topic)]
        self._save([self._named(topic) for topic in quiet])
        self._put_away(quiet)
        self._saved.next_block = broker.sequences.take(1)
        broker.log("info", f"IMPORT: done; nsqd's files are in {os.path.join(self._directory, OLD_FILES)}")

    def _import_messages(self, topic: SourceTopic) -> bool:
        """Import a topic with messages. Returns False for one without."""
        entry = self._journal.entries.get(topic.name)
        if entry is not None and self._is_saved(entry) and self._has_changed(topic, entry):
            text = f"TOPIC({topic.name}): an nsqd went on with what was imported; it is imported again, as it is now"
            self._broker.log("warn", text)
            self._journal.finish(topic.name)
            entry = None
        if entry is None or not self._is_saved(entry):
            with closing(Records(self._directory)) as records:
                if not self._import_records(topic, entry, records):
                    return False
        self._put_away([topic])
        self._journal.finish(topic.name)
        return True

    def _is_saved(self, entry: JournalEntry) -> bool:
        """Return whether positions have the topic as the import wrote it."""
        state = self._known.get(entry.topic)
        return state is not None and entry.written is not None and state.end >= entry.written

    def _has_changed(self, topic: SourceTopic, entry: JournalEntry) -> bool:
        """Return whether some file is not what the import read; those that are gone were put away."""
        return any(entry.files.get(name) != like for name, like in topic.files(self._directory).items())

    def _import_records(self, topic: SourceTopic, entry: JournalEntry | None, records: Records) -> bool:
        """Bring the messages of a topic from its old files to its log. False when there is nothing to do."""
        started = time.monotonic()
        name = topic.name
        log = self._broker.open_log(name)
        state = self._named(topic)
        queues = _numbered(topic, state)
        read = sum(records.add(number, self._reader(files).records()) for number, files in queues.items())
        if entry is None:
            if not read:
                return False
            entry = self._journal.begin(name, log.queue.end, was_empty=log.queue.first == log.queue.end)
        elif entry.was_empty and log.queue.first != log.queue.end:
            log.queue.delete()
            log = self._broker.open_log(name)
        repair(state, log, self._broker.positions)
        with closing(Bodies(self._directory, queues)) as bodies:
            topic_import = TopicImport(state, log.queue, entry.log_end, records, bodies)
            for number in topic_import.deliveries.forgiven:
                self._broker.log(
                    "warn",
                    f"TOPIC({name}): channel {state.cursors[number].name} has over {MAX_RETRIED} messages that were "
                    "delivered before; their attempts are not taken over",
                )
            copy = LogCopy(self._broker.backend, log.queue, self._broker.sequences.take, self._broker.node_id)
            counts = topic_import.write(copy)
        self._journal.record_written(name, state.end, topic.files(self._directory))
        self._save([state])
        seconds = time.monotonic() - started
        self._broker.log("info", f"TOPIC({name}): imported {_told(counts, state)}, in {seconds:.1f} s")
        return True

    def _reader(self, files: QueueFiles) -> QueueReader:
        return QueueReader(self._directory, files, self._broker.options.max_msg_size, self._complain)

    def _complain(self, file: str, position: int, why: str) -> None:
        self._broker.log("warn", f"IMPORT: {file} at {position}: {why}")

    def _named(self, topic: SourceTopic) -> TopicState:
        """The state of a topic as it was saved, with all its channels, and paused where nsqd had it so."""
        state = self._known.get(topic.name)
        if state is None:
            first = self._broker.backend.queue(topic.name).first
            state = TopicState(topic.name, released=first, end=first)
        channel_names = {cursor.name for cursor in state.cursors}
        # A new channel begins at `released`, as if it was created just now.
        state.cursors += [
            CursorState(name, next=state.released, taken_total=state.released_total)
            for name in topic.channels
            if name not in channel_names
        ]
        if topic.named is not None:
            state.paused = topic.named.paused
            paused = {channel.name: channel.paused for channel in topic.named.channels}
            for cursor in state.cursors:
                cursor.paused = paused.get(cursor.name, cursor.paused)
        return state

    def _save(self, states: Sequence[TopicState]) -> None:
        """Save topics with their cursors, on stable storage when this returns."""
        for state in states:
            for cursor in state.cursors:
                cursor.pending_count += len(cursor.pending)
        self._positions.save(Checkpoint(topics=list(states)))
        # Reserving is durable, and with it what was saved before.
        self._positions.reserve(self._saved.next_block or 0)
        for state in states:
            if state.name not in self._known:
                self._known[state.name] = state
                self._saved.topics.append(state)
            for cursor in state.cursors:
                cursor.pending.clear()
                cursor.emptied = False

    def _put_away(self, topics: Sequence[SourceTopic]) -> None:
        """Move the old files of topics out of the way; none of them is ever replaced or removed."""
        names = [name for topic in topics for name in topic.file_names()]
        if not names:
            return
        old_files = os.path.join(self._directory, OLD_FILES)
        if not os.path.isdir(old_files):
            self._files.make_directory(old_files)
        taken = set(self._files.names(old_files))
        for name in names:
            free = next(other for other in _names_like(name) if other not in taken)
            self._files.rename(os.path.join(self._directory, name), os.path.join(old_files, free))
        self._files.sync_directory(old_files)
        self._files.sync_directory(self._directory)


def _numbered(topic: SourceTopic, state: TopicState) -> dict[int, QueueFiles]:
    """The queue files of a topic by the number of the queue, which is that of the cursor of its channel."""
    queues = {number: topic.channels.get(cursor.name) for number, cursor in enumerate(state.cursors)}
    queues[TOPIC] = topic.own
    return {number: files for number, files in queues.items() if files is not None}


def _names_like(name: str) -> Iterator[str]:
    """A name, and others for the case that it is taken."""
    yield name
    yield from (f"{name}.{number}" for number in count(1))


def _told(counts: Counts, state: TopicState) -> str:
    """Return the log line about the import."""
    text = f"{counts.handed + counts.own} messages"
    if counts.own:
        text += f", {counts.own} of them not handed to any channel yet"
    depths = [
        f"{cursor.name} {state.released_total - cursor.taken_total + cursor.pending_count}" for cursor in state.cursors
    ]
    return f"{text}; left to read for its channels: {', '.join(depths) or 'none yet'}"


@contextmanager
def _errors() -> Iterator[None]:
    """Turn foreign errors into ours."""
    try:
        yield
    except OSError as error:
        raise backend_error(error, f"import {error.filename or ''}".rstrip()) from error
    except sqlite3.Error as error:
        raise BackendError(f"import: scratch database: {error}") from error
