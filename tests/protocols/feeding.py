"""Feeding a V2Codec, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nsqtw.errors import ClientError, LineTooLong
from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_codec import Command, V2Codec

ID = b"0123456789abcdef"
FIN = b"FIN " + ID + b"\n"
TOO_LONG = "line too long"

Found = list[Any]
"""Commands as `command` makes them; at last the text of the error, if that is how it ended."""


class Limits:
    max_msg_size = 20
    max_body_size = 64  # so an MPUB may have 12 messages


class Generous:
    max_msg_size = 1 << 20
    max_body_size = 5 << 20


def accept(verb: bytes, params: Sequence[bytes]) -> None:
    """A session that finds nothing wrong with a command before its body."""


def command(verb: bytes, *params: bytes, payload: Iterable[bytes] = ()) -> tuple[Any, ...]:
    return verb, params, tuple(payload)


def fin(message_id: bytes, *more: bytes) -> tuple[Any, ...]:
    return command(b"FIN", message_id, *more)


def taken_apart(taken: Command) -> Iterator[tuple[Any, ...]]:
    """The commands that a run stands for."""
    verb, params, payload, _ = taken
    if verb == b"FIN" and payload:
        for message_id in payload:
            yield fin(message_id)
    elif verb == b"PUB":
        for body in payload:
            yield command(b"PUB", *params, payload=[body])
    else:
        yield command(verb, *params, payload=payload)


def drain(codec: V2Codec) -> Found:
    """The commands there are, runs taken apart."""
    found: Found = []
    try:
        while (taken := codec.next_command()) is not None:
            found += taken_apart(taken)
    except ClientError as refused:
        assert refused.fatal
        found.append(str(refused))
    except LineTooLong:
        found.append(TOO_LONG)
    return found


def fed(*pieces: bytes, limits: Any = Limits) -> tuple[Found, V2Codec]:
    """What these pieces are, looked at after each of them up to the first error; and the codec."""
    codec = V2Codec(limits, accept, COMMANDS)
    found: Found = []
    for piece in pieces:
        codec.feed(piece)
        found += drain(codec)
        if found and isinstance(found[-1], str):
            break
    return found, codec
