"""What `nsqtw` says when a node is away, refuses a secret, or is another program."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from nsqtw.cli.failures import readable
from nsqtw.testing import Broker, broker
from tests.certificates import Certificates
from tests.cli.conftest import Nsqtw
from tests.cli.serving import serving
from tests.cli.terminal import NSQTW, Terminal
from tests.process import LookupdProcess, NsqdProcess, wait_until
from tests.wire import HOST

SECONDS = 60.0
GONE = f"{HOST}:1"


@contextmanager
def tailing(errors: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running `nsqtw tail`, whose stderr is a file."""
    with errors.open("wb") as stderr:
        process = subprocess.Popen([NSQTW, "tail", *words], stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_tail_ends_when_no_nsqlookupd_answers(nsqtw: Nsqtw) -> None:
    done = nsqtw("--lookupd-http-address", GONE, "tail", "t")
    assert (done.code, done.out, done.err.count("\n")) == (4, "", 1)
    assert done.err.startswith(f"nsqtw: cannot connect to nsqlookupd: {GONE}: connection refused")


def test_a_tail_says_that_its_nsqd_is_gone(tmp_path: Path, own_config: Path) -> None:
    errors = tmp_path / "errors"
    nsqd = NsqdProcess(tmp_path / "nsqd")
    nsqd.start()
    address = f"{HOST}:{nsqd.tcp_port}"
    try:
        nsqd.create("t", "c")
        with tailing(errors, "t", "c", "--nsqd-http-address", f"{HOST}:{nsqd.http_port}") as tail:
            wait_until(lambda: nsqd.stats("t")[0]["channels"][0]["client_count"] == 1, "the tail reads", SECONDS)
            nsqd.kill()
            wait_until(lambda: errors.read_text().count("\n") >= 2, "both problems are told", SECONDS)
            tail.send_signal(signal.SIGINT)
            assert tail.wait(SECONDS) == 0
    finally:
        nsqd.close()
    assert errors.read_text().splitlines() == [
        f"nsqtw: warning: {address}: connection lost; trying again",
        f"nsqtw: warning: {address}: connection refused; trying again",
    ]


def test_a_tail_says_that_its_nsqlookupd_is_gone(tmp_path: Path, own_config: Path) -> None:
    errors = tmp_path / "errors"
    lookupd = LookupdProcess(tmp_path / "lookupd")
    lookupd.start()
    address = f"{HOST}:{lookupd.http_port}"
    try:
        with tailing(errors, "t", "--lookupd-http-address", address) as tail:
            wait_until(lambda: "waiting for one" in errors.read_text(), "the nsqlookupd has answered", SECONDS)
            lookupd.kill()
            wait_until(lambda: "refused" in errors.read_text(), "the problem is told", SECONDS)
            tail.send_signal(signal.SIGINT)
            assert tail.wait(SECONDS) == 0
    finally:
        lookupd.close()
    first, *_, last = errors.read_text().splitlines()
    assert first == "no node has a topic 't' yet; waiting for one"
    assert last == f"nsqtw: warning: {address}: connection refused; trying again"


def test_a_topic_that_no_node_has_yet_is_no_problem(tmp_path: Path, own_config: Path) -> None:
    errors = tmp_path / "errors"
    asked: list[str] = []
    with (
        serving("/ping", b"OK", more={"/lookup": (404, b'{"message": "TOPIC_NOT_FOUND"}')}, secrets=asked) as lookupd,
        tailing(errors, "t", "--lookupd-http-address", lookupd) as tail,
    ):
        wait_until(lambda: len(asked) > 2, "it is asked again", SECONDS)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(SECONDS) == 0
    assert errors.read_text() == "no node has a topic 't' yet; waiting for one\n"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with secrets, by what they permit."""
    directory = tmp_path_factory.mktemp("secrets")
    found = {name: directory / name for name in ("publish", "subscribe", "unknown")}
    for name, path in found.items():
        path.touch(0o600)
        path.write_text(f"secret to {name}\n")
    return found


@pytest.fixture(scope="module")
def guarded(secrets: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that asks for secrets."""
    grants = tmp_path_factory.mktemp("grants") / "grants.toml"
    text = ""
    for name in ("publish", "subscribe"):
        with secrets[name].open("rb") as file:
            line = subprocess.run([NSQTW, "hash-secret"], stdin=file, capture_output=True, check=True).stdout.decode()
        text += f'[[client]]\nidentity = "{name}"\n{line}\n[[client.grant]]\ntopic = ".*"\npermissions = ["{name}"]\n'
    grants.write_text(text)
    with broker(f"--auth=static:{grants}", http_auth="on") as running:
        yield running


@pytest.mark.parametrize(
    ("words", "secret", "complaint"),
    [
        (["tail", "t"], "publish", "the secret has no permission for this"),
        (["pub", "t", "x"], "subscribe", "the secret has no permission for this"),
        (["tail", "t"], "unknown", "the node does not know the secret"),
        (["pub", "t", "x"], "unknown", "the node does not know the secret"),
        (["pub", "t", "x"], "", "the node wants a secret: give it with --secret-file, or in a context"),
    ],
)
@pytest.mark.parametrize("option", ["--nsqd-http-address", "--nsqd-tcp-address"])
def test_a_refusal_ends_with_exit_code_5(
    guarded: Broker,
    nsqtw: Nsqtw,
    secrets: dict[str, Path],
    words: list[str],
    secret: str,
    complaint: str,
    option: str,
) -> None:
    address = guarded.http_address if "http" in option else guarded.tcp_address
    assert nsqtw("pub", "t", "x", option, address, "--secret-file", str(secrets["publish"])).code == 0
    flags = ["--secret-file", str(secrets[secret])] if secret else []
    done = nsqtw(*words, option, address, *flags)
    assert complaint in done.err
    assert (done.code, done.out, done.err.count("\n")) == (5, "", 1)


def test_a_node_that_hangs(nsqtw: Nsqtw) -> None:
    """It takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = nsqtw("--nsqd-http-address", address, "topic", "list")
    assert (done.code, done.out) == (4, "")
    hangs = "no answer within 5s: it hangs, or is no HTTP server"
    assert done.err == f"nsqtw: cannot connect to nsqd: {address}: {hangs}\n"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["topic", "list"], "name the authority's file with --tls-ca-file in a context"),
        (["pub", "t", "x"], "give an https:// address, and the TLS files in a context"),
    ],
)
def test_tls_without_the_file_of_the_authority(
    nsqtw: Nsqtw, certificates: Certificates, tmp_path: Path, words: list[str], remedy: str
) -> None:
    nsqd = NsqdProcess(tmp_path, *certificates.server.flags(), "--tls-required=true", f"--https-address={HOST}:0")
    try:
        nsqd.start()
        done = nsqtw("--nsqd-http-address", f"{HOST}:{nsqd.http_port}", *words)
    finally:
        nsqd.close()
    assert (done.out, done.err.count("\n")) == ("", 1), done.err
    assert done.code
    assert remedy in done.err


def test_a_tcp_port_given_as_http(nsqd: Broker, nsqtw: Nsqtw) -> None:
    done = nsqtw("--nsqd-http-address", nsqd.tcp_address, "pub", "t", "x")
    assert done.code == 4
    assert f"{nsqd.tcp_address}: the answer is no HTTP; is this the HTTP port?" in done.err


@pytest.mark.parametrize("words", [["topic", "list"], ["nodes"], ["pub", "t", "x"], ["tail", "t"], ["peek", "t"]])
def test_confused_addresses(nsqd: Broker, lookupd: LookupdProcess, nsqtw: Nsqtw, words: list[str]) -> None:
    address = f"{HOST}:{lookupd.http_port}"
    done = nsqtw("--nsqd-http-address", address, *words)
    text = f"nsqtw: {address} is an nsqlookupd, not an nsqd; give it as --lookupd-http-address\n"
    assert (done.code, done.err) == (1, text)
    done = nsqtw("--lookupd-http-address", nsqd.http_address, *words)
    text = f"nsqtw: {nsqd.http_address} is an nsqd, not an nsqlookupd; give it as --nsqd-http-address\n"
    assert (done.code, done.err) == (1, text)


@pytest.mark.parametrize("words", [["topic", "list"], ["nodes"], ["pub", "t", "x"], ["tail", "t"]])
@pytest.mark.parametrize("option", ["--nsqd-http-address", "--lookupd-http-address"])
def test_the_address_of_an_nsqadmin(nsqtw: Nsqtw, words: list[str], option: str) -> None:
    with serving("/api/nodes", b'{"nodes": []}') as address:
        done = nsqtw(option, address, *words)
    text = f"nsqtw: {address} is an nsqadmin; give the HTTP address of an nsqd or nsqlookupd\n"
    assert (done.code, done.err) == (1, text)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ('Get "http://h:1/info": no answer within 5s', "h:1: no answer within 5s: it hangs, or is no HTTP server"),
        ('Get "http://h:1/x": the connection was closed before the end of the answer', "is this the HTTP port?"),
        ("h:1: TLS handshake failed - [SSL: WRONG_VERSION_NUMBER] wrong version number", "is this the HTTPS port?"),
        ("h:1: TLS handshake failed - certificate verify failed: self-signed", "--tls-ca-file"),
        ("E_INVALID DPUB timeout 5 out of range", "E_INVALID DPUB timeout 5 out of range"),
    ],
)
def test_a_cause_is_told_with_what_it_means(text: str, meaning: str) -> None:
    assert meaning in readable(text)


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LookupdProcess]:
    process = LookupdProcess(tmp_path_factory.mktemp("lookupd"))
    process.start()
    yield process
    process.close()


def test_a_pause_is_told_to_a_tail(nsqd: Broker, on_nsqd: Nsqtw, tmp_path: Path, topic: str) -> None:
    on_nsqd("topic", "create", topic)
    on_nsqd("channel", "create", topic, "c")
    on_nsqd("channel", "pause", topic, "c")
    on_nsqd("topic", "pause", topic)
    errors = tmp_path / "errors"
    with tailing(errors, topic, "c", "--nsqd-http-address", nsqd.http_address) as tail:
        wait_until(lambda: errors.read_text().count("\n") == 2, "both are told", SECONDS)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(SECONDS) == 0
    assert errors.read_text().splitlines() == [
        f"topic {topic} is paused: 'nsqtw topic unpause {topic}' resumes it",
        f"channel c is paused: 'nsqtw channel unpause {topic} c' resumes it",
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("t",), "copies of the new messages of t; Ctrl-C stops"),
        (("t", "c"), "consuming t/c: each message is finished after it is printed; Ctrl-C stops"),
    ],
)
def test_a_tail_on_a_terminal_says_what_happens_to_the_messages(
    nsqd: Broker, own_config: Path, words: tuple[str, ...], text: str
) -> None:
    urlopen(f"http://{nsqd.http_address}/topic/create?topic=t", b"").close()
    with Terminal("--nsqd-http-address", nsqd.http_address, "tail", *words) as terminal:
        terminal.wait_for(text)
        terminal.interrupt()
        assert terminal.end() == 0
        assert terminal.text.endswith(f"{text}\n\n")


@pytest.mark.parametrize("words", [("topic", "list"), ("pub", "t", "x"), ("tail", "t")])
def test_a_context_whose_secret_is_gone_is_named(nsqtw: Nsqtw, tmp_path: Path, words: tuple[str, ...]) -> None:
    secret = tmp_path / "gone"
    nsqtw("context", "add", "prod", "--nsqd-http-address", GONE, "--secret-file", str(secret))
    done = nsqtw(*words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("nsqtw: context 'prod': secret_file cannot be used - ")
    assert done.err.endswith("; 'nsqtw context use NAME' chooses another\n")
