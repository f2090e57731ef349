"""What an nsqd sends to nsqlookupd, whole and in pieces: answered alike, and never more than a bounded part is kept."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from nsqtw.lookupd.v1 import V1Context, V1Session
from tests.fuzz.meter import Broken
from tests.fuzz.oddities import NAMES, json_text, json_value, mostly, respelled
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.codec import pieces
from tests.fuzz.targets.commands import sized
from tests.lookupd.harness import LookupdHarness

_FIELDS: dict[str, Any] = {
    "broadcast_address": ("a", "b"),
    "hostname": ("h", ""),
    "tcp_port": (4150, 1),
    "http_port": (4151, 2),
    "version": ("1.3.0",),
    "secret": ("s",),
}
_WORDS = (b"REGISTER", b"UNREGISTER")


class Lookupd(Target):
    name = "lookupd"
    kind = "bytes of an nsqd, to a session of nsqlookupd, whole and in pieces"
    examples = 2000
    tokens = (b"IDENTIFY\n", b"REGISTER ", b"UNREGISTER ", b"PING\n", b" ", b"\n", b"\r\n", b"t", b"*", b"\0\0\0\2{}")
    steps = Bound(20_000, 300)
    memory = Bound(2 << 20, 200)

    def make(self, chance: Random) -> bytes:
        said = [_identify(chance)] if chance.random() < 0.9 else []
        return b"".join([*said, *[_line(chance) for _ in range(chance.randrange(8))]])

    def run(self, data: bytes) -> str:
        whole, cut = _Nsqd(), _Nsqd()
        whole.send(data)
        chance = chance_of(data)
        for piece in pieces(data, [chance.randrange(len(data) + 1) for _ in range(5)]):
            cut.send(piece)
        if whole.answered != cut.answered:
            raise Broken(f"whole: {whole.answered!r}, in pieces: {cut.answered!r}")
        for nsqd in (whole, cut):
            nsqd.end()
        return whole.outcome()


class _Nsqd:
    """A connection, and its nsqlookupd."""

    def __init__(self) -> None:
        self.core = LookupdHarness()
        self.answered = b""
        self._session = V1Session(V1Context(self.core.registrations, _log, b"{}", b""), 0, "10.0.0.1:1")

    def send(self, data: bytes) -> None:
        if not self._session.closing:
            self._session.receive_data(data, self.core.now)
            self.answered += self._session.data_to_send()

    def end(self) -> None:
        """Nothing is left of it but names."""
        self._session.receive_end()
        self._session.data_to_send()
        list(self._session.connection_lost())
        if self.core.registrations.producer_count or self.core.registrations.registration_count:
            raise Broken("somebody is left")

    def outcome(self) -> str:
        last, rest = b"", self.answered
        while rest:
            (size,) = struct.unpack_from(">i", rest)
            last, rest = rest[4 : 4 + size], rest[4 + size :]
        if not last:
            return "waits for more"
        return "refused" if last.startswith(b"E_") else "answered"


def _log(level: str, text: str, /, **fields: object) -> None:
    text.format(**fields).encode()


def _identify(chance: Random) -> bytes:
    said = {key: mostly(chance, usual, [json_value(chance)], 0.03) for key, usual in _FIELDS.items()}
    pairs = [(respelled(chance, key), value) for key, value in said.items()]
    if chance.random() < 0.1:
        del pairs[chance.randrange(len(pairs))]
    return b"IDENTIFY\n" + sized(chance, json_text(chance, pairs))


def _line(chance: Random) -> bytes:
    if chance.random() < 0.3:
        odd = (b"PING x\n", b"ping\n", b"\n", b"IDENTIFY\n", b"x" * 5000)
        return bytes(mostly(chance, (b"PING\n",), odd, 0.1))
    words = [chance.choice(_WORDS), _name(chance), *([_name(chance)] if chance.random() < 0.5 else [])]
    space = mostly(chance, (b" ",), (b"  ", b"\t"), 0.03)
    end = mostly(chance, (b"\n", b"\r\n"), (b"", b"\r", b" \n"), 0.03)
    return bytes(space).join(words) + bytes(end)


def _name(chance: Random) -> bytes:
    return bytes(mostly(chance, (b"t", b"u", b"e#ephemeral"), NAMES, 0.05))
