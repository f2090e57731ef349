"""
Dialogues with protocol V2: what clients send, and what they read.

    harness = V2Harness()
    client = harness.connect()
    client.send(pub(b"hello"))
    client.expect(OK)
    client.send(b"PUB\\n")
    client.expect(error(b"E_INVALID PUB insufficient number of parameters"), END)

A `V2Harness` is a broker with a minimal transport: it gives a session what was sent only while that wants data,
asks it for something to write only when it said that it changed, and closes the connection when it is closing, which is
what `END` stands for. An upgrade that a session asks for is done by being asked for, and read as `SNAPPY` or `DEFLATE`;
after `TLS` the session waits for `secure` or `fail_to_secure`. `send` ends with a turn: commit, release, serve, write,
and births are saved.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from nsqtw.core.broker import Broker
from nsqtw.core.client import Client
from nsqtw.errors import BackendError
from nsqtw.protocols.compression import Snappy
from nsqtw.protocols.v2 import V2Factory
from nsqtw.runtime.storage_thread import perform
from nsqtw.upgrades import Secured, StartTls, Upgrade
from tests.core.harness import BrokerHarness, Message, goes_on

RESPONSE, ERROR, MESSAGE = 0, 1, 2
UNKNOWN_ID = b"0123456789abcdef"
_MANY_TURNS = 100


class Frame(NamedTuple):
    """One frame as a client sees it. `attempts` is 0 for all but messages, whose `data` is the body."""

    kind: int
    data: bytes
    attempts: int = 0


END = Frame(-1, b"the connection is closed")
TLS = Frame(-2, b"from here on TLS")
SNAPPY = Frame(-2, b"from here on snappy")
DEFLATE = Frame(-2, b"from here on deflate")


def response(data: bytes) -> Frame:
    return Frame(RESPONSE, data)


def error(data: bytes) -> Frame:
    return Frame(ERROR, data)


def message(body: bytes, attempts: int = 1) -> Frame:
    return Frame(MESSAGE, body, attempts)


OK = response(b"OK")
HEARTBEAT = response(b"_heartbeat_")
CLOSE_WAIT = response(b"CLOSE_WAIT")


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def sized(body: bytes) -> bytes:
    return int32(len(body)) + body


def pub(*bodies: bytes, topic: bytes = b"t") -> bytes:
    """One PUB for each body."""
    return b"".join(b"PUB " + topic + b"\n" + sized(body) for body in bodies)


def dpub(delay_ms: int | bytes, body: bytes, topic: bytes = b"t") -> bytes:
    delay = b"%d" % delay_ms if isinstance(delay_ms, int) else delay_ms
    return b"DPUB " + topic + b" " + delay + b"\n" + sized(body)


def mpub(*bodies: bytes, topic: bytes = b"t") -> bytes:
    return b"MPUB " + topic + b"\n" + sized(int32(len(bodies)) + b"".join(map(sized, bodies)))


def identify(**fields: Any) -> bytes:
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


def cut_frames(data: bytes) -> Iterator[bytes]:
    """The frames in what was written, each with its size."""
    offset = 0
    while offset < len(data):
        (size,) = struct.unpack_from(">i", data, offset)
        stop = offset + 4 + size
        assert size >= 4 and stop <= len(data), f"no whole frame: {data[offset:]!r}"
        yield data[offset:stop]
        offset = stop


class Peer:
    """One client, with its connection and the session at the other end."""

    def __init__(self, stage: V2Harness, address: str) -> None:
        self.connected = True
        self._stage = stage
        self._wire: deque[bytes] = deque()
        self._has_shut = False
        self._is_read_from = True
        self._changed = False
        self._inbox: list[Frame] = []
        self._messages: list[Message] = []
        self._start_tls: StartTls | None = None
        self.session = V2Factory.session(stage.broker, address, self._has_changed, stage.now)

    # -- the client

    def write(self, *chunks: bytes) -> None:
        """Put bytes on the wire. The broker reads each chunk by itself, in the next turn."""
        self._wire += chunks

    def send(self, *chunks: bytes) -> None:
        """Write, and a turn."""
        self.write(*chunks)
        self._stage.turn()

    def shut(self) -> None:
        """Send no more; still read."""
        self._has_shut = True
        self._stage.turn()

    def vanish(self) -> None:
        """The connection breaks."""
        self._lose()
        self._stage.turn()

    def stall(self) -> None:
        """Read nothing for a while: the transport has enough to write."""
        self.session.pause_delivery()

    def catch_up(self) -> None:
        """Read everything the transport had."""
        self.session.resume_delivery(self._stage.now)
        self._is_read_from = self.session.wants_data
        self._stage.turn()

    def secure(self, common_name: str = "") -> None:
        """The TLS handshake is done."""
        assert self._start_tls is not None, "nobody asked for TLS"
        self._start_tls.secured(Secured("TLS1.3", "Unknown 4865", common_name))
        self._is_read_from = self.session.wants_data
        self._stage.turn()

    def fail_to_secure(self, reason: str) -> None:
        """There is no TLS handshake."""
        assert self._start_tls is not None, "nobody asked for TLS"
        (frame,) = cut_frames(self._start_tls.failed(reason))
        self._inbox.append(self._seen(frame))
        self._stage.turn()

    def subscribe(self, topic: bytes = b"t", channel: bytes = b"c", ready: int = 0) -> None:
        self.send(b"SUB %s %s\n" % (topic, channel))
        self.expect(OK)
        if ready:
            self.write(b"RDY %d\n" % ready)
            self._stage.turn()

    def read(self) -> list[Frame]:
        """What arrived since the last time."""
        frames, self._inbox = self._inbox, []
        return frames

    def expect(self, *wanted: Frame) -> list[Message]:
        """Just these frames arrived since the last time, in this order. Returns the messages among them."""
        got = self.read()
        messages, self._messages = self._messages, []
        assert got == list(wanted), f"read {got}, not {list(wanted)}"
        return messages

    # -- the edge

    def exchange(self) -> bool:
        """Give the session what is on the wire. Returns whether there was something."""
        moved = False
        if self.connected and self.session.is_behind:
            self.session.receive_data(b"", self._stage.now)
            self._changed = moved = True
            self._is_read_from = self.session.wants_data
        while self.connected and self._is_read_from and self._wire:
            self.session.receive_data(self._wire.popleft(), self._stage.now)
            self._changed = True
            self._is_read_from = self.session.wants_data
            moved = True
        if self.connected and self._is_read_from and self._has_shut:
            self._has_shut = False
            self.session.receive_end(self._stage.now)
            moved = True
        return moved

    def flush(self) -> bool:
        """Take what the session has to say. Returns whether it said that it changed."""
        if not (self.connected and self._changed):
            return False
        self._changed = False
        out = self.session.data_to_send()
        while out and not isinstance(out[-1], bytes):
            self._receive(out[:-1])
            self._upgrade(out[-1])
            out = self.session.data_to_send()
        self._receive(out)
        self._is_read_from = self.session.wants_data
        if self.session.closing:
            self._lose()
            self._inbox.append(END)
        return True

    def _receive(self, out: list[Any]) -> None:
        for frame in cut_frames(b"".join(out)):
            self._inbox.append(self._seen(frame))

    def _upgrade(self, upgrade: Upgrade) -> None:
        if isinstance(upgrade, StartTls):
            self._start_tls = upgrade
            self._inbox.append(TLS)
        else:
            self._inbox.append(SNAPPY if isinstance(upgrade.compression, Snappy) else DEFLATE)

    def _has_changed(self) -> None:
        self._changed = True

    def _lose(self) -> None:
        self.connected = False
        self.session.connection_lost(self._stage.now)

    def _seen(self, frame: bytes) -> Frame:
        kind: int = struct.unpack_from(">i", frame, 4)[0]
        if kind != MESSAGE:
            return Frame(kind, frame[8:])
        delivered = Message(frame)
        self._messages.append(delivered)
        return Frame(kind, delivered.body, delivered.attempts)


class V2Harness:
    """A broker and its clients. `options` are the broker's."""

    def __init__(self, **options: Any) -> None:
        self.core = BrokerHarness(**options)
        self.commits_held = False
        """Publishes stay owed: no turn commits."""
        self.saves_held = False
        """Births stay unsaved."""
        self.save_error: BackendError | None = None
        """What becomes of every save."""
        self._peers: list[Peer] = []

    @property
    def broker(self) -> Broker:
        return self.core.broker

    @property
    def now(self) -> float:
        return self.core.now

    @property
    def seen(self) -> Client:
        """What the broker's statistics show of its only client."""
        (client,) = self.broker.clients.values()
        return client

    def connect(self, address: str = "1.2.3.4:5") -> Peer:
        peer = Peer(self, address)
        self._peers.append(peer)
        return peer

    def turn(self) -> None:
        """Turns, until nobody has anything left to do."""
        for _ in range(_MANY_TURNS):
            busy = any([peer.exchange() for peer in self._peers])
            self._serve()
            busy = any([peer.flush() for peer in self._peers]) or busy
            if not (self._save() or busy):
                return
        raise AssertionError("the broker does not come to rest")

    def wait(self, seconds: float) -> None:
        self.core.now += seconds
        self.turn()

    @contextmanager
    def failing_commits(self, text: str, *topics: str) -> Iterator[None]:
        """Commits fail for these topics, with this text."""
        backend: Any = self.core.backend
        bad = [backend.queue(topic) for topic in topics]
        commit = backend.commit

        def commit_or_fail(writes: Sequence[tuple[Any, Any]], durable: bool) -> dict[Any, BackendError]:
            failed = {queue: BackendError(text) for queue, _ in writes if queue in bad}
            failed.update(commit([write for write in writes if write[0] not in bad], durable))
            return failed

        backend.commit = commit_or_fail
        try:
            yield
        finally:
            backend.commit = commit

    def _serve(self) -> None:
        if self.commits_held:
            self.broker.tick(self.now)
            self.broker.serve(self.now)
        else:
            self.core.turn()

    def _save(self) -> bool:
        if self.saves_held or not goes_on(self.broker.checkpointer):
            return False
        save = self.broker.checkpointer.begin(self.now)
        self.broker.checkpointer.end(save, self.save_error or perform(save, self.core.positions, self.core.log))
        return True
