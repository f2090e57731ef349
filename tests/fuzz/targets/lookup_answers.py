"""What an nsqlookupd answers: over V1, in pieces, and over HTTP, when it is asked for channels."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from nsqtw.discovery.channels import durable_channels
from nsqtw.discovery.protocol import IdentifyPayload, LookupdProtocol, Name
from nsqtw.names import is_ephemeral, is_valid_name
from tests.fuzz.meter import Broken
from tests.fuzz.oddities import NAMES, json_text, json_value, mostly, respelled
from tests.fuzz.target import Bound, Target, chance_of

_INTRODUCTION = IdentifyPayload("b", "h", 4151, 4150, "", "", "1.3.0", "s3cret")
_LONGEST_ANSWER = 16384
_SIZES = (b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x40\x01", b"\x00\x00\x00\x00")


class LookupAnswers(Target):
    name = "lookup-answers"
    kind = "answers of an nsqlookupd over V1, in pieces, and to a question for channels"
    examples = 3000
    tokens = (
        *_SIZES,
        b"\x00\x00\x00\x02OK",
        b'"broadcast_address":',
        b'"http_port":',
        b'"channels":',
        b"E_INVALID",
        b"[",
    )
    steps = Bound(8_000, 40)
    memory = Bound(2 << 20, 200)

    def make(self, chance: Random) -> bytes:
        if chance.random() < 0.3:
            names = [b'"%s"' % chance.choice(NAMES) for _ in range(chance.randrange(4))]
            value = names if chance.random() < 0.8 else json_value(chance)
            return json_text(chance, [(respelled(chance, "channels"), value)])
        answers = [json_text(chance, self._itself(chance))]
        answers += [
            mostly(chance, (b"OK",), (b"E_BAD_TOPIC x", b"E_INVALID", b"", b"\xff"))
            for _ in range(chance.choice((2, 3, 4)))
        ]
        sizes = [mostly(chance, (struct.pack(">i", len(answer)),), _SIZES, 0.05) for answer in answers]
        return b"".join(size + answer for size, answer in zip(sizes, answers, strict=True))

    def _itself(self, chance: Random) -> Any:
        pairs: list[tuple[str, Any]] = [("broadcast_address", "l"), ("http_port", 4161), ("tcp_port", 4160)]
        return [
            (respelled(chance, key), value if chance.random() < 0.9 else json_value(chance)) for key, value in pairs
        ]

    def run(self, data: bytes) -> str:
        named = self._channels(data)
        lines: list[str] = []
        now, chance = 1000.0, chance_of(data)

        def log(level: str, text: str, /, **fields: object) -> None:
            lines.append(text.format(**fields))

        names = [Name("t"), Name("t", "c"), Name("u")]
        dialogue = LookupdProtocol("l:1", _INTRODUCTION, names, log, most_answer_bytes=_LONGEST_ANSWER, now=now)
        dialogue.data_to_send(now)
        rest = data
        while rest and not dialogue.failure:
            size = chance.choice((1, 3, 100, len(rest)))
            dialogue.receive_data(rest[:size], now)
            dialogue.data_to_send(now)
            rest = rest[size:]
        if max(map(len, [*lines, dialogue.failure])) > 2_000:
            raise Broken("a line without a bound")
        if dialogue.lookupd is not None:
            dialogue.lookupd.http_address.encode()
        if named:
            return "channels"
        if dialogue.lookupd is None:
            return "ended" if dialogue.failure else "waits for more"
        return "met, then ended" if dialogue.failure else "met"

    def _channels(self, data: bytes) -> list[str]:
        try:
            found = durable_channels(data)
        except ValueError:
            return []
        if not all(is_valid_name(name) and not is_ephemeral(name) for name in found):
            raise Broken(f"found {found}")
        return found
