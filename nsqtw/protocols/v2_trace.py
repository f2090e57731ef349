"""
Trace of a V2 session in the log: command lines, deliveries, credit. Never a message body, never a secret.

    PROTOCOL(V2): [client] [SUB t c]                                    a command line, debug
    PROTOCOL(V2): writing msg(id) to client(client) - 5 bytes           a message, debug
    [client] state rdy:  100 inflt:    1                                the credit, debug
    [client] IDENTIFY: {ClientID:c Hostname:h ...}                      info

A client that sends wrong sizes has its bodies read as command lines, and some clients write a body or a secret behind a
command that takes none. So a word is shown only if it is valid in its position: a command, a name, a number, a message
id. Of anything else only the length is shown. Valid names are shown as they are, invalid ones quoted.

Performance: called only at log level debug; the session checks the level once per chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nsqtw.core.client import Client
from nsqtw.core.segment import BODY_AT, FRAME_TYPE_MESSAGE, ID_AT, SIZE_BYTES
from nsqtw.interfaces import OperatorLog
from nsqtw.protocols.frames import HEAD
from nsqtw.protocols.parameters import hidden
from nsqtw.protocols.v2_command import MESSAGE_OF_RUN, NO_BODY, Commands
from nsqtw.protocols.v2_headers import FRAME_TYPE_HEADED, headers_bytes

_MAX_VALUE = 200

_IDENTIFY_KEYS = {
    "client_id": "ClientID",
    "hostname": "Hostname",
    "heartbeat_interval": "HeartbeatInterval",
    "output_buffer_size": "OutputBufferSize",
    "output_buffer_timeout": "OutputBufferTimeout",
    "feature_negotiation": "FeatureNegotiation",
    "tls_v1": "TLSv1",
    "deflate": "Deflate",
    "deflate_level": "DeflateLevel",
    "snappy": "Snappy",
    "sample_rate": "SampleRate",
    "user_agent": "UserAgent",
    "msg_timeout": "MsgTimeout",
    "topology_region": "TopologyRegion",
    "topology_zone": "TopologyZone",
}
"""The fields in nsqd's order, with nsqd's names for them in its log."""


class Identified(dict[str, Any]):
    """The IDENTIFY data of a client; as text, a line of nsqd's. Long texts are truncated."""

    def __init__(self, fields: dict[str, Any]) -> None:
        values = {key: fields[key] for key in _IDENTIFY_KEYS}
        super().__init__({k: v[:_MAX_VALUE] if isinstance(v, str) else v for k, v in values.items()})

    def __str__(self) -> str:
        words = (f"{word}:{_go_text(self[key])}" for key, word in _IDENTIFY_KEYS.items())
        return "{" + " ".join(words) + "}"


class Trace:
    """Writes the lines of one session, at level debug."""

    def __init__(self, log: OperatorLog, client: Client, commands: Commands) -> None:
        self._log = log
        self._commands = commands
        self._client = client

    def body_begins(self, verb: bytes, params: Sequence[bytes]) -> None:
        """The line of a command with a body, which comes before it is known whether the body is right."""
        self._say(command_text(self._commands, verb, params))

    def command(self, verb: bytes, params: Sequence[bytes], payload: Sequence[bytes]) -> None:
        """A command, or a run of them, for which `body_begins` has said the first line of those with a body."""
        spec = self._commands.get(verb)
        body = NO_BODY if spec is None else spec.body
        if body == NO_BODY:
            for message_id in payload:
                self._say(command_text(self._commands, verb, (message_id,)))
            if not payload:
                self._say(command_text(self._commands, verb, params))
        elif body == MESSAGE_OF_RUN:
            for _ in payload[1:]:
                self._say(command_text(self._commands, verb, params))

    def written(self, out: Iterable[bytes]) -> None:
        """The messages among frames that are written now."""
        client = self._client.remote_address
        for message_id, size in _messages(b"".join(out)):
            self._log(
                "debug",
                "PROTOCOL(V2): writing msg({message_id}) to client({client}) - {bytes} bytes",
                client=client,
                message_id=message_id,
                bytes=size,
            )

    def state(self) -> None:
        """The credit of a client that has subscribed."""
        self._log(
            "debug",
            "[{client}] state rdy: {ready_count:4d} inflt: {in_flight_count:4d}",
            client=self._client.remote_address,
            ready_count=self._client.ready_count,
            in_flight_count=self._client.in_flight_count,
        )

    def _say(self, command: str) -> None:
        text = "PROTOCOL(V2): [{client}] [{command}]"
        self._log("debug", text, client=self._client.remote_address, command=command)


def command_text(commands: Commands, verb: bytes, params: Sequence[bytes]) -> str:
    """A command line without what may be a body or a secret: the length of that."""
    spec = commands.get(verb)
    if spec is None:
        return hidden(b" ".join((verb, *params)))
    kinds = spec.shown
    words = [verb.decode(), *(show(raw) for show, raw in zip(kinds, params, strict=False))]
    rest = params[len(kinds) :]
    return " ".join([*words, hidden(b" ".join(rest))] if rest else words)


def _messages(frames: bytes) -> Iterator[tuple[str, int]]:
    """Id and body length of each message among complete frames."""
    offset = 0
    while offset < len(frames):
        size, kind = HEAD.unpack_from(frames, offset)
        stop = offset + SIZE_BYTES + size
        if kind in (FRAME_TYPE_MESSAGE, FRAME_TYPE_HEADED):
            start = offset + BODY_AT
            if kind == FRAME_TYPE_HEADED:
                start += headers_bytes(frames, start)
            yield frames[offset + ID_AT : offset + BODY_AT].decode(), stop - start
        offset = stop


def _go_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
