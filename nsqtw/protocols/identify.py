"""
IDENTIFY: the fields of the request, their bounds, and the answer.

The JSON is read as nsqd reads it (`nsqtw.gocompat.json`).
"""

from __future__ import annotations

from typing import Any

from attrs import define, frozen

from nsqtw import NSQ_VERSION
from nsqtw.core.client import Client
from nsqtw.errors import ClientError
from nsqtw.gocompat.json import read_object
from nsqtw.gocompat.text import json_text
from nsqtw.interfaces import MAX_CLIENT_TEXT
from nsqtw.options.broker import Options
from nsqtw.protocols.subscription import is_msg_timeout

DEFAULT_HEARTBEAT_SECONDS = 30.0
DEFAULT_OUTPUT_BUFFER_BYTES = 16384
MAX_SAMPLE_RATE = 99
_MIN_HEARTBEAT_MS = 1000
_MIN_OUTPUT_BUFFER_BYTES = 64
_DEFAULT_DEFLATE_LEVEL = 6
_OFF = -1

_KINDS: dict[str, Any] = {
    "client_id": "",
    "hostname": "",
    "user_agent": "",
    "topology_region": "",
    "topology_zone": "",
    "feature_negotiation": False,
    "headers": False,
    "tls_v1": False,
    "snappy": False,
    "deflate": False,
    "heartbeat_interval": 0,
    "output_buffer_size": 0,
    "output_buffer_timeout": 0,
    "deflate_level": 0,
    "sample_rate": 0,
    "msg_timeout": 0,
}
_TEXTS = [name for name, default in _KINDS.items() if default == ""]
_INTEGER_BITS = {"sample_rate": 32}


@define
class Settings:
    """The negotiated settings of a connection. Seconds, except where a name says otherwise."""

    msg_timeout: float
    output_buffer_timeout: float
    heartbeat_interval: float = DEFAULT_HEARTBEAT_SECONDS
    """0: no heartbeats."""
    output_buffer_bytes: int = DEFAULT_OUTPUT_BUFFER_BYTES
    sample_rate: int = 0
    headers: bool = False
    """Whether message frames have headers."""


@frozen
class Features:
    """The features that a connection starts after IDENTIFY."""

    tls: bool = False
    snappy: bool = False
    deflate: bool = False
    deflate_level: int = _DEFAULT_DEFLATE_LEVEL


def decode(body: bytes) -> dict[str, Any]:
    """Parse the document: all fields with their values or defaults. ClientError when it is invalid."""
    try:
        fields = read_object(body, _KINDS, _INTEGER_BITS)
    except (ValueError, RecursionError):
        raise ClientError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
    for name in _TEXTS:
        if len(fields[name]) > MAX_CLIENT_TEXT:
            raise ClientError("E_BAD_BODY", f"IDENTIFY {name} is longer than {MAX_CLIENT_TEXT} characters")
    return fields


def apply(fields: dict[str, Any], settings: Settings, options: Options) -> None:
    """Change `settings` to what the client asked for. ClientError for the first value out of bounds."""
    interval = _bounded(
        "heartbeat interval",
        fields["heartbeat_interval"],
        _MIN_HEARTBEAT_MS,
        _ms(options.max_heartbeat_interval),
        or_else=_OFF,
    )
    buffer_timeout = _bounded(
        "output buffer timeout",
        fields["output_buffer_timeout"],
        _ms(options.min_output_buffer_timeout),
        _ms(options.max_output_buffer_timeout),
        or_else=_OFF,
    )
    buffer_bytes = _bounded(
        "output buffer size",
        fields["output_buffer_size"],
        _MIN_OUTPUT_BUFFER_BYTES,
        options.max_output_buffer_size,
        or_else=_OFF,
    )
    sample_rate = _bounded("sample rate", fields["sample_rate"], 0, MAX_SAMPLE_RATE)
    msg_timeout = fields["msg_timeout"]
    if msg_timeout and not is_msg_timeout(msg_timeout / 1000, options):
        raise _out_of_bounds("msg timeout", msg_timeout)
    if interval:
        settings.heartbeat_interval = 0.0 if interval == _OFF else interval / 1000
    if buffer_timeout:
        settings.output_buffer_timeout = 0.0 if buffer_timeout == _OFF else buffer_timeout / 1000
    if buffer_bytes == _OFF:
        settings.output_buffer_bytes, settings.output_buffer_timeout = 1, 0.0
    elif buffer_bytes:
        settings.output_buffer_bytes = buffer_bytes
    settings.sample_rate = sample_rate
    if msg_timeout:
        settings.msg_timeout = msg_timeout / 1000


def negotiate(fields: dict[str, Any], client: Client, options: Options) -> Features:
    """
    Return the features to start. Those of an earlier IDENTIFY stay. ClientError when both compressions are requested.
    """
    snappy, deflate = options.snappy and fields["snappy"], options.deflate and fields["deflate"]
    if (snappy or client.snappy) and (deflate or client.deflate):
        raise ClientError("E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression")
    tls = bool(options.tls_cert) and fields["tls_v1"]
    is_compressed = client.snappy or client.deflate  # and TLS belongs below that
    level = fields["deflate_level"] if deflate and fields["deflate_level"] > 0 else _DEFAULT_DEFLATE_LEVEL
    return Features(
        tls=tls and not (client.tls or is_compressed),
        snappy=snappy and not client.snappy,
        deflate=deflate and not client.deflate,
        deflate_level=min(level, options.max_deflate_level),
    )


def answer(
    settings: Settings, features: Features, client: Client, options: Options, auth_required: bool = False
) -> bytes:
    """Return the negotiated settings. "headers" is there only for a client that asked for them."""
    asked = {"headers": True} if settings.headers else {}
    return json_text(
        {
            "max_rdy_count": options.max_rdy_count,
            "version": NSQ_VERSION,
            "max_msg_timeout": _ms(options.max_msg_timeout),
            "msg_timeout": _ms(settings.msg_timeout),
            "tls_v1": features.tls or client.tls,
            "deflate": features.deflate or client.deflate,
            "deflate_level": features.deflate_level,
            "max_deflate_level": options.max_deflate_level,
            "snappy": features.snappy or client.snappy,
            "sample_rate": settings.sample_rate,
            "auth_required": auth_required,
            "output_buffer_size": settings.output_buffer_bytes,
            "output_buffer_timeout": _ms(settings.output_buffer_timeout),
            "topology_region": options.topology_region,
            "topology_zone": options.topology_zone,
            **asked,
        }
    )


def _bounded(what: str, value: int, low: int, high: int, *, or_else: int = 0) -> int:
    if value not in (0, or_else) and not low <= value <= high:
        raise _out_of_bounds(what, value)
    return value


def _out_of_bounds(what: str, value: int) -> ClientError:
    return ClientError("E_BAD_BODY", f"IDENTIFY {what} ({value}) is invalid")


def _ms(seconds: float) -> int:
    """Return whole milliseconds, rounded down as in nsqd; by way of nanoseconds, where a float is exact enough."""
    return round(seconds * 10**9) // 10**6
