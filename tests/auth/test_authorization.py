"""The door: whatever an authorizer does, a question has one answer, in the reactor's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from nsqtw.auth import authorization
from nsqtw.auth.authorization import ANSWER_SECONDS, PluginAuthorizations
from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.rights import Answer, Credentials
from tests.http.broker_fixture import Log

RIGHTS = Grants([Grant(".*", [".*"], ["publish"])])
SECRET = b"hunter2"


class Reactor(Clock):
    """A clock that remembers what threads have asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.from_threads: list[Callable[[], None]] = []

    def turn(self) -> None:
        """Do it. Without a reactor that runs no thread is its own, and whoever answers, answers from another one."""
        calls, self.from_threads = self.from_threads, []
        for call in calls:
            call()

    def callFromThread(self, function: Callable[..., None], *arguments: Any) -> None:
        self.from_threads.append(lambda: function(*arguments))


class Authorizer:
    """Does what the test says."""

    def __init__(self, said: Callable[[Credentials, Answer], Any]) -> None:
        self.authorize = said
        self.reloaded: Callable[[], bool] = lambda: True
        self.is_closed = False

    def reload(self) -> bool:
        return self.reloaded()

    def close(self) -> None:
        self.is_closed = True


class Asked:
    """A door with an authorizer, and what was answered to one question."""

    def __init__(self, said: Callable[[Credentials, Answer], Any]) -> None:
        self.reactor = Reactor()
        self.authorizer = Authorizer(said)
        self.authorizations = PluginAuthorizations(self.reactor, self.authorizer, self.reactor.seconds)
        self.outcomes: list[Any] = []
        self.forget = self.authorizations.ask(Credentials(SECRET), self.outcomes.append)
        self.reactor.turn()

    @property
    def why(self) -> str:
        (outcome,) = self.outcomes
        assert isinstance(outcome, AuthError), outcome
        return str(outcome)


async def coroutine(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def calls(answer: Answer, outcome: Any) -> None:
    answer(outcome)


@pytest.mark.parametrize(
    "said",
    [
        lambda credentials, answer: RIGHTS,
        lambda credentials, answer: succeed(RIGHTS),
        lambda credentials, answer: coroutine(RIGHTS),
        lambda credentials, answer: calls(answer, RIGHTS),
    ],
    ids=["returned", "Deferred", "coroutine", "called"],
)
def test_rights_come_in_any_way(said: Any) -> None:
    asked = Asked(said)
    assert asked.outcomes == [RIGHTS]
    assert asked.reactor.getDelayedCalls() == []


def fail(credentials: Credentials, answer: Answer) -> None:
    raise KeyError(credentials.secret)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (fail, "the authorizer failed: KeyError in "),
        (lambda credentials, answer: coroutine(ValueError(credentials.secret)), "the authorizer failed: ValueError"),
        (lambda credentials, answer: coroutine(AuthRefused("who?")), "who?"),
        (lambda credentials, answer: calls(answer, AuthError("no server")), "no server"),
        (
            lambda credentials, answer: calls(answer, credentials.secret),
            "the authorizer answers with bytes, and no rights",
        ),
        (lambda credentials, answer: True, "the authorizer answers with bool, and no rights"),
        (lambda credentials, answer: succeed(None), "the authorizer answers with NoneType, and no rights"),
    ],
)
def test_any_failure_is_an_error_without_the_secret(said: Any, why: str) -> None:
    asked = Asked(said)
    assert asked.why.startswith(why)
    assert "hunter" not in asked.why


def test_an_answer_from_a_thread_comes_in_the_reactors() -> None:
    answers: list[Answer] = []
    asked = Asked(lambda credentials, answer: answers.append(answer))
    thread = threading.Thread(target=answers[0], args=(RIGHTS,))
    thread.start()
    thread.join()
    assert asked.outcomes == []
    asked.reactor.turn()
    assert asked.outcomes == [RIGHTS]


def test_the_first_answer_counts() -> None:
    answers: list[Answer] = []
    asked = Asked(lambda credentials, answer: answers.append(answer))
    answers[0](AuthRefused("no"))
    answers[0](RIGHTS)
    asked.reactor.turn()
    assert asked.why == "no"


def test_one_that_never_answers_is_not_waited_for() -> None:
    cancelled: list[Any] = []
    asked = Asked(lambda credentials, answer: Deferred(cancelled.append))
    asked.reactor.advance(ANSWER_SECONDS - 1)
    assert asked.outcomes == []
    asked.reactor.advance(1)
    assert asked.why == "the authorizer has not answered in 60 s"
    assert len(cancelled) == 1


def test_what_nobody_wants_to_know_is_cancelled() -> None:
    cancelled: list[Any] = []
    asked = Asked(lambda credentials, answer: Deferred(cancelled.append))
    asked.forget()
    assert (len(cancelled), asked.outcomes, asked.reactor.getDelayedCalls()) == (1, [], [])


class Guest:
    def __init__(self) -> None:
        self.times = 0

    def reconsider(self) -> None:
        self.times += 1


def test_guests_are_told_of_a_reload_that_changes_something() -> None:
    asked = Asked(lambda credentials, answer: RIGHTS)
    listener, gone = Guest(), Guest()
    asked.authorizations.enter(listener)
    asked.authorizations.enter(gone)
    asked.authorizations.leave(gone)
    with Log() as lines:
        asked.authorizations.reload()
        asked.authorizer.reloaded = lambda: False
        asked.authorizations.reload()
    assert (listener.times, gone.times) == (1, 0)
    assert lines == ["info: AUTH: reloaded"]


def test_what_a_thread_found_out_before_a_reload_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "isInIOThread", lambda: False)
    answers: list[Answer] = []
    asked = Asked(lambda credentials, answer: answers.append(answer))
    answers[0](RIGHTS)  # from a thread: the reactor hears of it a moment later, and of the reload before
    asked.authorizations.reload()
    asked.reactor.turn()
    assert asked.outcomes == []
    answers[1](AuthRefused("withdrawn"))
    asked.reactor.turn()
    assert asked.why == "withdrawn"
    asked.authorizations.reload()
    assert (len(answers), asked.reactor.getDelayedCalls()) == (2, [])


def test_a_reload_that_changes_nothing_asks_nobody_again() -> None:
    answers: list[Answer] = []
    asked = Asked(lambda credentials, answer: answers.append(answer))
    asked.authorizer.reloaded = lambda: False
    asked.authorizations.reload()
    answers[0](RIGHTS)
    asked.reactor.turn()
    assert (len(answers), asked.outcomes) == (1, [RIGHTS])


@pytest.mark.parametrize("ttl", [float("nan"), 10**400, -(10**400), "60"], ids=["NaN", "huge", "-huge", "text"])
def test_rights_whose_end_cannot_be_told_are_none(ttl: Any) -> None:
    rights = Grants([Grant(".*", [".*"], ["publish"])], ttl=ttl)
    assert Asked(lambda credentials, answer: rights).why == "the authorizer answers with Grants, and no rights"


@pytest.mark.parametrize("ttl", [None, 0, -1.0, 1.5, float("inf")])
def test_any_other_end_will_do(ttl: float | None) -> None:
    rights = Grants([Grant(".*", [".*"], ["publish"])], ttl=ttl)
    assert Asked(lambda credentials, answer: rights).outcomes == [rights]


def test_a_reload_that_fails_changes_nothing() -> None:
    asked = Asked(lambda credentials, answer: RIGHTS)
    listener = Guest()
    asked.authorizations.enter(listener)

    def fails() -> bool:
        raise AuthError("grants.toml: no such file or directory")

    asked.authorizer.reloaded = fails
    with Log() as lines, pytest.raises(AuthError, match=r"^grants.toml: no such file or directory$"):
        asked.authorizations.reload()
    assert (lines, listener.times) == ([], 0)


def test_rights_that_cannot_be_looked_at_allow_nothing(logged_failures: list[Any]) -> None:
    class Broken:
        count = 1

        def allows(self, permission: str, topic: str, channel: str) -> bool:
            raise RuntimeError

    asked = Asked(lambda credentials, answer: Broken())
    assert asked.authorizations.allows(asked.outcomes[0], "publish", "t", "") is False
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_a_broker_that_stops_lets_nobody_in() -> None:
    asked = Asked(lambda credentials, answer: RIGHTS)
    asked.authorizations.close()
    assert asked.authorizer.is_closed
    outcomes: list[Any] = []
    asked.authorizations.ask(Credentials(SECRET), outcomes.append)
    assert str(outcomes[0]) == "the broker stops"
