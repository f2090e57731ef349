"""A broker as a process: what it prints, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqtw.daemon.data_path import lock_data_path
from nsqtw.errors import OptionError
from nsqtw.nsqd.service import fill_in, unserved
from nsqtw.options.broker import Options
from tests.process import ReservedPort, wait_until

NSQD = "from nsqtw.tap import main_nsqd; main_nsqd()"
TWISTD = "from twisted.scripts.twistd import run; run()"
TIME = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"
LISTENING = re.compile(r"(TCP|HTTP): listening on (\S+)$")


class Process:
    """A broker's process, on free ports unless the flags say otherwise."""

    def __init__(self, words: list[str], directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", *words],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self.addresses: dict[str, str] = {}

    def wait_for(self, text: str) -> str:
        """Read lines up to one that contains `text`; fails when the process ends before it says so."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := LISTENING.search(self.lines[-1]):
                self.addresses[found[1]] = found[2]
            if text in line:
                return self.lines[-1]
        raise AssertionError(f"never said {text!r}: {self.lines}")

    def tell(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Read to the end; the exit code."""
        rest, _ = self._process.communicate()
        self.lines += rest.splitlines()
        return self._process.returncode

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def post(self, path: str, body: bytes = b"") -> None:
        request = urllib.request.Request(f"http://{self.addresses['HTTP']}{path}", body, method="POST")
        urllib.request.urlopen(request).close()

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.addresses['HTTP']}{path}") as answer:
            return str(answer.read().decode())


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers, and sees to it that none outlives the test."""
    started: list[Process] = []

    def start_one(*flags: str, program: list[str] | None = None) -> Process:
        free = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--stop-timeout=60s"]
        process = Process([*(program or [NSQD]), *free, *flags], tmp_path)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()


def run(*flags: str, cwd: Path, script: str = NSQD, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program that ends by itself."""
    command = [sys.executable, "-c", script, *flags]
    return subprocess.run(command, cwd=cwd, env=os.environ | variables, capture_output=True, text=True)


def test_it_says_on_stderr_who_it_is_and_where_it_listens(start: Start, tmp_path: Path) -> None:
    broker = start("--node-id=617")
    broker.wait_for("HTTP: listening on")
    expected = [
        rf"\[nsqd\] {TIME} INFO: nsqd v1\.3\.0 \(built w/nsqtw[a-z0-9.-]+\)",
        rf"\[nsqd\] {TIME} INFO: ID: 617",
        rf"\[nsqd\] {TIME} INFO: NSQ: persisting topic/channel metadata to {re.escape(str(tmp_path))}/nsqd\.dat",
        rf"\[nsqd\] {TIME} INFO: NSQ: TLS is off; AUTH is off; protocols: V2",
        rf"\[nsqd\] {TIME} INFO: TCP: listening on 127\.0\.0\.1:[1-9]\d*",
        rf"\[nsqd\] {TIME} INFO: HTTP: listening on 127\.0\.0\.1:[1-9]\d*",
    ]
    assert len(expected) == len(broker.lines)
    for pattern, line in zip(expected, broker.lines, strict=True):
        assert re.fullmatch(pattern, line)


def test_it_is_not_ready_while_no_nsqlookupd_knows_it(start: Start, tmp_path: Path) -> None:
    lookupd = ReservedPort()
    try:
        broker = start(f"--lookupd-tcp-address=127.0.0.1:{lookupd.number}")
        broker.wait_for("LOOKUPD(")
        with pytest.raises(urllib.error.HTTPError) as refused:
            broker.get("/readyz")
        assert refused.value.code == 503
        assert json.load(refused.value) == {
            "ready": False,
            "checks": ["recovered", "disk", "lookupd", "draining"],
            "reasons": {"lookupd": "connected to none of 1 nsqlookupds"},
        }
        assert broker.get("/livez") == broker.get("/ping") == "OK"
        assert f'nsq_lookupd_up{{peer="127.0.0.1:{lookupd.number}"}} 0.0\n' in broker.get("/metrics")
    finally:
        lookupd.release()


def test_it_answers_where_it_says(start: Start) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    assert broker.get("/ping") == "OK"
    host, _, port = broker.addresses["TCP"].rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"  V2PUB t\n\x00\x00\x00\x01x")
        assert client.recv(10) == b"\x00\x00\x00\x06\x00\x00\x00\x00OK"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly(start: Start, number: int) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    host, _, port = broker.addresses["TCP"].rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        # Answered, so the connection is the broker's and not only in the backlog.
        client.sendall(b"  V2PUB t\n\x00\x00\x00\x01x")
        client.recv(10)
        broker.tell(number)
        broker.tell(number)
        assert client.recv(1) == b""
    assert broker.end() == 0
    assert broker.lines[-1].endswith("INFO: NSQ: bye")


def test_topics_and_their_state_are_there_after_a_stop(start: Start) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/channel/pause?topic=t&channel=c"):
        broker.post(path)
    broker.tell(signal.SIGTERM)
    assert broker.end() == 0
    again = start()
    again.wait_for("HTTP: listening on")
    stats = again.get("/stats?format=json")
    assert '"topic_name":"t"' in stats and '"channel_name":"c"' in stats and '"paused":true' in stats


def test_nsqd_dat_names_topics_and_channels_and_what_is_paused(start: Start, tmp_path: Path) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    file = tmp_path / "nsqd.dat"
    assert file.read_bytes() == b'{"topics":null,"version":"1.3.0"}'
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/channel/pause?topic=t&channel=c"):
        broker.post(path)
    paused = b'{"topics":[{"name":"t","paused":false,"channels":[{"name":"c","paused":true}]}],"version":"1.3.0"}'
    assert file.read_bytes() == paused
    broker.post("/channel/unpause?topic=t&channel=c")
    assert file.read_bytes() == paused.replace(b"true", b"false")
    broker.post("/channel/delete?topic=t&channel=c")
    broker.tell(signal.SIGTERM)
    assert broker.end() == 0
    assert file.read_bytes() == b'{"topics":[{"name":"t","paused":false,"channels":null}],"version":"1.3.0"}'
    assert [name for name in os.listdir(tmp_path) if "nsqd.dat" in name] == ["nsqd.dat"]


def test_what_nsqd_dat_names_is_made(start: Start, tmp_path: Path) -> None:
    channels = '[{"name":"c","paused":true},{"name":"no good"},{"name":"x#ephemeral"}]'
    (tmp_path / "nsqd.dat").write_text(f'{{"topics":[{{"name":"t","paused":true,"channels":{channels}}}]}}')
    broker = start()
    broker.wait_for("HTTP: listening on")
    assert any(line.endswith("WARNING: skipping creation of invalid channel no good") for line in broker.lines)
    (topic,) = json.loads(broker.get("/stats?format=json"))["topics"]
    assert (topic["topic_name"], topic["paused"]) == ("t", True)
    shown = {channel["channel_name"]: channel["paused"] for channel in topic["channels"]}
    assert shown == {"c": True, "x#ephemeral": False}
    written = '{"topics":[{"name":"t","paused":true,"channels":[{"name":"c","paused":true}]}],"version":"1.3.0"}'
    assert (tmp_path / "nsqd.dat").read_text() == written


def test_without_its_positions_it_delivers_all_it_has_to_all_channels_it_knows(start: Start, tmp_path: Path) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/channel/create?topic=t&channel=d"):
        broker.post(path)
    for body in (b"x", b"y"):
        broker.post("/pub?topic=t", body)
    broker.tell(signal.SIGTERM)
    assert broker.end() == 0
    for file in tmp_path.glob("positions.db*"):
        file.write_bytes(b"damaged" * 1000)
    again = start()
    again.wait_for("HTTP: listening on")
    assert any(
        re.search(r"ERROR: NSQ: .*positions.db was damaged: .*; it is set aside as ", line) for line in again.lines
    )
    (topic,) = json.loads(again.get("/stats?format=json"))["topics"]
    assert {channel["channel_name"]: channel["depth"] for channel in topic["channels"]} == {"c": 2, "d": 2}


def test_an_nsqd_dat_that_cannot_be_understood_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "nsqd.dat").touch()
    done = run("--log-level=fatal", "--tcp-address=127.0.0.1:0", "--http-address=", cwd=tmp_path)
    assert done.returncode == 1
    text = f"failed to load metadata - failed to parse metadata in {tmp_path}/nsqd.dat - unexpected end of JSON input"
    text += f"; restore it, or let 'nsqtw fsck --repair {tmp_path}' set it aside"
    assert re.fullmatch(rf"\[nsqd\] {TIME} FATAL: {re.escape(text)}\n", done.stderr)


def test_an_nsqd_dat_that_cannot_be_written_keeps_it_from_starting(tmp_path: Path) -> None:
    refuse = "def refuse(*_): raise BackendError('no space left on device')"
    imports = "from nsqtw.nsqd import nsqd_dat\nfrom nsqtw.errors import BackendError\n"
    script = f"{imports}{refuse}\nnsqd_dat.write = refuse\n{NSQD}"
    done = run("--log-level=fatal", "--tcp-address=127.0.0.1:0", "--http-address=", cwd=tmp_path, script=script)
    assert done.returncode == 1
    assert re.fullmatch(rf"\[nsqd\] {TIME} FATAL: failed to persist metadata - no space left on device\n", done.stderr)


def test_after_sigkill_it_starts_again_on_the_same_ports_and_data(start: Start) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    broker.kill()
    again = start(f"--tcp-address={broker.addresses['TCP']}", f"--http-address={broker.addresses['HTTP']}")
    again.wait_for("HTTP: listening on")
    assert again.addresses == broker.addresses
    assert again.get("/ping") == "OK"


def test_a_data_path_has_one_broker(start: Start, tmp_path: Path) -> None:
    start().wait_for("HTTP: listening on")
    second = run("--data-path", str(tmp_path), "--tcp-address=127.0.0.1:0", "--log-prefix=x", cwd=tmp_path)
    assert second.returncode == 1
    text = (
        f"failed to instantiate nsqd - failed to lock data-path: cannot flock directory {tmp_path}"
        " - resource temporarily unavailable (possibly in use by another instance of nsqd); stop it first"
    )
    assert re.fullmatch(rf"\[nsqd\] {TIME} FATAL: {re.escape(text)}\n", second.stderr)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--data-path=/no/such/place"], "failed to lock data-path: open /no/such/place: no such file or directory"),
        (["--max-deflate-level=10"], "--max-deflate-level must be [1,9]"),
        (["--node-id=1024"], "--node-id must be [0,1024)"),
        (["--tls-required"], "cannot require TLS client connections without TLS key and cert"),
        (["--auth-http-request-method=put"], "--auth-http-request-method must be post or get"),
        (["--e2e-processing-latency-percentile=2.0"], "invalid E2E processing latency percentile: 2"),
        (["--tls-cert=/no/cert"], "failed to build TLS config - --tls-key must be set, too: --tls-cert needs"),
        (
            ["--tls-root-ca-file=/no/ca"],
            "failed to build client TLS config - --tls-root-ca-file: open /no/ca: ",
        ),
        (["--sync-timeout=0"], "--sync-timeout must be greater than 0"),
        # The order of nsqd's checks.
        (["--node-id=-1", "--data-path=/no/such/place"], "failed to lock data-path: "),
        (["--node-id=-1", "--max-deflate-level=0"], "--max-deflate-level must be [1,9]"),
        (["--tls-required", "--node-id=-1"], "--node-id must be [0,1024)"),
        (["--auth-http-request-method=x", "--tls-required"], "cannot require TLS client connections without TLS"),
        (["--tls-root-ca-file=/no/ca", "--tls-required"], "cannot require TLS client connections without TLS"),
        (["--auth-http-request-method=x", "--tls-root-ca-file=/no/ca"], "failed to build client TLS config - "),
        (["--sync-timeout=0", "--e2e-processing-latency-percentile=2.0"], "invalid E2E processing latency percentile"),
        (["--sync-timeout=0", "--tcp-address=x:x"], "--sync-timeout must be greater than 0"),
        (["--auth-http-address="], "--auth=http cannot be used - '' is no address of an auth server"),
        (["--auth=http"], "--auth=http cannot be used - --auth=http needs the address of an auth server"),
        (["--auth=http:ftp://a"], "--auth=http cannot be used - 'ftp://a' is no address of an auth server"),
        (["--auth=static"], "--auth=static cannot be used - --auth=static needs the path of a file of grants"),
        (["--auth=static:/no/file"], "--auth=static cannot be used - /no/file: no such file or directory"),
        (["--auth=allow_all:x"], "--auth=allow_all cannot be used - --auth=allow_all takes no argument"),
        (["--auth=nobody"], "unknown authorizer 'nobody'; installed: allow_all, http, static"),
        (["--auth=allow_all", "--auth-http-address=a:1"], "--auth-http-address is for --auth=http, and not for"),
        (["--backend=tape"], "unknown backend 'tape'; installed: "),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(flags: list[str], text: str, tmp_path: Path) -> None:
    done = run("--log-level=fatal", "--tcp-address=127.0.0.1:0", "--http-address=", *flags, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    expected = re.escape(f"failed to instantiate nsqd - {text}")
    assert re.match(rf"\[nsqd\] {TIME} FATAL: {expected}", done.stderr)


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("--tcp-address", address, "--log-level=fatal", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    reason = f"listen tcp {address}: bind: address already in use"
    text = f"FATAL: failed to instantiate nsqd - listen ({address}) failed - {reason}; --tcp-address chooses another\n"
    assert done.stderr.endswith(text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--no-such-flag=1"], "flag provided but not defined: -no-such-flag"),
        (["--data-pth=x"], "flag provided but not defined: -data-pth, did you mean '--data-path'?"),
        (
            ["--snappy", "false", "--auth=static:grants.toml"],
            "unexpected word \"false\": write --snappy=false, a switch takes its value behind '='",
        ),
    ],
)
@pytest.mark.parametrize(("script", "program"), [(NSQD, []), (TWISTD, ["-n", "nsq"])])
def test_a_wrong_command_line_is_two_lines_and_has_its_own_exit_code(
    script: str, program: list[str], words: list[str], text: str, tmp_path: Path
) -> None:
    done = run(*program, *words, cwd=tmp_path, script=script)
    name = "twistd nsq" if program else "nsqd"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{text}\n{name} --help lists every flag\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", [NSQD, TWISTD])
@pytest.mark.parametrize("word", ["--version", "--help", "--print-config"])
def test_a_reader_that_is_gone_is_no_failure(script: str, word: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", script, *(["nsq"] if script is TWISTD else []), word]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        for broken, kept in (("stdout", "stderr"), ("stderr", "stdout")):
            done = subprocess.run(words, cwd=tmp_path, **{broken: gone, kept: subprocess.PIPE})  # type: ignore[call-overload]
            assert done.returncode == 0
            assert b"Broken" not in getattr(done, kept)


@pytest.mark.parametrize("flag", ["--tcp-address=127.0.0.1", "--http-address=localhost", "--https-address=here.sock"])
def test_an_address_without_a_port_makes_no_socket_file(flag: str, tmp_path: Path) -> None:
    name, _, value = flag.partition("=")
    others = [f"--{one}-address=127.0.0.1:0" for one in ("tcp", "http") if one not in name.split("-")]
    done = run(*others, flag, cwd=tmp_path)
    assert done.returncode == 1
    expected = f'FATAL: failed to instantiate nsqd - "{value}" has no port; {name} must be host:port, or the path of a'
    assert expected in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "variables", "content", "pattern"),
    [
        (["--nsq-compat", "--e2e-processing-latency-percentile=x"], {}, "", r"SECOND Could not parse: x; "),
        (
            ["--nsq-compat"],
            {},
            "max_rdy_count = 1.5",
            r"SECOND ERROR: Resolve failed to coerce value 1\.5 \(2500\) for field MaxRdyCount",
        ),
        (
            ["--nsq-compat"],
            {},
            "nsqlookupd_tcp_addresses = [5]",
            r"SECOND ERROR: Resolve failed to coerce ",
        ),
        ([], {}, "max_rdy_count = 1.5", r"\[nsqd\] TIME FATAL: config file nsqd\.cfg: max_rdy_count must be a whole "),
        ([], {}, 'auht = "static:g"', r"\[nsqd\] TIME FATAL: config file nsqd\.cfg: unknown key 'auht', did you mean "),
        ([], {}, "log_level = 'loud'", r"\[nsqd\] TIME FATAL: failed parsing log_level loud "),
        ([], {}, 'tls_required = "a\\nb"', r"\[nsqd\] TIME FATAL: failed parsing tls_required a\\nb "),
        ([], {}, "= x", r"\[nsqd\] TIME FATAL: failed to load config file nsqd\.cfg - toml: "),
        ([], {"NSQTW_SYNC_EVERY": "x"}, "", r"\[nsqd\] TIME FATAL: invalid value \"x\" for NSQTW_SYNC_EVERY: "),
    ],
)
def test_a_value_that_does_not_fit_is_one_line_as_nsqds(
    flags: list[str], variables: dict[str, str], content: str, pattern: str, tmp_path: Path
) -> None:
    (tmp_path / "nsqd.cfg").write_text(content)
    done = run("--config=nsqd.cfg", "--log-prefix=x", *flags, cwd=tmp_path, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    pattern = pattern.replace("TIME", TIME).replace("SECOND", r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d")
    assert re.fullmatch(rf"{pattern}.*\n", done.stderr)


def test_the_options_in_effect_can_be_printed_and_given_back(tmp_path: Path) -> None:
    (tmp_path / "nsqd.cfg").write_text("max_rdy_count = 5\nmax_msg_sizes = 1\n")
    words = ["--config=nsqd.cfg", "--nsq-compat", "--print-config"]
    done = run(*words, cwd=tmp_path, NSQTW_MSG_TIMEOUT="5s")
    assert done.returncode == 0
    assert "max_rdy_count = 5  # file\n" in done.stdout
    assert 'msg_timeout = "5s"  # environment\n' in done.stdout
    assert re.fullmatch(
        rf"\[nsqd\] {TIME} WARNING: ignored, as nsqd does: config file nsqd\.cfg: unknown key 'max_msg_sizes', .*\n",
        done.stderr,
    )
    (tmp_path / "printed.cfg").write_text(done.stdout)
    again = run("--config=printed.cfg", "--print-config", cwd=tmp_path)
    assert again.stderr == ""
    uncommented = [[line.split("  #")[0] for line in text.splitlines()] for text in (done.stdout, again.stdout)]
    assert uncommented[0] == uncommented[1]
    twistd = run("nsq", *words, cwd=tmp_path, script=TWISTD, NSQTW_MSG_TIMEOUT="5s")
    assert (twistd.returncode, twistd.stdout) == (0, done.stdout)


def test_what_is_odd_in_the_environment_is_said(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSQTW_NODE_ID", "617")
    monkeypatch.setenv("NSQTW_NODE_IDS", "5")
    broker = start()
    broker.wait_for("HTTP: listening on")
    texts = [line.partition(": ")[2] for line in broker.lines]
    assert "ID: 617" in texts
    assert "environment: unknown variable 'NSQTW_NODE_IDS', did you mean 'NSQTW_NODE_ID'?" in texts


def test_a_start_waits_for_nothing_that_only_other_starts_need(tmp_path: Path) -> None:
    script = f"""
import atexit, sys
late = "tomllib difflib nsqtw.net.certificates nsqtw.options.files nsqtw.options.help".split()
atexit.register(lambda: print([name for name in late if name in sys.modules]))
from nsqtw import tap
tap.BrokerService.startService = lambda service: sys.exit(0)
{NSQD.partition(";")[0]}
main_nsqd()
"""
    done = run(cwd=tmp_path, script=script)
    assert done.stdout == "[]\n"


def test_help_and_version(tmp_path: Path) -> None:
    asked = run("-h", cwd=tmp_path)
    assert (asked.returncode, asked.stdout) == (0, "")
    assert asked.stderr.startswith("Usage of nsqd:\n")
    version = run("--version", cwd=tmp_path)
    assert version.returncode == 0
    # The pattern by which a client's test suite tells versions apart.
    assert re.fullmatch(r"nsqd v\d+\.\d+\.\d+ \(built w/[a-z0-9.-]+\)\n", version.stdout)
    backends = run("--help-backend", cwd=tmp_path)
    assert backends.returncode == 0
    assert "\n  disk\n" in backends.stdout


def test_a_config_file_is_used_and_what_is_odd_in_it_is_said(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "nsqd.cfg"
    config.write_text('id = 7\nlog_prefix = "[b] "\nnsqlookupd_tcp_addresses = "127.0.0.1:1"\nmax_msg_sizes = 1\n')
    broker = start("--config", str(config), "--nsq-compat")
    broker.wait_for("LOOKUP connecting to 127.0.0.1:1")
    texts = [line.partition(": ")[2] for line in broker.lines if line.startswith("[b] ")]
    assert "ID: 7" in texts
    unknown = f"config file {config}: unknown key 'max_msg_sizes', did you mean 'max_msg_size'?"
    assert f"ignored, as nsqd does: {unknown}" in texts


def test_a_broken_config_file_is_one_line(tmp_path: Path) -> None:
    done = run("--config=nowhere.cfg", cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(rf"\[nsqd\] {TIME} FATAL: failed to load config file nowhere\.cfg - .+\n", done.stderr)


def test_unix_sockets_serve_and_go_away(start: Start) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path, http_path = f"{directory}/nsqd.sock", f"{directory}/http.sock"
        broker = start(f"--tcp-address={path}", f"--http-address={http_path}")
        broker.wait_for(f"HTTP: listening on {http_path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(b"  V2PUB t\n\x00\x00\x00\x01x")
            assert client.recv(10) == b"\x00\x00\x00\x06\x00\x00\x00\x00OK"
        for served in (path, http_path):
            assert stat.S_IMODE(os.stat(served).st_mode) == 0o660
        broker.tell(signal.SIGTERM)
        assert broker.end() == 0
        assert not os.path.exists(path)
        assert not os.path.exists(http_path)


def test_twistd_runs_it_too(start: Start, tmp_path: Path) -> None:
    broker = start(program=[TWISTD, "--nodaemon", "--pidfile=", "nsq"])
    broker.wait_for("HTTP: listening on")
    assert broker.get("/ping") == "OK"
    broker.tell(signal.SIGHUP)
    broker.wait_for("RELOAD: there is nothing to reload")
    refused = run("--nodaemon", "--pidfile=", "nsq", "--tcp-address=127.0.0.1:0", cwd=tmp_path, script=TWISTD)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "possibly in use by another instance of nsqd" in refused.stderr
    broker.tell(signal.SIGTERM)
    broker.end()
    assert any("NSQ: bye" in line for line in broker.lines)


@pytest.mark.parametrize("program", ["nsq", "nsqlookupd"])
@pytest.mark.parametrize("wrong", ["data path", "port"])
def test_a_daemon_that_cannot_start_says_the_line_on_the_terminal_and_in_its_log(
    program: str, wrong: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [f"--tcp-address={address if wrong == 'port' else '127.0.0.1:0'}", "--http-address=127.0.0.1:0"]
        flags += [f"--data-path={tmp_path / 'nowhere/at/all'}"] if wrong == "data path" else []
        done = run(program, *flags, cwd=tmp_path, script=TWISTD)
    name = "nsqd" if program == "nsq" else program
    why = ".*nowhere/at/all.*" if wrong == "data path" else re.escape(f"listen ({address}) failed - listen tcp") + ".+"
    line = rf"\[{name}\] {TIME} FATAL: failed to instantiate {name} - {why}"
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"{line}\n", done.stderr)
    log = (tmp_path / "twistd.log").read_text()
    assert re.fullmatch(line, log.splitlines()[-1])
    assert "Traceback" not in log
    assert not (tmp_path / "twistd.pid").exists()


def test_a_daemon_that_starts_says_nothing(tmp_path: Path) -> None:
    done = run("nsq", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", cwd=tmp_path, script=TWISTD)
    try:
        # What it answers, it answers when it takes signals.
        log = (tmp_path / "twistd.log").read_text()
        address = log.partition("HTTP: listening on ")[2].split()[0]
        urllib.request.urlopen(f"http://{address}/ping").close()
    finally:
        os.kill(int((tmp_path / "twistd.pid").read_text()), signal.SIGTERM)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_until(lambda: not (tmp_path / "twistd.pid").exists(), "it is gone")


def test_twistd_takes_nsqds_flags(tmp_path: Path) -> None:
    asked = run("nsq", "--help-backend", cwd=tmp_path, script=TWISTD)
    assert "\n  disk\n" in asked.stdout
    wrong = run("--nodaemon", "nsq", "--no-such-flag", cwd=tmp_path, script=TWISTD)
    assert wrong.returncode == 2
    assert "flag provided but not defined: -no-such-flag" in wrong.stdout + wrong.stderr


def test_the_lock_goes_with_its_descriptor(tmp_path: Path) -> None:
    descriptor = lock_data_path(str(tmp_path))
    with pytest.raises(OptionError, match="cannot flock directory"):
        lock_data_path(str(tmp_path))
    os.close(descriptor)
    os.close(lock_data_path(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_data_path_is_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OptionError) as refused:
        lock_data_path(str(file))
    text = f"failed to lock data-path: open {file}: not a directory; --data-path names a directory"
    assert str(refused.value) == text


@pytest.mark.parametrize(("path", "remedy"), [("one", "mkdir -m 700"), ("one/two", "mkdir -p -m 700")])
def test_a_data_path_that_is_missing_says_how_to_make_it(tmp_path: Path, path: str, remedy: str) -> None:
    directory = str(tmp_path / path)
    with pytest.raises(OptionError) as refused:
        lock_data_path(directory)
    text = f"failed to lock data-path: open {directory}: no such file or directory; make it with '{remedy} {directory}'"
    assert str(refused.value) == text


@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_data_path_of_another_user_is_one_line(mode: int) -> None:
    """Root may read and write everything, so the check is made as another user."""
    user = os.geteuid() or 65534
    script = "import os, sys\nfrom nsqtw.daemon.data_path import lock_data_path\n"
    script += f"if os.geteuid() == 0: os.seteuid({user})\nlock_data_path(sys.argv[1])"
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        directory = Path(parent, "data")
        directory.mkdir()
        directory.chmod(mode)
        done = run(str(directory), cwd=Path.cwd(), script=script)
        directory.chmod(0o700)
    assert re.fullmatch(
        rf"nsqtw.errors.OptionError: failed to lock data-path: (open )?{directory}: permission denied;"
        rf" the user with the id {user} has to be able to read it and write to it",
        done.stderr.splitlines()[-1],
    )


def test_what_a_start_recovered_is_one_line(start: Start) -> None:
    broker = start()
    broker.wait_for("HTTP: listening on")
    broker.post("/topic/create?topic=t")
    broker.post("/channel/create?topic=t&channel=c")
    for _ in range(3):
        broker.post("/pub?topic=t", b"x")
    broker.kill()
    again = start()
    again.wait_for("HTTP: listening on")
    (line,) = [line for line in again.lines if "unclean stop" in line]
    assert "NSQ: recovered from an unclean stop: 1 topics, depth of all channels 3; " in line
    again.tell(signal.SIGTERM)
    assert again.end() == 0
    third = start()
    third.wait_for("HTTP: listening on")
    assert not [line for line in broker.lines + third.lines if "unclean stop" in line]


def test_files_of_interrupted_writes_are_removed(start: Start, tmp_path: Path) -> None:
    left = [tmp_path / name for name in ("nsqd.dat.12.tmp", "manifest.json.3.tmp", "probe.tmp")]
    for path in left:
        path.touch()
    (tmp_path / "mine.tmp").touch()
    start().wait_for("HTTP: listening on")
    assert [path for path in left if path.exists()] == []
    assert (tmp_path / "mine.tmp").exists()


def test_what_has_no_effect_yet_is_said() -> None:
    assert unserved(Options()) == []
    assert unserved(Options(tls_client_auth_policy="require-verify")) == []
    assert unserved(Options(tls_client_auth_policy="Require")) == [
        "--tls-client-auth-policy=Require asks for no client certificate: known are require and require-verify"
    ]


@pytest.mark.parametrize(
    ("given", "ports", "filled"),
    [
        ({}, (4150, 4151), (4150, 4151, "nsq.host_4151.")),
        ({"broadcast_tcp_port": 1, "broadcast_http_port": 2}, (4150, 4151), (1, 2, "nsq.host_2.")),
        ({"broadcast_address": "1.2.3.4"}, (4150, 4151), (4150, 4151, "nsq.1_2_3_4_4151.")),
        ({"broadcast_address": "::1"}, (4150, 4151), (4150, 4151, "nsq.[__1]_4151.")),
        ({"statsd_prefix": "x."}, (-1, 0), (0, 0, "x.")),
        ({"statsd_prefix": ""}, (-1, -1), (0, 0, "")),
    ],
)
def test_what_was_left_open_is_filled_in_with_the_real_ports(
    given: dict[str, Any], ports: tuple[int, int], filled: tuple[int, int, str]
) -> None:
    options = Options(**{"broadcast_address": "host", **given})
    fill_in(options, *ports)
    assert filled == (options.broadcast_tcp_port, options.broadcast_http_port, options.statsd_prefix)


SLOW_DISK = """
import time
from nsqtw.runtime import storage_thread
{what}
from nsqtw.tap import main_nsqd
main_nsqd()
"""


@pytest.mark.parametrize(
    "what",
    [
        "storage_thread.perform = lambda *given: time.sleep(1000)",
        "from nsqtw.core.group_commit import CommitBatch; CommitBatch.commit = lambda *given: time.sleep(1000)",
        "from nsqtw.nsqd.build import Storage; Storage.close = lambda *given: time.sleep(1000)",
    ],
)
def test_a_disk_that_does_not_answer_is_not_waited_for(start: Start, what: str) -> None:
    broker = start("--stop-timeout=300ms", "--durability=fsync", program=[SLOW_DISK.format(what=what)])
    broker.wait_for("HTTP: listening on ")
    host, port = broker.addresses["TCP"].split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"  V2PUB t\n\0\0\0\1x")
        broker.wait_for("TOPIC(t): created")
        broker.tell(signal.SIGTERM)
        assert broker.end() == 0
    late = "NSQ: the disk takes longer than --stop-timeout - the next start takes this for a crash"
    assert [line for line in broker.lines if line.endswith(late)]
    assert broker.lines[-1].endswith("NSQ: bye")
    assert not [line for line in broker.lines if "Traceback" in line]
