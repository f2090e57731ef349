"""
An incremental parser of HTTP/1.x requests, without I/O (RFC 9112).

    START ─ request line ▶ FIELDS ─ empty line ▶ FIXED_BODY ──────────────────────────────▶ END ▶ START
                                              ├▶ CHUNK_SIZE ▶ CHUNK_DATA ▶ CHUNK_END ─┐      ▲
                                              │       ▲  └── size 0 ▶ TRAILERS ───────┼──────┤
                                              │       └───────────────────────────────┘      │
                                              └─ no body ────────────────────────────────────┘

Theory of operation. `receive` appends bytes to the buffer; `next_event` reads one event from it. A request is one
`RequestHead`, any number of body parts (`bytes`) and `Signal.END`. The parser reads nothing of the next request before
it is asked for the event behind END, so the caller decides when requests in a row are served. `next_event` reads at
most about PIECE_BYTES of lines and small chunks and returns `Signal.PAUSE` when there is more: a caller with many
connections can serve others in between. Complete lines are read as they arrive, so no byte is searched twice.

Two readers must not understand the same bytes in different ways, since one of them may be a proxy that controls access
(request smuggling). The parser therefore refuses what RFC 9112 leaves to the reader: two lengths, other transfer
codings than "chunked", chunks in HTTP/1.0, trailers that are no header fields, and a mix of line ends. Lines may end
with a bare LF, as hand-written health checks send them, if all lines of the head do; such a request has no chunks, and
`RequestHead.has_bare_lines` tells the caller to close the connection behind it.

Performance: `next_event` is called once per request, body part and end. A head of up to MAX_WHOLE_HEAD_BYTES that has
arrived completely is read by one split, which saves 3 us for 8 lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from nsqtw.http.headers import is_field, read_field
from nsqtw.http.responses import HEADERS_TOO_LARGE, MALFORMED, Answer

MAX_HEAD_BYTES = 128 * 1024
"""Limit of the request line and all header fields together. A credential alone may have 64 KiB."""
MAX_WHOLE_HEAD_BYTES = 2048
PIECE_BYTES = 4096
"""Bytes of lines and small chunks that one call reads. Of a body or chunk, all that has arrived is read."""
_MAX_FIELDS = 5000
_MAX_LENGTH_BYTES = 256
"""Limit of a Content-Length or Transfer-Encoding value: int() raises for numbers of some thousand digits."""
_MAX_CHUNK_LINE_BYTES = 1024
_MAX_TRAILER_BYTES = 64 * 1024

_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\xb0]+) (HTTP/1\.[01])")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]+)(?:;[\t\x20-\x7e\x80-\xff]*)?")
_LENGTH_FIELDS = frozenset((b"Content-Length", b"Transfer-Encoding"))
_HEAD_END = b"\r\n\r\n"
_FOLDS = (b" ", b"\t")
"""The first byte of a line that continues a field."""


class State(IntEnum):
    """The part of a request that the parser expects next."""

    START = 0
    FIELDS = 1
    FIXED_BODY = 2
    CHUNK_SIZE = 3
    CHUNK_DATA = 4
    CHUNK_END = 5
    TRAILERS = 6
    END = 7
    FAILED = 8


class Signal(Enum):
    """The events that have no data."""

    NEED_INPUT = auto()
    """All input is read, except for an incomplete line."""
    PAUSE = auto()
    """More can be read by the next call."""
    END = auto()
    """The request is complete."""


class RequestHead(NamedTuple):
    """The request line and the header fields of a request."""

    method: bytes
    target: bytes
    version: bytes
    fields: dict[bytes, bytes]
    """Values by canonical name. The values of a repeated field are one list."""
    length: int | None
    """Bytes of the body, None for a chunked one."""
    has_bare_lines: bool
    raw: bytes
    """The bytes of the head, if it was read as a whole; else empty."""


class InvalidRequest(NamedTuple):
    """A syntax error. Nothing can be read behind it."""

    answer: Answer


Event = RequestHead | bytes | InvalidRequest | Signal


class RequestParser:
    """The parser of one connection."""

    def __init__(self) -> None:
        self._data = b""
        self._offset = 0
        """The parser has read `_data` up to this offset."""
        self._searched = 0
        """There is no end of a line between `_offset` and this offset."""
        self._state = State.START
        self._chunks: list[bytes] = []
        """Data of small chunks, returned as one body part."""
        self._remaining = 0
        """Bytes of the body or chunk that are still to come."""
        self._answer = MALFORMED
        self._begin_head()

    def _begin_head(self) -> None:
        """Prepare for the head of the next request."""
        self._head_bytes = 0
        self._trailer_bytes = 0
        self._field_count = 0
        self._method = self._target = self._version = b""
        self._fields: dict[bytes, bytes] = {}
        self._folded: list[bytes] = []
        """The lines of a field that may continue."""
        self._is_chunked = False
        self._length = 0
        self._has_bare_lines: bool | None = None
        """Whether lines end with LF alone; None before the first line."""
        self._may_skip_line = True

    def receive(self, data: bytes) -> None:
        """Append `data` to the buffer."""
        if self._offset < len(self._data):
            self._data = self._data[self._offset :] + data
            self._searched = max(0, self._searched - self._offset)
        else:
            self._data = data
            self._searched = 0
        self._offset = 0

    def next_event(self) -> Event:
        """Read the next event."""
        limit = self._offset + PIECE_BYTES
        while True:
            if self._chunks and self._state in (State.END, State.FAILED):
                return self._joined_chunks()
            event = _READERS[self._state](self)
            if event is None and self._offset < limit:
                continue
            if self._chunks:
                return self._joined_chunks()
            return Signal.PAUSE if event is None else event

    def discard(self) -> None:
        """Drop the input that is not read yet."""
        self._data, self._offset, self._searched = b"", 0, 0

    def take_rest(self) -> bytes:
        """Return the input that is not read yet, and drop it."""
        rest = self._data[self._offset :]
        self.discard()
        return rest

    @property
    def pending_bytes(self) -> int:
        """Bytes that were received and not read."""
        return len(self._data) - self._offset

    @property
    def buffered_bytes(self) -> int:
        """Bytes kept in memory: those not read, and the head that is not complete."""
        return len(self._data) - self._offset + self._head_bytes

    @property
    def has_begun(self) -> bool:
        """Whether input of a request has arrived whose end is not read yet."""
        return self._state is not State.START or self._offset < len(self._data)

    # -- readers: each returns an event, or None when it has changed the state or read a part

    def _read_start(self) -> Event | None:
        head = self._read_whole_head()
        if head is not None:
            return head
        line = self._read_line(State.START)
        if line is None:
            return self._need_input_or_fail()
        if not line and self._may_skip_line:  # some clients send CRLF behind the body of a POST
            self._may_skip_line = False
            self._head_bytes = 0
            return None
        if not self._read_request_line(line):
            return self._fail(MALFORMED)
        self._state = State.FIELDS
        return None

    def _read_fields(self) -> Event | None:
        line = self._read_line(State.FIELDS)
        if line is None:
            return self._need_input_or_fail()
        if line.startswith(_FOLDS):
            if not self._folded:
                return self._fail(MALFORMED)
            self._folded.append(line.lstrip(b" \t"))
            return None
        if self._folded and (error := self._read_field(b" ".join(self._folded))) is not None:
            return self._fail(error)
        self._folded = [line] if line else []
        return None if line else self._end_head(b"")

    def _read_fixed_body(self) -> Event | None:
        part = self._take(self._remaining)
        if not part:
            return Signal.NEED_INPUT
        if not self._remaining:
            self._state = State.END
        return part

    def _read_chunk_size(self) -> Event | None:
        line = self._read_line(State.CHUNK_SIZE)
        if line is None:
            if self._state is not State.FAILED and self.pending_bytes > _MAX_CHUNK_LINE_BYTES:
                return self._fail(MALFORMED)
            return self._need_input_or_fail()
        match = _CHUNK_LINE.fullmatch(line) if len(line) < _MAX_CHUNK_LINE_BYTES else None
        if match is None:
            return self._fail(MALFORMED)
        self._remaining = int(match[1], 16)
        self._state = State.CHUNK_DATA if self._remaining else State.TRAILERS
        return None

    def _read_chunk_data(self) -> Event | None:
        part = self._take(self._remaining)
        if not part:
            return Signal.NEED_INPUT
        self._chunks.append(part)
        if not self._remaining:
            self._state = State.CHUNK_END
        return None

    def _read_chunk_end(self) -> Event | None:
        line_end = self._data[self._offset : self._offset + 2]
        if line_end == b"\r\n":
            self._offset = self._searched = self._offset + 2
            self._state = State.CHUNK_SIZE
            return None
        return Signal.NEED_INPUT if line_end in (b"", b"\r") else self._fail(MALFORMED)

    def _read_trailer(self) -> Event | None:
        line = self._read_line(State.TRAILERS)
        if line is None:
            if self._state is not State.FAILED and self._trailer_bytes + self.pending_bytes > _MAX_TRAILER_BYTES:
                return self._fail(MALFORMED)
            return self._need_input_or_fail()
        if not line:
            self._state = State.END
            return None
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > _MAX_TRAILER_BYTES or not is_field(line):
            return self._fail(MALFORMED)
        return None

    def _read_end(self) -> Event:
        self._state = State.START
        self._begin_head()
        if self._offset == len(self._data):
            self.discard()
        return Signal.END

    def _read_failed(self) -> Event:
        self.discard()
        return InvalidRequest(self._answer)

    # -- parts of the readers

    def _read_whole_head(self) -> Event | None:
        """Read a head whose lines end with CRLF and have all arrived; None for any other."""
        start = self._offset
        stop = self._data.find(_HEAD_END, start, start + MAX_WHOLE_HEAD_BYTES)
        if stop < 0 or self._has_bare_lines:
            return None
        raw = self._data[start : stop + len(_HEAD_END)]
        first, *lines = raw[: -len(_HEAD_END)].split(b"\r\n")
        if not first or b"\n" in first or b"\r\n " in raw or b"\r\n\t" in raw:
            return None
        self._offset = self._searched = stop + len(_HEAD_END)
        if not self._read_request_line(first):
            return self._fail_now(MALFORMED)
        for line in lines:
            error = self._read_field(line)
            if error is not None:
                return self._fail_now(error)
        return self._end_head(raw) or self._fail_now(self._answer)

    def _read_line(self, state: State) -> bytes | None:
        """Return the next line without its end; None when it is not complete, or when the parser has failed."""
        end = self._data.find(b"\n", self._searched)
        is_head = state in (State.START, State.FIELDS)
        if end < 0:
            self._searched = len(self._data)
            if is_head and self._head_bytes + self.pending_bytes > MAX_HEAD_BYTES:
                self._fail(HEADERS_TOO_LARGE)
            return None
        line = self._data[self._offset : end]
        is_bare = not line.endswith(b"\r")
        self._offset = self._searched = end + 1
        if is_head:
            self._head_bytes += len(line) + 1
            if self._head_bytes > MAX_HEAD_BYTES:
                self._fail(HEADERS_TOO_LARGE)
                return None
            if self._has_bare_lines is None:
                self._has_bare_lines = is_bare
        if is_bare and not (is_head and self._has_bare_lines):
            self._fail(MALFORMED)
            return None
        return line if is_bare else line[:-1]

    def _read_request_line(self, line: bytes) -> bool:
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            return False
        self._method, self._target, self._version = match.groups()
        return True

    def _read_field(self, line: bytes) -> Answer | None:
        """Read a header field. Returns the answer if it is invalid."""
        field = read_field(line)
        if field is None:
            return MALFORMED
        name, value = field
        if name in _LENGTH_FIELDS and not self._read_length(name, value):
            return MALFORMED
        self._field_count += 1
        if self._field_count > _MAX_FIELDS:
            return HEADERS_TOO_LARGE
        fields = self._fields
        fields[name] = b"%s, %s" % (fields[name], value) if name in fields else value
        return None

    def _read_length(self, name: bytes, value: bytes) -> bool:
        """Read one of the two fields that tell the end of the body. Returns whether it is valid, and the first one."""
        if not _LENGTH_FIELDS.isdisjoint(self._fields) or len(value) > _MAX_LENGTH_BYTES:
            return False
        if name == b"Transfer-Encoding":
            self._is_chunked = True
            return value.lower() == b"chunked"
        if not value.isdigit():
            return False
        self._length = int(value)
        return True

    def _end_head(self, raw: bytes) -> RequestHead | None:
        """Return the head, and expect its body."""
        has_bare_lines = bool(self._has_bare_lines)
        if self._is_chunked and (has_bare_lines or self._version != b"HTTP/1.1"):
            self._fail(MALFORMED)
            return None
        self._head_bytes = 0
        self._remaining = self._length
        if self._is_chunked:
            self._state = State.CHUNK_SIZE
        else:
            self._state = State.FIXED_BODY if self._length else State.END
        length = None if self._is_chunked else self._length
        return RequestHead(self._method, self._target, self._version, self._fields, length, has_bare_lines, raw)

    def _take(self, size: int) -> bytes:
        """Read up to `size` bytes of the body or chunk."""
        part = self._data[self._offset : self._offset + size]
        self._offset += len(part)
        self._searched = self._offset
        self._remaining -= len(part)
        if self._offset == len(self._data):
            self.discard()
        return part

    def _joined_chunks(self) -> bytes:
        part = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        return part

    def _need_input_or_fail(self) -> Event | None:
        return None if self._state is State.FAILED else Signal.NEED_INPUT

    def _fail(self, answer: Answer) -> Event | None:
        self._answer = answer
        self._state = State.FAILED
        return None

    def _fail_now(self, answer: Answer) -> InvalidRequest:
        self._fail(answer)
        self.discard()
        return InvalidRequest(answer)


_READERS: tuple[Callable[[RequestParser], Event | None], ...] = (
    RequestParser._read_start,
    RequestParser._read_fields,
    RequestParser._read_fixed_body,
    RequestParser._read_chunk_size,
    RequestParser._read_chunk_data,
    RequestParser._read_chunk_end,
    RequestParser._read_trailer,
    RequestParser._read_end,
    RequestParser._read_failed,
)
"""The readers by state. A tuple, because the hash of an Enum member is computed in Python."""
