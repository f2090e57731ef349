"""
Authorization: the chosen authorizer, with questions to it, renewal of permissions, and listeners for withdrawn ones.

Theory of operation. An authorizer may answer at once, with a Deferred or coroutine, or by a call from any thread. A
`_Question` makes of all of these one call in the reactor thread. A question without an answer in time, with an error or
with an invalid answer counts as refused. A question that is pending while a reload changes something is asked again
(`_Standing`), because its answer may be outdated.

The reason of a refusal is for the log. A client only learns that it was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import isnan
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadable import isInIOThread

from nsqtw.errors import AuthError, OptionError
from nsqtw.interfaces import IAuthorizer
from nsqtw.rights import Answer, Credentials, Rights, RightsListener
from nsqtw.runtime.reactor import Reactor

ANSWER_SECONDS = 60.0
"""The time limit of an authorizer. The http one has limits of its own."""

_MAX_TTL = 2**63

_log = Logger()


class PluginAuthorizations:
    """Asks `authorizer`. `now` is the broker's clock. See `nsqtw.rights.Authorizations`."""

    def __init__(self, reactor: Reactor, authorizer: IAuthorizer, now: Callable[[], float]) -> None:
        self.now = now
        self._reactor = reactor
        self._authorizer = authorizer
        self._guests: dict[RightsListener, None] = {}
        self._open: dict[_Standing, None] = {}
        self._is_shut = False

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """Authorizations API."""
        standing = _Standing(self._put, self._open, credentials, answer)
        standing.ask()
        return standing.forget

    def allows(self, rights: Rights, permission: str, topic: str, channel: str) -> bool:
        """Authorizations API."""
        try:
            return bool(rights.allows(permission, topic, channel))
        except Exception:
            _log.failure("AUTH: an authorizer's rights cannot be looked at")
            return False

    def enter(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self._guests[listener] = None

    def leave(self, listener: RightsListener) -> None:
        """Authorizations API."""
        self._guests.pop(listener, None)

    def reload(self) -> bool:
        """
        What was granted may change; return whether the authorizer has read it again. AuthError when it cannot be read,
        and everything stays as it is.
        """
        try:
            is_changed = self._authorizer.reload()
        except AuthError:
            raise
        except Exception as failure:
            _log.failure("AUTH: an authorizer cannot be reloaded")
            raise AuthError("the authorizer failed; the log says why") from failure
        if is_changed:
            _log.info("AUTH: reloaded")
            for standing in list(self._open):
                standing.renew()
            for listener in list(self._guests):
                listener.reconsider()
        return is_changed

    def close(self) -> None:
        """The broker stops: no client is authorized any more."""
        self._is_shut = True
        self._authorizer.close()

    def _put(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        """Ask once."""
        question = _Question(self._reactor, answer)
        if self._is_shut:
            question.resolve(AuthError("the broker stops"))
            return question.forget
        try:
            reply = self._authorizer.authorize(credentials, question.answer)
        except AuthError as error:
            question.resolve(error)
        except Exception as unforeseen:
            question.resolve(_unforeseen(Failure(unforeseen)))  # type: ignore[no-untyped-call]
        else:
            question.take(reply)
        return question.forget


def grants_reader(authorizations: PluginAuthorizations) -> Callable[[object], Callable[[], None] | None]:
    """
    Return the `read` of a `nsqtw.daemon.reload.FileReader`: it has the authorizer read its grants again. They hold at
    once, so there is nothing left to use; None when the authorizer has nothing to read. OptionError.
    """

    def read(options: object) -> Callable[[], None] | None:
        try:
            is_changed = authorizations.reload()
        except AuthError as error:
            raise OptionError(str(error)) from error
        return (lambda: None) if is_changed else None

    return read


class _Standing:
    """A question about one client, in `standing` until it is answered or cancelled."""

    def __init__(
        self,
        put: Callable[[Credentials, Answer], Callable[[], None]],
        standing: dict[_Standing, None],
        credentials: Credentials,
        answer: Answer,
    ) -> None:
        self._put = put
        self._standing = standing
        self._credentials = credentials
        self._answer = answer
        self._forget: Callable[[], None] | None = None

    def ask(self) -> None:
        self._standing[self] = None
        forget = self._put(self._credentials, self._answered)
        if self in self._standing:
            self._forget = forget

    def renew(self) -> None:
        """A pending answer may be outdated."""
        if self in self._standing:
            self.forget()
            self.ask()

    def forget(self) -> None:
        """Nobody wants to know."""
        self._standing.pop(self, None)
        forget, self._forget = self._forget, None
        if forget is not None:
            forget()

    def _answered(self, outcome: Rights | AuthError) -> None:
        self._standing.pop(self, None)
        self._forget = None
        self._answer(outcome)


class _Question:
    """One applicant's question. `answer` is called once, in the reactor's thread, unless it is forgotten before."""

    def __init__(self, reactor: Reactor, answer: Answer) -> None:
        self._reactor = reactor
        self._answer: Answer | None = answer
        self._asked: Deferred[Any] | None = None
        self._timeout: Any = None

    def take(self, reply: Any) -> None:
        """Handle the return value of the authorizer."""
        if isinstance(reply, Coroutine):
            reply = Deferred.fromCoroutine(reply)
        if isinstance(reply, Deferred):
            self._asked = reply
            reply.addCallbacks(self.resolve, lambda failure: self.resolve(_unforeseen(failure)))
        elif reply is not None:
            self.resolve(reply)
        if self._answer is not None:
            self._timeout = self._reactor.callLater(ANSWER_SECONDS, self._time_out)

    def answer(self, outcome: Rights | AuthError) -> None:
        """Take the answer, from any thread."""
        if isInIOThread():  # type: ignore[no-untyped-call]
            self.resolve(outcome)
        else:
            self._reactor.callFromThread(self.resolve, outcome)

    def resolve(self, outcome: Any) -> None:
        """The answer."""
        answer, self._answer = self._answer, None
        self._relax()
        if answer is None:
            return
        if not isinstance(outcome, AuthError) and not _are_rights(outcome):
            outcome = AuthError(f"the authorizer answers with {type(outcome).__name__}, and no rights")
        answer(outcome)

    def forget(self) -> None:
        """Nobody wants to know."""
        self._answer = None
        self._relax()
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.cancel()

    def _time_out(self) -> None:
        answer, self._answer = self._answer, None
        self.forget()
        if answer is not None:
            answer(AuthError(f"the authorizer has not answered in {ANSWER_SECONDS:.0f} s"))

    def _relax(self) -> None:
        if self._timeout is not None and self._timeout.active():
            self._timeout.cancel()
        self._timeout = None


def _are_rights(outcome: Any) -> bool:
    is_counted = isinstance(getattr(outcome, "count", None), int)
    return is_counted and callable(getattr(outcome, "allows", None)) and _is_ttl(getattr(outcome, "ttl", 0))


def _is_ttl(ttl: Any) -> bool:
    """Return whether it can be said when rights end: not after NaN seconds, which nothing is later than."""
    if isinstance(ttl, int):
        return abs(ttl) <= _MAX_TTL
    return ttl is None or (isinstance(ttl, float) and not isnan(ttl))


def _unforeseen(failure: Failure) -> AuthError:
    """Return the error to log for a failed authorizer: only the type, because the text could contain a secret."""
    if isinstance(failure.value, AuthError):
        return failure.value
    return AuthError(f"the authorizer failed: {type(failure.value).__name__}{_location(failure)}")


def _location(failure: Failure) -> str:
    frames = failure.frames
    return f" in {frames[-1][1]}:{frames[-1][2]}" if frames else ""
