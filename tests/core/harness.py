"""A broker without an edge: the test owns time, the end of the turn, and the crash."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from nsqtw.backends.dummy import DummyFactory
from nsqtw.core import recovery
from nsqtw.core.broker import Broker
from nsqtw.core.channel import Channel
from nsqtw.core.checkpoint import NamedTopic, SavedState
from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.checkpointer import Checkpointer
from nsqtw.core.client import Client
from nsqtw.core.consumer import Consumer
from nsqtw.core.group_commit import CommitBatch
from nsqtw.core.pending import PAGE_ROWS
from nsqtw.core.segment import BODY_AT, ID_AT
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError
from nsqtw.nsqd.build import measure
from nsqtw.options.broker import Options
from nsqtw.runtime.storage_thread import perform
from nsqtw.testing.memory import MemoryPositions

START = 1000.0
WALL_NS = 1_700_000_000 * 10**9


class Message:
    """A frame as a consumer reads it."""

    def __init__(self, frame: bytes) -> None:
        self.timestamp_ns, self.attempts = struct.unpack_from(">qH", frame, 8)
        self.id = frame[ID_AT:BODY_AT]
        self.body = frame[BODY_AT:]

    def __repr__(self) -> str:
        return f"<{self.id.decode()} {self.body!r} attempts={self.attempts}>"


def messages(frames: bytes) -> list[Message]:
    """Cut what was delivered into messages."""
    found, offset = [], 0
    while offset < len(frames):
        (size,) = struct.unpack_from(">i", frames, offset)
        found.append(Message(frames[offset : offset + 4 + size]))
        offset += 4 + size
    return found


class Reader:
    """A consumer with its inbox."""

    def __init__(self, harness: BrokerHarness, channel: Channel, ready: int = 100, **settings: Any) -> None:
        self.core = harness
        self.channel = channel
        self.client = Client("1.2.3.4:5", 0)
        self.frames: list[bytes] = []
        self.disconnected = False
        options = harness.options
        self.consumer = Consumer(
            self.client, harness.broker.timers, self.frames.append, self._disconnect, options.msg_timeout
        )
        for name, value in settings.items():
            setattr(self.consumer, name, value)
        channel.subscribe(self.consumer)
        channel.set_ready(self.consumer, ready)

    def _disconnect(self) -> None:
        self.disconnected = True

    def read(self) -> list[Message]:
        """What arrived since the last time, after a turn."""
        self.core.turn()
        frames, self.frames[:] = b"".join(self.frames), []
        return messages(frames)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.read()]

    def finish(self, *ids: bytes) -> list[tuple[bytes, str]]:
        """As a session does it: what comes in order is not looked up."""
        if ids and b"".join(ids) == self.consumer.in_flight.next_ids(len(ids), b""):
            self.channel.finish_next(self.consumer, len(ids), self.core.now)
            return []
        return self.channel.finish(self.consumer, list(ids), self.core.now)

    def requeue(self, message_id: bytes, delay: float = 0.0) -> str | None:
        return self.channel.requeue(self.consumer, message_id, delay, self.core.now)

    def touch(self, message_id: bytes) -> str | None:
        return self.channel.touch(self.consumer, message_id, self.core.now)

    def leave(self) -> None:
        self.channel.leave(self.consumer)


def goes_on(checkpointer: Checkpointer) -> bool:
    """Whether a save is to follow that somebody waits for, or that the cut lacks."""
    return checkpointer.are_waited_for or checkpointer.are_in_parts


class BrokerHarness:
    """One broker and what survives its crashes."""

    make_options = Options

    def __init__(self, page_rows: int = PAGE_ROWS, **options: Any) -> None:
        self.options = self.make_options(**{"node_id": 617, **options})
        self.now = START
        self.wall_ns = WALL_NS
        """What the wall clock of the next process is ahead of `now`."""
        self.damage: list[tuple[str, str, int, int, str]] = []
        self.lines: list[tuple[str, str]] = []
        self.written: list[list[NamedTopic]] = []
        """What nsqd.dat was made to name, each time."""
        self.positions = MemoryPositions()
        self.page_rows = page_rows
        self.lands_at_once = True
        self.batch: CommitBatch | None = None
        """The one on its way, when flights do not land at once."""
        self.backend = DummyFactory().open("", "", self.options, self.report)
        self.broker = self._start(self.positions.load())

    def report(self, topic: str, where: str, first: int, last: int, why: str) -> None:
        self.damage.append((topic, where, first, last, why))

    def log(self, level: str, text: str, /, **fields: object) -> None:
        self.lines.append((level, text.format(**fields) if fields else text))

    def write_names(self, topics: Sequence[NamedTopic]) -> None:
        self.written.append(list(topics))

    def _start(self, saved: SavedState, named: Iterable[NamedTopic] = ()) -> Broker:
        memory = DummyFactory().open("", "", self.options, self.report)
        broker = Broker(
            self.options,
            self.backend,
            memory,
            positions=self.positions,
            log=self.log,
            start_time=1,
            measure=measure(self.options),
            page_rows=self.page_rows,
        )
        broker.wall_offset_ns = self.wall_ns
        recovery.load(broker, saved, self.stored(), self.now, named)
        self.broker = broker
        self.turn()
        return broker

    def stored(self) -> list[str]:
        """The topics that a backend which outlives the process would have something of."""
        return [name for name, queue in self.backend._queues.items() if queue.size]

    # -- what edges do

    def topic(self, name: str = "t") -> Topic:
        return self.broker.topic(name)

    def channel(self, name: str = "c", topic: str = "t") -> Channel:
        return self.topic(topic).channel(name, self.now)

    def put(
        self,
        *bodies: bytes,
        delay_ms: int = 0,
        topic: str = "t",
        headers: Sequence[bytes] | None = None,
        channel: str = "",
    ) -> list[Exception | None]:
        """Publish; the list gets the waiter's answer."""
        answers: list[Exception | None] = []
        self.topic(topic).put(bodies, delay_ms, answers.append, headers, channel)
        return answers

    def reader(self, channel: str = "c", topic: str = "t", **settings: Any) -> Reader:
        return Reader(self, self.channel(channel, topic), **settings)

    # -- time

    def turn(self) -> None:
        """The end of a reactor turn, until nothing is left to do."""
        self.broker.tick(self.now)
        while True:
            if self.broker.to_commit:
                self.broker.commit(self.now)
            if self.batch is None:
                self.batch = self.broker.group_commit.begin(self.now)
            done = self.batch is not None and self.lands_at_once and bool(self.batch.sealed)
            if self.batch is not None and self.lands_at_once:
                self._land()
            if not (self.broker.serve(self.now) or self.broker.to_commit or done):
                break
            if self.batch is not None:
                break

    def land(self) -> None:
        """The flight that is on its way is done."""
        self._land()
        self.turn()

    def _land(self) -> None:
        assert self.batch is not None
        batch, self.batch = self.batch, None
        self.broker.group_commit.end(batch, batch.commit(self.log), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    # -- saving and dying

    def begin_save(self) -> CheckpointJob:
        self.turn()
        return self.broker.checkpointer.begin(self.now)

    def end_save(self, save: CheckpointJob, error: BackendError | None = None) -> None:
        self.broker.checkpointer.end(save, error)

    def save(self, error: BackendError | None = None) -> None:
        """Save everything, or fail to."""
        while True:
            save = self.begin_save()
            self.end_save(save, error or perform(save, self.positions, self.log, self.write_names))
            if error is not None or not goes_on(self.broker.checkpointer):
                break

    def crash(self, named: Iterable[NamedTopic] = ()) -> None:
        """Kill the process, and start another one on what was saved and committed. `named` is what nsqd.dat has."""
        self._start(deepcopy(self.positions.load()), named)

    def lose_positions(self, *named: NamedTopic) -> None:
        """As crash, and what was saved is lost too."""
        self.positions = MemoryPositions()
        self.positions.saved.lost = True
        self.crash(named=named)

    def stop_and_start(self) -> None:
        """A clean stop and a start."""
        self.broker.stop(self.now)
        self.save()
        self.crash()
