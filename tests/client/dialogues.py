"""
Dialogues of our connection with NSQ's own nsqd. `python -m tests.client.dialogues NSQD`, with the path of its program,
records what nsqd answers; test_dialogues.py plays the record.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import attrs

from nsqtw.client import commands
from nsqtw.client.connection import Connection
from nsqtw.client.frames import Frame
from nsqtw.client.message import Message
from nsqtw.client.options import ClientOptions

RECORD = Path(__file__).with_name("dialogues.json")
_SECONDS = 20.0

Command = Callable[[bytes], bytes]
"""Makes a command from the id of the last message."""


class NoOwner:
    """An owner of messages that does nothing."""

    address = "n:1"

    def finish(self, message: Message) -> None: ...
    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None: ...
    def touch(self, message: Message) -> None: ...


def always(command: bytes) -> Command:
    """Return a command without an id."""
    return lambda _: command


@attrs.frozen
class Step:
    """A command, and what nsqd says before the next one: texts of frames, `attempts body` of messages."""

    command: Command
    answers: tuple[str, ...] = ()


@attrs.frozen
class Dialogue:
    """The options of a connection, the version it sees, and the steps after the handshake."""

    options: dict[str, Any]
    steps: tuple[Step, ...]


_A_JOB = (
    Step(always(commands.pub("t", b"one")), ("OK",)),
    Step(always(commands.mpub("t", [b"two", b"three"])), ("OK",)),
    Step(always(commands.sub("t", "c")), ("OK",)),
    Step(always(commands.rdy(1)), ("1 one",)),
    Step(commands.touch),
    Step(lambda last: commands.req(last, 0), ("1 two",)),
    Step(commands.fin, ("1 three",)),
    Step(commands.fin, ("2 one",)),
    Step(lambda last: commands.fin(last) + commands.CLS, ("CLOSE_WAIT",)),
)
_HEARTBEAT_SECONDS = 1.0

DIALOGUES = {
    "a job": Dialogue({}, _A_JOB),
    "a job in snappy": Dialogue({"snappy": True}, _A_JOB),
    "a job in deflate": Dialogue({"deflate": True}, _A_JOB),
    "deferred": Dialogue(
        {},
        (
            Step(always(commands.sub("deferred", "c")), ("OK",)),
            Step(always(commands.rdy(1))),
            Step(always(commands.dpub("deferred", 50, b"later")), ("OK", "1 later")),
        ),
    ),
    "heartbeats": Dialogue(
        {"heartbeat_interval": _HEARTBEAT_SECONDS},
        (
            Step(always(commands.sub("heartbeats", "c")), ("OK",)),
            Step(always(commands.rdy(1))),
            Step(always(commands.dpub("heartbeats", 2500, b"after two heartbeats")), ("OK", "1 after two heartbeats")),
        ),
    ),
    "refusals": Dialogue(
        {},
        (
            Step(always(commands.sub("refusals", "c")), ("OK",)),
            Step(
                always(commands.fin(b"0123456789abcdef")),
                ("E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight",),
            ),
            Step(
                always(commands.req(b"0123456789abcdef", 0)),
                ("E_REQ_FAILED REQ 0123456789abcdef failed ID not in flight",),
            ),
            Step(
                always(commands.touch(b"0123456789abcdef")),
                ("E_TOUCH_FAILED TOUCH 0123456789abcdef failed ID not in flight",),
            ),
            Step(always(commands.pub("?", b"x")), ('E_BAD_TOPIC PUB topic name "?" is not valid',)),
        ),
    ),
    "an empty body": Dialogue(
        {}, (Step(always(commands.pub("t", b"")), ("E_BAD_MESSAGE PUB invalid message body size 0",)),)
    ),
    "a wrong channel": Dialogue(
        {}, (Step(always(commands.sub("t", "?")), ('E_BAD_CHANNEL SUB channel name "?" is not valid',)),)
    ),
}


def text_of(one: Message | Frame) -> str:
    """Return how a step writes a message or frame."""
    return f"{one.attempts} {one.body.decode()}" if isinstance(one, Message) else one.data.decode()


class Player:
    """Plays a dialogue on a connection. `write` gives nsqd bytes, `read` returns some of nsqd's, at least one."""

    def __init__(self, dialogue: Dialogue, write: Callable[[bytes], None], read: Callable[[], bytes]) -> None:
        self._dialogue = dialogue
        self._write = write
        self._read = read
        self._heard: list[str] = []
        self._last = b""
        self.connection = Connection("n:1", ClientOptions(client_id="c", hostname="h", **dialogue.options))

    def play(self) -> None:
        """Play all steps. AssertionError for an answer that is not the step's."""
        while not self.connection.is_ready:
            self._turn()
        for step in self._dialogue.steps:
            self.connection.send(step.command(self._last))
            self._heard.clear()
            self._flush()
            while len(self._heard) < len(step.answers):
                self._turn()
            assert tuple(self._heard) == step.answers, self._heard

    def _turn(self) -> None:
        self._flush()
        messages, frames = self.connection.receive(self._read(), NoOwner())
        self._heard += map(text_of, [*frames, *messages])
        if messages:
            self._last = messages[-1].id
        self._flush()

    def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self._write(data)


def _recorded(address: tuple[str, int], dialogue: Dialogue) -> list[list[str]]:
    """Play a dialogue with an nsqd. Returns what each side said, in order, in hexadecimal."""
    said: list[list[str]] = []
    with socket.create_connection(address, _SECONDS) as connection:

        def write(data: bytes) -> None:
            connection.sendall(data)
            said.append(["client", data.hex()])

        def read() -> bytes:
            data = connection.recv(65536)
            if not data:
                raise AssertionError("nsqd closed the connection")
            said.append(["nsqd", data.hex()])
            return data

        Player(dialogue, write, read).play()
    return said


def _lookups(address: str) -> dict[str, list[Any]]:
    """Return status, content type and body of nsqlookupd's answers, for a topic that it knows and another one."""
    found = {}
    for topic in ("t", "unknown"):
        try:
            answer = urlopen(f"http://{address}/lookup?topic={topic}")
        except HTTPError as error:
            answer = error
        with answer:
            found[topic] = [answer.status, answer.headers["X-NSQ-Content-Type"] or "", answer.read().decode()]
    return found


def main(nsqd: Path) -> None:
    """Record everything, with the nsqd at a path and the nsqlookupd beside it."""
    tcp, http, lookup_tcp, lookup_http = (f"127.0.0.1:{port}" for port in _free_ports(4))
    with tempfile.TemporaryDirectory() as directory:
        servers = [
            subprocess.Popen(words, stderr=subprocess.DEVNULL)
            for words in (
                [nsqd.with_name("nsqlookupd"), f"-tcp-address={lookup_tcp}", f"-http-address={lookup_http}"],
                [
                    *(nsqd, f"-tcp-address={tcp}", f"-http-address={http}", f"-data-path={directory}"),
                    *(f"-lookupd-tcp-address={lookup_tcp}", "-broadcast-address=nsqd.example"),
                ],
            )
        ]
        try:
            time.sleep(1)
            host, _, port = tcp.partition(":")
            recorded = {name: _recorded((host, int(port)), dialogue) for name, dialogue in DIALOGUES.items()}
            lookups = _lookups(lookup_http)
        finally:
            for server in servers:
                server.terminate()
                server.wait()
    rows = [f"{json.dumps(name)}: {json.dumps(said)}" for name, said in recorded.items()]
    lines = ",\n".join([*rows, f'"lookups": {json.dumps(lookups)}'])
    RECORD.write_text(f"{{\n{lines}\n}}\n", "utf-8")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
