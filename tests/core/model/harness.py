"""Brokers of which it is known where each message was when it was saved."""

from __future__ import annotations

from attrs import define, field

from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness
from tests.core.model.places import Census, census
from tests.core.stored_harness import StoredHarness


@define
class SavedTopic:
    """A topic when it was saved: the end of its log, and the places of all messages by channel."""

    end: int
    channels: dict[str, Census] = field(factory=dict)


class Observed(BrokerHarness):
    """A broker that takes a census with each checkpoint."""

    @property
    def saved_topics(self) -> dict[str, SavedTopic]:
        """What the last checkpoints that were saved have of each topic."""
        found: dict[str, SavedTopic] = self.__dict__.setdefault("_saved_topics", {})
        return found

    def begin_save(self) -> CheckpointJob:
        self.turn()
        now = {name: self._look_at(name) for name in self.broker.topics}
        save = super().begin_save()
        self._being_saved = {topic.name: now[topic.name] for topic in save.checkpoint.topics}
        return save

    def end_save(self, save: CheckpointJob, error: BackendError | None = None) -> None:
        super().end_save(save, error)
        if error is None:
            self.saved_topics.update(self._being_saved)

    def _look_at(self, name: str) -> SavedTopic:
        topic = self.topic(name)
        return SavedTopic(topic.log.end, {one: census(channel, self.now) for one, channel in topic.channels.items()})


class InMemory(Observed):
    """One whose storage is in memory."""


class OnFiles(Observed, StoredHarness):
    """One on the files of a backend."""
