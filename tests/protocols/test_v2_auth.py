"""AUTH, and what needs it, as dialogues. The test is the door: it answers when it likes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.protocols.v2_codec import MAX_DOCUMENT_BYTES
from nsqtw.rights import Answer, Credentials, Rights, RightsListener
from tests.protocols.dialogue import (
    END,
    HEARTBEAT,
    OK,
    Frame,
    V2Harness,
    dpub,
    error,
    identify,
    int32,
    message,
    mpub,
    pub,
    response,
    sized,
)

SECRET = b"(a+)+$ \xff"
AUTH = b"AUTH\n" + sized(SECRET)


class Door:
    """Asked questions wait here until the test answers, unless it has said at once what is answered."""

    def __init__(self) -> None:
        self.questions: list[tuple[Credentials, Answer]] = []
        self.forgotten = 0
        self.guests: list[RightsListener] = []
        self.at_once: Rights | AuthError | None = None
        self.stage: Any = None

    def now(self) -> float:
        now: float = self.stage.now
        return now

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        if self.at_once is not None:
            answer(self.at_once)
            return lambda: None
        question = (credentials, answer)
        self.questions.append(question)

        def forget() -> None:
            self.forgotten += 1
            if question in self.questions:
                self.questions.remove(question)

        return forget

    def allows(self, rights: Rights, permission: str, topic: str, channel: str) -> bool:
        return rights.allows(permission, topic, channel)

    def enter(self, listener: RightsListener) -> None:
        self.guests.append(listener)

    def leave(self, listener: RightsListener) -> None:
        if listener in self.guests:
            self.guests.remove(listener)

    def answer(self, outcome: Rights | AuthError) -> None:
        """The oldest question is answered, and a turn."""
        _, answer = self.questions.pop(0)
        answer(outcome)
        self.stage.turn()


class Guarded(V2Harness):
    """A stage with a door."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.authorizations = Door()
        self.authorizations.stage = self
        self.broker.authorizations = self.authorizations


def rights(topic: str = ".*", channel: str = ".*", *permissions: str, ttl: float | None = None, **who: str) -> Grants:
    return Grants([Grant(topic, [channel], permissions or ("publish", "subscribe"))], ttl=ttl, **who)


def welcome(count: int = 1, identity: str = "", url: str = "") -> Frame:
    fields = {"identity": identity, "identity_url": url, "permission_count": count}
    return response(json.dumps(fields, separators=(",", ":")).encode())


def let_in(stage: Guarded, given: Grants | None = None) -> Any:
    """A client that has shown its secret."""
    client = stage.connect()
    client.send(AUTH)
    stage.authorizations.answer(given or rights())
    client.expect(welcome())
    return client


def test_the_answer_comes_when_the_door_knows() -> None:
    stage = Guarded()
    client, other = stage.connect("1.2.3.4:5"), stage.connect("[::1]:6")
    client.send(AUTH)
    client.expect()
    other.send(AUTH)
    ((credentials, _), (another, _)) = stage.authorizations.questions
    assert credentials == Credentials(SECRET, "1.2.3.4", False, "")
    assert another.remote_ip == "::1"
    stage.authorizations.answer(rights(identity="ann", identity_url="http://a?b&c"))
    client.expect(response(b'{"identity":"ann","identity_url":"http://a?b\\u0026c","permission_count":1}'))
    other.expect()


def test_what_follows_waits_and_is_not_read() -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(AUTH + pub(b"x"))
    client.send(pub(b"y"))
    client.expect()
    assert not client.session.wants_data
    stage.authorizations.answer(rights())
    client.expect(welcome(), OK, OK)


def test_a_client_that_waits_long_is_kept_alive() -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(AUTH)
    stage.wait(31)
    client.expect(HEARTBEAT)
    stage.wait(59)
    client.expect(HEARTBEAT)
    stage.authorizations.answer(rights())
    client.expect(welcome())


def test_one_that_is_gone_is_not_answered() -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(AUTH)
    client.vanish()
    assert (stage.authorizations.questions, stage.authorizations.forgotten) == ([], 1)


@pytest.mark.parametrize("failure", [AuthError("no server"), AuthRefused("who?")])
def test_a_failure_says_no_more_than_that(failure: AuthError) -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(AUTH + pub(b"x"))
    stage.authorizations.answer(failure)
    client.expect(error(b"E_AUTH_FAILED AUTH failed"), END)
    assert ("warn", f"PROTOCOL(V2): [1.2.3.4:5] AUTH failed {failure}") in stage.core.lines
    assert stage.broker.topics == {}


def test_no_rights_are_no_authorization() -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(AUTH)
    stage.authorizations.answer(Grants([]))
    client.expect(error(b"E_UNAUTHORIZED AUTH no authorizations found"), END)


def test_twice_is_once_too_often() -> None:
    client = let_in(Guarded())
    client.send(AUTH)
    client.expect(error(b"E_INVALID AUTH already set"), END)


def test_without_an_authorizer_there_is_no_auth() -> None:
    stage = V2Harness()
    client = stage.connect()
    client.send(AUTH)
    client.expect(error(b"E_AUTH_DISABLED AUTH disabled"), END)


@pytest.mark.parametrize(
    ("data", "verb"),
    [(pub(b"x"), b"PUB"), (mpub(b"x"), b"MPUB"), (dpub(5, b"x"), b"DPUB"), (b"SUB t c\n", b"SUB")],
)
def test_nothing_goes_before_auth(data: bytes, verb: bytes) -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(data)
    client.expect(error(b"E_AUTH_FIRST AUTH required before " + verb), END)
    assert stage.broker.topics == {}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (pub(b"x", topic=b"u"), b'PUB on "u" ""'),
        (mpub(b"x", topic=b"u"), b'MPUB on "u" ""'),
        (b"MPUB u\n", b'MPUB on "u" ""'),
        (dpub(5, b"x", topic=b"u"), b'DPUB on "u" ""'),
        (b"SUB u c\n", b'SUB on "u" "c"'),
        (b"SUB t d\n", b'SUB on "t" "d"'),
    ],
)
def test_what_is_not_granted_is_refused_and_makes_no_topic(data: bytes, what: bytes) -> None:
    stage = Guarded()
    client = let_in(stage, rights("^t$", "^c?$"))
    client.send(data)
    client.expect(error(b"E_UNAUTHORIZED AUTH failed for " + what), END)
    assert stage.broker.topics == {}


def test_what_is_granted_is_done() -> None:
    stage = Guarded()
    client = let_in(stage, rights("^t$", "^c?$"))
    client.send(pub(b"a", b"b") + mpub(b"c") + dpub(0, b"d") + b"SUB t c\n")
    client.expect(OK, OK, OK, OK, OK)
    client.send(b"RDY 9\n")
    client.expect(*map(message, (b"a", b"b", b"c", b"d")))


def test_identify_tells_that_it_is_needed() -> None:
    for stage, needed in ((Guarded(), b"true"), (V2Harness(), b"false")):
        client = stage.connect()
        client.send(identify(feature_negotiation=True))
        (answer,) = client.read()
        assert b'"auth_required":' + needed in answer.data


def test_statistics_tell_who_it_is() -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(AUTH)
    stage.authorizations.answer(rights(identity="ann", identity_url="u"))
    client.expect(welcome(1, "ann", "u"))
    known = client.session.client
    assert (known.authed, known.auth_identity, known.auth_identity_url) == (True, "ann", "u")


def test_the_log_tells_who_was_refused() -> None:
    stage = Guarded()
    client = let_in_as(stage, "ann")
    client.send(pub(b"x", topic=b"forbidden"))
    client.read()
    text = 'E_UNAUTHORIZED AUTH failed for PUB on "forbidden" ""'
    assert ("error", f"[1.2.3.4:5] - {text} (identity ann)") in stage.core.lines


def test_the_log_tells_whose_publish_was_not_stored() -> None:
    stage = Guarded()
    client = let_in_as(stage, "ann")
    client.send(pub(b"x"))
    with stage.failing_commits("no space", "t"):
        client.send(pub(b"x"))
    assert ("error", "[1.2.3.4:5] - E_PUB_FAILED PUB failed no space (identity ann)") in stage.core.lines


def let_in_as(stage: Guarded, identity: str) -> Any:
    """A client that may publish to `t` alone, and has shown its secret."""
    client = stage.connect()
    client.send(AUTH)
    stage.authorizations.answer(rights("^t$", identity=identity))
    client.read()
    return client


# -- the end of rights


@pytest.mark.parametrize(
    "data",
    [pub(b"x"), pub(b"x") + pub(b"y"), mpub(b"x"), dpub(0, b"x"), b"SUB t c\n"],
    ids=["PUB", "two", "M", "D", "S"],
)
def test_rights_that_have_ended_are_asked_for_again(data: bytes) -> None:
    stage = Guarded()
    client = let_in(stage, rights(ttl=10))
    client.send(pub(b"in time"))
    client.expect(OK)
    stage.wait(10)
    client.send(data, b"NOP\n")
    client.expect()
    ((credentials, _),) = stage.authorizations.questions
    assert credentials.secret == SECRET
    stage.authorizations.answer(rights(ttl=10))
    assert {frame.data for frame in client.read()} == {b"OK"}


def test_rights_may_be_less_the_next_time() -> None:
    stage = Guarded()
    client = let_in(stage, rights(ttl=10))
    stage.wait(10)
    client.send(mpub(b"x"))
    stage.authorizations.answer(rights("^u$", ttl=10))
    client.expect(error(b'E_UNAUTHORIZED AUTH failed for MPUB on "t" ""'), END)
    assert stage.broker.topics == {}


@pytest.mark.parametrize("failure", [AuthError("no server"), AuthRefused("who?")])
def test_rights_may_not_come_again(failure: AuthError) -> None:
    stage = Guarded()
    client = let_in(stage, rights(ttl=10))
    stage.wait(10)
    client.send(pub(b"x") + pub(b"y", topic=b"u"))
    stage.authorizations.answer(failure)
    client.expect(error(b"E_AUTH_FAILED AUTH failed"), END)
    assert stage.broker.topics == {}


def test_rights_that_end_at_once_hold_for_one_command() -> None:
    stage = Guarded()
    client = let_in(stage, rights(ttl=0.0))
    for body in (b"a", b"b"):
        client.send(pub(body) + mpub(b"c"))
        client.expect()
        stage.authorizations.answer(rights(ttl=0.0))
        client.expect(OK)
        stage.authorizations.answer(rights(ttl=0.0))
        client.expect(OK)


def test_a_door_that_answers_at_once_holds_nothing_up() -> None:
    stage = Guarded()
    stage.authorizations.at_once = rights(ttl=5)
    client = stage.connect()
    client.send(AUTH + pub(b"a") + b"SUB t c\n")
    client.expect(welcome(), OK, OK)
    publisher = stage.connect()
    publisher.send(AUTH)
    stage.wait(6)
    publisher.send(pub(b"b", b"c") + mpub(b"d"))
    publisher.expect(welcome(), OK, OK, OK)
    stage.wait(6)
    stage.authorizations.at_once = AuthRefused("gone")
    publisher.send(pub(b"e") + pub(b"f", topic=b"u"))
    publisher.expect(error(b"E_AUTH_FAILED AUTH failed"), END)


def test_a_subscription_goes_on_when_rights_have_ended() -> None:
    stage = Guarded()
    client = let_in(stage, rights(ttl=10))
    client.send(pub(b"a", b"b") + b"SUB t c\nRDY 1\n")
    client.expect(OK, OK, OK, message(b"a"))
    stage.wait(11)
    client.send(b"RDY 2\n")
    client.expect(message(b"b"))
    assert stage.authorizations.questions == []


# -- rights that may have been withdrawn


def test_who_keeps_its_rights_notices_nothing() -> None:
    stage = Guarded()
    client = let_in(stage)
    client.send(b"SUB t c\n")
    client.expect(OK)
    for listener in stage.authorizations.guests:
        listener.reconsider()
    stage.authorizations.answer(rights())
    client.send(pub(b"x"))
    client.expect(OK)


def test_a_secret_that_is_revoked_ends_the_connection() -> None:
    stage = Guarded()
    client = let_in(stage)
    client.send(b"SUB t c\n")
    client.expect(OK)
    stage.authorizations.guests[0].reconsider()
    stage.authorizations.answer(AuthRefused("no client has this secret"))
    client.expect(error(b"E_AUTH_FAILED AUTH failed"), END)
    assert stage.authorizations.guests == []


def test_a_right_that_is_withdrawn_ends_what_was_done_with_it() -> None:
    stage = Guarded()
    client, publisher = let_in(stage), let_in(stage)
    client.send(b"SUB t c\n")
    client.expect(OK)
    for listener in stage.authorizations.guests:
        listener.reconsider()
    stage.authorizations.answer(rights(".*", ".*", "publish"))
    stage.authorizations.answer(rights(".*", ".*", "publish"))
    client.expect(error(b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"'), END)
    publisher.send(pub(b"x"))
    publisher.expect(OK)


def test_a_command_meanwhile_does_not_save_a_subscription() -> None:
    stage = Guarded()
    client = let_in(stage)
    client.send(b"SUB t c\n")
    client.expect(OK)
    stage.authorizations.guests[0].reconsider()
    client.send(pub(b"x"))
    assert (len(stage.authorizations.questions), stage.authorizations.forgotten) == (1, 1)
    stage.authorizations.answer(rights(".*", ".*", "publish"))
    client.expect(error(b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"'), END)


# -- bounds


@pytest.mark.parametrize("verb", [b"AUTH", b"IDENTIFY"])
def test_a_body_has_a_bound_below_that_of_messages(verb: bytes) -> None:
    stage = Guarded()
    client = stage.connect()
    client.send(verb + b"\n" + int32(MAX_DOCUMENT_BYTES + 1))
    text = f"E_BAD_BODY {verb.decode()} body too big {MAX_DOCUMENT_BYTES + 1} > {MAX_DOCUMENT_BYTES}"
    client.expect(error(text.encode()), END)
    small = Guarded(max_body_size=10).connect()
    small.send(verb + b"\n" + int32(11))
    small.expect(error(f"E_BAD_BODY {verb.decode()} body too big 11 > 10".encode()), END)


def test_any_number_of_topics_can_be_published_to() -> None:
    stage = Guarded()
    client = let_in(stage)
    for number in range(1100):
        client.send(pub(b"x", topic=b"t%d" % number))
    assert len(client.read()) == 1100
    assert len(client.session._client_auth._granted) < 1100


def test_no_line_of_the_log_has_the_secret() -> None:
    stage = Guarded(log_level=1)
    client = stage.connect()
    client.send(b"AUTH\n" + sized(b"hunter2hunter2"), b"AUTH hunter2\n")
    stage.authorizations.answer(rights(ttl=1))
    stage.wait(2)
    client.send(pub(b"x"))
    if stage.authorizations.questions:
        stage.authorizations.answer(AuthRefused("no"))
    assert not [line for line in stage.core.lines if "hunter" in line[1]]
    assert "hunter" not in repr(Credentials(b"hunter2"))
