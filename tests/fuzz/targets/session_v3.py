"""
A V3 session on a broker in memory: what a client may send, cut anywhere, with time passing.

Frames are made by the client's side of the tests, and most inputs are damaged in one place.
"""

from __future__ import annotations

from random import Random

from nsqtw.protocols.v3.factory import V3Factory
from nsqtw.testing.protocols import Connection, SessionHarness
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.codec import pieces
from tests.protocols import v3_frames as v3

_TOPICS = (*[b"t"] * 8, b"u#ephemeral", b"b@d", b"")
_CHANNELS = (*[b"c#ephemeral"] * 4, b"d#ephemeral", b"b@d")
_HEADERS: tuple[dict[str, str], ...] = (
    *({}, {"k": "v"}, {"a": "1", "b": "ü"}, {"nsq-x": "v"}, {"K": ""}),
    *({"id": "7"}, {"ttl": "1000"}, {"ttl": "never"}, {"priority": "urgent"}),
)
_DELAYS = (0, 1, 1000, 0xFFFFFFFF)


class SessionV3(Target):
    name = "session-v3"
    kind = "frames of a V3 client, to a session with a broker in memory"
    examples = 500
    tokens = (b"\0\0\0\x0c", b"\1t", b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\1", b"{}")
    steps = Bound(150_000, 3_000)
    memory = Bound(4 << 20, 800)

    def make(self, chance: Random) -> bytes:
        begin = chance.choice((b"", v3.subscribe(1, b"t", b"c#ephemeral")))
        features = chance.choice(([], [], ["message_ids"], "message_ids"))
        frames = [v3.hello(features=features), begin, *[_frame(chance) for _ in range(chance.randint(1, 6))]]
        data = b"".join(frames)
        if chance.random() < 0.3:
            at = chance.randrange(len(data))
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + chance.choice((0, 1)) :]
        return data

    def run(self, data: bytes) -> str:
        chance = chance_of(data)
        stage = SessionHarness()
        client = Connection(stage, V3Factory())
        written = b""
        for piece in pieces(data, [chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 2, 8)))]):
            if client.session.closing:
                break
            written += client.send(piece)
            if chance.random() < 0.2:
                stage.now += chance.choice((0.1, 1.0, 31.0))
                written += client.read()
        while client.session.is_behind:
            written += client.read()
        outcome = _outcome(v3.answers(written), data)
        client.close()
        if stage.broker.clients or any(
            channel.consumers for topic in stage.broker.topics.values() for channel in topic.channels.values()
        ):
            raise Broken("something is kept for a connection that is gone")
        return outcome


def _frame(chance: Random) -> bytes:
    number = chance.choice((1, 2, 3, 4))
    count = chance.choice((1, 1, 1, 1, 3, 3, 0, 5000))
    ranges = [(chance.choice((0, 1, 1, 1, (1 << 53) + 5, (1 << 64) - 1)), count)]
    kind = chance.randrange(11)
    if kind < 3:
        bodies = [b"x" * chance.choice((1, 1, 1, 1, 7, 0, 101)) for _ in range(chance.choice((1, 1, 2, 5)))]
        headers = [chance.choice(_HEADERS) for _ in bodies] if chance.random() < 0.3 else None
        delays = [chance.choice(_DELAYS) for _ in bodies] if chance.random() < 0.2 else None
        return v3.publish(number, bodies, chance.choice(_TOPICS), headers, delays)
    if kind < 5:
        return v3.subscribe(number, chance.choice(_TOPICS), chance.choice(_CHANNELS), chance.choice((0, 1, 10)))
    if kind == 5:
        return v3.credit(
            number, chance.choice((0, 5, 5, -1)), chance.choice((0, 40, 40, -1)), replaces=chance.random() < 0.5
        )
    if kind == 6 and chance.random() < 0.3:
        ids = [min(ranges[0][0] + index, (1 << 64) - 1) for index in range(chance.choice((2, 5, 20)))]
        return b"".join([v3.fin(number, (one, 1)) for one in ids])
    if kind == 6:
        return v3.fin(number, *ranges * chance.choice((1, 1, 2)))
    if kind == 7:
        return v3.nack(number, chance.choice(_DELAYS), chance.choice((b"why", b"\n\xff", b"x" * 2000)), *ranges)
    if kind == 8:
        return v3.touch(number, *ranges)
    if kind == 9:
        return v3.unsubscribe(number)
    return chance.choice((v3.ping(7), v3.CLOSE, v3.auth(b"x"), v3.frame(99, 0)))


def _outcome(read: list[v3.Answer], sent: bytes) -> str:
    """A word for the frames of the broker, all of which must be ones that it may send."""
    for at, answer in enumerate(read):
        if answer.name in ("REJECT", "ERROR"):
            text, rest = v3.error_of(answer.payload)
            if rest or not text.startswith("E_"):
                raise Broken(f"an error that is none: {answer}")
        if answer.name == "CONFIRM" and answer.flags:
            v3.confirmed_ids([answer])
        if answer.name == "ERROR" and any(one.name == "DELIVER" for one in read[at + 1 :]):
            raise Broken("messages behind an error")
        if answer.name == "DELIVER" and not all(one.body in sent for one in v3.messages_of(answer)):
            raise Broken("delivered what nobody sent")
    names = {answer.name for answer in read}
    if "ERROR" in names:
        return "refused"
    return "served, messages delivered" if "DELIVER" in names else "answered"
