"""
Queue files of an nsqd 1.x, read once for the import.

    <name>.diskqueue.NNNNNN.dat            records; the number has at least six digits, the highest file grows
    <name>.diskqueue.meta.dat              the positions of reading and writing
    <name>.diskqueue.meta.dat.<n>.tmp      a metadata file that was not renamed
    <name>.diskqueue.NNNNNN.dat.bad        a file that could not be read on; never touched

`<name>` is a topic, for messages that went to no channel yet, or `topic:channel` (`topic;channel` on Windows). A
record, big-endian:

    offset 0       4               12        14                  30
           length  timestamp (ns)  attempts  id, 16 hex digits   body ...
           length counts everything behind it: 26 + len(body)

The metadata are three lines: depth, `read file,read position`, `write file,write position`.

After a crash of nsqd they are as old as its last sync. So every file is read to its end, whatever the metadata say, as
nsqd does too: messages before the current read position may be repeated, none is left out.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

from attrs import define, field, frozen

Complaint = Callable[[str, int, str], None]
"""`complaint(file name, position, why)`: what stands in this file from this position on is not read."""

HEAD = struct.Struct(">qH16s")
"""Timestamp, attempts and id, with which the payload of a record begins."""
_LENGTH = struct.Struct(">I")
_FILE = re.compile(r"(?P<name>.+)\.diskqueue\.(?:(?P<number>[0-9]{6,18})\.dat|meta\.dat(?:\.[0-9]+\.tmp)?)")
_BAD = re.compile(r"(?P<name>.+)\.diskqueue\.[0-9]{6,}\.dat\.bad")
_META = re.compile(rb"-?[0-9]+\n([0-9]{1,18}),([0-9]{1,18})\n([0-9]{1,18}),([0-9]{1,18})\n?")
_BUFFER_BYTES = 1 << 20


class Record(NamedTuple):
    """One message of a queue: the payload at `position` of the file with this number, after its length."""

    file: int
    position: int
    payload: bytes


class Meta(NamedTuple):
    """The positions of a queue in its last metadata."""

    read_file: int
    read_position: int
    write_file: int
    write_position: int


@define
class QueueFiles:
    """The files of one queue. `numbers` are those of its data files, ascending."""

    name: str
    numbers: list[int] = field(factory=list)
    names: list[str] = field(factory=list)
    """All files, which are moved away together."""


@frozen
class Listing:
    """The nsqd files of a data path: queues by name, and the files that nsqd had given up."""

    queues: dict[str, QueueFiles]
    bad: list[str]


def find(names: Iterable[str]) -> Listing:
    """The queues among the files of a data path."""
    queues: dict[str, QueueFiles] = {}
    bad = []
    for name in sorted(names):
        if _BAD.fullmatch(name):
            bad.append(name)
        match = _FILE.fullmatch(name)
        if match is None:
            continue
        queue = queues.setdefault(match["name"], QueueFiles(match["name"]))
        queue.names.append(name)
        # Only the number as nsqd writes it: 0000001 is no name of its.
        if match["number"] is not None and f"{int(match['number']):06d}" == match["number"]:
            queue.numbers.append(int(match["number"]))
    for queue in queues.values():
        queue.numbers.sort()
    return Listing(queues, bad)


def data_name(queue: str, number: int) -> str:
    return f"{queue}.diskqueue.{number:06d}.dat"


def meta_name(queue: str) -> str:
    """The name of the file with the metadata."""
    return f"{queue}.diskqueue.meta.dat"


def read_meta(directory: str, queue: str) -> Meta | None:
    """The metadata of a queue; None when there are none that can be understood. OSError."""
    try:
        with open(os.path.join(directory, meta_name(queue)), "rb") as file:
            match = _META.fullmatch(file.read(256))
    except FileNotFoundError:
        return None
    return Meta(*map(int, match.groups())) if match is not None else None


class QueueReader:
    """
    Reads all messages that a queue has left. A record longer than `max_msg_size` allows is taken when another record
    or the end of the file follows: the limit may have been higher once.
    """

    def __init__(self, directory: str, files: QueueFiles, max_msg_size: int, complain: Complaint) -> None:
        self._directory = directory
        self._files = files
        self._longest = max_msg_size + HEAD.size
        self._complain = complain

    def records(self) -> Iterator[Record]:
        """
        Yield the messages in order. Damage is reported, and the rest of that file left out. OSError when a file
        cannot be opened.
        """
        for number, start in self._starts():
            with open(self._path(number), "rb", buffering=_BUFFER_BYTES) as file:
                yield from self._records_of(file, number, start)

    def _starts(self) -> list[tuple[int, int]]:
        """The numbers of the files to read, each with the position of its first record."""
        numbers = self._files.numbers
        meta = read_meta(self._directory, self._files.name)
        if meta is None:
            if numbers:
                self._complain(meta_name(self._files.name), 0, "cannot be used, so all files are read from their start")
            return [(number, 0) for number in numbers]
        unread = [number for number in numbers if number >= meta.read_file]
        for number in unread:
            if number > meta.write_file:
                self._complain(
                    data_name(self._files.name, number), 0, "newer than the metadata; it is read all the same"
                )
        missing = self._missing(meta, unread)
        if missing:
            self._complain(meta_name(self._files.name), 0, f"files of unread messages that are not there: {missing}")
        return [(number, meta.read_position if number == meta.read_file else 0) for number in unread]

    def _missing(self, meta: Meta, unread: list[int]) -> int:
        """Return how many files should have unread messages and are not there."""
        missing = max(0, meta.write_file - meta.read_file) - sum(number < meta.write_file for number in unread)
        read_up = (meta.read_file, meta.read_position) == (meta.write_file, meta.write_position)
        if meta.write_position and not read_up and meta.write_file not in unread:
            missing += 1
        return missing

    def _records_of(self, file: BinaryIO, number: int, start: int) -> Iterator[Record]:
        size = os.fstat(file.fileno()).st_size
        why = f"no record stands here; the file has {size} bytes"
        position = start
        read, unpack = file.read, _LENGTH.unpack
        shortest, max_size, prefix = HEAD.size, self._longest, _LENGTH.size
        try:
            file.seek(position)
            while position < size:
                head = read(prefix)
                length = unpack(head)[0] if len(head) == prefix else 0
                end = position + prefix + length
                if length < shortest or end > size or (length > max_size and not self._goes_on(file, end, size)):
                    break
                yield Record(number, position + prefix, read(length))
                position = end
        except OSError as failure:
            why = f"it cannot be read - {(failure.strerror or str(failure)).lower()}"
        if position != size:
            self._complain(data_name(self._files.name, number), position, why)

    def _goes_on(self, file: BinaryIO, position: int, size: int) -> bool:
        """Return whether a record of a usual length begins at a position, or nothing more comes."""
        here = file.tell()
        file.seek(position)
        head = file.read(_LENGTH.size)
        file.seek(here)
        if len(head) < _LENGTH.size:
            return position == size
        length: int = _LENGTH.unpack(head)[0]
        return HEAD.size <= length <= self._longest and position + _LENGTH.size + length <= size

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, data_name(self._files.name, number))
