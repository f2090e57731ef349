"""
A V2 session on a broker in memory: what a client may send, with time passing, and a connection that breaks.

In an input `@007` in the place of a message id stands for the id of the message with that number, so that commands can
be about messages which the client was given.
"""

from __future__ import annotations

import re
from functools import cache
from random import Random

from nsqtw.protocols.frames import ERROR, RESPONSE
from tests.fuzz.meter import Broken
from tests.fuzz.target import Bound, Target, chance_of
from tests.fuzz.targets.codec import pieces
from tests.fuzz.targets.commands import TOKENS, command, subscribed_command
from tests.protocols.dialogue import END, MESSAGE, OK, Frame, Peer, V2Harness, message, pub

OPTIONS = {"max_msg_size": 30, "max_body_size": 200, "max_rdy_count": 10}
_PLACEHOLDER = re.compile(rb"@([0-9]{3})")
_RESPONSE = re.compile(rb"OK|CLOSE_WAIT|_heartbeat_|\{.*\}", re.DOTALL)
_ERROR = re.compile(rb"E_[A-Z_]+( .*)?", re.DOTALL)
_NON_FATAL = re.compile(rb"E_(FIN|REQ|TOUCH)_FAILED ")
_BEGINNINGS = (
    b"",
    b"SUB t c\n",
    b"SUB t c\nRDY 5\n",
    b"SUB t c#ephemeral\nRDY 9\n",
    b"SUB t c\nRDY 5\nPUB t\n\0\0\0\1x",
)
_LONGEST_ANSWER = 20_000
"""Bytes of one frame: what a client sent is echoed, and that is a line at the most."""


class Session(Target):
    name = "session"
    kind = "commands of a V2 client, to a session with a broker in memory"
    examples = 700
    tokens = TOKENS
    steps = Bound(60_000, 500)
    memory = Bound(4 << 20, 400)

    def make(self, chance: Random) -> bytes:
        beginning = chance.choice(_BEGINNINGS)
        following = subscribed_command if beginning else command
        return beginning + b"".join(following(chance) for _ in range(chance.randint(1, 12)))

    def run(self, data: bytes) -> str:
        chance = chance_of(data)
        sent = _PLACEHOLDER.sub(lambda found: _nth_id(int(found[1])), data)
        stage = V2Harness(**OPTIONS)
        witness = stage.connect()
        witness.subscribe(topic=b"witness", ready=1)
        client = stage.connect()
        stage.commits_held, stage.saves_held = chance.random() < 0.1, chance.random() < 0.1
        read: list[Frame] = []
        for piece in pieces(sent, [chance.randrange(len(sent) + 1) for _ in range(chance.choice((0, 0, 2, 8)))]):
            client.send(piece)
            read += client.read()
            _go_on(stage, client, chance)
        stage.commits_held = stage.saves_held = False
        _leave(stage, client, chance)
        read += client.read()
        _check(read, sent)
        stage.wait(1000.0)
        _check_others(stage, witness)
        return _outcome(read)


def _go_on(stage: V2Harness, client: Peer, chance: Random) -> None:
    """What happens between two chunks."""
    step = chance.randrange(8)
    if step == 0:
        stage.wait(chance.choice((0.001, 1.0, 29.0, 61.0)))
    elif step == 1 and client.connected:
        client.stall()
    elif step == 2 and client.connected:
        client.catch_up()


def _leave(stage: V2Harness, client: Peer, chance: Random) -> None:
    if client.connected:
        client.catch_up()
    if client.connected and chance.random() < 0.3:
        client.vanish()
    else:
        client.shut()
        if client.connected:  # it may owe answers
            stage.turn()


def _check(read: list[Frame], sent: bytes) -> None:
    for at, (kind, data, _) in enumerate(read):
        if kind == RESPONSE:
            if _RESPONSE.fullmatch(data) is None:
                raise Broken(f"a response that is none: {data!r}")
        elif kind == ERROR:
            if _ERROR.fullmatch(data) is None or len(data) > _LONGEST_ANSWER:
                raise Broken(f"an error that is none: {data!r}")
            if not _NON_FATAL.match(data) and read[at + 1 :] not in ([END], []):
                raise Broken(f"after the fatal {data!r} comes {read[at + 1 :]}")
        elif kind == MESSAGE and data not in sent:
            raise Broken(f"delivered {data!r}, which nobody sent")


def _check_others(stage: V2Harness, witness: Peer) -> None:
    """Another connection is served as before, and nothing is kept for the one that is gone."""
    if witness.connected:
        raise Broken("a silent consumer is still connected after 1000 s")
    witness = stage.connect()
    witness.subscribe(topic=b"witness", ready=1)
    witness.send(pub(b"still there", topic=b"witness"))
    witness.expect(OK, message(b"still there"))
    if len(stage.broker.clients) != 1:
        raise Broken(f"{len(stage.broker.clients) - 1} clients that are gone are still known")


def _outcome(read: list[Frame]) -> str:
    errors = [data for kind, data, _ in read if kind == ERROR and not _NON_FATAL.match(data)]
    if errors:
        return "refused"
    if any(kind == MESSAGE for kind, _, _ in read):
        return "served, messages delivered"
    return "answered" if any(kind in (RESPONSE, ERROR) for kind, _, _ in read) else "ended without an answer"


@cache
def _first_id() -> int:
    stage = V2Harness(**OPTIONS)
    client = stage.connect()
    client.subscribe(ready=1)
    client.send(pub(b"x"))
    (seen,) = client.expect(OK, message(b"x"))
    return int(seen.id, 16)


def _nth_id(number: int) -> bytes:
    return b"%016x" % (_first_id() + number)
