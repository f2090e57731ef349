"""Sessions, roles and CSRF tokens without a server."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.web.test.requesthelper import DummyRequest

from nsqtw.admin.access import Access
from nsqtw.admin.sessions import MAX_SESSIONS, Sessions
from nsqtw.admin.viewer import Role, Viewer, viewer_with
from nsqtw.auth.grants import Grant, Grants
from nsqtw.errors import AccessDenied
from nsqtw.options.admin import AdminOptions

READER = Viewer("rita", Role.READ, False, csrf_subject="rita")


def grants(
    *permissions: str, topic: str = ".*", channels: tuple[str, ...] = (".*",), ttl: float | None = None
) -> Grants:
    return Grants([Grant(topic, channels, permissions)], identity="u", ttl=ttl)


@pytest.mark.parametrize(
    ("permissions", "role", "may_see_bodies"),
    [
        (("admin",), Role.ADMIN, False),
        (("publish",), Role.PUBLISH, False),
        (("subscribe",), Role.READ, True),
        (("publish", "subscribe", "admin"), Role.ADMIN, True),
    ],
)
def test_permissions_are_roles(permissions: tuple[str, ...], role: Role, may_see_bodies: bool) -> None:
    viewer = viewer_with(grants(*permissions))
    assert viewer is not None
    assert (viewer.name, viewer.role, viewer.may_see_bodies) == ("u", role, may_see_bodies)


def test_no_permission_is_no_user() -> None:
    assert viewer_with(Grants([], identity="u")) is None


def test_a_higher_role_for_some_topics() -> None:
    viewer = viewer_with(grants("admin", "subscribe", topic="^orders$", channels=("^audit$",)))
    assert viewer is not None
    assert (viewer.role, viewer.may_see_bodies) == (Role.READ, False)
    assert viewer.may(Role.ADMIN, "orders", "audit")
    assert viewer.may(Role.PUBLISH, "orders", "audit")
    assert viewer.may_see_bodies_of("orders", "audit")
    assert not viewer.may(Role.ADMIN, "orders", "billing")
    assert not viewer.may(Role.ADMIN, "other")
    assert not viewer.may_see_bodies_of("other")


def test_roles_include_lower_ones() -> None:
    publisher = Viewer("paul", Role.PUBLISH, False)
    assert [publisher.may(role) for role in Role] == [True, True, False]


def test_a_session_ends() -> None:
    sessions = Sessions()
    token = sessions.start(READER, now=0.0, timeout=100.0)
    assert sessions.find(token, now=99.0) is not None
    assert sessions.find(token, now=100.0) is None
    assert sessions.find("other", now=0.0) is None


def test_a_session_ends_with_its_grants() -> None:
    sessions = Sessions()
    viewer = viewer_with(grants("subscribe", ttl=10.0))
    assert viewer is not None
    token = sessions.start(viewer, now=0.0, timeout=100.0)
    assert sessions.find(token, now=9.0) is not None
    assert sessions.find(token, now=10.0) is None


def test_the_oldest_of_very_many_sessions_ends() -> None:
    sessions = Sessions()
    first, second = (sessions.start(READER, now=0.0, timeout=100.0) for _ in range(2))
    for _ in range(MAX_SESSIONS - 1):
        sessions.start(READER, now=0.0, timeout=100.0)
    assert sessions.find(first, now=0.0) is None
    assert sessions.find(second, now=0.0) is not None
    sessions.end_all()
    assert sessions.find(second, now=0.0) is None


def test_tokens_differ_and_are_not_kept() -> None:
    sessions = Sessions()
    token = sessions.start(READER, now=0.0, timeout=100.0)
    assert token != sessions.start(READER, now=0.0, timeout=100.0)
    assert token not in repr(vars(sessions))


def request(**headers: str) -> Any:
    made = DummyRequest([b""])
    for name, value in {"host": "admin:4171", **headers}.items():
        made.requestHeaders.setRawHeaders(name.replace("_", "-"), [value])
    return made


def test_a_csrf_token_belongs_to_a_user() -> None:
    access = Access(AdminOptions(), None)
    token = access.csrf_token(READER)
    access.check_csrf(request(), READER, token)
    assert token != access.csrf_token(READER), "it differs each time, so that compression tells nothing of it"
    for wrong in (
        "",
        "x",
        token[:-1],
        token + "0",
        access.csrf_token(Viewer("eve", Role.READ, False, csrf_subject="eve")),
    ):
        with pytest.raises(AccessDenied) as caught:
            access.check_csrf(request(), READER, wrong)
        assert caught.value.code == "CROSS_ORIGIN"
    with pytest.raises(AccessDenied):
        Access(AdminOptions(), None).check_csrf(request(), READER, token)


def test_the_right_token_from_another_site() -> None:
    access = Access(AdminOptions(), None)
    with pytest.raises(AccessDenied):
        access.check_csrf(request(origin="https://elsewhere.example"), READER, access.csrf_token(READER))
    access.check_csrf(request(origin="http://admin:4171"), READER, access.csrf_token(READER))


def test_who_may_read_bodies_by_header() -> None:
    access = Access(AdminOptions(admin_user=("alice",), body_user=("bert",)), None)
    found = {name: access._named_by_proxy(request(x_forwarded_user=name)) for name in ("alice", "bert", "rita")}
    assert {name: viewer and viewer.may_see_bodies for name, viewer in found.items()} == {
        "alice": True,
        "bert": True,
        "rita": False,
    }


@pytest.mark.parametrize(
    ("block", "forwarded", "address"),
    [
        ("", "10.0.0.7", "192.168.1.1"),
        ("192.0.2.0/24", "10.0.0.7", "192.168.1.1"),
        ("192.168.1.0/24", "10.0.0.7", "10.0.0.7"),
        ("192.168.1.0/24", "6.6.6.6, 10.0.0.7, 192.168.1.9", "10.0.0.7"),
        ("192.168.1.0/24", "2001:db8::1", "2001:db8::1"),
        ("192.168.1.0/24", "6.6.6.6, 10.0.0.7:4711", "10.0.0.7"),
        ("192.168.1.0/24", "6.6.6.6, 10.0.0.7:4711, 192.168.1.9:80", "10.0.0.7"),
        ("192.168.1.0/24", "6.6.6.6, [2001:db8::1]:99", "2001:db8::1"),
        ("192.168.1.0/24", "6.6.6.6, [2001:db8::1]", "2001:db8::1"),
        ("192.168.1.0/24", "6.6.6.6, ::ffff:10.0.0.7", "10.0.0.7"),
        ("192.168.1.0/24", "6.6.6.6, unknown", ""),
        ("192.168.1.0/24", "6.6.6.6, _hidden:80, 192.168.1.9", ""),
        ("192.168.1.0/24", "unknown", ""),
        ("192.168.1.0/24", " , 10.0.0.7, ", "10.0.0.7"),
        ("192.168.1.0/24", "", "192.168.1.1"),
    ],
)
def test_the_address_behind_a_proxy(block: str, forwarded: str, address: str) -> None:
    made = request(x_forwarded_for=forwarded)
    made.getClientAddress = lambda: IPv4Address("TCP", "192.168.1.1", 1)
    assert Access(AdminOptions(acl_proxy_cidr=block), None).client_ip(made) == address
