"""
A WebSocket under /v2/subscribe: the bytes of a client after the handshake, with time passing, and a connection that
breaks. Tokens have a process of zeros here, so that a grammar can write them.
"""

from __future__ import annotations

import json
from random import Random
from unittest.mock import patch

from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Ping, Pong, TextMessage

from tests.api.subscribe.harness import SubscribeWeb, WebSocketClient
from tests.fuzz.meter import Broken
from tests.fuzz.oddities import NUMBERS, TEXTS, json_text, json_value, mostly, plain_json
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.codec import pieces

BODIES = (b"one", b"two", b"three", b"four")
_PROCESS = "0" * 12
_FIRST_ID = 0x4D2D124C08100000
"""Of the first message of the harness."""
_USUAL, _OTHER = (0x1, 0x1, 0x1, 0x9, 0xA), (0x0, 0x2, 0x8)
"""Opcodes: text, ping, pong; continuation, binary, close."""
_KNOWN = {"messages", "failed", "paused", "draining"}


class WebSocketFrames(Target):
    name = "websocket"
    kind = "frames of a WebSocket client that consumes, to the API in process"
    examples = 200
    tokens = (
        b"\x81\x80\0\0\0\0",
        b"\x89\x80\0\0\0\0",
        b"\x88\x80\0\0\0\0",
        b'{"finish":["',
        b'"]}',
        b'{"max_in_flight":2}',
    )
    steps = Bound(60_000, 400)
    memory = Bound(4 << 20, 400)

    def make(self, chance: Random) -> bytes:
        return b"".join(_frame(chance) for _ in range(chance.randint(1, 8)))

    def run(self, data: bytes) -> str:
        chance = chance_of(data)
        with patch("nsqtw.api.subscribe.tokens.token_hex", lambda count: _PROCESS):
            web = SubscribeWeb()
            web.publish(*BODIES)
            client = WebSocketClient(web, "&max_in_flight=2")
            written = b""
            for piece in pieces(data, [chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 2, 6)))]):
                if not client.browser.is_closed:
                    client.browser.send(piece)
                    written += _written(web, client, chance)
            written += _written(web, client, chance)
            outcome = _outcome(written, client)
            client.browser.lose()
            _check_others(web)
        return outcome


def _frame(chance: Random) -> bytes:
    """A frame, mostly a good one."""
    opcode = mostly(chance, _USUAL, _OTHER, 0.1)
    payload = _text(chance) if opcode in (0, 1) else chance.choice((b"", b"x", b"\x03\xe8bye", *TEXTS))
    if chance.random() < 0.02:
        opcode = chance.randrange(16)
    first = (
        opcode
        | (0x80 if chance.random() < 0.97 else 0)
        | (chance.choice((0x10, 0x20, 0x40)) if chance.random() < 0.03 else 0)
    )
    length = len(payload) if chance.random() < 0.98 else max(0, len(payload) + chance.choice((-1, 1, 2**16, 2**62)))
    if length < 126:
        sizes = bytes((length,))
    elif length < 2**16:
        sizes = b"\x7e" + length.to_bytes(2, "big")
    else:
        sizes = b"\x7f" + length.to_bytes(8, "big")
    if chance.random() < 0.03:
        return bytes((first,)) + sizes + payload  # without a mask
    mask = bytes(chance.randrange(256) for _ in range(4))
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return bytes((first, sizes[0] | 0x80)) + sizes[1:] + mask + masked


def _text(chance: Random) -> bytes:
    if chance.random() < 0.03:
        return mostly(chance, (b"x" * 65_537, b"[" * 20_000), TEXTS, 0.7)
    fields = []
    for _ in range(chance.randint(1, 2)):
        name = mostly(chance, ("finish", "requeue", "touch", "max_in_flight", "delay"), ("", "fin", "\ud800"), 0.05)
        value = [_token(chance) for _ in range(chance.randrange(4))] if name in ("finish", "requeue", "touch") else 2
        fields.append((name, mostly(chance, (value,), (json_value(chance), chance.choice(NUMBERS)), 0.05)))
    return json_text(chance, fields) if chance.random() < 0.1 else plain_json(fields)


def _token(chance: Random) -> str:
    message_id = f"{_FIRST_ID + chance.randrange(len(BODIES)):016x}"
    usual = f"{_PROCESS}.1.{message_id}.{chance.choice((1, 1, 1, 2))}"
    return mostly(chance, (usual,), ("", "x", f"{_PROCESS}.2.{message_id}.1", usual + "\n", usual[:-1] + "9" * 9), 0.1)


def _written(web: SubscribeWeb, client: WebSocketClient, chance: Random) -> bytes:
    """What the broker has written, after some time."""
    step = chance.randrange(6)
    if step == 0:
        web.wait(chance.choice((1.0, 31.0, 61.0)))
    for _ in range(20):
        web.clock.advance(0.01)
    web.turn()
    data = client.browser.transport.value()
    client.browser.transport.clear()
    return data


def _outcome(written: bytes, client: WebSocketClient) -> str:
    """Read what was written as any client would."""
    reader = client._frames
    reader.receive_data(written)
    outcome = "waits for more"
    for event in reader.events():
        if isinstance(event, TextMessage) and event.message_finished:
            known = json.loads(event.data).keys()
            if not known <= _KNOWN:
                raise Broken(f"unknown: {event.data[:200]}")
            outcome = "answered"
        elif isinstance(event, CloseConnection):
            if reader.state is ConnectionState.OPEN:  # no close frame was read
                raise Broken(f"the broker's frames cannot be read: {event.reason}")
            return "closed" if int(event.code) in (1000, 1005) else "refused"
        elif not isinstance(event, TextMessage | Ping | Pong):
            raise Broken(f"unexpected: {event}")
    return outcome


def _check_others(web: SubscribeWeb) -> None:
    """Nothing is with a client that has left, and another one gets only what was published."""
    if web.counts[1]:
        raise Broken(f"{web.counts[1]} messages are in flight without a client")
    web.wait(3600.0)
    bodies = [message["body"].encode() for message in web.take("&wait=0s&max=1000")]
    if len(set(bodies)) != len(bodies) or not set(bodies) <= set(BODIES):
        raise Broken(f"another client gets {bodies}")
