"""
Split of a V2 client's bytes into commands.

    line := bytes up to and including LF, at most 16384; one CR before the LF is dropped; split at single spaces
    body := int32 size | size bytes                                   after IDENTIFY, AUTH, PUB, DPUB
    MPUB := int32 total | int32 count | count x (int32 size | size bytes)     see below

Theory of operation. The codec walks over its buffer with an offset and never re-slices it. Input that ends in the
middle of a command waits; the number of missing bytes of a body is remembered, so that a large body that arrives in
many pieces is joined once. Two runs are taken as one command, because a busy connection consists of them: FIN after
FIN, and PUB after PUB to the same topic. The line of a valid PUB or MPUB is remembered. When it is repeated only the
sizes are checked; of an MPUB if it is complete, its total is right, and its messages have one size. Everything else,
and every error, is parsed in the usual way.

The session checks state and parameters before a body is read: it passes a `check`. The limits of bodies are checked
here, as soon as the bytes that exceed them arrive. The total of an MPUB is checked and, as in
nsqd, not relied on: the real size of the body has the same limit.

Performance: called once per command or run.
"""

# mypyc: compiled

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from nsqtw.errors import ClientError, LineTooLong
from nsqtw.protocols.mpub import (
    SIZE_BYTES,
    PartialMpub,
    bytes_of_equal,
    check_count,
    check_size,
    check_total,
    equal_messages,
    unpack_size,
)
from nsqtw.protocols.parameters import ID_BYTES
from nsqtw.protocols.v2_command import DOCUMENT, MESSAGE_OF_RUN, MESSAGES, NO_BODY, Commands
from nsqtw.rights import MAX_SECRET_BYTES

MAX_LINE_BYTES: Final = 16384
MAX_DOCUMENT_BYTES = MAX_SECRET_BYTES
"""
Limit of the body of IDENTIFY and AUTH, whatever --max-body-size says: the first is parsed as JSON at once, the second
kept as long as the connection lasts.
"""
_SIZES: Final = struct.Struct(">ii")
"""The total and the count of an MPUB."""
_BETWEEN_FINS: Final = b"\nFIN "
"""The bytes between the ids of FINs."""
_FIN_HEAD_BYTES: Final = len(b"FIN ")
_FIN_BYTES: Final = ID_BYTES + len(_BETWEEN_FINS)
# How many FINs are looked at together: more and more, so that a single one among other commands costs little.
_FIRST_WINDOW: Final = 8
_LAST_WINDOW: Final = 128
"""A run that is not in order ends after this many: each of its FINs may fail, which costs as much as a command."""
_MAX_USED_BYTES: Final = 16384
"""Bytes that were taken and may stay in the buffer while a body is waited for: dropping them copies the others."""


class Limits(Protocol):
    """The options that bound bodies, in bytes."""

    max_msg_size: int
    max_body_size: int


Command = tuple[bytes, Sequence[bytes], list[bytes], int]
"""
One command, or a run of FINs or PUBs: verb, parameters, payload, count. The payload is the body of IDENTIFY and AUTH
alone in a list, the messages of PUB (one for each of a run), DPUB and MPUB, and the ids of FIN. The count is that of
FINs for exactly the deliveries that were expected, which need no ids; of everything else 0.
"""


class V2Codec:
    """
    The bytes of one connection. `check(verb, params)` is called before a body is read and may raise ClientError. It is
    called for each line; where that of a PUB or MPUB was right before, though, as it mostly was, only if `checks_each`,
    or for an MPUB that takes the usual way.
    """

    def __init__(self, limits: Limits, check: Callable[[bytes, Sequence[bytes]], None], commands: Commands) -> None:
        self._max_msg_size = limits.max_msg_size
        self._max_body_size = limits.max_body_size
        self._check = check
        self._buffer = b""
        self._offset = 0
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._needed = 0
        self.checks_each = False
        self.expected_fins: Callable[[int, bytes], bytes] = _none_expected
        """Returns the ids whose FINs would come next, at most so many, with a separator between them."""
        self._fin_window = _FIRST_WINDOW  # how many of them are asked for
        self._line: bytes = b""
        self._known_line = b""  # the last one of a PUB or MPUB that was right, what it says, and what follows it
        self._known_verb = b""
        self._known_params: list[bytes] = []
        self._known_body = NO_BODY
        self._params: list[bytes] = []  # of the command whose body is being read; verb first
        self._stage, self._stage_code = "", ""  # what is waited for, and the code of the error if it never comes
        self._mpub = PartialMpub()
        self._expected = 0
        self._commands = commands
        self._body = NO_BODY  # of the command whose body is being read

    def feed(self, chunk: bytes) -> None:
        """Take what was read."""
        if self._buffer or self._needed:
            self._pieces.append(chunk)
            self._pieces_bytes += len(chunk)
        else:
            self._buffer = chunk

    def forget(self) -> None:
        """Read nothing more, and free the buffer."""
        self._buffer, self._offset = b"", 0
        self._pieces.clear()
        self._pieces_bytes = 0
        self._mpub.forget()

    def close(self) -> None:
        """The session has ended: nothing is read again. Leave no reference cycle."""
        self.forget()
        self._check, self.expected_fins = _unchecked, _none_expected

    @property
    def is_inside(self) -> bool:
        """Whether an incomplete command has begun."""
        return bool(self._params) or self.pending_bytes > 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that are kept of what is not done yet."""
        return len(self._buffer) - self._offset + self._pieces_bytes + self._mpub.buffered_bytes

    def next_command(self) -> Command | None:  # noqa: C901  # a call is a cost of each command
        """The next complete command; None when there is none yet. ClientError, LineTooLong."""
        if self._pieces:
            if self._pieces_bytes < self._needed:
                return None
            self._join()
        elif not self._buffer:
            return None
        if not self._params:
            buffer, offset = self._buffer, self._offset
            if offset == len(buffer):
                self._drop_used()
                return None
            if self._known_line and not self.checks_each:
                line = self._known_line
                bodies = self._take_whole_mpub(line) if self._known_body == MESSAGES else self._take_run(line)
                if bodies:
                    return self._known_verb, self._known_params, bodies, 0
            if buffer[offset : offset + _FIN_HEAD_BYTES] == b"FIN ":
                if not self.checks_each and (count := self._take_expected_fins()):
                    return b"FIN", (), [], count
                ids = self._take_fin_run()
                if ids:
                    return b"FIN", (), ids, 0
            if not self._take_line():
                return None
            spec = self._commands.get(self._params[0])
            if spec is None or spec.body == NO_BODY:
                params, self._params = self._params, []
                return params[0], params[1:], [], 0
            self._check(self._params[0], self._params[1:])
            self._body = spec.body
        payload = self._read_body()
        if payload is None:
            if self._offset > _MAX_USED_BYTES:
                self._drop_used()
            return None
        (verb, *params), self._params, self._stage, self._needed = self._params, [], "", 0
        if self._body >= MESSAGE_OF_RUN and len(params) == 1:  # what is remembered is as long as a name
            self._known_line, self._known_verb, self._known_params = self._line, verb, params
            self._known_body = self._body
            if self._body == MESSAGE_OF_RUN:
                payload += self._take_run(self._line)
        return verb, params, payload, 0

    def interrupted(self) -> ClientError | None:
        """The error for a body that will never be complete; None between commands and inside a line."""
        if not self._params:
            return None
        return ClientError(self._stage_code, f"{self._params[0].decode()} failed to read {self._stage}")

    # -- the buffer

    def _join(self) -> None:
        rest = self._buffer[self._offset :] if self._offset else self._buffer
        self._buffer = b"".join((rest, *self._pieces)) if rest or len(self._pieces) > 1 else self._pieces[0]
        self._offset = 0
        self._pieces.clear()
        self._pieces_bytes = 0

    def _drop_used(self) -> None:
        """Keep nothing of what was taken: a connection may be silent for long after much."""
        self._buffer, self._offset = self._buffer[self._offset :], 0

    def _need(self, count: int, code: str, stage: str) -> bool:
        """Return whether `count` more bytes are there. If they never come, the error is `code`, and names `stage`."""
        lacking = self._offset + count - len(self._buffer)
        if lacking <= 0:
            return True
        self._stage, self._stage_code = stage, code
        self._needed = lacking
        return False

    def _take_size(self) -> int:
        size: int = unpack_size(self._buffer, self._offset)[0]
        self._offset += SIZE_BYTES
        return size

    def _take(self, count: int) -> bytes:
        start = self._offset
        self._offset += count
        return self._buffer[start : self._offset]

    # -- lines

    def _take_line(self) -> bool:
        """Split the next line into `_params`."""
        start = self._offset
        stop = self._buffer.find(b"\n", start, start + MAX_LINE_BYTES)
        if stop < 0:
            if len(self._buffer) - start >= MAX_LINE_BYTES:
                raise LineTooLong
            self._needed = 0
            if start:
                self._drop_used()
            return False
        self._line = self._buffer[start : stop + 1]
        self._offset = stop + 1
        self._params = self._line[:-1].removesuffix(b"\r").split(b" ")
        return True

    def _take_expected_fins(self) -> int:
        """
        Read the FINs from here on as long as they are the expected ones. Returns how many they are. Two texts are equal
        or not: if they are not, half is tried, then half of that, and next time no more than what was equal.
        """
        buffer, start = self._buffer, self._offset + len(b"FIN ")
        limit = min((len(buffer) - self._offset) // _FIN_BYTES, self._fin_window)
        ids = self.expected_fins(limit, _BETWEEN_FINS)
        count = (len(ids) + len(_BETWEEN_FINS)) // _FIN_BYTES if ids and buffer.startswith(ids[:ID_BYTES], start) else 0
        while count:
            ids = ids[: count * _FIN_BYTES - len(_BETWEEN_FINS)]
            stop = start + len(ids)
            if buffer.startswith(ids, start) and buffer.startswith(b"\n", stop):
                self._offset = stop + 1
                if count == self._fin_window:
                    self._fin_window *= 4
                return count
            count //= 2
            self._fin_window = max(count, _FIRST_WINDOW)
        return 0

    def _take_fin_run(self) -> list[bytes]:
        """
        Return the ids of all complete FINs from here on, as long as they are plain: a parameter of exactly 16 bytes.
        """
        ids: list[bytes] = []
        window = _FIRST_WINDOW
        while True:
            start = self._offset
            count = min((len(self._buffer) - start) // _FIN_BYTES, window)
            run = self._buffer[start : start + count * _FIN_BYTES]
            plain = count if _all_plain(run, count) else _plain_fins(run)
            if plain:  # between the ids of plain FINs there is nothing but this: a third of the cost of slicing each
                ids += run[len(b"FIN ") : plain * _FIN_BYTES - 1].split(_BETWEEN_FINS)
            self._offset += plain * _FIN_BYTES
            if plain < window or window >= _LAST_WINDOW:
                return ids
            window *= 4

    # -- bodies

    def _read_body(self) -> list[bytes] | None:
        if self._body == MESSAGES:
            return self._read_messages()
        return self._read_document() if self._body == DOCUMENT else self._read_message()

    def _read_document(self) -> list[bytes] | None:
        """IDENTIFY and AUTH."""
        if not self._expected:
            if not self._need(SIZE_BYTES, "E_BAD_BODY", "body size"):
                return None
            name, size, limit = self._params[0].decode(), self._take_size(), self._max_body_size
            if size > min(limit, MAX_DOCUMENT_BYTES):
                limit = limit if size > limit else MAX_DOCUMENT_BYTES
                raise ClientError("E_BAD_BODY", f"{name} body too big {size} > {limit}")
            if size <= 0:
                raise ClientError("E_BAD_BODY", f"{name} invalid body size {size}")
            self._expected = size
        if not self._need(self._expected, "E_BAD_BODY", "body"):
            return None
        size, self._expected = self._expected, 0
        return [self._take(size)]

    def _read_message(self) -> list[bytes] | None:
        """PUB and DPUB."""
        if not self._expected:
            if not self._need(SIZE_BYTES, "E_BAD_MESSAGE", "message body size"):
                return None
            name, size, limit = self._params[0].decode(), self._take_size(), self._max_msg_size
            if size <= 0:
                raise ClientError("E_BAD_MESSAGE", f"{name} invalid message body size {size}")
            if size > limit:
                raise ClientError("E_BAD_MESSAGE", f"{name} message too big {size} > {limit}")
            self._expected = size
        if not self._need(self._expected, "E_BAD_MESSAGE", "message body"):
            return None
        size, self._expected = self._expected, 0
        return [self._take(size)]

    def _take_run(self, line: bytes) -> list[bytes]:
        """The messages of all complete commands with this line from here on; what is not plain is left."""
        bodies: list[bytes] = []
        limit = self._max_msg_size
        buffer, offset, end = self._buffer, self._offset, len(self._buffer)
        head_bytes = len(line) + SIZE_BYTES
        while (start := offset + head_bytes) <= end and buffer.startswith(line, offset):
            size: int = unpack_size(buffer, start - SIZE_BYTES)[0]
            stop = start + size
            if not 0 < size <= limit or stop > end:
                break
            bodies.append(buffer[start:stop])
            offset = stop
        if offset == end:
            self._buffer, self._offset = b"", 0
        else:
            self._offset = offset
        return bodies

    def _take_whole_mpub(self, line: bytes) -> list[bytes]:
        """The messages of an MPUB with this line, if nothing about it is unusual; else none, and nothing is taken."""
        buffer, end = self._buffer, len(self._buffer)
        at = self._offset + len(line)
        start = at + _SIZES.size
        if start > end or buffer[self._offset : at] != line:
            return []
        total, count = _SIZES.unpack_from(buffer, at)
        stop = at + SIZE_BYTES + total
        if stop > end or total > self._max_body_size:
            return []
        messages = equal_messages(buffer, start, count, self._max_msg_size)
        if not messages or len(messages) != count or start + bytes_of_equal(messages) != stop:
            return []
        if stop == end:
            self._buffer, self._offset = b"", 0
        else:
            self._offset = stop
        return messages

    def _read_messages(self) -> list[bytes] | None:
        """MPUB. What was read is in `_mpub` until the last message is there."""
        partial = self._mpub
        if not partial.expected and not (self._need(SIZE_BYTES, "E_BAD_BODY", "body size") and self._start_mpub()):
            return None
        start = self._offset
        messages: list[bytes] = []
        while partial.count + len(messages) < partial.expected:
            if not (partial.is_equal and self._take_equal_messages(messages)) and not self._take_messages(messages):
                partial.add(messages, self._buffer, start, self._offset)
                return None
        return partial.finish(messages)

    def _start_mpub(self) -> bool:
        """The total size and the count; taken together, once both are there."""
        total: int = unpack_size(self._buffer, self._offset)[0]
        limit = self._max_body_size
        if total <= 0:
            raise ClientError("E_BAD_BODY", f"MPUB invalid body size {total}")
        check_total(total, limit)
        if not self._need(2 * SIZE_BYTES, "E_BAD_BODY", "message count"):
            return False
        self._offset += SIZE_BYTES
        count = self._take_size()
        check_count(count, limit)
        self._mpub.begin(count)
        return True

    def _take_messages(self, messages: list[bytes]) -> bool:
        """One after the other, as long as they are there; whether that was all of them."""
        partial, buffer, offset = self._mpub, self._buffer, self._offset
        end, max_size, before = len(buffer), self._max_msg_size, partial.total - offset
        allowed = self._max_body_size - before
        for index in range(partial.count + len(messages), partial.expected):
            start = offset + SIZE_BYTES
            if start > end:
                return self._await_message(offset, SIZE_BYTES, f"message({index}) body size")
            size: int = unpack_size(buffer, offset)[0]
            stop = start + size
            if not 0 < size <= max_size or stop > allowed:
                check_size(index, size, max_size)
                check_total(before + stop, self._max_body_size)
            if stop > end:
                return self._await_message(offset, SIZE_BYTES + size, "message body")
            messages.append(buffer[start:stop])
            offset = stop
        partial.total = before + offset
        self._offset = offset
        return True

    def _await_message(self, offset: int, count: int, stage: str) -> bool:
        """The message at `offset` is not there yet."""
        self._mpub.total += offset - self._offset
        self._offset = offset
        return self._need(count, "E_BAD_MESSAGE", stage)

    def _take_equal_messages(self, messages: list[bytes]) -> bool:
        """Return all messages that are complete if they have one size, without a look at each of them."""
        partial = self._mpub
        lacking = partial.expected - partial.count - len(messages)
        taken = equal_messages(self._buffer, self._offset, lacking, self._max_msg_size)
        if taken is None:
            partial.is_equal = False
            return False
        taken_bytes = bytes_of_equal(taken)
        partial.total += taken_bytes
        check_total(partial.total, self._max_body_size)
        messages += taken
        self._offset += taken_bytes
        return bool(taken)


def _none_expected(limit: int, separator: bytes) -> bytes:
    return b""


def _unchecked(verb: bytes, params: Sequence[bytes]) -> None:
    """Accept every command: the codec is closed."""


def _all_plain(run: bytes, count: int) -> bool:
    """Return whether `run` is `count` plain FINs. Strided slices look at one place of all of them at once."""
    return (
        run[0::_FIN_BYTES] == b"F" * count
        and run[1::_FIN_BYTES] == b"I" * count
        and run[2::_FIN_BYTES] == b"N" * count
        and run[3::_FIN_BYTES] == b" " * count
        and run[_FIN_BYTES - 1 :: _FIN_BYTES] == b"\n" * count
        and run.count(b" ") == run.count(b"\n") == count
        and b"\r" not in run
    )


def _plain_fins(run: bytes) -> int:
    """Return how many FINs at the start of `run` are plain."""
    count = 0
    for at in range(0, len(run), _FIN_BYTES):
        line = run[at : at + _FIN_BYTES]
        if not line.startswith(b"FIN ") or line.count(b" ") != 1 or line.find(b"\n") != _FIN_BYTES - 1 or b"\r" in line:
            break
        count += 1
    return count
