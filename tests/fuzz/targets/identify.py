"""The JSON of IDENTIFY, and what is made of it."""

from __future__ import annotations

from random import Random

from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols import identify
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target
from tests.fuzz.targets.commands import FIELDS, document


class Identify(Target):
    name = "identify"
    kind = "JSON of IDENTIFY: odd numbers, surrogates, double keys, deep nesting"
    examples = 5000
    tokens = tuple(f'"{field}":'.encode() for field in FIELDS) + (
        b"{",
        b"[",
        b"null",
        b"NaN",
        b"1e999",
        b"\\ud800",
        b'"',
    )
    steps = Bound(5_000, 20)
    memory = Bound(4 << 20, 200)

    def make(self, chance: Random) -> bytes:
        return document(chance)

    def run(self, data: bytes) -> str:
        options = Options(node_id=1)
        settings = identify.Settings(options.msg_timeout, options.output_buffer_timeout)
        try:
            fields = identify.decode(data)
            identify.apply(fields, settings, options)
        except ClientError as refused:
            if refused.code != "E_BAD_BODY":
                raise Broken(f"refused with {refused}") from refused
            return "refused"
        if set(fields) != set(FIELDS) - {"unknown"}:
            raise Broken(f"found {sorted(fields)}")
        for text in fields.values():
            str(text).encode()
        if not (0 <= settings.sample_rate <= 99 and 0 <= settings.heartbeat_interval <= options.max_heartbeat_interval):
            raise Broken(f"negotiated {settings}")
        return "accepted"
