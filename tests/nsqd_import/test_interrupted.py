"""
An import that dies, at any line, and the start after that: each message once for each channel that wants it.

The process is a fork of this one. It is killed by SIGKILL when it has run so many lines of the modules below.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import nsqtw.backends
import nsqtw.nsqd_import
from tests.nsqd_import.data_path import DataPath, names
from tests.nsqd_import.nsqd_files import left, write_names, write_queue

_TRACED = (
    os.path.dirname(nsqtw.nsqd_import.__file__),
    *(
        os.path.join(os.path.dirname(nsqtw.backends.__file__), name)
        for name in ("diskqueue.py", "disk.py", "disk_writer.py", "positions.py")
    ),
)
_STEPS = ("begin", "record_written", "save", "reserve", "_put_away", "finish")
_OTHER_LINES = 12

Wanted = dict[tuple[str, str], Counter[bytes]]


class Lines:
    """Counts the lines run, and kills the process at one of them. `steps` are those with which a step begins."""

    def __init__(self, fatal: int | None = None) -> None:
        self.count = 0
        self.steps: list[int] = []
        self._fatal = fatal

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_TRACED):
            return None
        if event == "call" and frame.f_code.co_name in _STEPS:
            self.steps.append(self.count + 1)
        if event == "line":
            self.count += 1
            if self.count == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def start_and_die(directory: Path, fatal: int) -> None:
    """Start a broker that is killed at that line, if it comes so far."""
    child = os.fork()
    if not child:
        try:
            sys.settrace(Lines(fatal).trace)
            DataPath(directory, max_bytes_per_file=1500)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def leave_files(directory: Path) -> Wanted:
    """What an nsqd leaves that never met us."""
    messages = [left(number) for number in range(40)]
    own = [left(number, b"own %d" % number) for number in range(40, 50)]
    retried = [left(number, b"again %d" % number, attempts=3) for number in range(50, 53)]
    directory.mkdir()
    write_names(directory, {"t": ["a", "b", "new"], "quiet": ["c"], "w": []})
    write_queue(directory, "t", *own, max_bytes_per_file=200)
    write_queue(directory, "t:a", *messages, *retried, max_bytes_per_file=500)
    write_queue(directory, "t:b", *messages[10:30:2], max_bytes_per_file=500)
    write_queue(directory, "u:c", *messages[:7])
    write_queue(directory, "quiet:c")
    write_queue(directory, "w", *own)
    bodies = [Counter(message.body for message in some) for some in (messages + retried + own, own)]
    return {
        ("t", "a"): bodies[0],
        ("t", "b"): Counter(message.body for message in messages[10:30:2] + own),
        ("t", "new"): bodies[1],
        ("u", "c"): Counter(message.body for message in messages[:7]),
        ("quiet", "c"): Counter(),
        ("w", "first"): bodies[1],
    }


def leave_files_where_we_were(directory: Path) -> Wanted:
    """The same on a data path that a broker of ours had: with unread and held messages, and what was not released."""
    directory.mkdir()
    data_path = DataPath(directory, max_bytes_per_file=1500)
    for channel in ("a", "b"):
        data_path.channel(channel)
    for number in range(20):
        data_path.put(b"old %d" % number)
    reader = data_path.reader("a", ready=5)
    read = reader.read()
    reader.finish(*(message.id for message in read[:2]))
    reader.requeue(read[2].id)
    old_of_a = Counter([b"old %d" % number for number in range(20)]) - Counter([message.body for message in read[:2]])
    data_path.channel("c", "u")
    data_path.put(b"first", b"second", topic="u")
    data_path.put(b"kept 1", topic="w")
    data_path.put(b"kept 2", topic="w")
    data_path.save()
    data_path.close()
    shutil.move(directory, directory.with_suffix(".ours"))
    wanted = leave_files(directory)
    for path in directory.with_suffix(".ours").iterdir():
        path.rename(directory / path.name)
    old_of_b = Counter([b"old %d" % number for number in range(20)])
    ours = {("t", "a"): old_of_a, ("t", "b"): old_of_b}
    ours["u", "c"], ours["w", "first"] = Counter([b"first", b"second"]), Counter([b"kept 1", b"kept 2"])
    return {channel: bodies + ours.get(channel, Counter()) for channel, bodies in wanted.items()}


def expect(directory: Path, wanted: Wanted) -> dict[str, int]:
    """
    A start that nobody interrupts leaves nothing of nsqd or the import, and every channel has what it wants. The sizes
    of the logs, in bytes.
    """
    data_path = DataPath(directory, max_bytes_per_file=1500)
    try:
        assert not data_path.damage
        assert [name for name in names(directory) if "diskqueue" in name or name.startswith("import")] == []
        sizes = {name: topic.log.queue.size for name, topic in data_path.broker.topics.items()}
        found = {(topic, channel): data_path.bodies(channel, topic) for topic, channel in wanted}
        assert found == wanted
        # What is new comes next: the count of what is to come hides what a cursor has still to pass.
        for topic in {topic for topic, _ in wanted}:
            data_path.put(b"new", topic=topic)
        found = {(topic, channel): data_path.bodies(channel, topic) for topic, channel in wanted}
        assert found == {reader: Counter([b"new"]) for reader in wanted}
        return sizes
    finally:
        data_path.close()


def lines_of_a_start(directory: Path) -> Lines:
    """The lines that an undisturbed start runs."""
    lines = Lines()
    before = sys.gettrace()
    sys.settrace(lines.trace)
    try:
        data_path = DataPath(directory, max_bytes_per_file=1500)
    finally:
        sys.settrace(before)
    data_path.close()
    return lines


@pytest.mark.parametrize("leave", [leave_files, leave_files_where_we_were])
def test_killed_once_or_twice_at_any_line(tmp_path: Path, leave: Callable[[Path], Wanted]) -> None:
    wanted = leave(tmp_path / "left")
    shutil.copytree(tmp_path / "left", tmp_path / "undisturbed")
    lines = lines_of_a_start(tmp_path / "undisturbed")
    sizes = expect(tmp_path / "undisturbed", wanted)
    some = random.Random(7)
    fatal_lines = lines.steps + some.sample(range(lines.count), _OTHER_LINES)
    for number, fatal in enumerate(fatal_lines):
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "left", directory)
        start_and_die(directory, fatal)
        if number % 2:
            start_and_die(directory, some.randrange(lines.count))
        again = expect(directory, wanted)
        if leave is leave_files:
            # Where nothing was before, half an import takes no space; else it goes with the messages around it.
            assert again == sizes
