"""
The opening handshake of a WebSocket (RFC 6455, 4.2), on a request that the HTTP server has read.

    GET /v2/subscribe/websocket?topic=t&channel=c HTTP/1.1      HTTP/1.1 101 Switching Protocols
    Upgrade: websocket                                          Upgrade: websocket
    Connection: Upgrade                                         Connection: Upgrade
    Sec-WebSocket-Version: 13                                   Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==

Extensions and subprotocols that a client offers are not accepted, which it has to allow. The origin is checked as that
of all requests that change something (`http.headers`): a page of another site can open no WebSocket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from wsproto.utilities import generate_accept_token

from nsqtw.http.responses import Refused, failure

_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
"""16 bytes in base64."""
_UPGRADE_REQUIRED = failure(
    426, "UPGRADE_REQUIRED", (b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Version", b"13")
)
_LINES = (b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: ")


def accept(version: bytes, fields: Mapping[bytes, bytes]) -> bytes:
    """Return the answer to a request of that HTTP version with these fields. Refused when it is no handshake."""
    key = fields.get(b"Sec-Websocket-Key", b"")
    words = [word.strip() for word in fields.get(b"Connection", b"").lower().split(b",")]
    is_handshake = (
        version == b"HTTP/1.1"
        and fields.get(b"Upgrade", b"").lower() == b"websocket"
        and b"upgrade" in words
        and fields.get(b"Sec-Websocket-Version") == b"13"
        and _KEY.fullmatch(key) is not None
    )
    if not is_handshake:
        raise Refused(_UPGRADE_REQUIRED)
    return b"\r\n".join(_LINES) + generate_accept_token(key) + b"\r\n\r\n"
