"""
Credentials of a client, and the rights that an authorizer grants.

An *applicant* shows a secret, with AUTH or as `Authorization: Bearer`. What the secret is worth are its *rights*. They
end `ttl` seconds after they were given, and whoever relies on them asks again then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from nsqtw.errors import AuthError

PUBLISH, SUBSCRIBE, ADMIN = "publish", "subscribe", "admin"
"""The permissions there are. nsqd knows the first two; the third one is for what HTTP can do beside publishing."""

PERMISSIONS = (PUBLISH, SUBSCRIBE, ADMIN)

MAX_SECRET_BYTES = 64 * 1024
"""Bytes of the largest secret. nsqd takes what a body may have, and each connection would keep it."""


@attrs.frozen
class Credentials:
    """A client that shows its secret, and what is known of its connection."""

    secret: bytes = attrs.field(repr=False)
    remote_ip: str = ""
    """Empty for a unix socket."""
    is_tls: bool = False
    common_name: str = ""
    """Of the client's certificate; empty without one."""


class Rights(Protocol):
    """What a secret is worth. Never changes."""

    @property
    def identity(self) -> str:
        """Whom it belongs to; may be empty."""

    @property
    def identity_url(self) -> str:
        """Where more is said of whom it belongs to; may be empty."""

    @property
    def count(self) -> int:
        """How many things are granted; 0 is the same as to know the secret and to allow nothing."""

    @property
    def ttl(self) -> float | None:
        """Seconds after which it must be asked for again; None for never."""

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        """
        Return whether something may be done to a channel, to a topic (the channel is empty) or to the whole broker
        (both are).
        """


Answer = Callable[["Rights | AuthError"], None]
"""Called once, with what an applicant may do, or why that cannot be said."""


class Authorizations(Protocol):
    """Where sessions ask for rights. The edge has one when the broker has an authorizer."""

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """
        Have `answer` called, perhaps before this returns, in the reactor's thread. The function returned is called when
        nobody wants to know any more.
        """

    def allows(self, rights: Rights, permission: str, topic: str, channel: str) -> bool:
        """As Rights.allows, and False when that fails."""

    def now(self) -> float:
        """The moment, in the clock of `now` everywhere."""

    def enter(self, listener: RightsListener) -> None:
        """Tell `listener` from now on when rights may have been withdrawn."""

    def leave(self, listener: RightsListener) -> None:
        """Tell it no more."""


class RightsListener(Protocol):
    """Somebody who relies on rights for longer than one command."""

    def reconsider(self) -> None:
        """What was granted may have changed: ask again."""
