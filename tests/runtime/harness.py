"""A pump whose time, writer and turns the test owns."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.testing import MemoryReactorClock

from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.group_commit import CommitBatch
from nsqtw.errors import BackendError
from nsqtw.runtime.pump import Pump
from tests.core.harness import BrokerHarness


class MemoryWriter:
    """Keeps saves until the test lets them be done."""

    def __init__(self) -> None:
        self.checkpointer: list[tuple[CheckpointJob, Callable[[CheckpointJob, BackendError | None], None]]] = []
        self.group_commit: list[tuple[CommitBatch, Callable[..., None]]] = []

    def save(self, save: CheckpointJob, done: Callable[[CheckpointJob, BackendError | None], None]) -> None:
        self.checkpointer.append((save, done))

    def commit(self, batch: CommitBatch, done: Callable[..., None]) -> None:
        self.group_commit.append((batch, done))

    def land(self) -> None:
        batch, done = self.group_commit.pop(0)
        done(batch, batch.commit(lambda level, text: None))

    def finish(self, error: BackendError | None = None) -> CheckpointJob:
        save, done = self.checkpointer.pop(0)
        done(save, error)
        return save


class Harness:
    """A pump on a reactor whose time the test owns."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.core = BrokerHarness()
        self.broker = self.core.broker
        self.core.save()
        self.writer = MemoryWriter()
        self.pump = Pump(self.reactor, self.broker, self.writer, self._now)

    def _now(self) -> float:
        return self.core.now + self.reactor.seconds()

    def turn(self) -> None:
        self.reactor.advance(0)
