"""A page whose owner has pointed its name at a daemon (DNS rebinding). Each daemon listens on a loopback address."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.process import AdminProcess
from tests.process import DaemonProcess, LookupdProcess, NsqdProcess
from tests.wire import ANSWER_SECONDS, HOST

ALLOWED = "--allowed-host=nsq.example"
ADMIN = "--nsqd-http-address=127.0.0.1:1"
DAEMONS = {
    "nsqd": (NsqdProcess, []),
    "nsqlookupd": (LookupdProcess, []),
    "nsqadmin": (AdminProcess, [ADMIN]),
    "nsqadmin behind a proxy": (AdminProcess, [ADMIN, "--admin-user=ann", "--acl-proxy-cidr=127.0.0.1/32"]),
}
REQUESTS = [
    ("GET", "/ping"),
    ("GET", "/metrics"),
    ("GET", "/config/log_level"),
    ("PUT", "/config/log_level"),
    ("POST", "/topic/create?topic=t"),
    ("POST", "/api/topics"),
    ("GET", "/"),
    ("GET", "/static/x"),
    ("GET", "/login"),
]


@pytest.fixture(scope="module", params=DAEMONS)
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    kind, flags = DAEMONS[request.param]
    started = kind(tmp_path_factory.mktemp("daemon"), ALLOWED, *flags)
    started.start()
    yield started
    started.close()
    started.assert_no_traceback()


def ask(daemon: DaemonProcess, method: str, path: str, host: str, **fields: str) -> int:
    connection = http.client.HTTPConnection(HOST, daemon.http_port, timeout=ANSWER_SECONDS)
    headers = {"Host": host, **{name.replace("_", "-"): value for name, value in fields.items()}}
    try:
        connection.request(method, path, b"info" if method != "GET" else None, headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_a_page_gets_and_changes_nothing(daemon: DaemonProcess, method: str, path: str) -> None:
    host = f"evil.example:{daemon.http_port}"
    page = {"Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin", "X_Forwarded_User": "ann"}
    assert ask(daemon, method, path, host, **page) == 403
    assert ask(daemon, method, path, host) == 403


def test_the_names_of_a_daemon(daemon: DaemonProcess) -> None:
    port = daemon.http_port
    names = (HOST, f"localhost:{port}", f"[::1]:{port}", f"{socket.gethostname()}:{port}", f"nsq.example:{port}", "")
    for name in names:
        assert ask(daemon, "GET", "/ping", name) == 200, name


def test_a_reload_allows_a_name(tmp_path: Path) -> None:
    config = tmp_path / "nsqd.toml"
    config.write_text("")
    broker = NsqdProcess(tmp_path, f"--config={config}")
    broker.start()
    try:
        assert ask(broker, "GET", "/ping", "nsq.example") == 403
        config.write_text('allowed_hosts = ["nsq.example"]\n')
        assert broker.http("POST", "/v2/reload").status == 200
        assert ask(broker, "GET", "/ping", "nsq.example") == 200
        for _ in range(3):
            assert ask(broker, "POST", "/pub?topic=t", "nsq.example") == 200
        config.write_text("")
        assert broker.http("POST", "/v2/reload").status == 200
        assert ask(broker, "POST", "/pub?topic=t", "nsq.example") == 403
    finally:
        broker.close()
