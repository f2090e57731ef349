"""
Format versions 2 and 3 of the log files. All numbers are big-endian, as in the frames they surround.

    <data path>/<percent-encoded topic>/<first sequence, 14 hex digits>.log

A file is a header and records without space between them:

    file header, 64 bytes
    offset  0           8         10      12    16               24          32         60
            "NSQTWLOG"  version   flags   0     first sequence   put_total   28 x 0     CRC of the 60 bytes before
                        u16       u16     u32   u64              u64                    u32
            put_total: messages ever put into this log before this file

    record, 40 bytes, perhaps a table, and the payload: the frames as a consumer receives them
    offset  0       4                8       16      20       24         32               36
            magic   payload length   first   count   layout   delay ms   CRC of payload   CRC of the 36 bytes before
            u32     u32              u64     u32     u32      u64        u32              u32      table, payload ...

    magic   0xf5 "NSQ"    the payload is the frames
            0xf5 "NSH"    version 3: frames, and behind them a header block (backends/header_block) without a channel
            0xf5 "NSD"    version 3: frames, and behind them a header block with the one channel that gets them

A file without records of the last two kinds is of version 2, and older programs read it; it becomes no other. A record
with a header block begins a new file if the last one is of version 2. All files behind one of version 3 have that
version too: an older program looks at the last file's version, and would take such records for damage.

The payload of a batch of more than 16 KB is checked in blocks too, so that damage is located in a block:

    layout  0             no table
            n << 16 | f   blocks of n * 4096 bytes, the first one of f bytes: the borders are multiples of the block's
                          size in the file that the record was written to, so that a page is in one block
            0xffffffff    a tombstone: no payload; these messages were lost. "delay ms" is their number, as far as known
    table   u32 ...       for each block but the last: CRC of the payload up to its end; of the last it is in the head

Version 1 has neither tables nor tombstones, and is read by the same code.

CRC is CRC-32 as in zlib. A record counts only when both CRCs hold and its first sequence is above the last
sequence before it. So a file may start its life with the content of an older file of the same log: old
records have lower sequences and end the log by themselves.

Beside a log file may lie `<first sequence>.index`, a cache that can be deleted at any time. It has an entry
for about every 256 KB of the log file; an entry is believed only when a record with its sequence is found
at its position.

    entry, 24 bytes
    offset  0          8          16
            sequence   position   messages ever put before this record
            u64        u64        u64
"""

# mypyc: compiled

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from nsqtw.backends.checksum import crc32
from nsqtw.backends.header_block import encode_block, has_block
from nsqtw.core.segment import Segment

VERSION: Final = 2
"""The version of a file without headers."""
HEADERS_VERSION: Final = 3
"""The version of a file that may have records with a header block: the newest one."""
HEADER_BYTES: Final = 64
RECORD_BYTES: Final = 40
ENTRY_BYTES: Final = 24
HIGHEST: Final = 1 << 53
"""One past the highest sequence there can be."""

BLOCK_PAGE_BYTES: Final = 4096
BLOCK_BYTES: Final = 16 * 1024
"""The smallest block with a checksum of its own. One of 4 KB costs 4 to 7 % of an MPUB's rate, this one 1 to 2 %."""
_MAX_BLOCK_STEPS: Final = 3
_BLOCK_MESSAGES: Final = 16
"""About so many messages have room in a block: the cost is per block."""
_TABLES: Final = [struct.Struct(f">{count}I") for count in range(32)]
TOMBSTONE: Final = 0xFFFFFFFF
_CRC_BYTES: Final = 4

MAGIC: Final = b"\xf5NSQ"  # 0xf5 is in no UTF-8 text
HEADERS_MAGIC: Final = b"\xf5NSH"
DIRECTED_MAGIC: Final = b"\xf5NSD"
BLOCK_MAGICS: Final = (HEADERS_MAGIC, DIRECTED_MAGIC)
MAGIC_PREFIX: Final = b"\xf5NS"
MAGICS: Final = (MAGIC, *BLOCK_MAGICS)
_FILE_MAGIC: Final = b"NSQTWLOG"
_HEADER: Final = struct.Struct(">8sHHIQQ28x")
_RECORD: Final = struct.Struct(">4sIQIIQI")
_RECORD_AND_CRC: Final = struct.Struct(">4sIQIIQII")
HEAD_CRC_AT: Final = _RECORD.size
_pack_head: Final = _RECORD.pack
unpack_head: Final = _RECORD_AND_CRC.unpack_from
"""The numbers of a head as they stand, unchecked: magic, length, first, count, layout, delay, the two CRCs."""
_ENTRY: Final = struct.Struct(">QQQ")
_CRC: Final = struct.Struct(">I")
_pack_crc: Final = _CRC.pack

_LOG_NAME = re.compile(r"([0-9a-f]{14})\.log")
_INDEX_NAME = re.compile(r"([0-9a-f]{14})\.index")


class Header(NamedTuple):
    version: int
    first: int
    put_total: int


class Head(NamedTuple):
    """The head of a record: the first 40 bytes of it."""

    length: int
    first: int
    messages: int
    delay_ms: int
    payload_crc: int
    layout: int = 0
    magic: bytes = MAGIC

    @property
    def has_block(self) -> bool:
        """Whether a header block is behind the frames."""
        return self.magic != MAGIC

    @property
    def is_directed(self) -> bool:
        """Whether one channel gets its messages."""
        return self.magic == DIRECTED_MAGIC

    @property
    def is_tombstone(self) -> bool:
        """Whether it only records lost messages."""
        return self.layout == TOMBSTONE

    @property
    def table_bytes(self) -> int:
        """Bytes between the head and the payload."""
        return table_bytes(self.layout, self.length)

    @property
    def put_count(self) -> int:
        """The number of messages published with it; for a tombstone not always the number of its sequences."""
        return self.delay_ms if self.layout == TOMBSTONE else self.messages

    @property
    def end(self) -> int:
        """One past its highest sequence."""
        return self.first + self.messages

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return RECORD_BYTES + table_bytes(self.layout, self.length) + self.length


class Entry(NamedTuple):
    """A record that the index of a file knows. `put_total`: messages ever put before it."""

    sequence: int
    position: int
    put_total: int


def encode_header(first: int, put_total: int, version: int = VERSION) -> bytes:
    """The header of a new file."""
    header = _HEADER.pack(_FILE_MAGIC, version, 0, 0, first, put_total)
    return header + _pack_crc(crc32(header))


def decode_header(data: bytes) -> Header | None:
    """The header that a file starts with; None when there is none, or a damaged one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, _, _, first, put_total = _HEADER.unpack_from(data)
    crc: int = _CRC.unpack_from(data, _HEADER.size)[0]
    if magic != _FILE_MAGIC or crc32(data[: _HEADER.size]) != crc:
        return None
    return Header(version, first, put_total)


def encode_head(segment: Segment) -> bytes:
    """Return the bytes before the frames of a segment without headers in its record."""
    frames = segment.frames
    head = _pack_head(MAGIC, len(frames), segment.first, segment.count, 0, segment.delay_ms, crc32(frames))
    return head + _pack_crc(crc32(head))


def encode_record(segment: Segment, position: int | None = None) -> tuple[bytes, bytes]:
    """
    The record of any segment: what is before the payload, and the payload. It has a block table if it may have one, and
    `position` in the file is given.
    """
    if not has_block(segment):
        magic, payload = MAGIC, segment.frames
    else:
        magic = DIRECTED_MAGIC if segment.channel else HEADERS_MAGIC
        payload = segment.frames + encode_block(segment)
    if position is not None and segment.count > 1 and len(payload) > BLOCK_BYTES:
        return encode_batch_head(magic, segment, payload, position), payload
    return _head_without_table(magic, segment, payload), payload


def encode_batch_head(magic: bytes, segment: Segment, payload: bytes, position: int) -> bytes:
    """Return what is before a payload larger than BLOCK_BYTES, with the block table, in a record at `position`."""
    length = len(payload)
    block = BLOCK_BYTES
    if length > BLOCK_BYTES // _BLOCK_MESSAGES * segment.count:  # its messages are large
        block = min(2 + length // segment.count // BLOCK_PAGE_BYTES, _MAX_BLOCK_STEPS) * BLOCK_BYTES
    # The table moves the payload on, and the borders in them: there may be one fewer then.
    entries = (length + block - 1) // block
    at = block - (position + RECORD_BYTES + _CRC_BYTES * entries) % block
    if (length - at + block - 1) // block != entries:
        at = block - (position + RECORD_BYTES + _CRC_BYTES * (entries - 1)) % block
    if at >= length:
        return _head_without_table(magic, segment, payload)
    layout = block // BLOCK_PAGE_BYTES << 16 | at
    view = memoryview(payload)
    crc = crc32(view[:at])
    sums = [crc]
    stop = at + block
    while stop < length:
        crc = crc32(view[at:stop], crc)
        sums.append(crc)
        at = stop
        stop += block
    crc = crc32(view[at:], crc)
    head = _pack_head(magic, length, segment.first, segment.count, layout, segment.delay_ms, crc)
    count = len(sums)
    table = _TABLES[count].pack(*sums) if count < len(_TABLES) else struct.pack(f">{count}I", *sums)
    return b"".join((head, _pack_crc(crc32(head)), table))


def _head_without_table(magic: bytes, segment: Segment, payload: bytes) -> bytes:
    head = _pack_head(magic, len(payload), segment.first, segment.count, 0, segment.delay_ms, crc32(payload))
    return head + _pack_crc(crc32(head))


def encode_tombstone(first: int, end: int, count: int) -> bytes:
    """A record that says that `count` messages between two sequences are lost."""
    head = _pack_head(MAGIC, 0, first, end - first, TOMBSTONE, count, 0)
    return head + _pack_crc(crc32(head))


def table_bytes(layout: int, length: int) -> int:
    """Return how many bytes the table of a record has whose payload has `length` bytes."""
    if layout == 0 or layout == TOMBSTONE:
        return 0
    block = (layout >> 16) * BLOCK_PAGE_BYTES
    return _CRC_BYTES * ((length - (layout & 0xFFFF) + block - 1) // block)


def blocks_of(head: Head) -> list[int]:
    """Return the ends of the blocks of a record in its payload; the last one is the end of the payload."""
    length, layout = head.length, head.layout
    if layout == 0 or layout == TOMBSTONE:
        return [length]
    return [*range(layout & 0xFFFF, length, (layout >> 16) * BLOCK_PAGE_BYTES), length]


def decode_table(data: bytes, offset: int, head: Head) -> list[int]:
    """The checksums of all blocks of a record; `offset` is where its head starts in `data`."""
    count = head.table_bytes // _CRC_BYTES
    return [*struct.unpack_from(f">{count}I", data, offset + RECORD_BYTES), head.payload_crc]


def _is_possible(layout: int, length: int) -> bool:
    return (
        layout == 0
        or (layout == TOMBSTONE and length == 0)
        or (0 < layout >> 16 <= _MAX_BLOCK_STEPS * BLOCK_BYTES // BLOCK_PAGE_BYTES and 0 < layout & 0xFFFF < length)
    )


def decode_head(data: bytes, offset: int = 0) -> Head | None:
    """The head of the record at `offset`; None when its bytes are no head, damaged, or not all there."""
    if len(data) - offset < RECORD_BYTES:
        return None
    magic, length, first, count, layout, delay_ms, payload_crc, crc = unpack_head(data, offset)
    if magic not in MAGICS or crc32(data[offset : offset + HEAD_CRC_AT]) != crc or not _is_possible(layout, length):
        return None
    if magic != MAGIC and layout == TOMBSTONE:
        return None
    return Head(length, first, count, delay_ms, payload_crc, layout, magic)


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Entries as they stand in an index file."""
    return b"".join([_ENTRY.pack(*entry) for entry in entries])


def decode_entries(data: bytes) -> list[Entry]:
    """The entries of an index file, as far as they ascend as they must."""
    entries: list[Entry] = []
    before = Entry(-1, HEADER_BYTES, 0)
    for numbers in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        entry = Entry(*numbers)
        if entry.sequence <= before.sequence or entry.position <= before.position:
            break
        entries.append(entry)
        before = entry
    return entries


def log_name(first: int) -> str:
    """The name of the log file whose first sequence is `first`."""
    return f"{first:014x}.log"


def index_name(first: int) -> str:
    """The name of the index file that belongs to it."""
    return f"{first:014x}.index"


def first_of_log(name: str) -> int | None:
    """The first sequence of the log file of this name; None for every other file."""
    match = _LOG_NAME.fullmatch(name)
    return match and int(match[1], 16)


def first_of_index(name: str) -> int | None:
    """The first sequence of the log file that the index file of this name belongs to; None for every other file."""
    match = _INDEX_NAME.fullmatch(name)
    return match and int(match[1], 16)
