"""Authorizers in brokers as they are run: the page for operators, a third party's, and auth servers of all kinds."""

from __future__ import annotations

import gzip
import http.client
import http.server
import json
import os
import re
import signal
import socket
import ssl
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from nsqtw.net.listen import Listener
from nsqtw.nsqd.service import open_to_all
from nsqtw.options.broker import Options
from nsqtw.options.types import TLS_REQUIRED
from nsqtw.testing.authorizers import AuthorizerContract
from tests.certificates import Certificates, Pair
from tests.process import NsqdProcess, ReservedPort, Start, wait_until
from tests.wire import ANSWER_SECONDS, HOST, Client, Refused

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"```(?:toml|python)\n# (\S+)\n(.*?)```", re.DOTALL)


def blocks(page: str, heading: str = "") -> dict[str, str]:
    """The files that a page of the docs shows, behind a heading."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return dict(BLOCK.findall(text[text.index(heading) :]))


def auth(client: Client, secret: str) -> dict[str, Any]:
    raw = secret.encode()
    answer: dict[str, Any] = json.loads(client.ask(b"AUTH\n" + struct.pack(">i", len(raw)) + raw))
    return answer


def http_status(nsqd: NsqdProcess, method: str, path: str, secret: str = "", body: bytes = b"") -> int:
    connection = http.client.HTTPConnection(HOST, nsqd.http_port, timeout=ANSWER_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        connection.request(method, path, body or None, headers)
        return connection.getresponse().status
    finally:
        connection.close()


# -- docs/how-to/auth.md


def test_the_file_on_the_page_does_what_the_page_says(start: Start, tmp_path: Path) -> None:
    grants = tmp_path / "grants.toml"
    grants.write_text(blocks("how-to/auth.md")["grants.toml"])
    nsqd = start(f"--auth=static:{grants}", "--log-level=debug")
    with nsqd.client() as mail, nsqd.client() as shop, nsqd.client() as stranger:
        assert auth(shop, "shop-secret") == {
            "identity": "shop",
            "identity_url": "https://intranet.example/shop",
            "permission_count": 1,
        }
        assert auth(mail, "mail-secret")["identity"] == "mail"
        with pytest.raises(Refused, match=r"^E_AUTH_FAILED AUTH failed$"):
            auth(stranger, "mail-secre")
        mail.sub("orders", "mail", ready=5)
        shop.pub("orders", b"one")
        assert mail.message().body == b"one"
        with pytest.raises(Refused, match=r'^E_UNAUTHORIZED AUTH failed for PUB on "other" ""$'):
            shop.pub("other", b"x")
        assert http_status(nsqd, "GET", "/ping") == 200
        assert http_status(nsqd, "GET", "/stats") == 401
        assert http_status(nsqd, "GET", "/stats", "wrong-secret") == 401
        assert http_status(nsqd, "GET", "/stats", "mail-secret") == 200
        assert http_status(nsqd, "POST", "/pub?topic=carts", "shop-secret", b"x") == 200
        assert http_status(nsqd, "POST", "/topic/create?topic=orders", "shop-secret") == 403
        assert http_status(nsqd, "POST", "/topic/create?topic=orders", "operator-secret") == 200
        assert http_status(nsqd, "GET", "/config/log_level", "operator-secret") == 200

        grants.write_text("[[client]]\nsecret = 5\n")
        os.kill(nsqd.pid, signal.SIGHUP)
        line = f"RELOAD: the grants stay as they were - {grants}: client 1: secret must be a text"
        wait_until(lambda: line in nsqd.said(), "the mistake is said")
        shop_again = nsqd.client()
        auth(shop_again, "shop-secret")

        grants.write_text(
            blocks("how-to/auth.md")["grants.toml"].replace('channels = ["^mail$"]', 'channels = ["^post$"]')
        )
        os.kill(nsqd.pid, signal.SIGHUP)
        with pytest.raises(Refused, match=r'^E_UNAUTHORIZED AUTH failed for SUB on "orders" "mail"$'):
            mail.message()
        shop_again.pub("orders", b"two")

        grants.write_text("")
        os.kill(nsqd.pid, signal.SIGHUP)
        with pytest.raises(Refused, match=r"^E_AUTH_FAILED AUTH failed$"):
            shop_again.message()
        wait_until(lambda: http_status(nsqd, "GET", "/stats", "mail-secret") == 401, "HTTP forgets it, too")
        shop_again.close()
    said = nsqd.said()
    assert not [secret for secret in ("mail-secret", "shop-secret", "operator-secret") if secret in said]
    nsqd.stop()


def test_hashing_holds_nobody_up(start: Start, tmp_path: Path) -> None:
    """With a hash that takes for ever, all else goes on, and the broker stops."""
    grants = tmp_path / "grants.toml"
    grants.write_text('[[client]]\nsecret = "pbkdf2-sha256:2000000:c2FsdA==:%s="\n' % ("A" * 43))
    nsqd = start(f"--auth=static:{grants}")
    waiting = [nsqd.client() for _ in range(2)]
    for number, client in enumerate(waiting):
        client.send(b"AUTH\n" + struct.pack(">i", 1) + b"%d" % number)
    with nsqd.client() as other, pytest.raises(Refused, match=r"^E_AUTH_FIRST"):
        other.pub("t", b"x")
    assert http_status(nsqd, "GET", "/ping") == 200
    nsqd.stop()
    for client in waiting:
        client.close()


# -- docs/how-to/plugin-authorizer.md


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The distribution on the page, where Python and Twisted find it."""
    for name, text in blocks("how-to/plugin-authorizer.md").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "nsq.key").write_bytes(b"a key")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nsq_tokens", raising=False)
    return tmp_path


def token(seconds: int) -> bytes:
    from nsq_tokens.authorizer import signature

    text = f"ann:{int(time.time()) + seconds}:orders".encode()
    return text + b":" + bytes(signature(b"a key", text))


def test_a_third_partys_authorizer_is_one_as_ours(tokens: Path, start: Start) -> None:
    nsqd = start(f"--auth=tokens:{tokens}/nsq.key")
    good, ended = token(3600).decode(), token(-5).decode()
    with nsqd.client() as client, nsqd.client() as late:
        assert auth(client, good)["identity"] == "ann"
        client.pub("orders", b"x")
        with pytest.raises(Refused, match=r"^E_UNAUTHORIZED"):
            client.pub("mails", b"x")
        with pytest.raises(Refused, match=r"^E_AUTH_FAILED"):
            auth(late, ended)
    assert http_status(nsqd, "POST", "/pub?topic=orders", good, b"x") == 200
    assert http_status(nsqd, "POST", "/pub?topic=mails", good, b"x") == 403
    assert "the token of ann has ended" in nsqd.said()


class TestTokens(AuthorizerContract):
    @pytest.fixture(autouse=True)
    def _tokens(self, tokens: Path) -> None:
        self.good_secret = token(3600)

    def make_authorizer(self, directory: str) -> Any:
        from nsq_tokens.authorizer import TokensFactory

        return TokensFactory().open(f"{directory}/nsq.key", None, None)


# -- auth servers


PATIENT = ("--http-client-connect-timeout=60s", "--http-client-request-timeout=60s")
"""For brokers that must get their answer, however busy the machine is."""

Serve = Callable[[http.server.BaseHTTPRequestHandler], None]


class AuthServer:
    """An auth server that does what the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.serve: Serve = lambda request: None
        self.is_over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.queries.append(parse_qs(self.path.partition("?")[2]))
                with suppress(OSError):  # the broker has heard enough
                    outer.serve(self)

            def log_message(self, *words: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self.queries: list[dict[str, list[str]]] = []
        self.address = f"{HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def use(self, pair: Pair) -> None:
        """From now on over HTTPS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[AuthServer]:
    made = AuthServer()
    yield made
    made.close()


def reply(status: int, body: bytes, **headers: str) -> Serve:
    def serve(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return serve


GRANT = {"topic": ".*", "channels": [".*"], "permissions": ["publish"]}
GOOD = {"ttl": 3600, "identity": "x", "authorizations": [GRANT]}


def endless(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(4096):
        request.wfile.write(b"x" * 65536)


def test_hostile_auth_servers_hold_nobody_up(start: Start, server: AuthServer) -> None:
    nsqd = start(
        f"--auth=http:http://user:hunter0@{server.address}/auth?key=hunter0",
        *PATIENT,
        "--log-level=debug",
    )
    slow = [{**GRANT, "topic": pattern} for pattern in ("(a+)+$", "(a|a)*$")]
    hostile: list[tuple[Serve, str]] = [
        (reply(500, b"hunter1"), "got response 500"),
        (reply(403, b"{}"), "got response 403"),
        (reply(200, b"not json"), "the answer is no JSON"),
        (reply(200, b"[" * 200_000), "the answer is no JSON"),
        (reply(200, gzip.compress(b"x" * 10_000_000), Content_Encoding="gzip"), "the answer is no JSON"),
        (reply(302, b"", Location="/auth"), "stopped after 10 redirects"),
        (endless, "the answer has more than 262144 bytes"),
        (lambda request: request.connection.shutdown(socket.SHUT_RDWR), "failed to auth against"),
        (reply(200, json.dumps({"ttl": 5, "authorizations": slow * 200}).encode()), "patterns, and 500 are allowed"),
    ]
    for serve, why in hostile:
        server.serve = serve
        with nsqd.client() as client:
            client.send(b"AUTH\n" + struct.pack(">i", 7) + b"hunter2")
            assert http_status(nsqd, "GET", "/ping") == 200
            assert client.frame().data == b"E_AUTH_FAILED AUTH failed"
        assert why in nsqd.said()
    server.serve = reply(200, json.dumps(GOOD).encode())
    with nsqd.client() as client:
        assert auth(client, "hunter2")["identity"] == "x"
        client.pub("a" * 63, b"x")
    assert http_status(nsqd, "POST", "/pub?topic=t", "hunter2", b"x") == 200
    assert http_status(nsqd, "POST", "/topic/delete?topic=t", "hunter2") == 403
    assert f"failed to auth against http://***@{server.address}/auth?***" in nsqd.said()
    assert "hunter" not in nsqd.said()
    assert "Starting factory" not in nsqd.said()


def test_an_auth_server_that_never_answers_is_given_up(start: Start, server: AuthServer) -> None:
    server.serve = lambda request: server.is_over.wait() and None
    nsqd = start(f"--auth=http:{server.address}", "--http-client-request-timeout=100ms")
    with nsqd.client() as client, pytest.raises(Refused, match=r"^E_AUTH_FAILED AUTH failed$"):
        auth(client, "s")
    assert "no answer in 0.1 s" in nsqd.said() or "failed to auth" in nsqd.said()


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "stranger"])
def test_https_servers_need_a_certificate_that_is_trusted(
    start: Start, server: AuthServer, certificates: Certificates, is_trusted: bool
) -> None:
    server.serve = reply(200, json.dumps(GOOD).encode())
    server.use(certificates.server)
    authority = certificates.authority if is_trusted else certificates.stranger
    nsqd = start(f"--auth=http:https://{server.address}/auth", f"--tls-root-ca-file={authority.certificate}", *PATIENT)
    with nsqd.client() as client:
        if is_trusted:
            assert auth(client, "s")["identity"] == "x"
        else:
            with pytest.raises(Refused, match=r"^E_AUTH_FAILED"):
                auth(client, "s")
            assert "certificate verify failed" in nsqd.said()
    assert bool(server.queries) is is_trusted


def test_servers_are_told_of_tls_and_of_the_name_in_the_certificate(
    start: Start, server: AuthServer, certificates: Certificates
) -> None:
    server.serve = reply(200, json.dumps(GOOD).encode())
    authority = certificates.authority.certificate
    policy = [f"--tls-root-ca-file={authority}", "--tls-client-auth-policy=require-verify"]
    https = ReservedPort()
    address = f"--https-address={HOST}:{https.number}"
    nsqd = start(f"--auth=http:{server.address}", *certificates.server.flags(), *policy, address, *PATIENT)
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificates.client.certificate, certificates.client.key)
    with nsqd.client() as client:
        client.upgrade(context)
        auth(client, "over tcp")
    connection = http.client.HTTPSConnection(HOST, https.number, timeout=ANSWER_SECONDS, context=context)
    connection.request("GET", "/stats", headers={"Authorization": "Bearer over https"})
    assert connection.getresponse().status == 200
    connection.close()
    https.release()
    for query, secret in zip(server.queries, ("over tcp", "over https"), strict=True):
        assert query == {"common_name": ["friend"], "remote_ip": [HOST], "secret": [secret], "tls": ["true"]}


def test_no_password_is_shown(start: Start, server: AuthServer) -> None:
    flags = (f"--auth=http:http://user:hunter0@{server.address}/auth", "--auth-http-address", "u:hunter1@a:1")
    nsqd = start(*flags, "--http-auth=off")
    shown = [
        nsqd.http("GET", path).body
        for path in ("/config/auth", "/config/auth_http_addresses", "/debug/pprof/cmdline", "/debug/pprof/goroutine")
    ]
    assert f"http:http://***@{server.address}/auth".encode() in shown[0]
    assert json.loads(shown[1]) == ["***@a:1"]
    assert b"hunter" not in b"".join(shown)


# -- what is open, and to whom


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ["TCP", "HTTP"]),
        ({"auth": "allow_all"}, []),
        ({"auth": "allow_all", "http_auth": "off"}, ["HTTP"]),
        ({"auth_http_address": ("a:1",)}, ["HTTP"]),
        ({"auth_http_address": ("a:1",), "http_auth": "on"}, []),
    ],
)
def test_what_is_open_to_all_is_said(given: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    everywhere, local, socket_file = (Listener(a) for a in ("0.0.0.0:0", f"{HOST}:0", str(tmp_path / "socket")))
    lines = open_to_all(Options(**given), everywhere, everywhere, None)
    assert [line.split(" on ")[0] for line in lines] == names
    assert open_to_all(Options(**given), local, socket_file, local) == []
    assert open_to_all(Options(**given), local, None, None) == []
    verified = Options(**given, tls_client_auth_policy="require-verify")
    assert open_to_all(verified, everywhere, everywhere, everywhere) == []
    lines = open_to_all(Options(**given, tls_required=TLS_REQUIRED["true"]), local, everywhere, everywhere)
    assert [line.split(" on ")[0] for line in lines] == [f"{name}S" for name in names if name == "HTTP"]
    assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660
    for listener in (everywhere, local, socket_file):
        listener.close()


@pytest.mark.parametrize("backend", ["disk", "sqlite"])
def test_what_is_stored_and_its_socket_are_the_users_alone(start: Start, tmp_path: Path, backend: str) -> None:
    before = os.umask(0)
    try:
        nsqd = start(f"--backend={backend}")
    finally:
        os.umask(before)
    nsqd.create("t", "c")
    nsqd.publish("t", [b"x" * 1000])
    nsqd.store()
    found = [path for path in nsqd.data_path.rglob("*")]
    assert found
    for path in found:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path} {mode:o}"
