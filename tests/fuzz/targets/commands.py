"""The grammar of protocol V2: commands as clients send them, with or without a fault."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from tests.fuzz.oddities import BODIES, NAMES, NUMBERS, json_text, json_value, mostly, respelled

TOKENS = (
    *(b"IDENTIFY\n", b"AUTH\n", b"SUB t c\n", b"PUB t\n", b"MPUB t\n", b"DPUB t 5\n", b"RDY 5\n", b"CLS\n", b"NOP\n"),
    *(b"FIN ", b"REQ ", b"TOUCH ", b"FIN 0123456789abcdef\n", b" ", b"\n", b"\r\n", b"\n\n", b"#ephemeral", b"  V2"),
    *(struct.pack(">i", number) for number in (0, 1, -1, 5, 30, 64, 1 << 20, (1 << 31) - 1, -(1 << 31))),
)
FIELDS = (
    *("client_id", "hostname", "user_agent", "feature_negotiation", "heartbeat_interval", "output_buffer_size"),
    *("output_buffer_timeout", "tls_v1", "snappy", "deflate", "deflate_level", "sample_rate", "msg_timeout"),
    *("topology_region", "topology_zone", "headers", "unknown"),
)
_USUAL_FIELDS = {
    "client_id": ("me", "", None),
    "hostname": ("here",),
    "user_agent": ("fuzz/1",),
    "feature_negotiation": (True, False),
    "heartbeat_interval": (0, -1, 1000, 30000, 60001),
    "output_buffer_size": (0, -1, 64, 63, 65536, 65537),
    "output_buffer_timeout": (0, -1, 25, 24, 30000),
    "deflate_level": (0, 6, 9),
    "sample_rate": (0, 50, 99, 100),
    "msg_timeout": (0, 999, 1000, 60000, 10**9),
}


def int32(number: int) -> bytes:
    """Four bytes; what does not fit wraps around."""
    return struct.pack(">I", number & 0xFFFF_FFFF)


def sized(chance: Random, body: bytes) -> bytes:
    """A body with its size, which now and then is another one."""
    size = len(body)
    if chance.random() < 0.02:
        size = chance.choice((0, -1, size - 1, size + 1, 31, 65, 1 << 20, (1 << 31) - 1, -(1 << 31)))
    return int32(size) + body


def document(chance: Random) -> bytes:
    """What IDENTIFY sends."""
    keys = [chance.choice(FIELDS) for _ in range(chance.randrange(6))]
    pairs = []
    for key in keys:
        usual = _USUAL_FIELDS.get(key, (True, False))
        value = chance.choice(usual) if chance.random() < 0.7 else json_value(chance)
        pairs.append((respelled(chance, key), value))
    if not pairs:
        return chance.choice((b"{}", b"null", b"[]", b"0", b'"x"', b"{}", b"{}"))
    return json_text(chance, pairs)


def message_id(chance: Random) -> bytes:
    """An id of any kind; a target that knows those that were given out puts them in itself."""
    usual = (b"0123456789abcdef", b"@%03d" % chance.randrange(12))
    return mostly(
        chance, usual, (b"", b"0" * 15, b"0" * 17, b"\xff\0\r\t" * 4, b"g" * 16, b"f" * 16, b"-" + b"1" * 15), 0.05
    )


def command(chance: Random) -> bytes:
    """One command, or a run of equal ones."""
    return chance.choice(_COMMANDS)(chance)


def subscribed_command(chance: Random) -> bytes:
    """As `command`, one that a consumer may send."""
    return chance.choice(_SUBSCRIBED if chance.random() < 0.98 else _COMMANDS)(chance)


def _name(chance: Random) -> bytes:
    return mostly(chance, (b"t", b"t", b"u", b"t#ephemeral"), NAMES, 0.03)


def _number(chance: Random) -> bytes:
    return mostly(chance, (b"0", b"1", b"5", b"10"), NUMBERS, 0.1)


def _body(chance: Random) -> bytes:
    return mostly(chance, BODIES, (b"", b"y" * 31, b"z" * 70), 0.03)


def _line(chance: Random, *words: bytes) -> bytes:
    line = b" ".join(words)
    if chance.random() < 0.03:
        line += chance.choice((b" ", b"\r", b" extra", b" extra", b"\r\r", b" \r", b"\0", b"x" * 16_400))
    return line + b"\n"


def _sub(chance: Random) -> bytes:
    return _line(chance, b"SUB", _name(chance), mostly(chance, (b"c", b"c", b"c#ephemeral"), NAMES, 0.03))


def _pub(chance: Random) -> bytes:
    line = _line(chance, b"PUB", _name(chance))
    return b"".join(line + sized(chance, _body(chance)) for _ in range(chance.choice((1, 1, 2, 9))))


def _dpub(chance: Random) -> bytes:
    return _line(chance, b"DPUB", _name(chance), _number(chance)) + sized(chance, _body(chance))


def _mpub(chance: Random) -> bytes:
    bodies = [_body(chance)] * chance.choice((0, 3)) or [_body(chance) for _ in range(chance.randrange(5))]
    count = len(bodies) if chance.random() < 0.97 else chance.choice((0, -1, 13, len(bodies) + 1, (1 << 31) - 1))
    content = int32(count) + b"".join(sized(chance, body) for body in bodies)
    return _line(chance, b"MPUB", _name(chance)) + sized(chance, content)


def _identify(chance: Random) -> bytes:
    return _line(chance, b"IDENTIFY") + sized(chance, document(chance))


def _auth(chance: Random) -> bytes:
    return _line(chance, b"AUTH") + sized(chance, _body(chance))


def _of_message(chance: Random) -> bytes:
    verb = chance.choice((b"FIN", b"FIN", b"FIN", b"REQ", b"REQ", b"TOUCH"))
    words = [verb, message_id(chance)]
    if verb == b"REQ":
        words.append(_number(chance))
    return _line(chance, *words) * chance.choice((1, 1, 1, 12))


def _bare(chance: Random) -> bytes:
    return _line(
        chance, chance.choice((b"NOP", b"NOP", b"CLS", b"RDY", b"", b"nop", b"FIN", b"REQ", b"  V2", b"GET / HTTP/1.1"))
    )


def _rdy(chance: Random) -> bytes:
    return _line(chance, b"RDY", _number(chance))


_COMMANDS: tuple[Callable[[Random], bytes], ...] = (
    *(_sub, _sub, _pub, _pub, _dpub, _mpub, _identify, _auth, _rdy, _rdy),
    *(_of_message, _of_message, _of_message, _bare),
)
_SUBSCRIBED = (_pub, _pub, _dpub, _mpub, _rdy, _of_message, _of_message, _of_message)
