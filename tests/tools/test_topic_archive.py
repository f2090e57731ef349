"""The archive of one topic, without a broker: when messages are written, synced and finished."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from nsqtw.client.message import Message
from nsqtw.tools import output_file
from nsqtw.tools.file_names import FileNames
from nsqtw.tools.output_file import FileRules
from nsqtw.tools.topic_archive import TopicArchive
from tests.tools.test_file_names import NOON
from tests.tools.test_output_file import contents, in_one, in_two


class Harness:
    """An archive, its source, its thread, its log and the owner of its messages."""

    def __init__(self, rules: FileRules, max_in_flight: int = 3, skips_empty: bool = False) -> None:
        self.now = NOON
        self.events: list[str] = []
        self.address = "a:1"
        self.is_starved = False
        self.exit_text = ""
        self._soon: list[Callable[[], None]] = []
        self._in_thread: list[tuple[Callable[[], bool], Deferred[bool]]] = []
        self._number = 0
        self.archive = TopicArchive(
            "t/c",
            rules,
            FileNames.of_topic(
                "t",
                pattern="<TOPIC><REV>.<DATETIME>.log",
                datetime_pattern="%H",
                host="h",
                has_revisions=rules.needs_revisions,
                is_gzip=rules.gzip_level > 0,
            ),
            max_in_flight=max_in_flight,
            skips_empty=skips_empty,
            clock=lambda: self.now,
            call_soon=self._soon.append,
            in_thread=self._begin_in_thread,
            log=self,
        )
        self.archive.source = self

    def _begin_in_thread(self, step: Callable[[], bool]) -> Deferred[bool]:
        done: Deferred[bool] = Deferred()
        self._in_thread.append((step, done))
        return done

    # -- the source, the owner, the log

    def stop(self) -> None:
        self.events.append("stop")

    def finish(self, message: Message) -> None:
        message.has_responded = True
        self.events.append(f"FIN {message.body.decode()}")

    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None:
        message.has_responded = True
        self.events.append(f"REQ {message.body.decode()} {delay}")

    def touch(self, message: Message) -> None: ...

    def debug(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...

    def fatal(self, text: str) -> None:
        self.exit_text = text

    # -- the test

    def receive(self, *bodies: str) -> None:
        for body in bodies:
            self._number += 1
            self.archive.handle(Message(self, 0, 1, b"%016d" % self._number, body.encode()))

    def turn(self) -> int:
        """Let one turn of the loop pass. Returns how many steps wait in threads."""
        soon, self._soon[:] = list(self._soon), []
        for function in soon:
            function()
        return len(self._in_thread)

    def end_step(self) -> None:
        """Carry out the step in the thread."""
        ((step, done),) = self._in_thread
        self._in_thread.clear()
        try:
            result = step()
        except OSError as error:
            done.errback(error)
        else:
            done.callback(result)

    def settle(self) -> None:
        """Carry out all that is due."""
        while self._soon or self._in_thread:
            if self.turn():
                self.end_step()

    def take(self) -> list[str]:
        events, self.events = self.events, []
        return events


def test_messages_are_finished_after_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(in_one(tmp_path), max_in_flight=4)
    monkeypatch.setattr(os, "fsync", lambda fd: harness.events.append("fsync"))
    harness.receive("1", "2")
    harness.settle()
    events = harness.take()
    assert events[-2:] == ["FIN 2", "FIN 1"], "a new file is synced at once"
    assert {*events[:-2]} == {"fsync"}
    harness.receive("3")
    assert harness.turn() == 0, "without a sync no thread is needed"
    harness.receive("4", "5")
    harness.settle()
    assert harness.take() == []
    harness.receive("6")
    assert harness.turn() == 1, "as many wait as may be in flight"
    assert harness.take() == []
    harness.end_step()
    assert harness.take() == ["fsync", "FIN 6", "FIN 5", "FIN 4", "FIN 3"]
    harness.receive("7")
    harness.archive.tick()
    harness.settle()
    assert harness.take() == ["fsync", "FIN 7"]
    harness.receive("8")
    harness.is_starved = True
    harness.settle()
    assert harness.take() == ["fsync", "FIN 8"]
    assert contents(tmp_path) == {"t.07.log": b"1\n2\n3\n4\n5\n6\n7\n8\n"}


def test_messages_that_arrive_during_a_sync_wait_for_the_next(tmp_path: Path) -> None:
    harness = Harness(in_one(tmp_path))
    harness.receive("1")
    assert harness.turn() == 1
    harness.receive("2")
    harness.archive.tick()
    assert harness.turn() == 1, "one step at a time"
    harness.end_step()
    assert harness.take() == ["FIN 1"]
    assert harness.turn() == 1
    harness.end_step()
    assert harness.take() == ["FIN 2"]


def test_rotation_by_size_counts_each_message(tmp_path: Path) -> None:
    harness = Harness(in_one(tmp_path, rotate_size=3), max_in_flight=100)
    harness.receive(*"12345")
    harness.settle()
    assert contents(tmp_path) == {"t-000000.07.log": b"1\n2\n", "t-000001.07.log": b"3\n4\n", "t-000002.07.log": b"5\n"}
    assert harness.take() == ["FIN 5", "FIN 4", "FIN 3", "FIN 2", "FIN 1"]


def test_rotation_by_time_and_name(tmp_path: Path) -> None:
    harness = Harness(in_one(tmp_path, rotate_interval=60.0))
    for seconds in (0, 60, 61, 3600):
        harness.now = NOON + seconds
        harness.receive(str(seconds))
        harness.settle()
    harness.archive.close()
    harness.settle()
    assert contents(tmp_path) == {
        "t-000000.07.log": b"0\n60\n",
        "t-000001.07.log": b"61\n",
        "t-000000.08.log": b"3600\n",
    }


@pytest.mark.parametrize("skips_empty", [False, True])
def test_files_without_messages(tmp_path: Path, skips_empty: bool) -> None:
    harness = Harness(in_two(tmp_path), skips_empty=skips_empty)
    harness.archive.tick()
    harness.settle()
    assert contents(tmp_path) == ({} if skips_empty else {"work/t-000000.07.log": b""})
    harness.receive("1")
    harness.settle()
    harness.now += 3600
    harness.archive.tick()
    harness.settle()
    empty = {} if skips_empty else {"work/t-000000.08.log": b""}
    assert contents(tmp_path) == {"out/t-000000.07.log": b"1\n", **empty}


@pytest.mark.parametrize("gzip_level", [0, 6])
def test_a_closed_file_is_followed_by_another(tmp_path: Path, gzip_level: int) -> None:
    harness = Harness(in_two(tmp_path, gzip_level=gzip_level))
    for number in "12":
        harness.receive(number)
        harness.archive.close()
        harness.settle()
        assert harness.take() == [f"FIN {number}"]
    end = ".gz" if gzip_level else ""
    assert sorted(contents(tmp_path)) == [f"out/t-000000.07.log{end}", f"out/t-000001.07.log{end}"]


def test_the_stop_finishes_everything(tmp_path: Path) -> None:
    harness = Harness(in_two(tmp_path), max_in_flight=100)
    harness.receive("0")
    harness.settle()
    harness.receive("1")
    harness.settle()
    assert harness.take() == ["FIN 0"]
    harness.archive.stop()
    harness.receive("2")
    harness.settle()
    assert harness.take() == ["FIN 2", "FIN 1"]
    closed = Deferred.fromCoroutine(harness.archive.wait_closed())
    assert not closed.called
    harness.settle()
    assert closed.called
    assert contents(tmp_path) == {"out/t-000000.07.log": b"0\n1\n2\n"}


@pytest.mark.parametrize("call", ["write_all", "fsync"])
def test_after_an_error_nothing_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    harness = Harness(in_one(tmp_path))
    harness.receive("1")
    harness.settle()
    harness.take()

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((output_file, call, fail) if call == "write_all" else (os, call, fail)))
    harness.receive("2")
    harness.archive.tick()
    assert harness.turn() == 1
    harness.receive("3")
    harness.end_step()
    harness.receive("4")
    harness.archive.tick()
    harness.settle()
    assert harness.take() == ["stop", "REQ 2 0", "REQ 3 0", "REQ 4 0"]
    assert harness.exit_text == f"[t/c] failed to write {tmp_path / 't.07.log'}: no space left on device"
    closed = Deferred.fromCoroutine(harness.archive.wait_closed())
    assert closed.called
