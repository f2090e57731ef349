"""
Authentication over HTTP: `Authorization: Bearer SECRET`, with the secret that AUTH takes.

Theory of operation. A connection sends many requests, and an authorizer may take long. So the permissions of a
credential are cached while they last, for a minute at most, under a keyed digest of everything known about the client;
requests that arrive while the authorizer is being asked wait for the same answer. Only valid credentials are cached, so
guesses do not fill the memory.

    401  no credential, or an invalid one          403  the permission is missing
    503  the authorizer cannot answer
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from secrets import token_bytes
from typing import Protocol

from twisted.logger import Logger

from nsqtw.errors import AuthError, AuthRefused
from nsqtw.http.responses import Answer, failure
from nsqtw.rights import MAX_SECRET_BYTES, Authorizations, Credentials, Rights

FREE, ANY_RIGHT = "", "any"
"""The requirement of a route, beside the name of a permission: none, or any valid credential."""
Decided = Callable[["Answer | None", str], None]
"""
Called once, with what is answered to a request that may not be served, None when it may, and the identity of its
credential, empty if that is not known.
"""

REMEMBERED = 1024
"""Credentials whose rights are remembered."""

MAX_ASKED = 1024
"""Credentials that may be asked about at the same time."""

MAX_SECONDS = 60.0

_CHALLENGE = (b"WWW-Authenticate", b'Bearer realm="nsqd"')
_BEARER = b"bearer"
_NO_CREDENTIAL = failure(401, "CREDENTIAL_REQUIRED", _CHALLENGE)
_BAD_CREDENTIAL = failure(401, "CREDENTIAL_REFUSED", (_CHALLENGE[0], _CHALLENGE[1] + b', error="invalid_token"'))
_FORBIDDEN = failure(403, "FORBIDDEN")
_CANNOT_TELL = failure(503, "AUTH_FAILED")

_RightsCallback = Callable[["Rights | AuthError"], None]

_log = Logger()


class RequestAuthorizer(Protocol):
    """Lets requests in, or not."""

    def authorize(
        self, credentials: Credentials | None, needs: str, topic: str, channel: str, decided: Decided
    ) -> None:
        """
        A request with the credential of `credentials` needs something for a topic, a channel (both named) or the whole
        daemon (neither). `decided` may be called before this returns.
        """


class BearerAuth:
    """Lets requests in by what `authorizations` says."""

    def __init__(self, authorizations: Authorizations) -> None:
        self._authorizations = authorizations
        self._key = token_bytes(32)
        self._known: dict[bytes, tuple[Rights, float]] = {}
        self._asked: dict[bytes, list[_RightsCallback]] = {}
        authorizations.enter(self)

    def reconsider(self) -> None:
        """RightsListener API: forget what was granted, and what is being asked."""
        self._known = {}
        self._asked = {}

    def authorize(
        self, credentials: Credentials | None, needs: str, topic: str, channel: str, decided: Decided
    ) -> None:
        """
        A request with the credential of `credentials` needs something for a topic, a channel (both named) or the whole
        broker (neither). `decided` may be called before this returns.
        """
        if credentials is None or len(credentials.secret) > MAX_SECRET_BYTES:
            decided(_NO_CREDENTIAL if credentials is None else _BAD_CREDENTIAL, "")
            return

        def told(outcome: Rights | AuthError) -> None:
            identity = "" if isinstance(outcome, AuthError) else str(outcome.identity)
            decided(self._verdict(outcome, needs, topic, channel), identity)

        digest = self._digest(credentials)
        rights, until = self._known.get(digest, (None, 0.0))
        if rights is not None and self._authorizations.now() < until:
            told(rights)
        elif digest in self._asked:
            self._asked[digest].append(told)
        elif len(self._asked) >= MAX_ASKED:
            decided(_CANNOT_TELL, "")
        else:
            self._ask(digest, credentials, told)

    def valid_until(self, credentials: Credentials | None) -> float:
        """Return the time until which the answer to a credential is remembered; now, when it is not."""
        now = self._authorizations.now()
        return now if credentials is None else max(now, self._known.get(self._digest(credentials), (None, now))[1])

    # -- inside

    def _ask(self, digest: bytes, credentials: Credentials, callback: _RightsCallback) -> None:
        outcomes, asked = self._known, self._asked
        waiting = asked[digest] = [callback]

        def answered(outcome: Rights | AuthError) -> None:
            asked.pop(digest)
            if isinstance(outcome, AuthError):
                _log.warn("HTTP: ({client}) AUTH failed {error}", client=credentials.remote_ip, error=str(outcome))
            else:
                seconds = MAX_SECONDS if outcome.ttl is None else min(outcome.ttl, MAX_SECONDS)
                outcomes.pop(digest, None)
                outcomes[digest] = (outcome, self._authorizations.now() + seconds)
                if len(outcomes) > REMEMBERED:
                    del outcomes[next(iter(outcomes))]
            for waiter in waiting:
                waiter(outcome)

        self._authorizations.ask(credentials, answered)

    def _verdict(self, outcome: Rights | AuthError, needs: str, topic: str, channel: str) -> Answer | None:
        if isinstance(outcome, AuthError):
            return _BAD_CREDENTIAL if isinstance(outcome, AuthRefused) else _CANNOT_TELL
        if needs == ANY_RIGHT:
            return None if outcome.count else _FORBIDDEN
        return None if self._authorizations.allows(outcome, needs, topic, channel) else _FORBIDDEN

    def _digest(self, credentials: Credentials) -> bytes:
        """Names an applicant without saying its secret."""
        facts = f"{credentials.is_tls} {credentials.remote_ip} {len(credentials.secret)} {credentials.common_name} "
        return hmac.digest(self._key, facts.encode("utf-8", "replace") + credentials.secret, "sha256")


def secret_in(field: bytes | None) -> bytes | None:
    """The secret in an Authorization field; None when there is none."""
    scheme, _, secret = (field or b"").partition(b" ")
    return secret.strip(b" ") or None if scheme.lower() == _BEARER else None
