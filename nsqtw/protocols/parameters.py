"""
Parameters of a command line: numbers, names and message ids, their errors, and their form in the log.

Numbers are decimal digits, 64 bits, with silent wrap-around. Errors echo the client's input.
The log shows a word only when it is valid in its position, because anything else may be part of a message: of that it
shows the length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nsqtw.errors import ClientError
from nsqtw.gocompat.text import quoted
from nsqtw.names import MAX_NAME_BYTES, is_valid_name

ID_BYTES = 16
_SHORT_NUMBER = re.compile(rb"[0-9]{0,20}")
_ID = re.compile(rb"[0-9a-f]{16}")
_DIGITS = re.compile(rb"[0-9]*")
_MODULUS = 1 << 64
_NS_PER_MS = 10**6


def decimal(raw: bytes) -> int | None:
    """The unsigned number, 0 for nothing at all; None when there is anything but digits."""
    if _DIGITS.fullmatch(raw) is None:
        return None
    number = 0
    for start in range(0, len(raw), 4096):  # int() refuses very long texts; a client may send 16 KB of digits
        piece = raw[start : start + 4096]
        number = (number * pow(10, len(piece), _MODULUS) + int(piece)) % _MODULUS
    return number


def signed64(number: int) -> int:
    """The 64 bits of an unsigned number read as a signed one."""
    return number - _MODULUS if number >= _MODULUS >> 1 else number


def duration_ns(milliseconds: int) -> int:
    """Milliseconds as signed 64-bit nanoseconds, wrapped: too long a time comes out short or negative."""
    return signed64(milliseconds * _NS_PER_MS % _MODULUS)


def checked_name(raw: bytes, code: str, what: str) -> str:
    """The name of a topic or channel. ClientError when it is none: `code`, and `what` it should have named."""
    name = text_of(raw)
    if not is_valid_name(name):
        raise ClientError(code, f"{what} {quoted(raw)} is not valid", logged=f"{what} {shown_name(raw)} is not valid")
    return name


def checked_topic(verb: bytes, raw: bytes) -> str:
    """The name of the topic of a publish. ClientError."""
    code = "E_BAD_TOPIC E_BAD_TOPIC" if verb == b"MPUB" else "E_BAD_TOPIC"  # as nsqd has it
    return checked_name(raw, code, f"{verb.decode()} topic name")


def need_names(verb: bytes, params: Sequence[bytes], count: int) -> None:
    """ClientError when a command that begins with names has less than the `count` parameters."""
    if len(params) < count:
        raise ClientError("E_INVALID", f"{verb.decode()} insufficient number of parameters")


def message_id_of(verb: bytes, params: Sequence[bytes], count: int) -> bytes:
    """The message id of a command that takes `count` parameters. ClientError."""
    if len(params) < count:
        raise ClientError("E_INVALID", f"{verb.decode()} insufficient number of params")
    if len(params[0]) != ID_BYTES:
        raise ClientError("E_INVALID", "invalid message ID")
    return params[0]


def unparsed(what: str, raw: bytes) -> ClientError:
    """The error for something that should have been a number; `what` says which one."""
    return ClientError("E_INVALID", f"{what} {text_of(raw)}", logged=f"{what} {shown_number(raw)}")


def text_of(raw: bytes) -> str:
    """Bytes of a client in a text that becomes a frame: there they are what they were."""
    return raw.decode("utf-8", "surrogateescape")


# -- for the log


def hidden(raw: bytes) -> str:
    """The form in the log of bytes that are not shown."""
    return f"({len(raw)} bytes)" if raw else ""


def shown_name(raw: bytes) -> str:
    """A name, in quotes when it is none."""
    if len(raw) > MAX_NAME_BYTES:
        return hidden(raw)
    return raw.decode() if is_valid_name(text_of(raw)) else quoted(raw)


def shown_number(raw: bytes) -> str:
    """A decimal number of up to 64 bits."""
    return raw.decode() if _SHORT_NUMBER.fullmatch(raw) else hidden(raw)


def shown_id(raw: bytes) -> str:
    """A message id as we make them."""
    return raw.decode() if _ID.fullmatch(raw) else hidden(raw)
