"""Users, roles, sessions, CSRF tokens and audit lines."""

from __future__ import annotations

import re
import signal
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.admin.conftest import USERS, Nodes, StartAdmin
from tests.admin.process import AdminProcess, Reply
from tests.process import wait_until
from tests.wire import HOST

BROWSER = {"Accept": "text/html,*/*", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
PATHS = ("/", "/api/topics", "/api/topics/t", "/api/nodes", "/api/counter", "/config/log_level", "/nowhere")


def basic(name: str, secret: str | None = None) -> dict[str, str]:
    """The header with a user's name and secret."""
    word = USERS[name][0] if secret is None else secret
    return {"Authorization": f"Basic {b64encode(f'{name}:{word}'.encode()).decode()}"}


def log_in(admin: AdminProcess, name: str, secret: str, **more: str) -> Reply:
    form = urlencode({"name": name, "secret": secret, **more}).encode()
    headers = {**BROWSER, "Content-Type": "application/x-www-form-urlencoded"}
    return admin.ask("POST", "/login", form, headers)


def cookie_of(reply: Reply) -> dict[str, str]:
    """The header with the cookie that an answer has set."""
    return {"Cookie": reply.headers["set-cookie"].partition(";")[0]}


@pytest.fixture(scope="module")
def guarded(nodes: Nodes, users_file: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """An nsqadmin with USERS."""
    process = AdminProcess(tmp_path_factory.mktemp("guarded"), *nodes.flags, f"--auth=static:{users_file}")
    process.start()
    yield process
    process.close()
    process.assert_no_traceback()


# -- users of an authorizer


def test_nothing_is_served_without_a_user(guarded: AdminProcess) -> None:
    for path in PATHS:
        reply = guarded.get(path)
        assert (reply.status, reply.document) == (401, {"message": "CREDENTIAL_REQUIRED"}), path
        assert reply.headers["www-authenticate"].startswith('Basic realm="nsqadmin"')
    assert guarded.ask("POST", "/api/topics", {"topic": "t"}).status == 401
    assert guarded.ask("DELETE", "/api/topics/t").status == 401
    assert guarded.get("/ping").status == 200


def test_a_browser_is_sent_to_the_login(guarded: AdminProcess) -> None:
    reply = guarded.ask("GET", "/topics/t?x=1", headers=BROWSER)
    assert (reply.status, reply.headers["location"]) == (303, "/login?next=%2Ftopics%2Ft%3Fx%3D1")
    page = guarded.get("/login?next=%2Ftopics%2Ft")
    assert page.status == 200
    assert b'value="/topics/t"' in page.body
    fetched = guarded.get("/api/topics", Sec_Fetch_Mode="cors")
    assert (fetched.status, "www-authenticate" in fetched.headers) == (401, False)


def test_basic_authentication(guarded: AdminProcess) -> None:
    assert guarded.ask("GET", "/api/topics", headers=basic("rita")).status == 200
    for headers in (
        basic("rita", "wrong"),
        basic("rita", USERS["paul"][0]),
        basic("rita", ""),
        {"Authorization": "Basic ?"},
    ):
        assert guarded.ask("GET", "/api/topics", headers=headers).status == 401
    bearer = {"Authorization": f"Bearer {USERS['rita'][0]}"}
    assert guarded.ask("GET", "/api/topics", headers=bearer).status == 200


def test_a_user_without_a_permission_sees_nothing(guarded: AdminProcess) -> None:
    assert guarded.ask("GET", "/api/topics", headers=basic("nemo")).status == 401


def test_a_session(guarded: AdminProcess) -> None:
    reply = log_in(guarded, "alice", USERS["alice"][0], next="/topics/t")
    assert (reply.status, reply.headers["location"]) == (303, "/topics/t")
    cookie = reply.headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=lax", "path=/", "max-age=43200"))
    session = cookie_of(reply)
    assert guarded.ask("GET", "/api/topics", headers=session).status == 200
    out = guarded.ask("POST", "/logout", headers={**session, **BROWSER})
    assert (out.status, out.headers["location"]) == (303, "/login")
    assert guarded.ask("GET", "/api/topics", headers=session).status == 401
    assert any(re.fullmatch(rf"alice@{HOST} login: done", line) for line in guarded.audit())
    assert any(re.fullmatch(rf"alice@{HOST} logout: done", line) for line in guarded.audit())


def test_a_wrong_secret_at_the_login(guarded: AdminProcess) -> None:
    reply = log_in(guarded, "mallory", "guess")
    assert reply.status == 401
    assert b"Wrong name or secret." in reply.body
    assert "set-cookie" not in reply.headers
    assert guarded.await_audit("mallory") == f"mallory@{HOST} login: failed: wrong name or secret"
    assert "guess" not in guarded.said()


@pytest.mark.parametrize(
    "target", ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example", "javascript:alert(1)", "x"]
)
def test_a_login_goes_to_pages_of_nsqadmin_only(guarded: AdminProcess, target: str) -> None:
    assert log_in(guarded, "rita", USERS["rita"][0], next=target).headers["location"] == "/"


def test_a_login_from_another_site(guarded: AdminProcess) -> None:
    form = urlencode({"name": "rita", "secret": USERS["rita"][0]}).encode()
    reply = guarded.ask("POST", "/login", form, {"Origin": "https://elsewhere.example"})
    assert (reply.status, reply.message) == (403, "CROSS_ORIGIN")


def test_a_cookie_that_is_none(guarded: AdminProcess) -> None:
    for value in ("x", "", "\xff"):
        assert guarded.ask("GET", "/api/topics", headers={"Cookie": f"nsqadmin_session={value}"}).status == 401


def test_roles(guarded: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    for name in ("rita", "paul", "olga"):
        reply = guarded.ask("POST", f"/api/topics/{topic}", {"action": "pause"}, basic(name))
        assert (reply.status, reply.message) == (403, "FORBIDDEN"), name
    assert nodes.nsqds[0].stats(topic)[0]["paused"] is False
    done = guarded.ask("POST", f"/api/topics/{topic}", {"action": "pause"}, basic("alice"))
    assert done.document == {"message": ""}
    assert nodes.nsqds[0].stats(topic)[0]["paused"] is True


def test_a_role_for_one_topic(guarded: AdminProcess, nodes: Nodes) -> None:
    nodes.prepare("orders", "c")
    done = guarded.ask("POST", "/api/topics/orders/c", {"action": "pause"}, basic("olga"))
    assert done.document == {"message": ""}
    assert guarded.ask("POST", "/api/topics", {"topic": "other"}, basic("olga")).status == 403
    assert guarded.ask("DELETE", "/api/nodes/a:1", {"topic": "orders"}, basic("olga")).status == 403


def test_the_role_is_checked_before_the_body(guarded: AdminProcess) -> None:
    assert guarded.ask("POST", "/api/topics", b"{", basic("rita")).status == 403


def test_options_are_for_admins(guarded: AdminProcess) -> None:
    assert guarded.ask("GET", "/config/log_level", headers=basic("rita")).status == 403
    assert guarded.ask("GET", "/config/log_level", headers=basic("alice")).body == b"2"


def test_each_action_has_an_audit_line(guarded: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    guarded.ask("POST", f"/api/topics/{topic}/c", {"action": "empty"}, basic("alice"))
    assert guarded.await_audit("empty_channel") == f"alice@{HOST} empty_channel topic={topic} channel=c: done"
    guarded.ask("DELETE", f"/api/topics/{topic}", headers=basic("paul"))
    line = f"paul@{HOST} delete_topic topic={topic}: FORBIDDEN - this needs the role admin"
    assert guarded.await_audit("delete_topic") == line
    guarded.ask("POST", f"/api/topics/{topic}/nowhere", {"action": "pause"}, basic("alice"))
    assert ": failed: got response 404 Not Found" in guarded.await_audit("channel=nowhere")
    guarded.ask("POST", f"/api/topics/{topic}-none", {"action": "pause"}, basic("alice"))
    assert ": failed: failed to query any nsqlookupd" in guarded.await_audit(f"topic={topic}-none")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_what_a_page_of_another_site_sends_is_refused(
    guarded: AdminProcess, admin: AdminProcess, headers: dict[str, str]
) -> None:
    reply = guarded.ask("POST", "/api/topics", {"topic": "t"}, {**headers, **basic("alice")})
    assert (reply.status, reply.message) == (403, "CROSS_ORIGIN")
    assert admin.ask("DELETE", "/api/topics/t", headers=headers).status == 403
    assert admin.ask("PUT", "/config/log_level", b"info", headers).status == 403


def test_what_a_page_of_nsqadmin_sends_is_accepted(admin: AdminProcess, topic: str) -> None:
    own = {"Origin": f"http://{HOST}:{admin.http_port}", "Sec-Fetch-Site": "same-origin"}
    assert admin.ask("POST", "/api/topics", {"topic": topic}, own).status == 200
    proxied = {"Origin": "https://nsq.example", "X-Forwarded-Host": "nsq.example"}
    assert admin.ask("POST", "/api/topics", {"topic": topic}, proxied).status == 200


def test_a_reload_of_the_users_ends_sessions(start: StartAdmin, users_file: str) -> None:
    admin = start(f"--auth=static:{users_file}")
    session = cookie_of(log_in(admin, "rita", USERS["rita"][0]))
    assert admin.ask("GET", "/api/topics", headers=session).status == 200
    admin.signal(signal.SIGHUP)
    wait_until(lambda: "AUTH: reloaded" in admin.said(), "the users are read again")
    assert admin.ask("GET", "/api/topics", headers=session).status == 401


# -- users that a proxy names


def test_the_original_s_list_of_admins(start: StartAdmin, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic)
    admin = start("--admin-user=alice", "--admin-user=bob", "--acl-http-header=X-User")
    assert admin.get("/api/topics").status == 200
    for user in ("", "Alice", "alice ,bob"):
        reply = admin.ask("POST", f"/api/topics/{topic}", b"{", {"X-User": user})
        assert (reply.status, reply.message) == (403, "FORBIDDEN")
    assert admin.ask("POST", f"/api/topics/{topic}", {"action": "pause"}, {"X-User": "bob"}).status == 200
    assert admin.await_audit("pause_topic").startswith(f"bob@{HOST} ")
    assert admin.get("/config/log_level").status == 200


def test_lists_of_other_roles(start: StartAdmin) -> None:
    admin = start("--admin-user=alice", "--publish-user=paul", "--read-user=rita", "--body-user=bert")
    for user, status in (("alice", 200), ("paul", 200), ("rita", 200), ("bert", 200), ("mallory", 403), ("", 403)):
        for path in ("/api/topics", "/"):
            assert admin.get(path, X_Forwarded_User=user).status == status, user
        created = admin.ask("POST", "/api/topics", {"topic": "t"}, {"X-Forwarded-User": user})
        assert created.status == (200 if user == "alice" else 403)
    assert admin.get("/login").status == 404


def test_a_proxy_at_another_address(start: StartAdmin) -> None:
    admin = start("--admin-user=alice", "--acl-proxy-cidr=192.0.2.0/24")
    assert admin.ask("POST", "/api/topics", {"topic": "t"}, {"X-Forwarded-User": "alice"}).status == 403
    near = start("--admin-user=alice", "--acl-proxy-cidr=127.0.0.0/8")
    assert near.ask("POST", "/api/topics", {"topic": "t"}, {"X-Forwarded-User": "alice"}).status == 200


def test_a_proxy_on_this_machine_is_not_everybody(start: StartAdmin) -> None:
    admin = start("--acl-proxy-cidr=127.0.0.0/8")
    reply = admin.get("/config/log_level", X_Forwarded_For="10.0.0.7")
    assert (reply.status, reply.message) == (403, "FORBIDDEN")
    admin.ask("POST", "/api/topics", {"topic": "t"}, {"X-Forwarded-For": "10.0.0.7"})
    assert admin.await_audit("create_topic") == "@10.0.0.7 create_topic topic=t: done"
