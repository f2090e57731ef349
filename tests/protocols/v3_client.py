"""A V3 client on a broker in memory, for dialogues."""

from __future__ import annotations

from nsqtw.protocols.v3.factory import V3Factory
from nsqtw.runtime.storage_thread import perform
from nsqtw.testing.protocols import Connection, SessionHarness
from tests.core.harness import goes_on
from tests.protocols import v3_frames as v3
from tests.protocols.v3_frames import Answer, Delivered, answers, delivered


def save_channels(stage: SessionHarness) -> None:
    """New channels are durable."""
    checkpointer = stage.broker.checkpointer
    while goes_on(checkpointer):
        save = checkpointer.begin(stage.now)
        checkpointer.end(save, perform(save, stage.broker.positions, stage.broker.log))


class Client:
    """A client that has said hello, on a broker in memory."""

    def __init__(self, stage: SessionHarness, *, said: bytes = v3.hello()) -> None:
        self.stage = stage
        self.connection = Connection(stage, V3Factory())
        self.greeting = answers(self.connection.send(said))

    def says(self, *frames: bytes) -> list[Answer]:
        written = self.connection.send(b"".join(frames))
        return answers(written) + self.hears()

    def hears(self) -> list[Answer]:
        save_channels(self.stage)
        return answers(self.connection.read())

    @property
    def is_closed(self) -> bool:
        return bool(self.connection.session.closing)


def names(written: list[Answer]) -> list[str]:
    return [answer.name for answer in written]


def bodies(written: list[Answer]) -> list[bytes]:
    return [message.body for message in delivered(written)]


def deliveries(client: Client, *frames: bytes) -> list[Delivered]:
    written = client.says(*frames)
    return delivered(written + client.hears())
