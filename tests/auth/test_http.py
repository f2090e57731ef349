"""What auth servers are asked, and what is made of what they answer."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock

from nsqtw.auth.http import MAX_ANSWER_BYTES, HttpAuthorizer
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.rights import Credentials, Rights
from tests.auth.fake_agent import FakeAgent, Sent, answered, authorizer_with, rights_document

APPLICANT = Credentials(b"sec ret&=\xff", "127.0.0.1", True, "ann")


def asked(authorizer: HttpAuthorizer, credentials: Credentials = APPLICANT) -> list[Any]:
    """What comes of a question, once it does."""
    outcomes: list[Any] = []
    asking = Deferred.fromCoroutine(authorizer.authorize(credentials, outcomes.append))
    asking.addCallbacks(outcomes.append, lambda failure: outcomes.append(failure.value))
    return outcomes


def outcome(*served: Any, addresses: tuple[str, ...] = ("auth:80",), **options: Any) -> Rights | AuthError:
    """What comes of a question to servers that give these answers, one after the other."""
    answers = list(served)
    agent = FakeAgent(lambda request: answers.pop(0))
    (found,) = asked(authorizer_with(agent, *addresses, **options))
    result: Rights | AuthError = found
    return result


def test_a_get_has_it_all_in_the_query() -> None:
    agent = FakeAgent(lambda request: answered(200, rights_document(identity="ann")))
    (rights,) = asked(authorizer_with(agent, "auth:4181"))
    assert (rights.identity, rights.count, rights.ttl) == ("ann", 1, 60.0)
    (sent,) = agent.sent
    query = b"common_name=ann&remote_ip=127.0.0.1&secret=sec+ret%26%3D%FF&tls=true"
    assert (sent.method, sent.uri) == (b"GET", b"http://auth:4181/auth?" + query)
    assert sent.headers.getRawHeaders("Accept") == ["application/vnd.nsq; version=1.0"]
    assert sent.headers.getRawHeaders("Accept-Encoding") is None


def test_a_post_has_it_as_json() -> None:
    agent = FakeAgent(lambda request: answered(200, rights_document()))
    asked(authorizer_with(agent, "http://auth/door", auth_http_request_method="post"))
    (sent,) = agent.sent
    assert (sent.method, sent.uri) == (b"POST", b"http://auth/door")
    assert sent.headers.getRawHeaders("Content-Type") == ["application/json"]
    wanted = b'{"common_name": ["ann"], "remote_ip": ["127.0.0.1"], "secret": ["sec ret&=\\ufffd"], "tls": ["true"]}'
    assert sent.body == wanted


def test_user_and_password_of_an_address_become_a_credential_of_the_request() -> None:
    agent = FakeAgent(lambda request: answered(200, rights_document()))
    asked(authorizer_with(agent, "http://us%65r:pass@auth/door"))
    (sent,) = agent.sent
    assert sent.uri.startswith(b"http://auth/door?")
    assert sent.headers.getRawHeaders("Authorization") == ["Basic dXNlcjpwYXNz"]


def test_every_server_is_asked_until_one_gives_rights() -> None:
    hosts: list[bytes] = []

    def serve(request: Sent) -> Any:
        hosts.append(request.uri.split(b"/")[2])
        return answered(200, rights_document()) if len(hosts) == 3 else answered(500, b"oops")

    (rights,) = asked(authorizer_with(FakeAgent(serve), "a", "b", "c"))
    assert rights.count == 1
    assert sorted(hosts) == [b"a", b"b", b"c"]


def test_where_it_starts_is_left_to_chance() -> None:
    first = set()
    for _ in range(200):
        agent = FakeAgent(lambda request: answered(200, rights_document()))
        asked(authorizer_with(agent, "a", "b"))
        first.add(agent.sent[0].uri[:9])
    assert first == {b"http://a/", b"http://b/"}


def test_why_all_of_them_failed_is_said_without_any_secret() -> None:
    failed = outcome(answered(500, b"sec ret"), ConnectionRefusedError(), addresses=("http://u:pw@a/x?key=k", "b:1"))
    assert type(failed) is AuthError
    text = str(failed)
    assert "failed to auth against http://***@a/x?*** - " in text
    assert "failed to auth against b:1 - " in text
    assert "got response 500" in text and "refused" in text
    assert not any(secret in text for secret in ("pw", "key", "sec", "ret&"))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_one_when_every_server_refuses(status: int) -> None:
    assert isinstance(outcome(answered(status)), AuthRefused)
    failed = outcome(answered(status), answered(500), addresses=("a", "b"))
    assert type(failed) is AuthError


@pytest.mark.parametrize(
    ("served", "why"),
    [
        (b"not json", "the answer is no JSON"),
        (b"", "the answer is no JSON"),
        (b"[" * 100_000, "the answer is no JSON"),
        (b'{"ttl": NaN}', "the answer is no JSON"),
        (b"9" * 10_000, "the answer is no JSON"),
        ([], "the answer is no dict"),
        (None, "invalid TTL 0 (must be >0)"),
        ({}, "invalid TTL 0 (must be >0)"),
        (rights_document(ttl=0), "invalid TTL 0"),
        (rights_document(ttl=-5), "invalid TTL -5"),
        (rights_document(ttl=1.5), "ttl is no int"),
        (rights_document(ttl=True), "ttl is no int"),
        (rights_document(ttl="60"), "ttl is no int"),
        (rights_document(identity=5), "identity is no str"),
        (rights_document(authorizations={}), "authorizations is no list"),
        (rights_document(authorizations=[5]), "an authorization is no dict"),
        (rights_document(authorizations=[{"topic": 5}]), "topic is no str"),
        (rights_document(authorizations=[{"channels": [5]}]), "one of channels is no str"),
        (rights_document(authorizations=[{"permissions": ["everything"]}]), "unknown permission 'everything'"),
        (rights_document(authorizations=[{"topic": "("}]), "pattern '(' cannot be used"),
        (rights_document(authorizations=[{"topic": "", "channels": ["x"] * 10_000}]), "10001 patterns"),
        (b"x" * (MAX_ANSWER_BYTES + 1), f"the answer has more than {MAX_ANSWER_BYTES} bytes"),
    ],
)
def test_what_is_no_good_answer_gives_nothing(served: Any, why: str) -> None:
    failed = outcome(answered(200, served))
    assert type(failed) is AuthError
    assert f"failed to auth against auth:80 - {why}" in str(failed)
    assert len(str(failed)) < 300


def test_keys_match_in_any_case_and_null_is_nothing() -> None:
    document = {"TTL": 5, "Identity": None, "identity_URL": "u", "AUTHORIZATIONS": [None, {"Topic": "t"}], "more": 1}
    rights = outcome(answered(200, document))
    assert not isinstance(rights, AuthError)
    assert (rights.ttl, rights.identity, rights.identity_url, rights.count) == (5.0, "", "u", 2)
    assert not rights.allows("publish", "t", "")


def test_an_endless_answer_is_cut_off() -> None:
    response = answered(200, b"x" * (2 * MAX_ANSWER_BYTES), is_endless=True)
    assert isinstance(outcome(response), AuthError)
    assert response.is_broken_off


def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    failed = outcome(answered(200, bomb, Content_Encoding="gzip"))
    assert "the answer is no JSON" in str(failed)


def test_a_server_that_never_answers_is_given_up() -> None:
    clock = Clock()
    cancelled: list[Deferred[Any]] = []
    agent = FakeAgent(lambda request: Deferred(cancelled.append))
    outcomes = asked(authorizer_with(agent, "a", "b", clock=clock, http_client_request_timeout=5.0))
    clock.advance(4.9)
    assert (len(agent.sent), outcomes) == (1, [])
    clock.advance(0.1)
    assert (len(agent.sent), outcomes) == (2, [])
    clock.advance(5.0)
    (failed,) = outcomes
    assert str(failed).count("no answer in 5 s") == 2
    assert len(cancelled) == 2
    assert clock.getDelayedCalls() == []


def test_a_server_that_drips_is_given_up_too() -> None:
    clock = Clock()
    response = answered(200, b"{", is_endless=True)
    outcomes = asked(authorizer_with(FakeAgent(lambda request: response), clock=clock))
    clock.advance(5.0)
    assert "no answer in 5 s" in str(outcomes[0])
    assert response.is_broken_off


def test_who_does_not_wait_any_more_ends_the_request() -> None:
    cancelled: list[Deferred[Any]] = []
    agent = FakeAgent(lambda request: Deferred(cancelled.append))
    authorizer = authorizer_with(agent, "a:1", "b:1", "c:1")
    asking = Deferred.fromCoroutine(authorizer.authorize(APPLICANT, lambda outcome: None))
    asking.addErrback(lambda failure: None)
    asking.cancel()
    assert (len(cancelled), len(agent.sent)) == (1, 1)


def test_403_may_say_where_https_is() -> None:
    agent = FakeAgent(
        lambda request: (
            answered(200, rights_document())
            if request.uri.startswith(b"https:")
            else answered(403, {"message": "TLS_REQUIRED", "https_port": 4443})
        )
    )
    (rights,) = asked(authorizer_with(agent, "auth:80"))
    assert rights.count == 1
    assert agent.sent[1].uri.startswith(b"https://auth:4443/auth?common_name=ann&")


@pytest.mark.parametrize(
    ("status", "method"), [(301, b"GET"), (302, b"GET"), (303, b"GET"), (307, b"POST"), (308, b"POST")]
)
def test_redirects_are_followed(status: int, method: bytes) -> None:
    agent = FakeAgent(
        lambda request: (
            answered(200, rights_document())
            if request.uri == b"http://other/here"
            else answered(status, Location="//other/here")
        )
    )
    (rights,) = asked(authorizer_with(agent, auth_http_request_method="post"))
    assert rights.count == 1
    assert [sent.method for sent in agent.sent] == [b"POST", method]
    assert bool(agent.sent[1].body) is (method == b"POST")


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/auth", "stopped after 10 redirects"),
        ("ftp://a/", "redirected to what is no URL of HTTP"),
        ("http://[", "is no URL"),
    ],
)
def test_not_every_redirect_is_followed(location: str, why: str) -> None:
    agent = FakeAgent(lambda request: answered(302, Location=location))
    (failed,) = asked(authorizer_with(agent))
    assert why in str(failed)
    assert len(agent.sent) <= 11


def test_a_secret_never_goes_from_https_to_http() -> None:
    agent = FakeAgent(lambda request: answered(307, Location="http://auth/"))
    (failed,) = asked(authorizer_with(agent, "https://auth/", auth_http_request_method="post"))
    assert "redirected from HTTPS to HTTP" in str(failed)
    assert len(agent.sent) == 1
