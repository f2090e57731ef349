"""What tests of dead letters, redrive and expiry share."""

from __future__ import annotations

from collections.abc import Mapping

from nsqtw.core.policy.dead_letters import RETRY_SECONDS
from nsqtw.core.segment import Segment
from nsqtw.errors import BackendError
from nsqtw.message_headers import decode_headers, encode_headers
from tests.core.harness import BrokerHarness, Reader, messages


def settle(core: BrokerHarness, steps: int = 12) -> None:
    """Do turns, and the checkpoints that are waited for, until what is on its way has arrived."""
    for _ in range(steps):
        core.turn()
        if core.broker.checkpointer.are_waited_for:
            core.save()


def retry(core: BrokerHarness) -> None:
    """As `settle`, when a step has failed before."""
    core.turn()
    core.wait(RETRY_SECONDS)
    settle(core)


def put(core: BrokerHarness, *bodies: bytes, topic: str = "t", **headers: str) -> None:
    """Publish messages with headers."""
    answers: list[Exception | None] = []
    encoded = encode_headers(headers)
    core.topic(topic).put(bodies, 0, answers.append, [encoded] * len(bodies) if encoded else None)
    core.turn()
    assert answers == [None]


def stored(core: BrokerHarness, topic: str) -> dict[bytes, dict[str, str]]:
    """What the log of a topic has: the headers of each message by body."""
    log = core.topic(topic).log
    found: dict[bytes, dict[str, str]] = {}
    segments: list[Segment] = log.queue.read(0, 1 << 30)
    for segment in segments:
        for index, message in enumerate(messages(segment.frames)):
            found[message.body] = decode_headers(segment.headers_of(index))
    return found


def bodies(core: BrokerHarness, topic: str) -> list[bytes]:
    """What the log of a topic has, as often as it has it."""
    segments: list[Segment] = core.topic(topic).log.queue.read(0, 1 << 30)
    return [message.body for segment in segments for message in messages(segment.frames)]


def fail(reader: Reader) -> list[bytes]:
    """Requeue all that the reader gets, once."""
    got = reader.read()
    for message in got:
        assert reader.requeue(message.id) is None
    return [message.body for message in got]


class FailingCommits:
    """While it is entered, commits to one topic fail."""

    def __init__(self, core: BrokerHarness, topic: str) -> None:
        self._core = core
        self._topic = topic

    def __enter__(self) -> None:
        backend, topic = self._core.backend, self._topic
        commit = self._commit = backend.commit

        def failing(writes: list, durable: bool) -> Mapping:
            bad = [queue for queue, _ in writes if queue is backend.queue(topic)]
            done = commit([entry for entry in writes if entry[0] not in bad], durable)
            return {**done, **{queue: BackendError("no space") for queue in bad}}

        backend.commit = failing

    def __exit__(self, *exception: object) -> None:
        self._core.backend.commit = self._commit
