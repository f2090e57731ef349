"""
What a connection calls its session: `IProtocol`, as a class.

Where this is compiled, what has a class that the caller knows is called directly, and what has not is looked up by its
name, as Python does, five times for a PUB. So the sessions of V2 are of this class, and what a third party makes, of
whatever class, is in a `Foreign`.

This module is hot, once per chunk and turn.
"""

from __future__ import annotations

from typing import Final

from nsqtw.core.agenda import Due
from nsqtw.interfaces import IProtocol
from nsqtw.upgrades import Upgrade

MOST_BYTES: Final = 64 * 1024
"""Worth a read in any case: half of what a socket holds at first."""


class Session(Due):
    """See IProtocol. A session may be on the agenda."""

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

    def connection_lost(self, now: float) -> None:
        raise NotImplementedError


class Foreign(Session):
    """A session of another class."""

    def __init__(self, session: IProtocol) -> None:
        super().__init__()
        self._session = session

    @property
    def closing(self) -> bool:
        return bool(self._session.closing)

    @property
    def wants_data(self) -> int:
        wants = self._session.wants_data
        if not wants:
            return 0
        return min(wants, MOST_BYTES) if isinstance(wants, int) and wants > 1 else 1

    def receive_data(self, chunk: bytes, now: float) -> None:
        self._session.receive_data(chunk, now)

    def receive_end(self, now: float) -> None:
        self._session.receive_end(now)

    def data_to_send(self) -> list[bytes | Upgrade]:
        return self._session.data_to_send()

    def pause_delivery(self) -> None:
        self._session.pause_delivery()

    def resume_delivery(self, now: float) -> None:
        self._session.resume_delivery(now)

    def connection_lost(self, now: float) -> None:
        self._session.connection_lost(now)


def session_of(made: IProtocol) -> Session:
    """`made`, or what passes all on to it."""
    return made if isinstance(made, Session) else Foreign(made)
