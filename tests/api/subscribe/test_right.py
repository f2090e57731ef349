"""Rights of requests that last: asked for again when they end or may have changed."""

from __future__ import annotations

import pytest

from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError
from tests.api.subscribe.harness import ABOUT, EventSource, Poll, SubscribeWeb, WebSocketClient
from tests.http.test_bearer_auth import GuardedWeb, grants

SECRET = {"Authorization": "Bearer ann"}


class GuardedSubscribeWeb(SubscribeWeb, GuardedWeb):
    """A broker with an authorizer that knows ann, and bob, who may create topics and channels."""

    def __init__(self, **known: Grants | AuthError) -> None:
        GuardedWeb.__init__(self, options={"http_subscribe": True}, bob=grants(), **known)
        for path in ("/topic/create?topic=t", f"/channel/create?{ABOUT}"):
            assert self.bearing("bob", "POST", path).status == 200

    def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            assert self.bearing("bob", "POST", "/pub?topic=t", body).status == 200

    def reconsider(self) -> None:
        """Grants may have changed."""
        for guest in list(self.authorizations.guests):
            guest.reconsider()
        self.turn()


def reader(ttl: float | None = None) -> Grants:
    return Grants([Grant("^t$", ["^c$"], ["subscribe"])], identity="ann", ttl=ttl)


@pytest.mark.parametrize("permission", ["publish", "admin"])
def test_every_endpoint_needs_the_right_to_the_channel(permission: str) -> None:
    web = GuardedSubscribeWeb(ann=grants(".*", ".*", permission), eve=grants("^t$", "^d$", "subscribe"))
    for secret in ("ann", "eve"):
        for method, name in (
            *(("POST", name) for name in ("poll", "finish", "requeue", "touch")),
            *(("GET", name) for name in ("events", "websocket")),
        ):
            reply = web.bearing(secret, method, f"/v2/subscribe/{name}?{ABOUT}")
            assert reply.outcome == (403, "FORBIDDEN")
    assert web.core.channel().consumers == []


def test_the_identity_is_shown() -> None:
    web = GuardedSubscribeWeb(ann=reader())
    stream = EventSource(web, **SECRET)
    assert stream.is_stream
    (consumer,) = web.core.channel().consumers
    assert (consumer.client.auth_identity, consumer.client.authed) == ("ann", True)


def test_polls_of_different_identities_share_no_consumer() -> None:
    web = GuardedSubscribeWeb(ann=reader())
    polls = [Poll(web, "", Authorization=f"Bearer {secret}") for secret in ("ann", "ann", "bob")]
    assert [poll.reply for poll in polls] == [None, None, None]
    assert [consumer.client.auth_identity for consumer in web.core.channel().consumers] == ["ann", ""]


def test_a_withdrawn_right_ends_everything() -> None:
    web = GuardedSubscribeWeb(ann=reader())
    web.publish(b"a", b"b", b"c")
    stream, client = EventSource(web, **SECRET), WebSocketClient(web, **SECRET)
    assert len(stream.messages()) == len(client.messages()) == 1
    poll = Poll(web, "&msg_timeout=30s", **SECRET)
    assert poll.bodies == ["c"]
    poll = Poll(web, "&msg_timeout=30s", **SECRET)
    assert poll.reply is None
    web.authorizations.known["ann"] = grants("^t$", "^d$", "subscribe")
    web.reconsider()
    assert stream.read() == b'event: end\ndata: {"error":"FORBIDDEN"}\n\n'
    assert client.close_code() == (1008, "FORBIDDEN")
    assert poll.reply is not None and poll.reply.outcome == (403, "FORBIDDEN")
    assert web.counts == (2, 1), "what a poll has got stays in flight"
    assert len(web.authorizations.guests) == 1


def test_a_right_that_stays_changes_nothing() -> None:
    web = GuardedSubscribeWeb(ann=reader())
    stream = EventSource(web, **SECRET)
    web.reconsider()
    web.publish(b"a")
    assert len(stream.messages()) == 1
    stream.browser.lose()
    assert len(web.authorizations.guests) == 1


def test_a_right_is_asked_for_again_when_it_ends() -> None:
    web = GuardedSubscribeWeb(ann=reader(ttl=5.0))
    stream = EventSource(web, **SECRET)
    asked = len(web.authorizations.asked)
    web.wait(4)
    assert len(web.authorizations.asked) == asked
    web.wait(1)
    assert len(web.authorizations.asked) == asked + 1
    assert stream.read() == b""
    web.authorizations.known["ann"] = AuthError("cannot tell")
    web.wait(5)
    assert stream.read() == b'event: end\ndata: {"error":"AUTH_FAILED"}\n\n'


def test_an_answer_that_comes_late_ends_nothing_any_more() -> None:
    web = GuardedSubscribeWeb(ann=reader())
    stream = EventSource(web, **SECRET)
    web.authorizations.held = []
    web.authorizations.known.pop("ann")
    web.reconsider()
    stream.browser.lose()
    web.authorizations.release()
    web.turn()
    assert not web.core.channel().consumers
