"""Start, stop and reload of nsqadmin: exit codes and texts."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from nsqtw.options.admin import AdminOptions, check_admin, normal_base_path
from tests.admin.conftest import USERS, Nodes, StartAdmin
from tests.admin.process import EXECUTABLE, AdminProcess
from tests.certificates import Certificates
from tests.process import wait_until
from tests.wire import ANSWER_SECONDS, HOST

LOOKUPD = "--lookupd-http-address=127.0.0.1:1"
TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
FAILED = "FATAL: failed to instantiate nsqadmin - "


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(EXECUTABLE), *flags], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ([], "--nsqd-http-address or --lookupd-http-address required"),
        ([LOOKUPD, "--nsqd-http-address=a:1"], "use --nsqd-http-address or --lookupd-http-address not both"),
        ([LOOKUPD, "--http-client-tls-cert=x"], "--http-client-tls-key must be specified with --http-client-tls-cert"),
        ([LOOKUPD, "--http-client-tls-key=x"], "--http-client-tls-cert must be specified with --http-client-tls-key"),
        (
            [LOOKUPD, "--http-client-tls-cert=/none", "--http-client-tls-key=/none"],
            "failed to LoadX509KeyPair /none, /none - open /none: no such file or directory",
        ),
        (
            [LOOKUPD, "--http-client-tls-root-ca-file=/none"],
            "failed to read TLS root CA file /none - open /none: no such file or directory",
        ),
        (["--lookupd-http-address=x"], "failed to resolve --lookupd-http-address (x) - "),
        (["--nsqd-http-address=ftp://x:1"], "failed to resolve --nsqd-http-address (ftp://x:1) - "),
        ([LOOKUPD, "--proxy-graphite"], "failed to parse --graphite-url () - "),
        (
            [LOOKUPD, "--allow-config-from-cidr=x"],
            "failed to parse --allow-config-from-cidr (x) - invalid CIDR address: x",
        ),
        (
            [LOOKUPD, "--http-address=127.0.0.1:99999"],
            "listen (127.0.0.1:99999) failed - listen tcp: address 99999: invalid port",
        ),
        ([LOOKUPD, "--auth=static:/none"], "--auth=static cannot be used - /none: no such file or directory"),
        ([LOOKUPD, "--auth=nobody"], "unknown authorizer 'nobody'"),
        ([LOOKUPD, "--auth=allow_all", "--admin-user=a"], "use --auth or the users of --acl-http-header"),
        ([LOOKUPD, "--nsqd-secret-file=/none"], "--nsqd-secret-file cannot be used - open /none: no such file"),
        ([LOOKUPD, "--tls-cert=/none"], "--tls-key must be specified with --tls-cert"),
    ],
)
def test_it_does_not_start(flags: list[str], text: str) -> None:
    done = run("--http-address=127.0.0.1:0", *flags)
    line = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{FAILED}{text}" in line


def test_flags() -> None:
    assert run("--version").stdout.startswith("nsqadmin v1.3.0 (built w/nsqtw")
    wrong = run("--nope")
    assert wrong.returncode == 2
    assert "flag provided but not defined: -nope" in wrong.stderr
    shown = run("--help")
    assert shown.returncode == 0
    assert "-notification-http-endpoint" in shown.stderr
    assert "NSQTW_NSQADMIN_" in shown.stderr
    assert "static" in run("--help-auth").stdout


def test_a_config_file(tmp_path: Path) -> None:
    config = tmp_path / "nsqadmin.toml"
    config.write_text(
        'nsqlookupd_http_addresses = ["a:1", "b:2"]\nadmin_users = "ann,bob"\n'
        'statsd_interval = "30s"\nlog_level = "warn"\n'
    )
    shown = run(f"--config={config}", "--print-config").stdout
    for line in (
        'nsqlookupd_http_addresses = ["a:1", "b:2"]',
        'admin_users = ["ann", "bob"]',
        'statsd_interval = "30s"',
        'log_level = "warn"',
    ):
        assert f"{line}  # file" in shown
    again = tmp_path / "again.toml"
    again.write_text(shown)
    values = [line.partition("  #")[0] for line in shown.splitlines()]
    printed = run(f"--config={again}", "--print-config").stdout
    assert [line.partition("  #")[0] for line in printed.splitlines()] == values
    unknown = tmp_path / "unknown.toml"
    unknown.write_text("admin_user = 5\n")
    assert "unknown key 'admin_user', did you mean 'admin_users'?" in run(f"--config={unknown}").stderr


def test_it_stops_and_logs(start: StartAdmin) -> None:
    admin = start()
    admin.get("/api/topics")
    admin.stop()
    said = admin.said()
    assert f"INFO: HTTP: listening on {HOST}:{admin.http_port}\n" in said
    assert f"INFO: 200 GET /api/topics ({HOST}:" in said
    assert "[nsqadmin] " in said


def test_an_open_address_is_warned_about(start: StartAdmin, users_file: str) -> None:
    text = "without --auth or --admin-user any client may delete topics"
    assert text not in start().said()
    assert text in start("--http-address=0.0.0.0:0").said()
    header = start("--http-address=0.0.0.0:0", "--admin-user=ann").said()
    assert "without --acl-proxy-cidr any client may name itself any user in X-Forwarded-User" in header
    assert "without --" not in start("--http-address=0.0.0.0:0", f"--auth=static:{users_file}").said()


def test_a_reload_takes_other_options(nodes: Nodes, tmp_path: Path) -> None:
    config = tmp_path / "nsqadmin.toml"
    config.write_text(f'nsqlookupd_http_addresses = "{HOST}:1"\n')
    admin = AdminProcess(tmp_path / "admin", f"--config={config}")
    admin.start()
    try:
        assert admin.get("/api/topics").status == 502
        config.write_text(f'nsqlookupd_http_addresses = "{HOST}:{nodes.lookupd.http_port}"\nadmin_users = "ann"\n')
        admin.signal(signal.SIGHUP)
        wait_until(lambda: "RELOAD: changed: " in admin.said(), "the file is read again")
        assert admin.get("/api/topics").status == 200
        assert admin.ask("POST", "/api/topics", {"topic": "t"}).status == 403
        config.write_text('nsqlookupd_http_addresses = "no port"\n')
        admin.signal(signal.SIGHUP)
        wait_until(lambda: "RELOAD: the addresses stay as they were" in admin.said(), "the mistake is logged")
        assert admin.get("/api/topics").status == 200
    finally:
        admin.close()
    admin.assert_no_traceback()


def test_a_reload_does_not_remove_the_last_user(nodes: Nodes, tmp_path: Path) -> None:
    config = tmp_path / "nsqadmin.toml"
    lookupd = f'nsqlookupd_http_addresses = "{HOST}:{nodes.lookupd.http_port}"\n'
    config.write_text(f'{lookupd}admin_users = "ann"\n')
    admin = AdminProcess(tmp_path / "admin", f"--config={config}")
    admin.start()
    try:
        config.write_text(f'{lookupd}log_level = "debug"\n')
        admin.signal(signal.SIGHUP)
        wait_until(lambda: "RELOAD: the users stay as they were - " in admin.said(), "the mistake is logged")
        assert "only a restart" in admin.said()
        assert admin.ask("POST", "/api/topics", {"topic": "t"}).status == 403
        assert admin.get("/config/log_level").body == b"1"
        config.write_text(f'{lookupd}publish_users = "bob"\n')
        admin.signal(signal.SIGHUP)
        wait_until(lambda: "publish_users" in admin.said(), "the file is read again")
        assert admin.ask("POST", "/api/topics", {"topic": "t"}, {"X-Forwarded-User": "ann"}).status == 403
    finally:
        admin.close()
    admin.assert_no_traceback()


def test_https(start: StartAdmin, certificates: Certificates, users_file: str) -> None:
    admin = start(*certificates.server.flags(), f"--auth=static:{users_file}")
    context = ssl.create_default_context(cafile=certificates.authority.certificate)
    with urllib.request.urlopen(f"https://{HOST}:{admin.http_port}/ping", context=context, timeout=30) as reply:
        assert reply.read() == b"OK"
    assert f"HTTPS: listening on {HOST}:{admin.http_port}" in admin.said()


def test_twistd(nodes: Nodes, tmp_path: Path) -> None:
    config = tmp_path / "nsqadmin.toml"
    config.write_text(f'nsqlookupd_http_addresses = "{HOST}:{nodes.lookupd.http_port}"\nhttp_address = "{HOST}:0"\n')
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*TWISTD, "--nodaemon", "--pidfile=", "nsqadmin", f"--config={config}"],
            cwd=tmp_path,
            stdout=stderr,
            stderr=stderr,
        )
    try:
        wait_until(lambda: "HTTP: listening on" in log.read_text(), "it listens")
        address = log.read_text().partition("listening on ")[2].split()[0]
        with urllib.request.urlopen(f"http://{address}/api/topics", timeout=30) as reply:
            assert reply.status == 200
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("path", "normal"),
    [("", ""), ("/", ""), ("adm/", "/adm"), ("/a/b", "/a/b"), ("//a//b/", "/a/b"), ("/a/../b", "/b")],
)
def test_base_paths(path: str, normal: str) -> None:
    assert normal_base_path(path) == normal


def test_the_options_of_the_original_are_enough() -> None:
    check_admin(AdminOptions(lookupd_http_address=("127.0.0.1:4161", "[::1]:4161")))
    check_admin(AdminOptions(nsqd_http_address=("https://nsqd.example:4152",)))


def test_health_and_metrics(start: StartAdmin, users_file: str) -> None:
    admin = start(f"--auth=static:{users_file}")
    assert (admin.get("/livez").status, admin.get("/livez").body) == (200, b"OK")
    ready = admin.get("/readyz")
    assert (ready.status, ready.document) == (200, {"ready": True, "checks": ["cluster"], "reasons": {}})
    assert admin.get("/metrics").status == 401
    bearer = {"Authorization": f"Bearer {USERS['alice'][0]}"}
    admin.ask("POST", "/api/topics", {"topic": "counted"}, bearer)
    admin.ask("POST", "/api/topics/counted", {"action": "pause"}, {"Authorization": f"Bearer {USERS['rita'][0]}"})
    reply = admin.ask("GET", "/metrics", headers=bearer)
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.body.decode().splitlines()
    requests = 'nsq_admin_requests_total{outcome="ok",program="nsqlookupd"} '
    (asked,) = [line for line in lines if line.startswith(requests)]
    assert float(asked.removeprefix(requests)) >= 1
    for line in (
        'nsq_admin_actions_total{action="create_topic",outcome="done"} 1.0',
        'nsq_admin_actions_total{action="change_topic",outcome="refused"} 1.0',
        'nsq_ready{check="cluster"} 1.0',
    ):
        assert line in lines


def test_a_unix_socket(start: StartAdmin) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/admin.sock"
        admin = start(f"--http-address={path}")
        for target, status in (("/ping", 200), ("/api/topics", 200), ("/config/log_level", 400)):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(ANSWER_SECONDS)
                client.connect(path)
                client.sendall(f"GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
                assert client.recv(65536).startswith(f"HTTP/1.1 {status} ".encode())
        assert "is open: without --auth" not in admin.said()
        admin.stop()
