"""
One client connection to an nsqd without IO: bytes in, messages and frames out.

Theory of operation. The handshake is a list of steps, each of which expects one frame: IDENTIFY, then what its answer
names of TLS, deflate or snappy, then AUTH. A step that is answered may insert TLS or a
compression below the frames, so during the handshake frames are read one at a time, and the data behind a frame goes
through the new stage. After the last step the connection is READY and reads whole chunks.

    socket <-> TLS <-> deflate or snappy <-> frames

Heartbeats are answered here.

Performance: called once for each chunk that is read and for each write.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Any

import attrs

from nsqtw.client import commands
from nsqtw.client.frames import HEARTBEAT, Frame, FrameReader, InvalidFrame
from nsqtw.client.message import Message, MessageOwner
from nsqtw.client.options import ClientOptions
from nsqtw.client.tls import TlsStream
from nsqtw.errors import BrokenStream, ConnectFailed, InvalidResponse
from nsqtw.message_headers import decode_headers
from nsqtw.protocols.compression import Deflate, Snappy

_OK = b"OK"
_DEFAULT_MAX_RDY = 2500
_DEFAULT_MSG_TIMEOUT_MS = 60_000
_MAX_NUMBER = 2**53


class State(Enum):
    """The step of the handshake whose answer is awaited, or READY."""

    IDENTIFY = "identify"
    TLS = "tls"
    COMPRESSION = "compression"
    AUTH = "auth"
    READY = "ready"


class Notice(Enum):
    """What a broker says over protocol V3 without being asked; the values are for log lines."""

    PAUSED = "the topic or the channel is paused: no message comes until it goes on"
    RESUMED = "the topic and the channel are not paused any more"
    DRAINING = "the nsqd drains: it takes no more publishes, and will stop"


@attrs.frozen
class Server:
    """The answer to IDENTIFY. Durations are seconds."""

    max_rdy_count: int = _DEFAULT_MAX_RDY
    msg_timeout: float = 60.0
    version: str = ""
    auth: tuple[str, str, int] | None = None
    """The answer to AUTH: identity, its URL, and the number of permissions."""


class Connection:
    """
    A connection to the nsqd at `address`. `context` is for TLS, needed if the options ask for it. Messages are given
    `owner`.
    """

    def __init__(self, address: str, options: ClientOptions, context: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.state = State.IDENTIFY
        self.is_draining = False
        self.server = Server()
        self._options = options
        self._context = context
        self._out: list[bytes] = [commands.MAGIC, commands.identify(identity(options))]
        self._reader = FrameReader(options.max_msg_size, decode_headers if options.headers else None)
        self._steps: list[State] = []
        self._tls: TlsStream | None = None
        self._compression: Deflate | Snappy | None = None
        self._next_compression: Deflate | Snappy | None = None
        self.failure: InvalidResponse | None = None
        """Why the connection cannot be used any more, after the handshake."""

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is complete."""
        return self.state is State.READY

    # -- to the nsqd

    def send(self, command: bytes) -> None:
        """Add a command to `data_to_send`. Not before the state is READY."""
        self._out.append(command)

    def data_to_send(self) -> bytes:
        """Remove and return what is to be written."""
        if self._tls is not None and not self._tls.is_open:
            return self._tls.data_to_send()  # commands, such as the answer to a heartbeat, wait for the handshake
        data = b"".join(self._out)
        self._out.clear()
        if self._compression is not None and data:
            data = self._compression.compress(data)
        if self._tls is None:
            return data
        if data:
            self._tls.send(data)
        return self._tls.data_to_send()

    # -- from the nsqd

    def receive(self, data: bytes, owner: MessageOwner) -> tuple[list[Message], list[Frame]]:
        """
        Return the messages and other frames, without heartbeats. ConnectFailed during the handshake. Afterwards,
        `failure` is set for data that does not follow the protocol; the result is the frames that came before it.
        """
        if not self.is_ready:
            try:
                data = self._shake_hands(data)
            except (InvalidResponse, InvalidFrame) as error:
                raise ConnectFailed(self.address, str(error)) from error
            if not self.is_ready:
                return [], []
        elif self._tls is not None or self._compression is not None:
            data = self._decoded(data)
        frames: Sequence[Frame]
        try:
            messages, frames = self._reader.feed(data, partial(Message, owner))
        except InvalidFrame as error:
            self.failure = InvalidResponse(str(error))
            messages, frames = [], error.frames
        if self.failure is not None:
            messages = []  # nsqd delivers them again
        if frames:
            others = [frame for frame in frames if frame.data != HEARTBEAT]
            self._out += [commands.NOP] * (len(frames) - len(others))
            return messages, others
        return messages, []

    def take_notices(self) -> list[Notice]:
        """Return what the nsqd said without being asked: V2 has no such frames."""
        return []

    def count_oks(self, data: bytes) -> int:
        """Return how many responses `data` is, if all are OK; 0 if it has to be given to `receive`."""
        if self._tls is not None or self._compression is not None or self.state is not State.READY:
            return 0
        return self._reader.count_oks(data)

    # -- inside

    def _decoded(self, data: bytes) -> bytes:
        """Return the data for the frames, up to where it is damaged: then `failure` is set. InvalidResponse."""
        if self._tls is not None:
            data = self._tls.feed(data)
            self.failure = self._tls.failure
        return self._decompressed(data) if self._compression is not None and data else data

    def _decompressed(self, data: bytes) -> bytes:
        assert self._compression is not None
        pieces: list[bytes] = []
        try:
            self._compression.feed(data)
            while piece := self._compression.read():
                pieces.append(piece)
        except BrokenStream as error:
            self.failure = InvalidResponse(str(error))
        return b"".join(pieces)

    def _shake_hands(self, data: bytes) -> bytes:
        """Go on with the handshake. Returns the data behind it."""
        self._reader.add(self._decoded(data))
        while self.state is not State.READY:
            frame = self._reader.next_frame()
            if frame is None:
                if self.failure is not None:
                    raise self.failure
                return b""
            self._answered(frame)
        return self._reader.take_rest()

    def _answered(self, frame: Frame) -> None:
        if frame.data == HEARTBEAT and not frame.is_error:
            self._out.append(commands.NOP)
            return
        text = frame.data.decode("utf-8", "replace")
        if self.state is State.IDENTIFY:
            if frame.is_error:
                raise InvalidResponse(f"failed to IDENTIFY - {text}")
            self._identified(frame.data)
        elif self.state is State.AUTH:
            if frame.is_error:
                raise InvalidResponse(f"Error authenticating {text}")
            self._authenticated(frame.data)
        elif frame.is_error or frame.data != _OK:
            raise InvalidResponse(f"invalid response from {self.state.value} upgrade: {text}")
        self._next_step()

    def _identified(self, data: bytes) -> None:
        answer = _json_object(data) if data.startswith(b"{") else {}
        self.server = Server(
            _number(answer, "max_rdy_count", _DEFAULT_MAX_RDY),
            (_number(answer, "msg_timeout", 0) or _DEFAULT_MSG_TIMEOUT_MS) / 1000,
            str(answer.get("version", "")),
        )
        if answer.get("tls_v1"):
            if self._context is None:
                raise InvalidResponse("the nsqd wants TLS, which was not asked for")
            self._steps.append(State.TLS)
        elif self._options.tls_v1:
            raise InvalidResponse("the nsqd offers no TLS")
        if answer.get("deflate"):
            self._next_compression = Deflate(self._options.deflate_level)
        elif answer.get("snappy"):
            self._next_compression = Snappy()
        if self._next_compression is not None:
            self._steps.append(State.COMPRESSION)
        if answer.get("auth_required"):
            self._steps.append(State.AUTH)

    def _authenticated(self, data: bytes) -> None:
        answer = _json_object(data)
        granted = (str(answer.get("identity", "")), str(answer.get("identity_url", "")))
        self.server = attrs.evolve(self.server, auth=(*granted, _number(answer, "permission_count", 0)))

    def _next_step(self) -> None:
        self.state = self._steps.pop(0) if self._steps else State.READY
        rest = self._reader.take_rest()
        if self.state is State.TLS:
            assert self._context is not None, "checked with the answer to IDENTIFY"
            self._tls = TlsStream(self._context, self.address.rpartition(":")[0].strip("[]"))
            rest = self._tls.feed(rest) if rest else b""
        elif self.state is State.COMPRESSION:
            self._compression, self._next_compression = self._next_compression, None
            assert self._compression is not None
            rest = self._decompressed(rest)
        elif self.state is State.AUTH:
            if not self._options.auth_secret:
                raise InvalidResponse("Auth Required")
            self._out.append(commands.auth(self._options.auth_secret))
        self._reader.add(rest)


def identity(options: ClientOptions) -> dict[str, Any]:
    """Return the body of IDENTIFY, with the keys of NSQ's Go client."""
    body: dict[str, Any] = {
        "client_id": options.client_id,
        "deflate": options.deflate,
        "deflate_level": options.deflate_level,
        "feature_negotiation": True,
        "heartbeat_interval": _milliseconds(options.heartbeat_interval),
        "hostname": options.hostname,
        "long_id": options.hostname,
        "msg_timeout": _milliseconds(options.msg_timeout),
        "output_buffer_size": options.output_buffer_size,
        "output_buffer_timeout": _milliseconds(options.output_buffer_timeout),
        "sample_rate": options.sample_rate,
        "short_id": options.client_id,
        "snappy": options.snappy,
        "tls_v1": options.tls_v1,
        "user_agent": options.user_agent,
    }
    if options.headers:
        body["headers"] = True
    if options.topology_region or options.topology_zone:
        body["topology_region"], body["topology_zone"] = options.topology_region, options.topology_zone
    return body


def _milliseconds(seconds: float) -> int:
    return -1 if seconds < 0 else int(seconds * 1000)


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidResponse(f"invalid JSON in a response - {error}") from error
    if not isinstance(answer, dict):
        raise InvalidResponse("invalid JSON in a response - no object")
    return answer


def _number(answer: dict[str, Any], key: str, default: int) -> int:
    """Return a number that is not negative, of a response. InvalidResponse."""
    value = answer.get(key, default)
    if not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
        raise InvalidResponse(f"invalid {key} in a response - {value!r:.40}")
    return value
