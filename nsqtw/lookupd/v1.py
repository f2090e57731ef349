"""
The protocol V1 between an nsqd and nsqlookupd, without IO.

    nsqd:        "  V1"                                                  once, before anything else
                 line "\\n"                                               words with single spaces between them
                 "IDENTIFY\\n" int32 size | size bytes of JSON
    nsqlookupd:  int32 size | size bytes                                 one for each command, in order

    PING                           OK
    IDENTIFY                       JSON: the addresses of this nsqlookupd
    REGISTER topic [channel]       OK
    UNREGISTER topic [channel]     OK

An error is `CODE text`, and the connection ends after it. Only REGISTER beyond a limit does not end it: an nsqd that
had to connect again would lose all its registrations, and ask again.

Theory of operation. Input is kept until a line or a body is complete, and both have limits, so a connection costs
little whatever it sends. With a secret, IDENTIFY must contain it as `secret`; before IDENTIFY only PING is allowed.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from typing import Any

import attrs

from nsqtw.errors import CapReached, ClientError
from nsqtw.gocompat.json import read_object
from nsqtw.interfaces import MAX_CLIENT_TEXT, OperatorLog
from nsqtw.lookupd.model import CLIENT, Key, Producer
from nsqtw.lookupd.registrations import Registrations
from nsqtw.names import is_valid_name
from nsqtw.options.addresses import MAX_PORT, is_host, is_port
from nsqtw.options.texts import duration_text

MAX_LINE_BYTES = 4096
"""The longest line of an nsqd has 140: two names of 64 and a word."""
MAX_BODY_BYTES = 16384
"""An nsqd describes itself in 200 bytes."""

_SIZE = struct.Struct(">i")
_FIELDS: dict[str, Any] = {
    "broadcast_address": "",
    "hostname": "",
    "tcp_port": 0,
    "http_port": 0,
    "version": "",
    "topology_zone": "",
    "topology_region": "",
    "remote_address": "",
    "secret": "",
}
_TEXTS = ("broadcast_address", "hostname", "version", "topology_zone", "topology_region")
_REQUIRED = ("broadcast_address", "tcp_port", "http_port", "version")
_REGISTERED = "DB: client({client}) REGISTER category:{category} key:{topic} subkey:{channel}"
_UNREGISTERED = "DB: client({client}) UNREGISTER category:{category} key:{topic} subkey:{channel}"
_UNEXPECTED = "client({client}) unexpected UNREGISTER category:{category} key:{topic} subkey:{channel}"


@attrs.define
class V1Context:
    """The state that the connections of one nsqlookupd share."""

    registrations: Registrations
    log: OperatorLog
    identity: bytes = b"{}"
    """The answer to IDENTIFY."""
    secret: bytes = attrs.field(default=b"", repr=False)
    """The secret that IDENTIFY must contain; empty for none."""


def response(payload: bytes) -> bytes:
    """Return a response: the size and `payload`."""
    return _SIZE.pack(len(payload)) + payload


_OK = response(b"OK")


class V1Session:
    """
    One connection of an nsqd, behind the magic. `peer_id` is its number, `remote` its `ip:port`. Times are unix
    nanoseconds.
    """

    def __init__(self, context: V1Context, peer_id: int, remote: str) -> None:
        self.closing = False
        """Whether the connection ends when all output is written."""
        self.command_count = 0
        """Complete commands so far."""
        self.refused = ""
        """The limit that the last call exceeded, for the log; empty for none."""
        self._context = context
        self._peer_id = peer_id
        self._remote = remote
        self._producer: Producer | None = None
        self._last_sign = 0
        self._buffer = b""
        self._body_bytes = -1
        """The size of the expected body; -1 when a line is expected."""
        self._awaits_size = False
        self._out: list[bytes] = []

    # -- from the connection

    def receive_data(self, chunk: bytes, now: int) -> None:
        """Take what was read and do what it says."""
        self.refused = ""
        self._buffer = self._buffer + chunk if self._buffer else chunk
        try:
            self._read(now)
        except ClientError as error:
            self._end(error)

    def receive_end(self) -> None:
        """The nsqd sends no more."""
        if self._awaits_size:
            self._end(ClientError("E_BAD_BODY", "IDENTIFY failed to read body size"))
        elif self._body_bytes >= 0:
            self._end(ClientError("E_BAD_BODY", "IDENTIFY failed to read body"))
        self.closing = True

    def connection_lost(self) -> Iterator[None]:
        """It is gone, and what it had. Returns what says so in the log, a line at each step: there may be thousands."""
        self._context.log("info", "PROTOCOL(V1): [{client}] exiting ioloop", client=self._remote)
        return self._log_removed(self._context.registrations.remove_peer(self._peer_id))

    def _log_removed(self, keys: list[Key]) -> Iterator[None]:
        for key in keys:
            self._log_key(_UNREGISTERED, key)
            yield

    def data_to_send(self) -> bytes:
        """The responses since the last call."""
        out, self._out = self._out, []
        return b"".join(out)

    # -- commands

    def _read(self, now: int) -> None:
        """Do every command that is complete."""
        position = 0
        buffer = self._buffer
        while not self.closing:
            if self._awaits_size or self._body_bytes >= 0:
                after = self._read_body(position, now)
                if after < 0:
                    break
                position = after
                continue
            end = buffer.find(b"\n", position)
            if (len(buffer) if end < 0 else end) - position > MAX_LINE_BYTES:
                raise ClientError("E_INVALID", f"line is longer than {MAX_LINE_BYTES} bytes")
            if end < 0:
                break
            line = buffer[position:end].strip().decode("utf-8", "surrogateescape")
            position = end + 1
            self._execute(line.split(" "), now)
        self._buffer = b"" if self.closing else buffer[position:]

    def _read_body(self, position: int, now: int) -> int:
        """Take the size or the body of IDENTIFY; where the rest begins, -1 when it has not come."""
        if self._awaits_size:
            after = position + _SIZE.size
            if len(self._buffer) < after:
                return -1
            self._body_bytes = _SIZE.unpack_from(self._buffer, position)[0]
            self._awaits_size = False
            if not 0 <= self._body_bytes <= MAX_BODY_BYTES:
                raise ClientError("E_BAD_BODY", "IDENTIFY failed to read body")
            return after
        after = position + self._body_bytes
        if len(self._buffer) < after:
            return -1
        self._body_bytes = -1
        self._identify(self._buffer[position:after], now)
        return after

    def _execute(self, words: list[str], now: int) -> None:
        match words[0]:
            case "PING":
                self._ping(now)
            case "IDENTIFY":
                if self._producer is not None:
                    raise ClientError("E_INVALID", "cannot IDENTIFY again")
                self._awaits_size = True
                return
            case "REGISTER":
                self._register(*self._names(words))
            case "UNREGISTER":
                self._unregister(*self._names(words))
            case other:
                raise ClientError("E_INVALID", f"invalid command {other}", logged=f"invalid command {other[:64]!r}")
        self.command_count += 1

    def _ping(self, now: int) -> None:
        if self._producer is not None:
            elapsed = duration_text(max(0, now - self._last_sign))
            text = "CLIENT({client}): pinged (last ping {elapsed})"
            self._context.log("info", text, client=self._remote, elapsed=elapsed)
            self._last_sign = now
            self._context.registrations.touch(self._peer_id, now)
        self._out.append(_OK)

    def _identify(self, body: bytes, now: int) -> None:
        try:
            fields = read_object(body, _FIELDS)
        except (ValueError, RecursionError):
            raise ClientError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
        secret = fields.pop("secret").encode("utf-8", "surrogateescape")
        if self._context.secret and not hmac.compare_digest(secret, self._context.secret):
            raise ClientError("E_UNAUTHORIZED", "IDENTIFY needs the secret of this nsqlookupd")
        if not all(fields[name] for name in _REQUIRED):
            raise ClientError("E_BAD_BODY", "IDENTIFY missing fields")
        for name in _TEXTS:
            if len(fields[name]) > MAX_CLIENT_TEXT:
                raise ClientError("E_BAD_BODY", f"IDENTIFY {name} is longer than {MAX_CLIENT_TEXT} characters")
        if not is_host(fields["broadcast_address"]):
            raise ClientError("E_BAD_BODY", "IDENTIFY broadcast_address is no host name and no IP address")
        if not (is_port(fields["tcp_port"]) and is_port(fields["http_port"])):
            raise ClientError("E_BAD_BODY", f"IDENTIFY tcp_port and http_port must be 1 to {MAX_PORT}")
        producer = Producer(peer_id=self._peer_id, **(fields | {"remote_address": self._remote}))
        self._producer, self._last_sign = producer, now
        self._context.log(
            "info",
            "CLIENT({client}): IDENTIFY Address:{address} TCP:{tcp_port} HTTP:{http_port} Version:{version}",
            client=self._remote,
            address=producer.broadcast_address,
            tcp_port=producer.tcp_port,
            http_port=producer.http_port,
            version=producer.version,
        )
        self._context.registrations.identify(producer, now)
        self._log_key(_REGISTERED, CLIENT)
        self.command_count += 1
        self._out.append(response(self._context.identity))

    def _register(self, topic: str, channel: str) -> None:
        try:
            added = self._context.registrations.register(self._peer_id, topic, channel)
        except CapReached as reached:
            self.refused = reached.what
            self._out.append(response(f"E_TOO_MANY_REGISTRATIONS REGISTER {reached}".encode()))
            return
        for key in added:
            self._log_key(_REGISTERED, key)
        self._out.append(_OK)

    def _unregister(self, topic: str, channel: str) -> None:
        for key in self._context.registrations.unregister(self._peer_id, topic, channel):
            # An nsqd takes leave of its channels before it does of their topic.
            is_unexpected = not channel and key.channel
            self._log_key(_UNEXPECTED if is_unexpected else _UNREGISTERED, key, "warn" if is_unexpected else "info")
        self._out.append(_OK)

    def _names(self, words: list[str]) -> tuple[str, str]:
        """The topic and the channel, which may be empty, of REGISTER and UNREGISTER."""
        if self._producer is None:
            raise ClientError("E_INVALID", "client must IDENTIFY")
        command, *params = words
        if not params:
            raise ClientError("E_INVALID", f"{command} insufficient number of params")
        topic, channel = params[0], params[1] if len(params) > 1 else ""
        if not is_valid_name(topic):
            raise ClientError("E_BAD_TOPIC", f"{command} topic name '{topic}' is not valid")
        if channel and not is_valid_name(channel):
            raise ClientError("E_BAD_CHANNEL", f"{command} channel name '{channel}' is not valid")
        return topic, channel

    def _end(self, error: ClientError) -> None:
        self._context.log("error", "[{client}] - {error}", client=self._remote, error=error.log_text)
        self._out.append(response(error.frame_data))
        self.closing = True
        self._buffer = b""

    def _log_key(self, text: str, key: Key, level: str = "info") -> None:
        self._context.log(level, text, client=self._remote, category=key.category, topic=key.topic, channel=key.channel)
