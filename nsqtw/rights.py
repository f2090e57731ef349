"""
Credentials of a client, and the permissions that an authorizer grants.

A client sends a secret, with AUTH or as `Authorization: Bearer`. Its permissions are `Rights`. They expire `ttl`
seconds after they were granted; then they have to be requested again.
"""

from __future__ import annotations

from base64 import b64encode
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

_BASIC, _BEARER = "basic", "bearer"


def authorization(secret: str) -> str:
    """
    Return the value of HTTP's Authorization field for a secret, "" for none: Bearer, or Basic for a secret of the form
    `basic USER:PASSWORD`.
    """
    scheme, _, rest = secret.partition(" ")
    if not secret:
        return ""
    if scheme.lower() == _BASIC and rest:
        return f"Basic {b64encode(rest.strip().encode()).decode()}"
    return f"Bearer {rest.strip() if scheme.lower() == _BEARER and rest else secret}"


@attrs.frozen
class Credentials:
    """A client that shows its secret, and what is known of its connection."""

    secret: bytes = attrs.field(repr=False)
    remote_ip: str = ""
    """Empty for a unix socket."""
    is_tls: bool = False
    common_name: str = ""
    """The common name of the client's certificate; empty without one."""


class Rights(Protocol):
    """The permissions of a secret. Immutable."""

    @property
    def identity(self) -> str:
        """Whom it belongs to; may be empty."""

    @property
    def identity_url(self) -> str:
        """A URL with more about the identity; may be empty."""

    @property
    def count(self) -> int:
        """The number of grants; 0 means a valid secret without any permission."""

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
    """The source of permissions. A server has one when the broker has an authorizer."""

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """
        Have `answer` called with the permissions, perhaps before this returns, in the reactor thread. Returns a
        function that withdraws the question.
        """

    def allows(self, rights: Rights, permission: str, topic: str, channel: str) -> bool:
        """Like Rights.allows, and False when that fails."""

    def now(self) -> float:
        """The time, in the clock of `now` everywhere."""

    def enter(self, listener: RightsListener) -> None:
        """Tell `listener` from now on when rights may have been withdrawn."""

    def leave(self, listener: RightsListener) -> None:
        """Stop telling `listener` about withdrawn permissions."""


class RightsListener(Protocol):
    """A user of permissions for longer than one command."""

    def reconsider(self) -> None:
        """Grants may have changed: request the permissions again."""
