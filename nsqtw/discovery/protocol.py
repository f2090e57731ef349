"""
Protocol between nsqd and nsqlookupd on one connection, without the connection.

    nsqd:         "  V1" | IDENTIFY\\n | size i32 | JSON | REGISTER topic [channel]\\n | UNREGISTER ... | PING\\n ...
    nsqlookupd:                   size i32 | JSON | size i32 | OK | ...      one answer to each, in order; big-endian

Theory of operation. The topics and channels there are (`on_created`, `on_deleted`) and those the nsqlookupd was told
of are two sets; what is to be sent is the difference, what is gone before what has come. A new connection begins with
nothing told, so the difference is everything there is, in batches: never are more than MAX_UNANSWERED commands without
their answer. Whatever comes and goes while they wait is told in its last state only.

An nsqlookupd has one second for each answer. A violation of the protocol ends the connection, and only that: `failure`
says why. An answer that is an error refuses the one name it is about, and of a channel not its topic; NSQ's nsqlookupd
then ends the connection itself.
"""

from __future__ import annotations

import json
import struct
from collections import OrderedDict, deque
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import attrs

from nsqtw.gocompat.json import read_object
from nsqtw.interfaces import OperatorLog
from nsqtw.options.addresses import join_host_port
from nsqtw.options.redaction import without_secret

MAGIC = b"  V1"
PING_SECONDS = 15.0
LATEST_PING_SECONDS = 60.0
"""The latest time of the first PING; until then it waits for all registrations, see `LookupdProtocol`."""
_RETRY_SECONDS = 1.0
ANSWER_SECONDS = 1.0
MAX_UNANSWERED = 500
"""Registrations that wait for their answers: less than 75 kB to be sent, however long the peer does not read."""

_SIZE = struct.Struct(">i")
_OK = b"OK"
_MAX_SHOWN = 200
_IDENTIFY, _REGISTER, _UNREGISTER, _PING = "IDENTIFY", "REGISTER", "UNREGISTER", "PING"


class Name(NamedTuple):
    """A topic, or one of its channels. To name a channel is to name its topic."""

    topic: str
    channel: str = ""

    def __str__(self) -> str:
        return f"{self.topic} {self.channel}".rstrip()


class _Command(NamedTuple):
    verb: str
    name: Name = Name("")

    def __str__(self) -> str:
        return f"{self.verb} {self.name}".rstrip()


@attrs.frozen
class IdentifyPayload:
    """The IDENTIFY data of this nsqd. `secret` is for an nsqlookupd that requires one; "" for none."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    topology_region: str
    topology_zone: str
    version: str
    secret: str = attrs.field(default="", repr=False)

    def encode(self) -> bytes:
        fields = attrs.asdict(self)
        if not self.secret:
            del fields["secret"]
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


@attrs.frozen
class Lookupd:
    """The IDENTIFY response of an nsqlookupd."""

    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    broadcast_address: str = ""

    @property
    def http_address(self) -> str:
        """`host:port`; "" when it has not said."""
        return join_host_port(self.broadcast_address, self.http_port) if self.broadcast_address else ""

    def __str__(self) -> str:
        # As Go shows it.
        return (
            f"{{TCPPort:{self.tcp_port} HTTPPort:{self.http_port} Version:{self.version}"
            f" BroadcastAddress:{self.broadcast_address}}}"
        )


class LookupdProtocol:
    """
    One connection to the nsqlookupd at `address`, made at `now` (seconds). `names` are those there are. The first
    answer may take `first_answer_seconds`, no answer may have more than `most_answer_bytes`.

    The first PING comes when everything was told, if that does not take too long: an nsqlookupd that was restarted
    takes it for the end of the list, and forgets what its snapshot had of this nsqd and it was not told again.
    """

    def __init__(
        self,
        address: str,
        identify_payload: IdentifyPayload,
        names: Iterable[Name],
        log: OperatorLog,
        *,
        most_answer_bytes: int,
        now: float,
        first_answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.lookupd: Lookupd | None = None
        """The identity of the nsqlookupd, once it has responded to IDENTIFY."""
        self.failure = ""
        """Why the connection must be ended."""
        self.refused: list[Name] = []
        """Names that it refused and that still exist; the caller handles and clears them."""
        self._address = address
        self._secret = identify_payload.secret
        self._log = log
        self._most_answer_bytes = most_answer_bytes
        self._registered: set[Name] = set()
        self._to_register: OrderedDict[Name, bool] = OrderedDict.fromkeys(names, False)
        """Each with whether it is news: that of what was there already is not said one by one."""
        self._to_unregister: OrderedDict[Name, None] = OrderedDict()
        self._received = bytearray()
        self._unanswered = deque([_Command(_IDENTIFY)])
        self._answer_due = now + first_answer_seconds
        self._ping_due = inf
        self._latest_ping = inf
        """When the first PING is due at the latest; -inf when it may be sent at any time."""
        body = identify_payload.encode()
        self._to_send = [MAGIC, b"IDENTIFY\n", _SIZE.pack(len(body)), body]

    # -- what there is

    def on_created(self, name: Name) -> None:
        """There is a new topic or channel."""
        if name not in self._registered or name in self._to_unregister:
            self._to_register[name] = True

    def on_deleted(self, name: Name) -> None:
        """A topic or channel is deleted."""
        is_untold = self._to_register.pop(name, None) is not None
        if name in self._registered:
            self._to_unregister[name] = None
        topic = Name(name.topic)
        if is_untold and name.channel and topic not in self._registered:
            self._to_register.setdefault(topic, False)

    # -- bytes

    def receive_data(self, data: bytes, now: float) -> None:
        """Take what was read."""
        received = self._received
        received += data
        while not self.failure and len(received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(received)
            if not 0 <= size <= self._most_answer_bytes:
                self._fail(f"response body size ({size}) is not within limit ({self._most_answer_bytes})")
                break
            end = _SIZE.size + size
            if len(received) < end:
                break
            answer = bytes(received[_SIZE.size : end])
            del received[:end]
            self._take_answer(answer, now)

    def data_to_send(self, now: float) -> bytes:
        """Return what is to be written now. The first call returns the introduction."""
        pieces, self._to_send = self._to_send, []
        if self.lookupd is not None and not self.failure:
            commands = self._commands()
            if commands and not self._unanswered:
                self._answer_due = now + ANSWER_SECONDS
            self._unanswered += commands
            pieces += [f"{command}\n".encode() for command in commands]
        return b"".join(pieces)

    # -- time

    @property
    def next_due(self) -> float:
        """When `tick` is next needed."""
        return min(self._answer_due, self._ping_due)

    def tick(self, now: float) -> None:
        """Do what is due: there may be something to send, or a `failure`."""
        if now >= self._answer_due:
            self._fail("no answer in time")
        elif now >= self._ping_due and self._to_register and now < self._latest_ping:
            self._ping_due = now + _RETRY_SECONDS
        elif now >= self._ping_due:
            self._latest_ping = -inf
            self._log("debug", "LOOKUPD({lookupd}): sending heartbeat", lookupd=self._address)
            self._ping_due = now + PING_SECONDS
            if not self._unanswered:
                self._answer_due = now + ANSWER_SECONDS
            self._unanswered.append(_Command(_PING))
            self._to_send.append(b"PING\n")

    # -- inside

    def _commands(self) -> list[_Command]:
        """The next registrations, as many as may be on their way."""
        commands: list[_Command] = []
        room = MAX_UNANSWERED - len(self._unanswered)
        while self._to_unregister and len(commands) < room:
            name, _ = self._to_unregister.popitem(last=False)
            self._registered.discard(name)
            commands.append(_Command(_UNREGISTER, name))
            self._say(commands[-1])
        while self._to_register and len(commands) < room:
            name, is_news = self._to_register.popitem(last=False)
            self._registered.update((name, Name(name.topic)))
            commands.append(_Command(_REGISTER, name))
            if is_news:
                self._say(commands[-1])
        return commands

    def _say(self, command: _Command) -> None:
        kind = "channel" if command.name.channel else "topic"
        text = "LOOKUPD({lookupd}): {kind} {command}"
        self._log("info", text, lookupd=self._address, kind=kind, command=str(command))

    def _take_answer(self, answer: bytes, now: float) -> None:
        if not self._unanswered:
            self._fail("an answer to nothing")
            return
        command = self._unanswered.popleft()
        self._answer_due = now + ANSWER_SECONDS if self._unanswered else inf
        if command.verb == _IDENTIFY:
            self._meet(answer, now)
        elif answer != _OK:
            text = "LOOKUPD({lookupd}): {command} - {error}"
            self._log("warn", text, lookupd=self._address, command=str(command), error=self._shown(answer))
            if command.verb == _REGISTER:
                self._refuse(command.name)

    def _refuse(self, name: Name) -> None:
        if name not in self._registered or name in self._to_unregister:
            return
        self._registered.discard(name)
        self.refused.append(name)
        if name.channel:
            self._to_register.setdefault(Name(name.topic), False)

    def _meet(self, answer: bytes, now: float) -> None:
        """The answer to IDENTIFY."""
        if answer == b"E_INVALID":
            self._log("info", "LOOKUPD({lookupd}): lookupd returned E_INVALID", lookupd=self._address)
            self._fail("it does not want us")
            return
        try:
            self.lookupd = Lookupd(**read_object(answer, attrs.asdict(Lookupd())))
        except (ValueError, RecursionError):
            self._fail(f"parsing response - {self._shown(answer)}")
            return
        self._ping_due, self._latest_ping = now + PING_SECONDS, now + LATEST_PING_SECONDS
        shown = self._shown(str(self.lookupd).encode())
        self._log("info", "LOOKUPD({lookupd}): peer info {info}", lookupd=self._address, info=shown)
        if not self.lookupd.broadcast_address:
            self._log("error", "LOOKUPD({lookupd}): no broadcast address", lookupd=self._address)
        if self._to_register:
            text = "LOOKUPD({lookupd}): registering {count} topics and channels"
            self._log("info", text, lookupd=self._address, count=len(self._to_register))

    def _shown(self, answer: bytes) -> str:
        """An answer for the log. A peer may send back what it was sent."""
        text = without_secret(answer.decode("utf-8", "backslashreplace"), self._secret)
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."

    def _fail(self, reason: str) -> None:
        waiting = f"{self._unanswered[0]} - " if self._unanswered else ""
        self.failure = self.failure or f"{waiting}{reason}"
        self._answer_due = self._ping_due = inf
