"""
The right of a request that lasts: it is checked again when it ends, and when grants may have changed.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqtw.core.broker import Broker
from nsqtw.core.timers import Timer
from nsqtw.http.bearer_auth import BearerAuth
from nsqtw.http.responses import Answer
from nsqtw.rights import SUBSCRIBE, Credentials

_AT_LEAST_SECONDS = 1.0
"""Between two questions: a right may last no time at all."""


class StandingRight(Timer):
    """
    The right to a channel of a client that was let in. `withdrawn` is called once, with the answer to a client without
    it, in place of which nothing else may be sent; not after `leave`.
    """

    def __init__(
        self,
        broker: Broker,
        bearer_auth: BearerAuth,
        credentials: Credentials | None,
        topic: str,
        channel: str,
        withdrawn: Callable[[Answer], None],
    ) -> None:
        super().__init__()
        assert broker.authorizations is not None, "there are rights"
        self._authorizations = broker.authorizations
        self._timers = broker.timers
        self._bearer_auth = bearer_auth
        self._credentials = credentials
        self._names = topic, channel
        self._withdrawn: Callable[[Answer], None] | None = withdrawn
        self._authorizations.enter(self)
        self._await_end()

    def reconsider(self) -> None:
        """RightsListener API. `bearer_auth`, which was there before, has forgotten its answers by now."""
        self._check()

    def on_timer(self, now: float) -> float | None:
        """Timer API."""
        self._check()
        return None

    def leave(self) -> None:
        """The request has ended, or the right to it."""
        if self._withdrawn is None:
            return
        self._withdrawn = None
        self._credentials = None
        self._authorizations.leave(self)
        self._timers.cancel(self)

    def _check(self) -> None:
        if self._withdrawn is not None:
            self._bearer_auth.authorize(self._credentials, SUBSCRIBE, *self._names, self._decided)

    def _decided(self, error: Answer | None, identity: str) -> None:
        withdrawn = self._withdrawn
        if withdrawn is None:
            return
        if error is None:
            self._await_end()
        else:
            self.leave()
            withdrawn(error)

    def _await_end(self) -> None:
        until = self._bearer_auth.valid_until(self._credentials)
        self._timers.schedule(max(until, self._authorizations.now() + _AT_LEAST_SECONDS), self)
