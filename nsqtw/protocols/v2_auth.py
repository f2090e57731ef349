"""
Permissions of a V2 client: AUTH, and the checks of SUB, PUB, MPUB and DPUB.

Theory of operation. AUTH sends a secret, and the authorizer answers, perhaps later, with its permissions. A command
that needs a permission is looked up in what was granted to this connection before: one tuple and one look-up in a dict.
Only a new name is matched against the patterns. When permissions expire, the command waits, no later one is executed,
and the same secret is sent to the authorizer again. A subscription is not checked again when permissions expire, as in
nsqd, but when they may have been withdrawn (`reconsider`).

Performance: called once per publish command or run of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from nsqtw.core.client import Client
from nsqtw.errors import AuthError, AuthRefused, ClientError
from nsqtw.gocompat.text import json_text, quoted
from nsqtw.interfaces import OperatorLog
from nsqtw.protocols.frames import RESPONSE, frame
from nsqtw.protocols.replies import ReplySlot
from nsqtw.rights import PUBLISH, SUBSCRIBE, Authorizations, Credentials, Rights

_REMEMBERED = 1024
"""Names a connection may use before what was granted to it is forgotten and looked at again."""

_Command = tuple[bytes, Sequence[bytes], list[bytes]]
_Known = Callable[["ClientError | None"], None]


class ClientAuth:
    """
    The permissions of `client`, granted by `authorizations`. `wait` and `go_on` suspend and resume its session;
    `refuse` ends it, with the error in the slot kept for the reply, or else behind all others.
    """

    def __init__(
        self,
        client: Client,
        authorizations: Authorizations,
        log: OperatorLog,
        refuse: Callable[[ClientError, ReplySlot | None], None],
        wait: Callable[[], None],
        go_on: Callable[[], None],
    ) -> None:
        self._client = client
        self._authorizations = authorizations
        self._log = log
        self._refuse = refuse
        self._wait = wait
        self._go_on = go_on
        self._credentials: Credentials | None = None
        self._rights: Rights | None = None
        self._forget: Callable[[], None] | None = None
        """The function that withdraws the pending question."""
        self._until = -inf
        self._is_fresh = False
        """Just given: however soon they end, they hold for the command that waited for them."""
        self._subscriptions: dict[tuple[bytes, bytes], None] = {}
        self._parked: _Command | None = None
        self._is_doubted = False
        """Permissions may have been withdrawn: check the subscription again."""
        self._granted: dict[tuple[bytes, bytes], None] = {}

    def admits(self, verb: bytes, topic: bytes, channel: bytes, now: float) -> bool:
        """
        Return whether a command may be done; False: not before the rights have been asked for again. ClientError. The
        channel is empty when something is published.
        """
        key = (topic, channel)
        if now < self._until and key in self._granted:
            return True
        if self._rights is None:
            raise ClientError("E_AUTH_FIRST", f"AUTH required before {verb.decode()}")
        if now >= self._until and not self._is_fresh:
            return False
        self._is_fresh = False
        if not self._allows(topic, channel):
            raise _unauthorized(verb, topic, channel)
        if len(self._granted) >= _REMEMBERED:
            self._granted.clear()
        self._granted[key] = None
        if channel:
            self._subscriptions[key] = None
        return True

    def now(self) -> float:
        """Return the current time of the authorizer's clock."""
        return self._authorizations.now()

    def admits_now(self, verb: bytes, topic: bytes) -> bool:
        """Like `admits`, for a publish."""
        return self.admits(verb, topic, b"", self._authorizations.now())

    def must_wait(self, verb: bytes, params: Sequence[bytes], payload: list[bytes], channel: bytes, now: float) -> bool:
        """
        Return whether a command, whose first parameter is a topic, cannot be done now: its client's rights have ended.
        It is kept, see `take_parked`. ClientError when it may not be done at all.
        """
        if self.admits(verb, params[0], channel, now):
            return False
        assert self._credentials is not None, "who has rights has shown a secret"
        self._wait()
        self._parked = (verb, params, payload)
        self._ask(self._credentials, self._renewed)
        if self._forget is not None or self._parked is None:
            return True
        self._parked = None
        return not self.admits(verb, params[0], channel, now)

    def end_subscription(self, topic: bytes, channel: bytes) -> None:
        """The connection has left a channel: the right to it matters no more."""
        self._subscriptions.pop((topic, channel), None)
        self._granted.pop((topic, channel), None)

    def take_parked(self) -> _Command | None:
        """The command that has waited, to be done before any other."""
        parked, self._parked = self._parked, None
        return parked

    def show(self, secret: bytes, reserve: Callable[[], ReplySlot]) -> None:
        """AUTH, which is answered where `reserve` says. ClientError."""
        if self._rights is not None:
            raise ClientError("E_INVALID", "AUTH already set")
        self._wait()
        client = self._client
        self._ask(Credentials(secret, client.host, client.tls, client.common_name), partial(self._shown, reserve()))

    def reconsider(self) -> None:
        """RightsListener API. Until it is known what the secret is worth now, nothing new is allowed."""
        self._until = -inf
        self._is_doubted = True
        self._granted.clear()
        if self._forget is None and self._credentials is not None:
            self._ask(self._credentials, self._reconsidered)

    def detach(self) -> None:
        """The connection is gone, and with it the secret."""
        if self._forget is not None:
            self._forget()
            self._forget = None
        self._authorizations.leave(self)
        self._credentials = None

    # -- inside

    def _ask(self, credentials: Credentials, cached: _Known) -> None:
        if self._forget is not None:
            self._forget()
        is_answered = False

        def answer(outcome: Rights | AuthError) -> None:
            nonlocal is_answered
            is_answered = True
            self._forget = None
            cached(self._learn(credentials, outcome))

        forget = self._authorizations.ask(credentials, answer)
        if not is_answered:
            self._forget = forget

    def _learn(self, credentials: Credentials, outcome: Rights | AuthError) -> ClientError | None:
        """Put on what was given. The error for a client that was given nothing."""
        if isinstance(outcome, AuthError):
            text = f"PROTOCOL({self._client.version}): [{{client}}] AUTH failed {{error}}"
            self._log("warn", text, client=self._client.remote_address, error=str(outcome))
            if isinstance(outcome, AuthRefused):
                self._until = -inf
            return ClientError("E_AUTH_FAILED", "AUTH failed")
        if self._rights is None:
            if not outcome.count:
                return ClientError("E_UNAUTHORIZED", "AUTH no authorizations found")
            self._authorizations.enter(self)
        self._credentials, self._rights = credentials, outcome
        self._until = inf if outcome.ttl is None else self._authorizations.now() + outcome.ttl
        self._granted.clear()
        client = self._client
        client.authed = True
        client.auth_identity, client.auth_identity_url = str(outcome.identity), str(outcome.identity_url)
        return self._withdrawn() if self._is_doubted else None

    def _withdrawn(self) -> ClientError | None:
        """The error for a client that may not have any more what it has subscribed to."""
        self._is_doubted = False
        for topic, channel in self._subscriptions:
            if not self._allows(topic, channel):
                return _unauthorized(b"SUB", topic, channel)
        return None

    def _shown(self, slot: ReplySlot, error: ClientError | None) -> None:
        self._go_on()
        if error is None:
            slot.set(self._welcome())
        else:
            self._refuse(error, slot)

    def _renewed(self, error: ClientError | None) -> None:
        self._go_on()
        self._is_fresh = error is None
        if error is not None:
            self._parked = None
            self._refuse(error, None)

    def _reconsidered(self, error: ClientError | None) -> None:
        if error is not None:
            self._refuse(error, None)

    def _welcome(self) -> bytes:
        """The answer to AUTH."""
        assert self._rights is not None, "only who has rights is welcome"
        client = self._client
        fields = {
            "identity": client.auth_identity,
            "identity_url": client.auth_identity_url,
            "permission_count": self._rights.count,
        }
        return frame(RESPONSE, json_text(fields))

    def _allows(self, topic: bytes, channel: bytes) -> bool:
        assert self._rights is not None, "asked only where there are some"
        permission = SUBSCRIBE if channel else PUBLISH
        return self._authorizations.allows(self._rights, permission, topic.decode(), channel.decode())


def _unauthorized(verb: bytes, topic: bytes, channel: bytes) -> ClientError:
    text = f"AUTH failed for {verb.decode()} on {quoted(topic)} {quoted(channel)}"
    return ClientError("E_UNAUTHORIZED", text)
