"""
One client connection in protocol V3 without IO (docs/protocol-v3.md): `WireConnection`.

Theory of operation. TLS, if it is asked for, begins before the magic. Then HELLO is answered with WELCOME, which has
everything that V2 negotiates. FINs that are sent one after the other in a turn become one frame with ranges.

The broker confirms publishes in any order. An answer is passed on with the place of its PUBLISH among those that are
not answered yet, mostly the first.

Performance: called once for each chunk that is read and for each write.
"""

from __future__ import annotations

import json
import ssl
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from nsqtw.client import v3_commands
from nsqtw.client.connection import Notice, Server
from nsqtw.client.frames import Frame, FrameReader, InvalidFrame
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import ClientOptions
from nsqtw.client.tls import TlsStream
from nsqtw.errors import ClientError, ConnectFailed, InvalidHeaders, InvalidResponse
from nsqtw.message_headers import decode_headers
from nsqtw.protocols.v3 import codec

_OK: Final = Frame(False, b"OK")
_CLOSE_WAIT: Final = Frame(False, b"CLOSE_WAIT")
_MAX_FRAME_BYTES: Final = 1 << 31
_MAX_RANGE: Final = 4096
"""FINs that are sent in one frame."""
_KIND_AT: Final = 4
_V2_ERROR: Final = 0
"""The type that an error frame of V2 has when it is read as a frame of V3."""
_V2_TEXT_AT: Final = 8
_NOTICES: Final = {
    codec.PAUSED: Notice.PAUSED,
    codec.RESUMED: Notice.RESUMED,
    codec.DRAINING: Notice.DRAINING,
}
_ID: Final = struct.Struct(">8xI")
_CONFIRMED: Final = struct.Struct(">IIQI")
_PAIR: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_SIZE_2: Final = struct.Struct(">H")
_CONFIRM_HEAD: Final = codec.confirm(0, 1)[: -_PAIR.size]


class V3Connection:
    """A connection to the broker at `address`. `context` is for TLS, needed if the options ask for it."""

    def __init__(self, address: str, options: ClientOptions, context: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.server = Server()
        self.failure: InvalidResponse | None = None
        self.is_ready = False
        self.is_draining = False
        self._notices: list[Notice] = []
        self._options = options
        self._out: list[bytes] = [v3_commands.MAGIC, v3_commands.hello(options)]
        self._fins: list[int] = []
        """The ids of the last FINs, which are not in `_out` yet."""
        self._reader = codec.FrameReader()
        self._reader.max_size = options.max_msg_size or _MAX_FRAME_BYTES
        self._messages = FrameReader()
        """Splits the messages of a DELIVER."""
        self._sent: deque[int] = deque()
        """The PUBLISH frames without an answer, in order."""
        self._tls: TlsStream | None = None
        if options.tls_v1:
            assert context is not None, "made with the options"
            self._tls = TlsStream(context, address.rpartition(":")[0].strip("[]"))

    # -- to the broker

    def send(self, command: bytes) -> None:
        """WireConnection API."""
        kind = command[_KIND_AT]
        if kind == codec.FIN:
            self._fins.append(v3_commands.RANGE.unpack_from(command, codec.HEAD_BYTES)[0])
            if len(self._fins) == _MAX_RANGE:
                self._flush_fins()
            return
        if self._fins:
            self._flush_fins()
        if kind == codec.PUBLISH:
            self._sent.append(_ID.unpack_from(command)[0])
        self._out.append(command)

    def data_to_send(self) -> bytes:
        """WireConnection API."""
        if self._tls is not None and not self._tls.is_open:
            return self._tls.data_to_send()
        if self._fins:
            self._flush_fins()
        data = b"".join(self._out)
        self._out.clear()
        if self._tls is None:
            return data
        if data:
            self._tls.send(data)
        return self._tls.data_to_send()

    # -- from the broker

    def receive(self, data: bytes, owner: MessageOwner) -> tuple[list[Message], list[Frame]]:
        """WireConnection API. ConnectFailed during the handshake."""
        if self._tls is not None:
            try:
                data = self._tls.feed(data)
            except InvalidResponse as error:
                raise ConnectFailed(self.address, str(error)) from error
            self.failure = self._tls.failure
        messages: list[Message] = []
        frames: list[Frame] = []
        try:
            if data:
                self._reader.feed(data)
            while (frame := self._reader.next_frame()) is not None:
                self._take(frame, owner, messages, frames)
        except (ClientError, InvalidFrame, InvalidHeaders, InvalidResponse, struct.error, IndexError) as error:
            self.failure = InvalidResponse(str(error))
        if self.failure is not None:
            if not self.is_ready:
                raise ConnectFailed(self.address, str(self.failure))
            messages = []  # the broker delivers them again
        return messages, frames

    def take_notices(self) -> list[Notice]:
        """WireConnection API."""
        notices, self._notices = self._notices, []
        return notices

    def count_oks(self, data: bytes) -> int:
        """WireConnection API: one CONFIRM of the next publishes is the usual answer."""
        sent = self._sent
        if len(data) != len(_CONFIRM_HEAD) + _PAIR.size or self._tls is not None or not sent:
            return 0
        if self._reader.unfinished_bytes or not data.startswith(_CONFIRM_HEAD):
            return 0
        first, count = _PAIR.unpack_from(data, len(_CONFIRM_HEAD))
        if first != sent[0] or not 0 < count <= len(sent) or sent[count - 1] != first + count - 1:
            return 0
        for _ in range(count):
            sent.popleft()
        return int(count)

    # -- inside

    def _flush_fins(self) -> None:
        self._out.append(v3_commands.finishes(self._fins))
        self._fins.clear()

    def _take(self, frame: codec.Frame, owner: MessageOwner, messages: list[Message], frames: list[Frame]) -> None:
        kind = frame.kind
        if kind == codec.DELIVER:
            messages += self._delivered(frame, owner)
        elif kind == codec.CONFIRM:
            frames.extend(self._confirmed(frame))
        elif kind == codec.REJECT:
            frames.append(Frame(True, _error(frame.payload)[0], self._answered(frame.id)))
        elif kind == codec.PING:
            self._out.append(codec.frame_of(codec.PONG, frame.id))
        elif kind == codec.PONG and frame.id == v3_commands.LAST_PING:
            frames.append(_CLOSE_WAIT)
        elif kind in _NOTICES:
            self.is_draining = self.is_draining or kind == codec.DRAINING
            self._notices.append(_NOTICES[kind])
        elif kind == codec.WELCOME:
            self._welcome(frame.payload)
        elif kind == _V2_ERROR and not self.is_ready:
            words = frame.buffer[_V2_TEXT_AT : frame.stop].decode("utf-8", "replace")
            raise InvalidResponse(f"{words} (protocol V3 needs an nsqtw broker with --protocol=V2,V3)")
        elif kind == codec.SUBSCRIBED:
            frames.append(_OK)
        elif kind == codec.FAILED:
            frames.append(Frame(True, _error(frame.payload[1:])[0]))
        elif kind in (codec.ERROR, codec.UNSUBSCRIBED):
            self._fail(frame, frames)

    def _fail(self, frame: codec.Frame, frames: list[Frame]) -> None:
        text = _error(frame.payload)[0] if frame.payload else b"the subscription has ended"
        if self.is_ready:
            frames.append(Frame(True, text))
        self.failure = InvalidResponse(text.decode("utf-8", "replace"))

    def _confirmed(self, frame: codec.Frame) -> Iterator[Frame]:
        if frame.flags & codec.MESSAGE_IDS:
            for number, ids in _ids_of(frame.payload).items():
                yield Frame(False, _OK.data, self._answered(number), tuple(ids))
            return
        for first, count in _PAIR.iter_unpack(frame.payload):
            for number in range(first, first + min(count, len(self._sent))):
                yield Frame(False, _OK.data, self._answered(number))

    def _welcome(self, payload: bytes) -> None:
        """The handshake is complete. InvalidResponse."""
        try:
            document: dict[str, Any] = json.loads(payload)
            if document["auth_required"]:
                raise InvalidResponse("Auth Required")
            if self._options.message_ids and v3_commands.MESSAGE_IDS not in document["features"]:
                raise InvalidResponse("the nsqd does not tell the ids of messages")
            timeout = self._options.msg_timeout or document["msg_timeout"] / 1000
            identity = str(document["identity"])
            self.server = Server(
                int(document["max_credit"]),
                float(timeout),
                str(document["version"]),
                (identity, "", 0) if identity else None,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidResponse(f"invalid WELCOME - {error!r}") from error
        self.is_ready = True

    def _delivered(self, frame: codec.Frame, owner: MessageOwner) -> list[Message]:
        """Return the messages of a DELIVER. InvalidFrame, InvalidHeaders."""
        payload, table = frame.payload, b""
        if frame.flags & codec.HEADERS:
            end = _SIZE.size + _SIZE.unpack_from(payload)[0]
            if end > len(payload):
                raise InvalidFrame("invalid DELIVER")
            table, payload = payload[_SIZE.size : end], payload[end:]
        messages, others = self._messages.feed(payload, partial(Message, owner))
        if others or self._messages.take_rest():
            raise InvalidFrame("invalid DELIVER")
        if table:
            found = _headers(table)
            if len(found) != len(messages):
                raise InvalidFrame("invalid DELIVER")
            for message, headers in zip(messages, found, strict=True):
                message.headers = headers
        return messages

    def _answered(self, number: int) -> int:
        """A PUBLISH is answered. Returns its place among those without an answer. InvalidResponse."""
        sent = self._sent
        try:
            at = 0 if sent and sent[0] == number else sent.index(number)
        except ValueError:
            raise InvalidResponse(f"the nsqd answered publish {number}, which was not sent") from None
        del sent[at]
        return at


def _ids_of(payload: bytes) -> dict[int, list[bytes]]:
    """Return the message ids of each PUBLISH in a CONFIRM that has them."""
    found: dict[int, list[bytes]] = {}
    for number, _, first, count in _CONFIRMED.iter_unpack(payload):
        found.setdefault(number, []).extend([b"%016x" % one for one in range(first, first + count)])
    return found


def _headers(table: bytes) -> list[Mapping[str, str]]:
    """Return the headers of each message. InvalidHeaders."""
    found: list[Mapping[str, str]] = []
    offset = 0
    while offset < len(table):
        start = offset + _SIZE_2.size
        offset = start + _SIZE_2.unpack_from(table, offset)[0]
        found.append(decode_headers(table[start:offset]))
    return found


def _error(payload: bytes) -> tuple[bytes, bytes]:
    """Return an error as V2 has it, code and text, and what is behind it."""
    start = 1 + payload[0]
    code = payload[1:start]
    end = start + _SIZE_2.size + _SIZE_2.unpack_from(payload, start)[0]
    text = payload[start + _SIZE_2.size : end]
    return (code + b" " + text if text else code), payload[end:]
