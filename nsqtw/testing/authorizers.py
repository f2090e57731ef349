"""
Contract of authorizers, as tests. Run them like this, with pytest:

    from nsqtw.testing.authorizers import AuthorizerContract

    class TestMine(AuthorizerContract):
        good_secret = b"..."

        def make_authorizer(self, directory):
            return MyAuthorizer(...)

For readable failures put `pytest.register_assert_rewrite("nsqtw.testing.authorizers")` into a conftest.py.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from nsqtw.errors import AuthError, AuthRefused
from nsqtw.interfaces import IAuthorizer
from nsqtw.rights import MAX_SECRET_BYTES, PERMISSIONS, Credentials, Rights

ANSWER_SECONDS = 60.0


class Asked:
    """One question to an authorizer, in whichever way that answers."""

    def __init__(self, authorizer: IAuthorizer, credentials: Credentials) -> None:
        self.outcomes: list[Any] = []
        self._is_answered = threading.Event()
        try:
            answer = authorizer.authorize(credentials, self.tell)
        except AuthError as error:
            answer = error
        if isinstance(answer, Coroutine):
            answer = Deferred.fromCoroutine(answer)
        if isinstance(answer, Deferred):
            answer.addCallbacks(self.tell, self._fail)
        elif answer is not None:
            self.tell(answer)

    def tell(self, outcome: Rights | AuthError) -> None:
        """Answer the question, from any thread."""
        self.outcomes.append(outcome)
        self._is_answered.set()

    def _fail(self, failure: Failure) -> None:
        self.tell(failure.value)  # type: ignore[arg-type]

    @property
    def is_answered(self) -> bool:
        return self._is_answered.is_set()

    def wait(self, seconds: float) -> bool:
        """Return whether it is answered, now or soon."""
        return self._is_answered.wait(seconds)


class AuthorizerContract:
    """The duties of `IAuthorizer`."""

    good_secret = b""
    """A secret that is worth something."""
    wrong_secrets: tuple[bytes, ...] = (b"wrong", b"\x00\xff\xfe", b"(a+)+$", b"x" * MAX_SECRET_BYTES)
    """Secrets that are worth nothing; none for an authorizer that takes every secret."""
    allowed = ("publish", "orders", "")
    """Something that the good secret may do: a permission, a topic and a channel."""

    def make_authorizer(self, directory: str) -> IAuthorizer:
        """A new authorizer, that may keep files in `directory`."""
        raise NotImplementedError

    def turn(self) -> None:
        """Called while an answer is waited for, where that takes turns of a reactor the test owns."""

    @pytest.fixture
    def authorizer(self, tmp_path: Path) -> Iterator[IAuthorizer]:
        """One, closed in the end."""
        made = self.make_authorizer(str(tmp_path))
        yield made
        made.close()

    def ask(self, authorizer: IAuthorizer, secret: bytes, **facts: Any) -> Rights | AuthError:
        """Return the permissions of a client."""
        return self._outcome(Asked(authorizer, Credentials(secret, **{"remote_ip": "10.0.0.1", **facts})))

    def _outcome(self, asked: Asked) -> Rights | AuthError:
        waited = 0.0
        while not asked.is_answered:
            self.turn()
            assert waited < ANSWER_SECONDS, "no answer came"
            asked.wait(0.01)
            waited += 0.01
        outcome: Rights | AuthError = asked.outcomes[0]
        return outcome

    def test_it_is_one(self, authorizer: IAuthorizer) -> None:
        verifyObject(IAuthorizer, authorizer)

    def test_a_good_secret_is_worth_what_was_granted(self, authorizer: IAuthorizer) -> None:
        rights = self.ask(authorizer, self.good_secret)
        assert not isinstance(rights, AuthError), rights
        assert rights.count > 0
        assert rights.allows(*self.allowed)
        assert isinstance(rights.identity, str) and isinstance(rights.identity_url, str)
        assert rights.ttl is None or rights.ttl > 0

    def test_what_nobody_can_do_nobody_may_do(self, authorizer: IAuthorizer) -> None:
        rights = self.ask(authorizer, self.good_secret)
        assert not isinstance(rights, AuthError), rights
        assert not rights.allows("no such permission", *self.allowed[1:])

    def test_any_name_can_be_asked_about(self, authorizer: IAuthorizer) -> None:
        rights = self.ask(authorizer, self.good_secret)
        assert not isinstance(rights, AuthError), rights
        for name in ("", ".", "-", "a" * 63 + "!", "x#ephemeral"):
            for permission in PERMISSIONS:
                assert rights.allows(permission, name, name) in (True, False)

    def test_a_wrong_secret_is_refused(self, authorizer: IAuthorizer) -> None:
        for secret in self.wrong_secrets:
            refused = self.ask(authorizer, secret)
            assert isinstance(refused, AuthRefused), f"{secret[:20]!r}: {refused!r}"

    def test_no_secret_is_told_to_the_log(self, authorizer: IAuthorizer) -> None:
        for secret in self.wrong_secrets:
            assert secret.decode("latin-1") not in str(self.ask(authorizer, secret))

    def test_whoever_asks_is_answered_once(self, authorizer: IAuthorizer) -> None:
        secrets = [self.good_secret, *self.wrong_secrets] * 3
        asked = [Asked(authorizer, Credentials(secret)) for secret in secrets]
        for question in asked:
            self._outcome(question)
        assert [len(question.outcomes) for question in asked] == [1] * len(asked)

    def test_every_connection_can_ask(self, authorizer: IAuthorizer) -> None:
        for facts in ({"remote_ip": ""}, {"remote_ip": "::1"}, {"is_tls": True, "common_name": "ann"}):
            assert self.ask(authorizer, self.good_secret, **facts) is not None

    def test_a_reload_without_a_change_changes_nothing(self, authorizer: IAuthorizer) -> None:
        before = self.ask(authorizer, self.good_secret)
        assert authorizer.reload() in (True, False)
        after = self.ask(authorizer, self.good_secret)
        assert not isinstance(before, AuthError) and not isinstance(after, AuthError)
        assert before.allows(*self.allowed) and after.allows(*self.allowed)
