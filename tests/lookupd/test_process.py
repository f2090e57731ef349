"""nsqlookupd as its users run it: starts, stops, signals, its files, and who may ask it what."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from nsqtw import __version__
from nsqtw.errors import NsqtwError
from nsqtw.lookupd.service import LookupdService
from nsqtw.options.lookupd import LookupdOptions
from nsqtw.tap_lookupd import NSQLOOKUPD_PROGRAM
from tests.certificates import Certificates
from tests.lookupd.conftest import StartLookupd
from tests.lookupd.nsqd import FakeNsqd
from tests.net.tls_client import context
from tests.process import LOOKUPD, LookupdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

NODE = "a:4150"
HEAP = "/debug/pprof/heap"


def run(*flags: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LOOKUPD, *flags], cwd=cwd, capture_output=True, text=True, timeout=ANSWER_SECONDS)


# -- start and stop


def test_it_starts_says_where_and_stops(start: StartLookupd) -> None:
    lookupd = start()
    said = lookupd.said().splitlines()
    assert " INFO: nsqlookupd v1.3.0 (built w/nsqtw" in said[0]
    assert all(line.startswith("[nsqlookupd] ") for line in said)
    with FakeNsqd(lookupd.tcp_port) as nsqd, FakeNsqd(lookupd.tcp_port, b""):
        answer = json.loads(nsqd.identify())
        assert (answer["tcp_port"], answer["http_port"]) == (lookupd.tcp_port, lookupd.http_port)
        lookupd.stop()
        assert nsqd.read() == b""
    closing = [line.partition("INFO: ")[2] for line in lookupd.said().splitlines() if "closing" in line]
    assert closing == [f"TCP: closing {HOST}:{lookupd.tcp_port}", f"HTTP: closing {HOST}:{lookupd.http_port}"]


def test_its_health_and_its_figures(start: StartLookupd) -> None:
    lookupd = start()
    assert lookupd.http("GET", "/livez") == (200, b"OK")
    assert lookupd.ask("/readyz") == {"ready": True, "checks": ["recovered"], "reasons": {}}
    with FakeNsqd(lookupd.tcp_port) as nsqd:
        nsqd.identify()
        nsqd.ask("REGISTER t c")
        lines = lookupd.http("GET", "/metrics").body.decode().splitlines()
    counts = {"producers": 1, "topics": 1, "channels": 1, "registrations": 2}
    assert {f"nsq_lookupd_{name} {count:.1f}" for name, count in counts.items()} <= set(lines)
    assert {'nsq_connections{listener="tcp"} 1.0', 'nsq_ready{check="recovered"} 1.0', "nsq_draining 0.0"} <= set(lines)
    assert any(line.startswith('nsq_build_info{nsq_version="1.3.0",program="nsqlookupd"') for line in lines)


def test_unix_sockets_serve_user_and_group_only() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path, http_path = f"{directory}/tcp.sock", f"{directory}/http.sock"
        process = subprocess.Popen(
            [LOOKUPD, f"--tcp-address={path}", f"--http-address={http_path}"], cwd=directory, stderr=subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            wait_for = f"HTTP: listening on {http_path}\n".encode()
            assert any(line.endswith(wait_for) for line in process.stderr), "it ended"
            for served in (path, http_path):
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(served)
                assert stat.S_IMODE(os.stat(served).st_mode) == 0o660
        finally:
            process.kill()
            process.communicate()


def test_info_tells_both_versions(start: StartLookupd) -> None:
    lookupd = start()
    assert lookupd.ask("/info?include_version=true") == {"version": "1.3.0", "nsqtw_version": __version__}
    assert lookupd.ask("/info") == {"version": "1.3.0"}


def test_sigint_is_a_clean_stop_too_and_sighup_is_none(start: StartLookupd) -> None:
    lookupd = start()
    lookupd.signal(signal.SIGHUP)
    wait_until(lambda: "RELOAD: there is nothing to reload" in lookupd.said(), "the signal is noticed")
    assert lookupd.http("GET", "/ping").body == b"OK"
    assert lookupd.end_with(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("flags", "status", "line"),
    [
        (["--nope"], 2, "flag provided but not defined: -nope"),
        (["-tombstone-lifetime=5"], 2, 'invalid value "5" for --tombstone-lifetime: must be a number with a unit'),
        (["--nsq-compat", "-tombstone-lifetime=5"], 2, 'invalid value "5" for flag -tombstone-lifetime: parse error'),
        (["--lookupd-tls", "x"], 2, "flag provided but not defined: -lookupd-tls"),
        (["stray", "--peer-secret-file=x"], 2, 'unexpected word "stray"'),
        (
            ["--config=key.toml"],
            1,
            "config file key.toml: unknown key 'tcp_adress', did you mean 'tcp_address'?",
        ),
        (["--config=none.toml"], 1, "FATAL: failed to load config file none.toml - open none.toml: no such file"),
        (["--config=level.toml"], 1, "[nsqlookupd] "),
        (["--config=level.toml"], 1, "FATAL: failed parsing log_level bogus"),
        (["--config=time.toml"], 1, "config file time.toml: inactive_producer_timeout must be a number with a unit"),
        (
            ["--nsq-compat", "--config=time.toml"],
            1,
            "Resolve failed to coerce value zz (5m0s) for field InactiveProducerTimeout",
        ),
    ],
)
def test_options_that_keep_it_from_starting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    status: int,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "__stderr__", None)  # what pytest has put in its place is to be looked at
    (tmp_path / "level.toml").write_text('log_level = "bogus"\n')
    (tmp_path / "key.toml").write_text('tcp_adress = "127.0.0.1:1"\n')
    (tmp_path / "time.toml").write_text('inactive_producer_timeout = "zz"\n')
    assert NSQLOOKUPD_PROGRAM.run(flags) == status
    said = capsys.readouterr().err
    assert line in said
    assert said.endswith("\nnsqlookupd --help lists every flag\n") == (status == 2)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"tcp_address": "1.2.3.4:99"}, "listen (1.2.3.4:99) failed - listen tcp 1.2.3.4:99: bind: cannot assign"),
        ({"http_address": "127.0.0.1:99999"}, "listen tcp: address 99999: invalid port"),
        ({"tls_required": 2}, "cannot require TLS client connections without TLS key and cert"),
        ({"peer_secret_file": "none"}, "--peer-secret-file cannot be used - open none: no such file"),
        ({"peer_secret_file": "lines"}, "--peer-secret-file cannot be used - lines must hold a secret: 1 to 4096 "),
        ({"data_path": "none"}, "failed to lock data-path: open none: no such file or directory"),
        ({"max_connections": -1}, "--max-connections must be 0 or more"),
        ({"inactive_producer_timeout": -1.0}, "--inactive-producer-timeout must be greater than 0"),
        ({"tcp_address": "127.0.0.1"}, '"127.0.0.1" has no port; --tcp-address must be host:port, or the path of a'),
        ({"http_address": "here.sock"}, '"here.sock" has no port; --http-address must be host:port, or the path of a'),
        ({"tls_client_auth_policy": "required"}, "unknown policy \"required\", did you mean 'require'?; "),
    ],
)
def test_what_else_keeps_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("two\nlines\n")
    given = LookupdOptions(**{"tcp_address": "127.0.0.1:0", "http_address": "127.0.0.1:0", **options})
    with pytest.raises(NsqtwError, match=re.escape(line)) as raised:
        LookupdService(given, MemoryReactorClock()).startService()
    assert str(raised.value).startswith("failed to instantiate nsqlookupd - ")


def test_a_start_that_fails_says_so_in_a_line(tmp_path: Path) -> None:
    done = run("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:99999", cwd=tmp_path)
    assert done.returncode == 1
    assert "FATAL: failed to instantiate nsqlookupd - listen (127.0.0.1:99999) failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_does_not_wait_for_modules_of_a_broker() -> None:
    script = "import sys, nsqtw.tap_lookupd, nsqtw.lookupd.service; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "nsqtw.lookupd.registrations" in loaded
    assert not loaded & {"nsqtw.core.broker", "nsqtw.runtime.pump", "sqlite3", "treq", "nsqtw.net.tls_settings"}


def test_what_it_prints(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout.startswith("nsqlookupd v1.3.0 (built w/")
    usage = run("-h", cwd=tmp_path)
    assert (usage.returncode, usage.stdout) == (0, "")
    assert "-http-address string\n    \taddress for HTTP clients" in usage.stderr
    printed = run("--print-config", "--tombstone-lifetime=1m", cwd=tmp_path).stdout
    assert 'tombstone_lifetime = "1m0s"  # flag\n' in printed
    (tmp_path / "all.toml").write_text(printed)
    assert run("--print-config", "--config=all.toml", cwd=tmp_path).stdout.count("# file") == printed.count(" = ") - 1


def test_the_config_file_is_that_of_the_original(start: StartLookupd, tmp_path: Path) -> None:
    file = tmp_path / "nsqlookupd.cfg"
    file.write_text('log_prefix = "[x] "\nbroadcast_address = "here"\ntombstone_lifetime = 1500\nlog_levels = "info"\n')
    lookupd = start(f"--config={file}", "--nsq-compat")
    assert lookupd.said().startswith("[x] ")
    assert "unknown key 'log_levels', did you mean 'log_level'?" in lookupd.said()
    with FakeNsqd(lookupd.tcp_port) as nsqd:
        assert json.loads(nsqd.identify())["broadcast_address"] == "here"


def test_an_nsqd_and_an_nsqlookupd_share_an_environment(tmp_path: Path) -> None:
    variables = {"NSQTW_NSQLOOKUPD_LOG_PREFIX": "[y] ", "NSQTW_MSG_TIMEOUT": "5s", "PATH": ""}
    for program, key in (("nsqlookupd", "log_prefix"), ("nsqd", "msg_timeout")):
        words = [LOOKUPD.with_name(program), "--print-config"]
        done = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert [line.partition(" ")[0] for line in done.stdout.splitlines() if "# environment" in line] == [key]


def test_under_twistd(tmp_path: Path) -> None:
    words = ["--nodaemon", "--pidfile=", "nsqlookupd", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    script = "from twisted.scripts.twistd import run; run()"
    process = subprocess.Popen([sys.executable, "-c", script, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = ""
        while "HTTP: listening on" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        # twistd says that it listens before it takes signals, and answers after that.
        site = http.client.HTTPConnection(said.rpartition(" ")[2].strip(), timeout=ANSWER_SECONDS)
        site.request("GET", "/ping")
        assert site.getresponse().read() == b"OK"
        site.close()
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=ANSWER_SECONDS)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (0, -signal.SIGTERM)  # twistd ends by the signal that has ended it
    assert "[nsqlookupd] " in said
    assert "HTTP: closing 127.0.0.1:" in rest


# -- the snapshot


def snapshots(lookupd: LookupdProcess) -> Path:
    return lookupd.data_path / "registrations.snapshot"


def test_after_a_crash_it_answers_at_once_and_forgets_nobody_who_is_there(start: StartLookupd, tmp_path: Path) -> None:
    data = tmp_path / "0" / "data"
    lookupd = start(f"--data-path={data}")
    with FakeNsqd(lookupd.tcp_port) as nsqd:
        nsqd.register("t c", "u")
        wait_until(lambda: snapshots(lookupd).exists() and b'"u"' in snapshots(lookupd).read_bytes(), "it is stored")
        lookupd.kill()
    lookupd.start()
    (shown,) = lookupd.ask("/lookup?topic=t")["producers"]
    assert (shown["broadcast_address"], shown["stale"]) == ("a", True)
    (node,) = lookupd.ask("/nodes")["producers"]
    assert (sorted(node["topics"]), node["stale"]) == (["t", "u"], True)
    with FakeNsqd(lookupd.tcp_port) as nsqd:
        nsqd.register("t c")
        assert ["stale" in one for one in lookupd.ask("/lookup?topic=t")["producers"]] == [False]
        assert lookupd.producers("u") == [NODE]
        assert nsqd.ask("PING") == b"OK"
        assert lookupd.producers("u") == []
        lookupd.restart()
    assert lookupd.producers("t") == [NODE]
    assert f"DB: snapshot {snapshots(lookupd)} has 1 producers and 2 topics" in lookupd.said()


def test_a_damaged_snapshot_is_moved_aside(start: StartLookupd, tmp_path: Path) -> None:
    lookupd = start(f"--data-path={tmp_path / '0' / 'data'}")
    assert lookupd.http("POST", "/topic/create?topic=t").status == 200
    lookupd.stop()
    good = snapshots(lookupd).read_bytes()
    snapshots(lookupd).write_bytes(good.replace(b'"t"', b'"u"'))
    lookupd.start()
    assert lookupd.ask("/topics") == {"topics": []}
    warnings = [line for line in lookupd.said().splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert "the snapshot is damaged: its checksum does not hold" in warnings[0]
    assert snapshots(lookupd).with_suffix(".snapshot.bad").read_bytes() == good.replace(b'"t"', b'"u"')


def test_two_do_not_share_a_data_path(start: StartLookupd, tmp_path: Path) -> None:
    lookupd = start(f"--data-path={tmp_path / '0' / 'data'}")
    flags = [f"--data-path={lookupd.data_path}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    done = run(*flags, cwd=tmp_path)
    assert done.returncode == 1
    assert "(possibly in use by another instance of nsqlookupd)" in done.stderr


def test_without_a_data_path_nothing_is_stored(start: StartLookupd) -> None:
    lookupd = start()
    lookupd.http("POST", "/topic/create?topic=t")
    lookupd.restart()
    assert lookupd.ask("/topics") == {"topics": []}
    assert not list(lookupd.data_path.iterdir())


# -- who may ask what


def ask(lookupd: LookupdProcess, method: str, path: str, secret: str = "", tls: ssl.SSLContext | None = None) -> int:
    """The status of an answer."""
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection(HOST, lookupd.http_port, timeout=ANSWER_SECONDS)
    else:
        connection = http.client.HTTPSConnection("localhost", lookupd.http_port, timeout=ANSWER_SECONDS, context=tls)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("mode", "without"),
    [
        (
            "changes",
            {"/ping": 200, "/lookup?topic=t": 200, "/v2/watch?topic=*": 400, "POST": 401, HEAP: 401, "/metrics": 200}
            | {"/debug": 401},
        ),
        (
            "all",
            {
                **{"/ping": 200, "/livez": 200, "/readyz": 200},
                **{"/lookup?topic=t": 401, "/v2/watch?topic=*": 401, "POST": 401, "/metrics": 401},
            },
        ),
        (
            "off",
            {
                "/ping": 200,
                "/lookup?topic=t": 200,
                "/v2/watch?topic=*": 400,
                "POST": 200,
                "/metrics": 200,
                "/debug": 200,
            },
        ),
    ],
)
def test_the_secret(start: StartLookupd, tmp_path: Path, mode: str, without: dict[str, int]) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    lookupd = start(f"--peer-secret-file={file}", f"--http-auth={mode}")
    with FakeNsqd(lookupd.tcp_port) as nsqd, FakeNsqd(lookupd.tcp_port) as stranger:
        assert nsqd.identify(secret="hunter2").startswith(b"{")
        assert nsqd.ask("REGISTER t") == b"OK"
        assert stranger.identify("b", secret="hunter3").startswith(b"E_UNAUTHORIZED ")
        assert stranger.read() == b""
        wanted = {"POST": ("POST", "/topic/create?topic=u")}
        for what, status in without.items():
            method, path = wanted.get(what, ("GET", what))
            assert ask(lookupd, method, path) == status, what
            assert ask(lookupd, method, path, "hunter3") == status, what
            assert ask(lookupd, method, path, "hunter2") != 401, what
        assert lookupd.said().count("hunter") == 0


def test_the_secret_changes_with_its_file(start: StartLookupd, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("one")
    lookupd = start(f"--peer-secret-file={file}")
    file.write_text("")
    lookupd.signal(signal.SIGHUP)
    wait_until(lambda: "RELOAD: the secrets stay as they were - --peer-secret" in lookupd.said(), "it is refused")
    assert ask(lookupd, "POST", "/topic/create?topic=t", "one") == 200
    file.write_text("two")
    lookupd.signal(signal.SIGHUP)
    wait_until(lambda: "RELOAD: read again: secrets" in lookupd.said(), "it is read")
    assert ask(lookupd, "POST", "/topic/create?topic=t", "one") == 401
    assert ask(lookupd, "POST", "/topic/create?topic=t", "two") == 200
    with FakeNsqd(lookupd.tcp_port) as nsqd:
        assert nsqd.identify(secret="two").startswith(b"{")


def test_a_bad_certificate_does_not_keep_a_new_secret_out(
    start: StartLookupd, certificates: Certificates, tmp_path: Path
) -> None:
    file, certificate = tmp_path / "secret", tmp_path / "certificate"
    file.write_text("one")
    shutil.copy(certificates.server.certificate, certificate)
    flags = (f"--tls-cert={certificate}", f"--tls-key={certificates.server.key}")
    lookupd = start(f"--peer-secret-file={file}", *flags)
    file.write_text("two")
    certificate.write_text("")
    lookupd.signal(signal.SIGHUP)
    wait_until(lambda: "RELOAD: read again: secrets" in lookupd.said(), "it is read")
    assert "RELOAD: the certificates stay as they were - failed" in lookupd.said()
    assert ask(lookupd, "POST", "/topic/create?topic=t", "two") == 200


def test_with_a_certificate_both_ports_take_both(start: StartLookupd, certificates: Certificates) -> None:
    lookupd = start(*certificates.server.flags())
    wants = context(authority=certificates.authority.certificate)
    with FakeNsqd(lookupd.tcp_port) as plain, FakeNsqd(lookupd.tcp_port, tls=wants) as secured:
        plain.register("t", name="a")
        secured.register("t", name="b")
        assert lookupd.producers("t") == ["a:4150", "b:4150"]
        assert ask(lookupd, "GET", "/lookup?topic=t", tls=wants) == 200


@pytest.mark.parametrize(("required", "plain_http"), [("true", 400), ("tcp-https", 200)])
def test_tls_can_be_required(start: StartLookupd, certificates: Certificates, required: str, plain_http: int) -> None:
    lookupd = start(*certificates.server.flags(), f"--tls-required={required}")
    wants = context(authority=certificates.authority.certificate)
    with FakeNsqd(lookupd.tcp_port) as plain, FakeNsqd(lookupd.tcp_port, tls=wants) as secured:
        assert plain.ask("PING") == b"E_INVALID client must use TLS"
        assert plain.read() == b""
        secured.register("t")
    assert ask(lookupd, "GET", "/ping") == plain_http
    assert ask(lookupd, "GET", "/ping", tls=wants) == 200


def test_certificates_of_nsqds_are_verified(start: StartLookupd, certificates: Certificates) -> None:
    authority = certificates.authority.certificate
    flags = ["--tls-client-auth-policy=require-verify", f"--tls-root-ca-file={authority}"]
    lookupd = start(*certificates.server.flags(), *flags)
    with FakeNsqd(lookupd.tcp_port, tls=context(certificate=certificates.client, authority=authority)) as friend:
        friend.register("t")
    refused: tuple[Any, ...] = (ssl.SSLError, ConnectionError)
    for wants in (context(), context(certificate=certificates.stranger)):
        try:
            with FakeNsqd(lookupd.tcp_port, tls=wants) as stranger:
                assert stranger.read() == b""
        except refused:
            pass
    assert "TLS handshake error" in lookupd.said()


@pytest.mark.parametrize(("flags", "count"), [([], 2), (["--peer-secret-file=secret"], 0)])
def test_who_is_open_to_all_is_told(tmp_path: Path, flags: list[str], count: int) -> None:
    (tmp_path / "secret").write_text("s")
    words = [LOOKUPD, "--tcp-address=0.0.0.0:0", "--http-address=0.0.0.0:0", *flags]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = ""
        while "HTTP: listening on" not in said:
            said += process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=ANSWER_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert said.count("is open: without --peer-secret-file whoever reaches it may") == count
