"""When the snapshot is written, and what becomes of one that cannot be used."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import eventAsText, globalLogPublisher

from nsqtw.lookupd.snapshot import pieces
from nsqtw.lookupd.snapshot_file import DELAY_SECONDS, SECONDS, SnapshotFile
from nsqtw.runtime.turns import PlainTurns
from nsqtw.testing.files import FaultyFiles
from tests.lookupd.harness import LookupdHarness


class _Threads:
    """Does what a thread would, when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def callInThreadWithCallback(self, done: Any, function: Any, *arguments: Any) -> None:
        self.waiting.append(lambda: done(True, function(*arguments)))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one()


class Reactor(Clock):
    """Time and threads that the test owns."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = _Threads()
        self.turns = 0
        """How often something was left for a later turn."""

    def callLater(self, when: float, what: Any, *arguments: Any, **more: Any) -> Any:
        self.turns += when == 0
        return super().callLater(when, what, *arguments, **more)

    def getThreadPool(self) -> _Threads:
        return self.threads

    def callFromThread(self, function: Any, *arguments: Any) -> None:
        function(*arguments)


class Harness:
    """One nsqlookupd with its file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.core = LookupdHarness()
        self.reactor = Reactor()
        turns = PlainTurns(self.reactor)
        self.now: Callable[[], float] = self.reactor.seconds
        turns.now = lambda: self.now()  # type: ignore[method-assign]
        self.files = FaultyFiles(str(directory))
        self.path = directory / "registrations.snapshot"
        self.snapshot = SnapshotFile(str(directory), self.core.registrations, turns, self.files)
        self.snapshot.load()
        self.snapshot.start()

    def wait(self, seconds: float) -> None:
        self.reactor.advance(seconds)
        self.reactor.threads.run()

    def create(self, topic: str) -> None:
        self.core.registrations.create_topic(topic)

    def has(self, topic: str) -> bool:
        """Whether the file knows the topic."""
        return self.path.exists() and f'"{topic}"'.encode() in self.path.read_bytes()

    def stop(self) -> None:
        done = Deferred.fromCoroutine(self.snapshot.stop())
        self.reactor.threads.run()
        assert done.called


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The texts of the log."""
    observer = EventLoggingObserver()
    texts: list[str] = []

    def observe(event: Any) -> None:
        observer(event)
        texts.append(eventAsText(event, includeTimestamp=False, includeSystem=False))

    globalLogPublisher.addObserver(observe)
    yield texts
    globalLogPublisher.removeObserver(observe)


def test_a_change_is_stored_at_once_and_the_next_a_second_later(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.wait(100)
    assert not harness.path.exists()
    harness.create("a")
    harness.wait(DELAY_SECONDS)
    assert harness.has("a")
    harness.create("b")
    harness.wait(SECONDS / 2)
    assert not harness.has("b")
    harness.wait(SECONDS / 2)
    assert harness.has("b")
    assert not harness.reactor.getDelayedCalls()


def test_a_ping_is_no_change(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    nsqd = harness.core.nsqd("t")
    harness.wait(SECONDS)
    harness.core.registrations.touch(nsqd, harness.core.now)
    assert not harness.reactor.getDelayedCalls()


def test_what_changes_while_it_is_written_is_written_next(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create("a")
    harness.reactor.advance(DELAY_SECONDS)
    harness.create("b")
    harness.reactor.threads.run()
    assert not harness.has("b")
    harness.wait(SECONDS)
    assert harness.has("b")


def test_a_large_one_lets_others_in_between_and_takes_its_time(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for number in range(20):
        harness.create(f"t{number}")
    slow = iter(range(10**6))
    harness.now = lambda: next(slow) / 10
    harness.reactor.turns = 0
    harness.reactor.advance(DELAY_SECONDS)
    assert harness.reactor.turns >= 20
    harness.reactor.threads.run()
    took = next(slow) / 10
    harness.create("late")
    (call,) = harness.reactor.getDelayedCalls()
    assert call.getTime() - harness.reactor.seconds() > 10 * took


def test_the_stop_stores_what_there_is(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create("a")
    harness.stop()
    assert harness.has("a")
    assert not harness.reactor.getDelayedCalls()


def test_the_stop_waits_for_what_is_being_written(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.create("a")
    harness.reactor.advance(DELAY_SECONDS)
    harness.create("b")
    harness.stop()
    assert harness.has("b")


def test_a_full_disk_is_said_once_and_tried_again(tmp_path: Path, said: list[str]) -> None:
    harness = Harness(tmp_path)
    harness.create("a")
    harness.wait(SECONDS)
    harness.files.fail("write", errno.ENOSPC, times=3)
    harness.create("b")
    for _ in range(3):
        harness.wait(SECONDS)
    assert harness.has("a")
    assert not harness.has("b")
    harness.wait(SECONDS)
    assert harness.has("b")
    assert [path.name for path in tmp_path.iterdir()] == [harness.path.name]
    about = [text for text in said if text.startswith("DB: snapshot")]
    assert about == [
        f"DB: snapshot {harness.path} cannot be written - no space left on device",
        f"DB: snapshot {harness.path} is written again",
    ]


def test_a_restart_knows_what_was_known(tmp_path: Path, said: list[str]) -> None:
    harness = Harness(tmp_path)
    harness.core.nsqd("t/c", name="a")
    harness.stop()
    again = Harness(tmp_path)
    assert again.core.registrations.channels("t") == ["c"]
    assert f"DB: snapshot {harness.path} has 1 producers and 1 topics" in said


@pytest.mark.parametrize("damage", ["", "no snapshot\n", "cut", "directory"])
def test_what_cannot_be_used_is_moved_aside(tmp_path: Path, said: list[str], damage: str) -> None:
    path, core = tmp_path / "registrations.snapshot", LookupdHarness()
    core.nsqd("t")
    if damage == "directory":
        path.mkdir()
    else:
        whole = b"".join(pieces(core.registrations, core.now))
        path.write_bytes(whole[:-30] if damage == "cut" else damage.encode())
    harness = Harness(tmp_path)
    assert harness.core.registrations.topics() == []
    (line,) = [text for text in said if "is moved to" in text]
    assert line.endswith(f"{path} is moved to {path}.bad, nothing is known")
    assert not path.exists()
    assert (tmp_path / "registrations.snapshot.bad").exists()
    harness.create("u")
    harness.wait(SECONDS)
    assert harness.has("u")
