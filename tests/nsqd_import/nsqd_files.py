"""
Writes queue files as an nsqd 1.x does, from the description of the format and apart
from the code that reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Left(NamedTuple):
    """A message in a queue file."""

    id: bytes
    body: bytes
    attempts: int = 0
    timestamp_ns: int = 1_700_000_000_000_000_000

    @property
    def payload(self) -> bytes:
        return self.timestamp_ns.to_bytes(8, "big") + self.attempts.to_bytes(2, "big") + self.id + self.body

    @property
    def record(self) -> bytes:
        return len(self.payload).to_bytes(4, "big") + self.payload


def left(number: int, body: bytes | None = None, attempts: int = 0) -> Left:
    """The message with this number: its id and its time ascend with it."""
    at = 1_700_000_000_000_000_000 + number * 1_000_000
    return Left(b"%016x" % (0x18E0_0000_0000_0000 + number), body or b"message %d" % number, attempts, at)


class QueueWriter:
    """
    One queue of an nsqd: `put` writes, `take` reads, `sync` writes the metadata. Files are rolled as nsqd does; those
    read to their end are removed.
    """

    def __init__(self, directory: Path, name: str, max_bytes_per_file: int = 100 << 20) -> None:
        self.directory = directory
        self.name = name
        self.limit = max_bytes_per_file
        self.depth = 0
        self.read_file = self.read_position = self.write_file = self.write_position = 0

    def path(self, number: int) -> Path:
        return self.directory / f"{self.name}.diskqueue.{number:06d}.dat"

    @property
    def meta_path(self) -> Path:
        return self.directory / f"{self.name}.diskqueue.meta.dat"

    def put(self, *messages: Left) -> QueueWriter:
        for message in messages:
            size = len(message.record)
            if self.write_position > 0 and self.write_position + size > self.limit:
                self.write_file += 1
                self.write_position = 0
                self.sync()
            path = self.path(self.write_file)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(self.write_position)
                file.write(message.record)
            self.write_position += size
            self.depth += 1
        return self

    def take(self, count: int) -> QueueWriter:
        for _ in range(count):
            self._leave_finished_file()
            data = self.path(self.read_file).read_bytes()
            self.read_position += 4 + int.from_bytes(data[self.read_position : self.read_position + 4], "big")
            self.depth -= 1
            self._leave_finished_file()
        return self

    def sync(self) -> QueueWriter:
        self.meta_path.write_text(
            f"{self.depth}\n{self.read_file},{self.read_position}\n{self.write_file},{self.write_position}\n"
        )
        return self

    def _leave_finished_file(self) -> None:
        path = self.path(self.read_file)
        if self.read_file < self.write_file and self.read_position >= path.stat().st_size:
            path.unlink()
            self.read_file += 1
            self.read_position = 0


def write_queue(directory: Path, name: str, *messages: Left, max_bytes_per_file: int = 100 << 20) -> QueueWriter:
    """A queue that was closed well with these messages in it."""
    return QueueWriter(directory, name, max_bytes_per_file).put(*messages).sync()


def write_names(directory: Path, topics: dict[str, Any], *paused: str) -> None:
    """nsqd.dat with the names of topics, each with a list of channels; `paused` are `topic` or `topic:channel`."""
    document = {
        "topics": [
            {
                "name": topic,
                "paused": topic in paused,
                "channels": [{"name": name, "paused": f"{topic}:{name}" in paused} for name in channels] or None,
            }
            for topic, channels in topics.items()
        ],
        "version": "1.3.0",
    }
    (directory / "nsqd.dat").write_text(json.dumps(document, separators=(",", ":")))
