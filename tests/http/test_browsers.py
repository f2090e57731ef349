"""The names by which clients may ask, and what pages of other sites may."""

from __future__ import annotations

import socket
from threading import Event
from typing import Any

import attrs
import pytest

from nsqtw.errors import OptionError
from nsqtw.http import browsers
from nsqtw.http.browsers import AllowedHosts, allowed_hosts
from nsqtw.net.listen import UNIX_PORT
from nsqtw.options.admin import NSQADMIN
from nsqtw.options.broker import NSQD
from nsqtw.options.broker_address import hostname
from nsqtw.options.lookupd import NSQLOOKUPD
from tests.http.broker_fixture import Web, request

OWN = ("broker-1", "BROKER.Example.com.")
PAGE = {b"Accept-Language": b"en"}
NOT_ALLOWED = (403, "HOST_NOT_ALLOWED")


@attrs.define
class Options:
    allowed_host: tuple[str, ...] = ()
    http_address: str = "listen.example:4151"
    broadcast_address: str = "broadcast.example"


def is_refused(host: str, *patterns: str, is_local: bool = True, **fields: str) -> bool:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in fields.items()}
    hosts = AllowedHosts(Options(patterns), OWN, is_local=is_local)
    return hosts.refuse({b"Host": host.encode("latin-1"), **named})


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:4151",
        "10.0.0.7:80",
        "[::1]",
        "[::1]:4151",
        "[fe80::1%25eth0]:4151",
        "0:4151",
        "127.1:4151",
    ]
    + ["localhost", "LocalHost:4151", "localhost.:4151", "broker-1", "BROKER-1:4151", "broker.example.com", ""]
    + ["nsqd", "nsqd:4151"],
)
def test_names_that_no_page_has(host: str, is_local: bool) -> None:
    assert not is_refused(host, is_local=is_local)
    assert not is_refused(host, is_local=is_local, Accept_Language="en")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:4151", "127.0.0.1.evil.example", "127.evil.example", "broker-1.evil.example"]
    + [
        "localhost.evil.example",
        "evil.localhost.example",
        "127.1.1.1.1",
        "xn--e1afmkfd.example",
        "\xe9vil.example",
    ]
    + ["a,b.example", "evil.example:4151:1", "evil.example."],
)
def test_names_of_pages(host: str) -> None:
    assert is_refused(host)
    for field in ("Accept_Language", "Origin", "Referer", "Sec_Fetch_Site"):
        assert is_refused(host, is_local=False, **{field: "x"})
    assert not is_refused(host, is_local=False), "a program could as well ask by address"


@pytest.mark.parametrize(
    "host", ["ip-10-0-0-5.ec2.internal", "b.local:4151", "nsqd.default.svc", "a.svc.cluster.local"]
)
def test_names_of_private_networks(host: str) -> None:
    assert is_refused(host)
    assert not is_refused(host, is_local=False, Accept_Language="en")


def test_a_request_without_a_host() -> None:
    assert not AllowedHosts(Options(), OWN, is_local=True).refuse({})


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("nsq.example.com", ["nsq.example.com", "NSQ.example.com:80"], ["a.nsq.example.com", "example.com"]),
        ("NSQ.Example.com", ["nsq.example.com"], ["x.example.com"]),
        (
            "*.example.com",
            ["nsq.example.com", "a.b.example.com:1"],
            ["example.com", "evilexample.com", "example.com.evil"],
        ),
        ("*", ["evil.example", "evil.example."], []),
    ],
)
def test_allowed_hosts(pattern: str, allowed: list[str], refused: list[str]) -> None:
    for host in allowed:
        assert not is_refused(host, "other.example", pattern)
    for host in refused:
        assert is_refused(host, "other.example", pattern)


def test_a_change_of_the_option_has_effect_at_once() -> None:
    options = Options()
    hosts = AllowedHosts(options, OWN, is_local=True)
    assert hosts.refuse({b"Host": b"nsq.example"})
    options.allowed_host = ("nsq.example",)
    assert not hosts.refuse({b"Host": b"nsq.example"})
    options.allowed_host = ()
    assert hosts.refuse({b"Host": b"nsq.example"})


@attrs.define
class Listener:
    is_local: bool
    port: int = 4151


def test_which_listeners_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllowedHosts, "learn_full_name", lambda self: None)

    def hosts(listener: Any, has_login: bool) -> AllowedHosts | None:
        return allowed_hosts(Options(), listener, has_login=has_login)

    assert hosts(Listener(is_local=False), True) is None
    assert hosts(Listener(is_local=True, port=UNIX_PORT), False) is None
    for listener, has_login in (
        (Listener(is_local=True), True),
        (Listener(is_local=True), False),
        (Listener(False), False),
    ):
        found = hosts(listener, has_login)
        assert found is not None
        for name in (hostname(), "listen.example:4151", "broadcast.example:4151"):
            assert not found.refuse({b"Host": name.encode(), **PAGE})
        assert found.refuse({b"Host": b"evil.example", **PAGE})


def test_the_full_name_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is learned when the name server answers, and nothing waits for that."""
    answered = Event()

    def look_up(name: str) -> str:
        answered.wait()
        return f"{name}.Example.COM"

    monkeypatch.setattr(socket, "getfqdn", look_up)
    started: list[Any] = []
    thread = browsers.Thread
    monkeypatch.setattr(browsers, "Thread", lambda **given: started.append(thread(**given)) or started[-1])
    hosts = allowed_hosts(Options(), Listener(is_local=True), has_login=False)  # type: ignore[arg-type]
    assert hosts is not None
    field = {b"Host": f"{hostname()}.example.com:4151".encode()}
    assert hosts.refuse(field)
    answered.set()
    started[0].join()
    assert not hosts.refuse(field)


@pytest.mark.parametrize("table", [NSQD, NSQLOOKUPD, NSQADMIN])
def test_the_option(table: Any) -> None:
    for value in ("nsq.example.com", "*.example.com", "*", "a_b-c", "10.0.0.1"):
        table.check(table.options(allowed_host=("b", value)))
    for value in ("", "nsq.example.com:4151", "http://a", "*a", "a.*.b", "[::1]", "a..b"):
        with pytest.raises(OptionError, match="is none; --allowed-host must be a host name without a port"):
            table.check(table.options(allowed_host=("b", value)))


# -- a broker


def local_web(*patterns: str) -> Web:
    web = Web(allowed_host=patterns)
    web.site.hosts = AllowedHosts(web.broker.options, OWN, is_local=True)
    return web


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize("path", ["/ping", "/stats", "/pub?topic=t", "/config/log_level", "/nothing"])
def test_nothing_is_served_by_a_name_of_others(method: str, path: str) -> None:
    web = local_web()
    reply = web.ask(method, path, b"x", Host="evil.example:4151")
    assert reply.status == 403
    assert method == "HEAD" or reply.outcome == NOT_ALLOWED
    assert "--allowed-host" in reply.headers["x-nsqtw-detail"]
    assert web.broker.topics == {}
    assert web.ask("GET", "/ping", Host="broker-1:4151").status == 200


def test_a_head_is_not_remembered_for_a_name_that_is_not_allowed_any_more() -> None:
    web = local_web("nsq.example")
    for _ in range(3):
        assert web.ask("POST", "/pub?topic=t", b"x", Host="nsq.example").status == 200
    web.broker.options.allowed_host = ()
    web.site.forget_heads()
    assert web.ask("POST", "/pub?topic=t", b"x", Host="nsq.example").outcome == NOT_ALLOWED


def test_with_tls_the_browser_has_checked_the_name() -> None:
    web = local_web()
    browser = web.connect()
    browser.connection.transport.secured = object()
    for _ in range(3):
        browser.send(request("POST", "/pub?topic=t", b"x", Host="nsq.example"))
        web.turn()
        assert browser.read()[0].status == 200
    assert web.ask("POST", "/pub?topic=t", b"x", Host="nsq.example").outcome == NOT_ALLOWED
