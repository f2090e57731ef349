"""
Base classes of sessions and of their brokers: `IProtocol` as a connection calls it, `IBroker` as a session does.

Compiled code calls a method directly if it knows the class of the object, and looks it up by name otherwise, five times
for a PUB. So V2 and V3 sessions have the base class `Session`, which others may have, too; all other sessions are
wrapped in a `SessionAdapter`. Every broker of a session is a `SessionBroker`.

Performance: called once per chunk and turn.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mypy_extensions import mypyc_attr

from nsqtw.core.timers import Timer
from nsqtw.errors import ClientError
from nsqtw.interfaces import Answered, Assigned, BytesLike, IBroker, IProtocol, ISteppedProtocol
from nsqtw.upgrades import Upgrade

MAX_BYTES: Final = 64 * 1024
"""Worth a read in any case: half of what a socket holds at first."""
STEP_BYTES: Final = 16 * 1024
"""Bytes that a session of another class is given at once."""


# Where this is compiled (setup.py), classes of others still may inherit from it.
@mypyc_attr(allow_interpreted_subclasses=True)
class PublishAnswer:
    """
    An answer of a publish, in place of a function, one for each publish: compiled code calls it
    directly, and the broker notes in it what it has to know of the publish, so that no other object is made.
    """

    __slots__ = ("assigned", "broker", "count", "held_bytes", "topic", "verb")
    broker: SessionBroker
    verb: bytes
    topic: str
    count: int
    assigned: Assigned | None
    held_bytes: int

    def answer(self, error: ClientError | None) -> None:
        """The messages are stored, or the publish is refused."""
        raise NotImplementedError

    def parts(self) -> Sequence[tuple[PublishAnswer, Assigned | None]]:
        """
        Return an answer for each message, with what is told its id. They are used in place of this one. None if the
        messages are one publish.
        """
        return ()

    def __call__(self, error: Exception | None) -> None:
        """Waiter API. Used by the broker only, as the attributes are. Quicker than a method, which would be bound."""
        self.broker.committed(self, error)


class SessionBroker:
    """The part of IBroker that a session uses once per command. See there."""

    def __init__(self, had_no_effect: Callable[[float], None]) -> None:
        self.is_waiting = False
        self.had_no_effect = had_no_effect

    def committed(self, answer: PublishAnswer, error: Exception | None) -> None:
        """The result of the commit of a publish is known. Called by its PublishAnswer."""
        raise NotImplementedError

    def publish(
        self,
        topic: str,
        bodies: Sequence[BytesLike],
        delay: float,
        answered: Answered | PublishAnswer,
        now: float,
        headers: Sequence[Mapping[str, str] | bytes] | None = None,
        delays: Sequence[float] | None = None,
        each: bool = False,
        assigned: Assigned | None = None,
    ) -> None:
        raise NotImplementedError

    def publish_packed(
        self,
        topic: str,
        packed: BytesLike,
        start: int,
        stop: int,
        answered: Answered | PublishAnswer,
        now: float,
        assigned: Assigned | None = None,
    ) -> None:
        raise NotImplementedError


def session_broker(broker: IBroker) -> SessionBroker:
    """Return the broker of a session as what it always is. TypeError."""
    if not isinstance(broker, SessionBroker):
        raise TypeError(f"{broker!r} is not made for a session")
    return broker


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(Timer):
    """
    See IProtocol and ISteppedProtocol. A session may be on the agenda.

    Nothing stands between such a session and its connection: it limits its steps by itself, wants no data while its
    broker is waiting, returns nothing but `bytes` and upgrades, and ends with `IBroker.leave`.
    """

    @property
    def closing(self) -> bool:
        raise NotImplementedError

    @property
    def wants_data(self) -> int:
        raise NotImplementedError

    def receive_data(self, chunk: bytes, now: float) -> None:
        raise NotImplementedError

    def receive_end(self, now: float) -> None:
        raise NotImplementedError

    def data_to_send(self) -> list[bytes | Upgrade]:
        raise NotImplementedError

    def pause_delivery(self) -> None:
        raise NotImplementedError

    def resume_delivery(self, now: float) -> None:
        raise NotImplementedError

    @property
    def is_behind(self) -> bool:
        """
        True while the session keeps commands that it carries out only when `receive_data` is called again, with no
        bytes: it has done enough for one step, and other connections have their turn first.
        """
        raise NotImplementedError

    @property
    def refused(self) -> str:
        """The name of the option whose limit ended the session, for the statistics; empty when none did."""
        raise NotImplementedError

    def connection_lost(self, now: float) -> None:
        raise NotImplementedError


class SessionAdapter(Session):
    """
    A session of another class. Its commands are not known here, so it gets STEP_BYTES of what was read at once, and the
    next ones when `receive_data` is called again. Nothing is read for it while its `broker` waits for an authorizer.
    """

    def __init__(self, session: IProtocol, broker: IBroker | None = None) -> None:
        super().__init__()
        self._session: Any = session
        self._broker = broker
        self._unread = b""
        self._offset = 0
        self._has_ended = False
        """Whether the peer sends no more, which the session is told after the unread input."""

    @property
    def closing(self) -> bool:
        return bool(self._session.closing)

    @property
    def wants_data(self) -> int:
        wants = self._session.wants_data
        if not wants or self._unread or self._is_waiting:
            return 0
        return min(wants, MAX_BYTES) if isinstance(wants, int) and wants > 1 else 1

    @property
    def is_behind(self) -> bool:
        is_ready = self._session.wants_data and not self._session.closing and not self._is_waiting
        return bool(self._unread and is_ready)

    @property
    def _is_waiting(self) -> bool:
        return self._broker is not None and bool(self._broker.is_waiting)

    @property
    def refused(self) -> str:
        return ""

    def receive_data(self, chunk: bytes, now: float) -> None:
        if not self._unread and len(chunk) <= STEP_BYTES:
            self._session.receive_data(chunk, now)
            return
        if chunk:
            self._unread, self._offset = self._unread[self._offset :] + chunk, 0
        piece = self._unread[self._offset : self._offset + STEP_BYTES]
        self._offset += len(piece)
        if self._offset == len(self._unread):
            self._unread, self._offset = b"", 0
        self._session.receive_data(piece, now)
        if self._has_ended and not self._unread:
            self._session.receive_end(now)

    def receive_end(self, now: float) -> None:
        if self._unread:
            self._has_ended = True
        else:
            self._session.receive_end(now)

    def data_to_send(self) -> list[bytes | Upgrade]:
        out: list[Any] = self._session.data_to_send()
        for item in out:
            if type(item) is not bytes:
                return [bytes(one) if isinstance(one, bytes | bytearray | memoryview) else one for one in out]
        return out

    def pause_delivery(self) -> None:
        self._session.pause_delivery()

    def resume_delivery(self, now: float) -> None:
        self._session.resume_delivery(now)

    def connection_lost(self, now: float) -> None:
        self._unread = b""
        try:
            self._session.connection_lost(now)
        finally:
            if self._broker is not None:
                self._broker.leave()


class SteppedAdapter(SessionAdapter):
    """A session of another class that limits its steps by itself (ISteppedProtocol): it is given all that was read."""

    @property
    def wants_data(self) -> int:
        if self._is_waiting:
            return 0
        wants: int = self._session.wants_data
        return wants if wants <= 1 else min(wants, MAX_BYTES)

    @property
    def is_behind(self) -> bool:
        return bool(self._session.is_behind) and not self._is_waiting

    def receive_data(self, chunk: bytes, now: float) -> None:
        self._session.receive_data(chunk, now)

    def receive_end(self, now: float) -> None:
        self._session.receive_end(now)


def adapted(made: IProtocol, broker: IBroker) -> Session:
    """Return the session `made`, which has the guarded `broker`, or what passes all on to it."""
    if isinstance(made, Session):
        return made
    return SteppedAdapter(made, broker) if ISteppedProtocol.providedBy(made) else SessionAdapter(made, broker)


def session_of(made: IProtocol) -> Session:
    """`made`, or what passes all on to it."""
    return made if isinstance(made, Session) else SessionAdapter(made)
