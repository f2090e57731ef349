"""Handshake of protocol V3: the fields of HELLO, and the document of WELCOME."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from nsqtw.errors import ClientError
from nsqtw.interfaces import MAX_CLIENT_TEXT, IBroker
from nsqtw.protocols.v3 import codec
from nsqtw.protocols.v3.codec import Frame

MESSAGE_IDS: Final = "message_ids"
"""The feature: CONFIRM has the ids of the messages."""
DEFAULT_HEARTBEAT: Final = 30.0
MIN_HEARTBEAT: Final = 1.0


class Hello(NamedTuple):
    """What a client says in HELLO."""

    secret: bytes
    client_id: str
    hostname: str
    user_agent: str
    heartbeat_interval: float
    """Seconds; 0 for no heartbeats."""
    wants_ids: bool
    """Whether it wants the feature MESSAGE_IDS."""


def read_hello(frame: Frame, max_heartbeat_interval: float) -> Hello:
    """Return the fields of a HELLO. ClientError."""
    secret, text = codec.read_hello(frame)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ClientError("E_BAD_BODY", "HELLO failed to decode JSON") from None
    if not isinstance(fields, dict):
        raise ClientError("E_BAD_BODY", "HELLO must have a JSON object")
    client_id, hostname, user_agent = (_text(fields, key) for key in ("client_id", "hostname", "user_agent"))
    interval = fields.get("heartbeat_interval", _ms(DEFAULT_HEARTBEAT))
    if type(interval) is not int or not (interval == 0 or MIN_HEARTBEAT <= interval / 1000 <= max_heartbeat_interval):
        raise ClientError("E_BAD_BODY", "HELLO heartbeat_interval is invalid")
    features = fields.get("features", [])
    if not isinstance(features, list):
        raise ClientError("E_BAD_BODY", "HELLO features is invalid")
    return Hello(secret, client_id, hostname, user_agent, interval / 1000, MESSAGE_IDS in features)


def welcome_payload(broker: IBroker, heartbeat_interval: float, max_frame_size: int, *, tells_ids: bool) -> bytes:
    """Return the payload of WELCOME: what the client may do here."""
    limits: Any = broker
    document = {
        "protocol": 3,
        "version": limits.version,
        "features": [MESSAGE_IDS] if tells_ids else [],
        "heartbeat_interval": _ms(heartbeat_interval),
        "max_frame_size": max_frame_size,
        "max_msg_size": limits.max_msg_size,
        "max_body_size": limits.max_body_size,
        "max_credit": limits.max_ready_count,
        "max_subscriptions": limits.max_subscriptions,
        "max_range": limits.max_range,
        "max_delay": _ms(limits.max_delay),
        "max_req_delay": _ms(limits.max_requeue_delay),
        "msg_timeout": _ms(limits.msg_timeout),
        "max_msg_timeout": _ms(limits.max_msg_timeout),
        "auth_required": limits.needs_authorization,
        "identity": limits.identity,
    }
    return json.dumps(document).encode()


def _text(fields: dict[str, Any], key: str) -> str:
    """Return a text of HELLO. ClientError."""
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise ClientError("E_BAD_BODY", f"HELLO {key} is invalid")
    if len(value) > MAX_CLIENT_TEXT:
        raise ClientError("E_BAD_BODY", f"HELLO {key} is longer than {MAX_CLIENT_TEXT} characters")
    return value.encode("utf-8", "replace").decode()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
