"""HTTP's door: which request needs which credential, and what a page of another site may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsqtw.api.site import broker_site
from nsqtw.auth.authorization import PluginAuthorizations as HonestDoor
from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AuthError, AuthRefused
from nsqtw.http import bearer_auth as http_door
from nsqtw.http.bearer_auth import FREE
from nsqtw.http.routes import Route
from nsqtw.rights import MAX_SECRET_BYTES, Answer, Credentials, Rights, RightsListener
from tests.http.broker_fixture import HTTP_PORT, OK, TCP_PORT, VERSION_LINE, Log, Reply, Web, request

pytestmark = pytest.mark.usefixtures("heads")

EVERYTHING = ("publish", "subscribe", "admin")
REQUIRED, REFUSED = (401, "CREDENTIAL_REQUIRED"), (401, "CREDENTIAL_REFUSED")
FORBIDDEN, CANNOT_TELL = (403, "FORBIDDEN"), (503, "AUTH_FAILED")
CROSS_ORIGIN = (403, "CROSS_ORIGIN")


class PluginAuthorizations:
    """Knows secrets by what the test says; holds answers back when it is told to."""

    def __init__(self, web: Web, **known: Grants | AuthError) -> None:
        self._web = web
        self.known: dict[str, Any] = known
        self.asked: list[Credentials] = []
        self.held: list[Callable[[], None]] | None = None
        self.guests: list[RightsListener] = []

    def now(self) -> float:
        return self._web.core.now

    def ask(self, credentials: Credentials, answer: Answer) -> Callable[[], None]:
        self.asked.append(credentials)
        outcome = self.known.get(credentials.secret.decode("latin-1"), AuthRefused("who?"))
        if self.held is None:
            answer(outcome)
        else:
            self.held.append(lambda: answer(outcome))
        return lambda: None

    def release(self) -> None:
        """Answer what was held back."""
        held, self.held = self.held or [], None
        for answer in held:
            answer()

    def allows(self, rights: Rights, permission: str, topic: str, channel: str) -> bool:
        return rights.allows(permission, topic, channel)

    def enter(self, listener: RightsListener) -> None:
        self.guests.append(listener)

    def leave(self, listener: RightsListener) -> None:
        self.guests.remove(listener)


class Knows:
    """An authorizer that gives everybody the same."""

    def __init__(self, given: Grants) -> None:
        self._given = given

    def authorize(self, credentials: Credentials, answer: Answer) -> Grants:
        return self._given

    def reload(self) -> bool:
        return False

    def close(self) -> None:
        pass


def wait(web: Web, seconds: int) -> None:
    for _ in range(seconds):
        web.core.now += 1
        web.clock.advance(1)


class GuardedWeb(Web):
    """A web with a door. Its credentials are the names of `known`."""

    def __init__(self, options: dict[str, Any] | None = None, **known: Any) -> None:
        super().__init__(**{"auth": "test", **(options or {})})
        self.authorizations = PluginAuthorizations(self, **known)
        self.broker.authorizations = self.authorizations
        self.site = broker_site(
            self.broker,
            self.pump,
            tcp_port=TCP_PORT,
            http_port=HTTP_PORT,
            version_line=VERSION_LINE,
        )

    def bearing(self, secret: str, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        return self.ask(method, target, body, Authorization=f"Bearer {secret}", **headers)


def grants(topic: str = ".*", channel: str = ".*", *permissions: str, ttl: float | None = None) -> Grants:
    return Grants([Grant(topic, [channel], permissions or EVERYTHING)], ttl=ttl)


HEALTH = (b"/ping", b"/livez", b"/readyz")
"""Open to everybody."""


def routes(web: Web) -> list[Route]:
    return list(web.site.routes._routes.values())


def test_every_route_but_those_of_health_needs_a_credential() -> None:
    web = GuardedWeb()
    for route in routes(web):
        reply = web.ask(route.method.decode(), route.path.decode() + "?topic=t&channel=c", b"x")
        if route.path in HEALTH:
            assert reply.status == 200
            assert route.needs == FREE
        else:
            assert reply.outcome == REQUIRED, route
            assert reply.headers["www-authenticate"] == 'Bearer realm="nsqd"'
    assert web.broker.topics == {}
    assert web.authorizations.asked == []


def test_the_log_tells_who_asked() -> None:
    """Of what is changed, and of what is refused, publishes too."""
    ann = Grants([Grant("^t$", [".*"], EVERYTHING)], identity="ann")
    web = GuardedWeb(ann=ann)
    with Log() as lines:
        web.bearing("ann", "POST", "/topic/create?topic=t")
        web.bearing("ann", "POST", "/topic/delete?topic=s")
        web.bearing("ann", "POST", "/pub?topic=s", b"x")
        web.bearing("ann", "POST", "/pub?topic=t", b"")
        web.bearing("ann", "POST", "/pub?topic=t", b"x")
        web.bearing("nobody", "POST", "/pub?topic=t", b"x")
        web.ask("POST", "/mpub?topic=t", b"x")
    asked = [line.removeprefix("info: ") for line in lines if "127.0.0.1:40974" in line]
    assert asked == [
        "200 POST /topic/create?topic=t (127.0.0.1:40974) 0s (identity ann)",
        "403 POST /topic/delete?topic=s (127.0.0.1:40974) 0s (identity ann)",
        "403 POST /pub?topic=s (127.0.0.1:40974) 0s - FORBIDDEN (identity ann)",
        "400 POST /pub?topic=t (127.0.0.1:40974) 0s - MSG_EMPTY (identity ann)",
        "401 POST /pub?topic=t (127.0.0.1:40974) 0s - CREDENTIAL_REFUSED",
        "401 POST /mpub?topic=t (127.0.0.1:40974) 0s - CREDENTIAL_REQUIRED",
    ]


def test_no_route_takes_a_wrong_credential() -> None:
    web = GuardedWeb(down=AuthError("no server"), none=Grants([]))
    for route in routes(web):
        if route.path not in HEALTH:
            target = route.path.decode() + "?topic=t&channel=c"
            assert web.bearing("wrong", route.method.decode(), target, b"x").outcome == REFUSED
            assert web.bearing("down", route.method.decode(), target, b"x").outcome == CANNOT_TELL
            assert web.bearing("none", route.method.decode(), target, b"x").outcome == FORBIDDEN
    assert web.broker.topics == {}


def test_who_may_only_publish_can_publish_and_look() -> None:
    web = GuardedWeb(p=grants("^t$", "^$", "publish"))
    assert web.bearing("p", "POST", "/pub?topic=t", b"x").status == 200
    web.core.channel()  # what is published for one channel needs it
    for route in routes(web):
        reply = web.bearing("p", route.method.decode(), route.path.decode() + "?topic=t&channel=c", b"x")
        may = route.path in (*HEALTH, b"/info", b"/stats", b"/metrics", b"/v2/openapi.json", b"/pub", b"/mpub")
        if route.path == b"/v2/topic/cancel":  # of what its holder published
            assert reply.outcome == (400, "MISSING_ARG_ID")
            continue
        assert (reply.status == 200) is may, route
        assert may or reply.outcome == FORBIDDEN
    assert web.bearing("p", "POST", "/pub?topic=u", b"x").outcome == FORBIDDEN
    assert web.bearing("p", "POST", "/pub", b"x").outcome == FORBIDDEN
    assert set(web.broker.topics) == {"t"}


def test_an_administrator_of_a_topic_is_none_of_the_broker() -> None:
    web = GuardedWeb(a=grants("^t$", "^c?$", "admin"), all=grants())
    assert web.bearing("a", "POST", "/topic/create?topic=t").status == 200
    assert web.bearing("a", "POST", "/channel/create?topic=t&channel=c").status == 200
    assert web.bearing("a", "POST", "/channel/create?topic=t&channel=d").outcome == FORBIDDEN
    assert web.bearing("a", "POST", "/topic/create?topic=u").outcome == FORBIDDEN
    assert web.bearing("a", "GET", "/config/log_level?topic=t").outcome == FORBIDDEN
    assert web.bearing("a", "POST", "/pub?topic=t", b"x").outcome == FORBIDDEN
    assert web.bearing("all", "GET", "/config/log_level").status == 200


def test_an_administrator_of_a_topic_moves_its_channels_and_says_what_it_keeps() -> None:
    web = GuardedWeb(a=grants("^t$", "^c?$", "admin"), s=grants("^t$", "^c?$", "subscribe"))
    seek, retention = "/v2/channel/seek?to=latest&topic={}&channel={}", "/v2/topic/retention?time=1h&topic={}"
    assert web.bearing("a", "POST", "/topic/create?topic=t").status == 200
    assert web.bearing("a", "POST", "/channel/create?topic=t&channel=c&start=earliest").status == 200
    assert web.bearing("a", "POST", seek.format("t", "c")).status == 200
    assert web.bearing("a", "POST", retention.format("t")).status == 200
    for secret, target in (
        ("a", seek.format("t", "d")),
        ("a", seek.format("u", "c")),
        ("a", retention.format("u")),
        ("s", seek.format("t", "c")),
        ("s", retention.format("t")),
    ):
        assert web.bearing(secret, "POST", target).outcome == FORBIDDEN, target


def test_who_may_subscribe_may_look_at_what_would_come() -> None:
    web = GuardedWeb(
        all=grants(),
        reader=grants("^t$", ".*", "subscribe"),
        mail=grants("^t$", "^mail$", "subscribe"),
        a=grants("^t$", ".*", "admin"),
    )
    for channel in ("mail", "audit"):
        web.bearing("all", "POST", "/topic/create?topic=t")
        web.bearing("all", "POST", f"/channel/create?topic=t&channel={channel}")
    whole = [f"/v2/topic/{what}?topic=t" for what in ("log", "log/range", "log/lag", "messages")]
    mail, audit = (f"/v2/channel/messages?topic=t&channel={channel}" for channel in ("mail", "audit"))
    for target in (*whole, mail, audit):
        assert web.bearing("reader", "GET", target).status == 200, target
        assert web.bearing("reader", "GET", target.replace("=t", "=u")).outcome == FORBIDDEN, target
        assert web.bearing("a", "GET", target).outcome == FORBIDDEN, target
    assert web.bearing("mail", "GET", mail).status == 200
    for target in (*whole, audit):
        assert web.bearing("mail", "GET", target).outcome == FORBIDDEN, "what only others get"


def test_a_channel_that_is_named_beside_does_not_help_with_a_topic() -> None:
    web = GuardedWeb(a=grants("^t$", "^c$", "admin"))
    web.broker.topic("t")
    assert web.bearing("a", "POST", "/topic/delete?topic=t&channel=c").outcome == FORBIDDEN
    assert "t" in web.broker.topics


@pytest.mark.parametrize(
    "target", ["/pub?topic=%ff", "/topic/create?topic=t%ed%a0%80", "/channel/create?topic=t&channel=%ff"]
)
def test_bytes_that_are_no_name_are_no_failure(target: str) -> None:
    everything = Grants([Grant(".*", [".*"], EVERYTHING)])
    web = GuardedWeb(a=everything)
    web.broker.authorizations = HonestDoor(web.pump.reactor, Knows(everything), web.pump.now)
    web.site = broker_site(web.broker, web.pump, tcp_port=TCP_PORT, http_port=HTTP_PORT, version_line=VERSION_LINE)
    assert web.bearing("a", "POST", target, b"x").status == 400


def test_the_first_topic_counts_for_the_door_as_for_the_handler() -> None:
    web = GuardedWeb(p=grants("^t$", "^$", "publish"))
    assert web.bearing("p", "POST", "/pub?topic=u&topic=t", b"x").outcome == FORBIDDEN
    assert web.bearing("p", "POST", "/pub?topic=t&topic=u", b"x").status == 200
    assert set(web.broker.topics) == {"t"}


@pytest.mark.parametrize(
    ("field", "outcome"),
    [
        ("", REQUIRED),
        ("Bearer", REQUIRED),
        ("Bearer  ", REQUIRED),
        ("Basic c2VjcmV0", REQUIRED),
        ("secret", REQUIRED),
        ("Bearer secre", REFUSED),
        ("Bearer secret2", REFUSED),
        ("Bearer " + "x" * (MAX_SECRET_BYTES + 1), REFUSED),
        ("Bearer secret", None),
        ("bearer secret", None),
        ("BEARER   secret ", None),
    ],
)
def test_the_credential_is_the_secret_of_auth(field: str, outcome: tuple[int, str] | None) -> None:
    web = GuardedWeb(secret=grants())
    reply = web.ask("GET", "/stats", Authorization=field)
    assert reply.outcome == outcome if outcome else reply.status == 200


def test_a_credential_said_twice_is_none() -> None:
    web = GuardedWeb(secret=grants())
    browser = web.connect()
    field = b"Authorization: Bearer secret\r\n"
    browser.send(b"GET /stats HTTP/1.1\r\nHost: a\r\n" + field + field + b"\r\n")
    (reply,) = browser.read()
    assert reply.outcome == REFUSED


def test_the_door_is_asked_once_while_rights_last() -> None:
    web = GuardedWeb(short=grants(ttl=10), long=grants(ttl=3600))
    for secret, seconds in (("short", 10), ("long", 60)):
        web.authorizations.asked.clear()
        for _ in range(3):
            assert web.bearing(secret, "POST", "/pub?topic=t", b"x").status == 200
        assert len(web.authorizations.asked) == 1
        web.core.now += seconds
        web.bearing(secret, "POST", "/pub?topic=t", b"x")
        assert len(web.authorizations.asked) == 2


def test_what_was_withdrawn_is_forgotten_at_a_reload() -> None:
    web = GuardedWeb(a=grants())
    assert web.bearing("a", "GET", "/stats").status == 200
    del web.authorizations.known["a"]
    assert web.bearing("a", "GET", "/stats").status == 200
    for listener in web.authorizations.guests:
        listener.reconsider()
    assert web.bearing("a", "GET", "/stats").outcome == REFUSED


def test_what_was_withdrawn_publishes_no_more_on_a_connection_that_has_published() -> None:
    """A head that is known, with the credential in it, is let in no longer than one that is read."""
    web = GuardedWeb(secret=grants())
    browser = web.connect()
    data = request("POST", "/pub?topic=t", b"x", Authorization="Bearer secret")
    outcomes = []
    with Log() as lines:
        for known in ({"secret": grants()}, {"secret": grants("^u$")}, {}, {"secret": grants()}):
            web.authorizations.known = known
            for listener in web.authorizations.guests:
                listener.reconsider()
            for _ in range(3):
                browser.send(data)
                outcomes += [reply.outcome for reply in browser.read()]
    assert outcomes == [OK] * 3 + [FORBIDDEN] * 3 + [REFUSED] * 3 + [OK] * 3
    assert web.bodies() == [b"x"] * 6
    assert not any("secret" in line for line in lines)


def test_an_answer_from_before_a_reload_is_not_remembered() -> None:
    web = GuardedWeb(a=grants())
    web.authorizations.held = []
    browser = web.connect()
    browser.send(request("GET", "/stats", Authorization="Bearer a"))
    web.authorizations.guests[0].reconsider()
    web.authorizations.release()
    assert browser.read()[0].status == 200
    del web.authorizations.known["a"]
    assert web.bearing("a", "GET", "/stats").outcome == REFUSED


def test_requests_wait_for_one_answer_and_nobody_else() -> None:
    web = GuardedWeb(a=grants())
    web.authorizations.held = []
    waiting = [web.connect(), web.connect()]
    for browser in waiting:
        browser.send(request("POST", "/pub?topic=t", b"x", Authorization="Bearer a"))
        assert browser.read() == []
    assert web.get("/ping").status == 200
    assert web.broker.topics == {}
    web.authorizations.release()
    assert [browser.read()[0].outcome for browser in waiting] == [(200, "OK")] * 2
    assert len(web.authorizations.asked) == 1


def test_a_body_comes_in_while_the_door_is_asked() -> None:
    web = GuardedWeb(a=grants(), options={"max_msg_size": 10})
    web.authorizations.held = []
    browser = web.connect()
    whole = request("POST", "/pub?topic=t", b"0123456789", Authorization="Bearer a")
    for at in range(len(whole)):
        browser.send(whole[at : at + 1])
    assert browser.read() == []
    web.authorizations.release()
    assert browser.read()[0].status == 200
    assert web.bodies() == [b"0123456789"]


@pytest.mark.parametrize("secret", ["a", "wrong"])
@pytest.mark.parametrize("first", [-5, None])
def test_nothing_more_is_read_until_the_door_has_answered(first: int | None, secret: str) -> None:
    """Bodies of those who have no credential would fill the memory."""
    web = GuardedWeb(a=grants())
    web.authorizations.held = []
    browser = web.connect()
    whole = request("POST", "/pub?topic=t", b"0123456789", Authorization=f"Bearer {secret}")
    browser.send(whole[:first])
    assert browser.transport.producerState == "paused"
    web.authorizations.release()
    assert browser.transport.producerState == "producing"
    if first is not None:
        browser.send(whole[first:])
    assert [reply.status for reply in browser.read()] == [200 if secret == "a" else 401]
    assert browser.ask("GET", "/ping").status == 200


def test_a_body_has_all_its_time_after_the_door_has_answered() -> None:
    """What is not read meanwhile cannot come."""
    web = GuardedWeb(a=grants(), options={"body_timeout": 5.0})
    web.authorizations.held = []
    browser = web.connect()
    whole = request("POST", "/pub?topic=t", b"0123456789", Authorization="Bearer a")
    browser.send(whole[:-5])
    wait(web, 30)
    web.authorizations.release()
    wait(web, 2)
    browser.send(whole[-5:])
    assert [reply.status for reply in browser.read()] == [200]


def test_one_that_is_refused_late_gets_its_answer_and_nothing_is_done() -> None:
    web = GuardedWeb()
    web.authorizations.held = []
    browser = web.connect()
    head, body = request("POST", "/pub?topic=t", b"0123456789", Authorization="Bearer a").split(b"0123", 1)
    browser.send(head + b"0123")
    web.authorizations.release()
    assert browser.read()[0].outcome == REFUSED
    browser.send(body + request("GET", "/ping"))
    assert browser.read()[0].status == 200
    assert web.broker.topics == {}


def test_one_that_has_left_is_not_served() -> None:
    web = GuardedWeb(a=grants())
    web.authorizations.held = []
    browser = web.connect()
    browser.send(request("POST", "/pub?topic=t", b"x", Authorization="Bearer a"))
    browser.lose()
    web.authorizations.release()
    web.turn()
    assert web.broker.topics == {}


def test_how_many_are_asked_about_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "MAX_ASKED", 2)
    web = GuardedWeb(a=grants())
    web.authorizations.held = []
    for secret in ("b", "c"):
        web.connect().send(request("GET", "/stats", Authorization=f"Bearer {secret}"))
    assert web.bearing("d", "GET", "/stats").outcome == CANNOT_TELL


def test_how_many_are_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "REMEMBERED", 2)
    web = GuardedWeb(**{name: grants() for name in "abc"})
    for secret in "abcc":
        assert web.bearing(secret, "GET", "/stats").status == 200
    assert len(web.authorizations.asked) == 3
    web.bearing("a", "GET", "/stats")
    assert len(web.authorizations.asked) == 4


def test_no_secret_is_logged() -> None:
    web = GuardedWeb(hunter1=grants())
    with Log() as lines:
        web.bearing("hunter1", "GET", "/stats")
        web.bearing("hunter2", "GET", "/stats")
    assert "warn: HTTP: (127.0.0.1) AUTH failed who?" in lines
    assert not [line for line in lines if "hunter" in line]


@pytest.mark.parametrize("options", [{"http_auth": "off"}, {"auth": "", "auth_http_address": ("a:1",)}, {"auth": ""}])
def test_the_door_can_be_left_open(options: dict[str, Any]) -> None:
    web = GuardedWeb(options=options)
    assert web.post("/pub?topic=t", b"x").status == 200
    assert web.get("/config/log_level").status == 200


def test_with_nsqds_own_option_it_can_be_shut() -> None:
    web = GuardedWeb(options={"auth": "", "auth_http_address": ("a:1",), "http_auth": "on"})
    assert web.post("/pub?topic=t", b"x").outcome == REQUIRED


# -- other people's pages


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"Origin": "http://localhost:4151"}, False),
        ({"Origin": "https://LOCALHOST:4151"}, False),
        ({"Origin": "https://nsq.example", "X-Forwarded-Host": "nsq.example"}, False),
        ({"Origin": "http://localhost"}, True),
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": ""}, True),
        ({"Origin": "localhost:4151"}, True),
        ({"Origin": "http://[::1]:4151", "Host": "[::1]:4151"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
    ],
)
def test_a_page_of_another_site_changes_nothing(headers: dict[str, str], refused: bool) -> None:
    web = GuardedWeb({"auth": ""})
    fields = {"Host": "localhost:4151", **headers}
    for method, target in (("POST", "/pub?topic=t"), ("PUT", "/config/log_level"), ("GET", "/debug/pprof/cmdline")):
        reply = web.ask(method, target, b"info", **fields)
        assert (reply.outcome == CROSS_ORIGIN) is refused
        assert refused or reply.status == 200
    assert bool(web.broker.topics) is not refused


@pytest.mark.parametrize("target", ["/stats", "/metrics", "/ping", "/v2/topic/log?topic=t"])
def test_a_page_of_another_site_gets_nothing_but_visits(target: str) -> None:
    web = GuardedWeb({"auth": ""})
    web.post("/pub?topic=t", b"x")
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    frame = {**image, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    for fields in (image, frame, {"Origin": "http://evil.example"}):
        assert web.ask("GET", target, **fields).outcome == CROSS_ORIGIN
    visit = {**frame, "Sec-Fetch-Dest": "document"}
    assert web.ask("GET", target, **visit).status != 403


DEAD_LETTERS = b'{"dead_letter_topic": "orders"}'
POLICY = "/v2/channel/policy?topic=t&channel=c"


def test_who_names_a_dead_letter_topic_administrates_it_too() -> None:
    """The broker publishes to it, and a redrive finishes messages there."""
    web = GuardedWeb(ann=grants("^t$"), root=grants())
    web.bearing("root", "POST", "/topic/create?topic=t")
    web.bearing("root", "POST", "/channel/create?topic=t&channel=c")
    assert web.bearing("ann", "PUT", POLICY, DEAD_LETTERS).outcome == FORBIDDEN
    assert web.bearing("ann", "PUT", POLICY, b'{"max_attempts": 3}').json["set"] == {"max_attempts": 3}
    assert web.bearing("root", "PUT", POLICY, DEAD_LETTERS).status == 200
    kept = web.bearing("ann", "PUT", POLICY, b'{"max_attempts": 4}').json["set"]
    assert kept == {"max_attempts": 4, "dead_letter_topic": "orders"}
    assert web.bearing("ann", "PUT", POLICY, b'{"dead_letter_topic": null}').status == 200


def test_a_dead_letter_topic_is_named_when_the_authorizer_has_answered() -> None:
    web = GuardedWeb(ann=grants("^t$", ttl=0), root=grants(ttl=0))
    for path in ("topic/create?topic=t", "channel/create?topic=t&channel=c"):
        web.bearing("root", "POST", f"/{path}")
    for secret, status in (("ann", 403), ("root", 200)):
        browser = web.connect()
        web.authorizations.held = []
        browser.send(request("PUT", POLICY, DEAD_LETTERS, Authorization=f"Bearer {secret}"))
        while web.authorizations.held:
            held, web.authorizations.held = web.authorizations.held, []
            for answer in held:
                answer()
            web.turn()
        (reply,) = browser.read()
        assert reply.status == status


REDRIVE = "/v2/channel/redrive?topic=t&channel=c"


@pytest.mark.parametrize("more", ["", "&stop=true", "&dry_run=true", "&rate=1"])
def test_a_redrive_needs_admin_for_the_dead_letters(more: str) -> None:
    """It is the only consumer of their channel, which others may share."""
    web = GuardedWeb(ann=grants("^t$"), ben=grants(r"^t(\.dead)?$"), eve=grants(r"^t(\.dead)?$", "^d$"))
    for topic in ("t", "t.dead"):
        web.bearing("ben", "POST", f"/topic/create?topic={topic}")
        web.bearing("ben", "POST", f"/channel/create?topic={topic}&channel=c")
    assert web.bearing("ann", "POST", REDRIVE + more).outcome == FORBIDDEN
    assert web.bearing("eve", "POST", REDRIVE + more).outcome == FORBIDDEN
    assert web.bearing("ann", "GET", REDRIVE).outcome == FORBIDDEN
    expected = (404, "REDRIVE_NOT_FOUND") if "stop" in more else (200, "")
    assert web.bearing("ben", "POST", REDRIVE + more).outcome[0] == expected[0]


def test_what_a_handler_refuses_late_is_an_answer() -> None:
    web = GuardedWeb(ann=grants(ttl=0))
    web.bearing("ann", "POST", "/topic/create?topic=t")
    web.bearing("ann", "POST", "/channel/create?topic=t&channel=c")
    browser = web.connect()
    web.authorizations.held = []
    browser.send(request("GET", REDRIVE, Authorization="Bearer ann"))
    while web.authorizations.held:
        held, web.authorizations.held = web.authorizations.held, []
        for answer in held:
            answer()
        web.turn()
    (reply,) = browser.read()
    assert reply.outcome == (404, "REDRIVE_NOT_FOUND")
