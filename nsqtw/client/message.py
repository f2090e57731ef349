"""A delivered message, and how an application answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol


class Done:
    """An awaitable without a result that is complete already."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


DONE: Final = Done()
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class MessageOwner(Protocol):
    """The connection that delivered a message."""

    @property
    def address(self) -> str:
        """The nsqd's host:port."""

    def finish(self, message: Message) -> None:
        """Send FIN."""

    def requeue(self, message: Message, delay: float | None, *, backoff: bool, reason: str) -> None:
        """Send REQ, or NACK with a reason, with a delay in seconds, None for the default."""

    def touch(self, message: Message) -> None:
        """Send TOUCH."""


class Message:
    """
    A delivered message. `id` has 16 ASCII bytes, `timestamp` is the time of the publish in ns since 1970, `attempts`
    the number of deliveries including this one, `headers` the names and values beside the body.

    The first response counts: later calls of `finish` and `requeue` do nothing. A response to a message whose
    connection was lost does nothing either, because nsqd delivers the message again.
    """

    __slots__ = ("_owner", "attempts", "body", "has_responded", "headers", "id", "responds_itself", "timestamp")

    def __init__(
        self,
        owner: MessageOwner,
        timestamp: int,
        attempts: int,
        message_id: bytes,
        body: bytes,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self._owner = owner
        self.timestamp = timestamp
        self.attempts = attempts
        self.id = message_id
        self.body = body
        self.headers = headers
        self.has_responded = False
        """Whether the message was finished or requeued, or its connection is lost."""
        self.responds_itself = False
        """Whether the application responds after the end of its handler."""

    @property
    def nsqd_address(self) -> str:
        """The nsqd that delivered the message, as host:port."""
        return self._owner.address

    def finish(self) -> Done:
        """Send FIN: the message is done. Returns an awaitable that is complete."""
        if not self.has_responded:
            self._owner.finish(self)
        return DONE

    def requeue(self, delay: float | None = None, *, backoff: bool = True, reason: str = "") -> Done:
        """
        Send REQ: deliver the message again after `delay` seconds; None, or a negative number as in the Go client, for
        `ClientOptions.default_requeue_delay` times the attempts. With `backoff` the consumer slows down.

        `reason` says why the message could not be handled. Over V3 the broker logs it, and puts it into the dead letter
        if this was the last delivery; V2 has no place for it.
        """
        if not self.has_responded:
            self._owner.requeue(self, delay, backoff=backoff, reason=reason)
        return DONE

    def touch(self) -> Done:
        """Send TOUCH: restart the message timeout."""
        if not self.has_responded:
            self._owner.touch(self)
        return DONE

    def disable_auto_response(self) -> None:
        """Do not finish the message at the end of its handler: the application calls `finish` or `requeue` later."""
        self.responds_itself = True

    def __repr__(self) -> str:
        return f"<Message {self.id.decode('latin-1')} attempts={self.attempts} size={len(self.body)}>"
