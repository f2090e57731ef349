"""
Sessions of users that logged in, in memory.

A session ends after its time, with a logout, when the grants are read again, and with the process. Only a digest of
its token is kept.
"""

from __future__ import annotations

import hashlib
import secrets

import attrs

from nsqtw.admin.viewer import Viewer

MAX_SESSIONS = 10_000
"""Sessions at a time; a further login ends the oldest one."""
_TOKEN_BYTES = 32


@attrs.frozen
class _Session:
    viewer: Viewer
    ends: float


class Sessions:
    """The sessions. `now` is a clock that only advances, in seconds."""

    def __init__(self) -> None:
        self._by_digest: dict[str, _Session] = {}

    def start(self, viewer: Viewer, now: float, timeout: float) -> str:
        """Return the token of a new session, which ends after `timeout` seconds, or earlier with the user's rights."""
        ttl = viewer.rights.ttl if viewer.rights is not None else None
        life = timeout if ttl is None else min(ttl, timeout)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        key = _digest(token)
        self._by_digest[key] = _Session(attrs.evolve(viewer, csrf_subject=key), now + life)
        if len(self._by_digest) > MAX_SESSIONS:
            del self._by_digest[next(iter(self._by_digest))]
        return token

    def find(self, token: str, now: float) -> Viewer | None:
        """Return the user of a session; None when there is none, or no longer."""
        key = _digest(token)
        session = self._by_digest.get(key)
        if session is None:
            return None
        if session.ends <= now:
            del self._by_digest[key]
            return None
        return session.viewer

    def end(self, token: str) -> None:
        self._by_digest.pop(_digest(token), None)

    def end_all(self) -> None:
        self._by_digest.clear()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
