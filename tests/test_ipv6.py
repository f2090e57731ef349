"""Every program on ::1 only: daemons, tools and verbs. The Spark package: tests/spark/test_ipv6.py."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest
from twisted.internet.defer import Deferred

from nsqtw.client.http import request_bytes
from nsqtw.http.client import HttpClient
from tests.process import wait_until
from tests.wire import ANSWER_SECONDS

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parent.parent
HOST = "::1"
_LISTENS = re.compile(r"(TCP|HTTP): listening on (\S+)")


class Daemon:
    """A daemon on ::1. `addresses` are those that it listens on, by TCP and HTTP."""

    def __init__(self, directory: Path, program: str, *flags: str, kinds: tuple[str, ...] = ("TCP", "HTTP")) -> None:
        self._said = directory / program
        listen = [f"--{kind.lower()}-address=[{HOST}]:0" for kind in kinds]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen([BIN / program, *listen, *flags], stdout=said, stderr=said)
        wait_until(lambda: len(self.addresses) == len(kinds) or self.process.poll() is not None, program)
        assert self.process.poll() is None, self.said
        self.tcp, self.http = self.addresses.get("TCP", ""), self.addresses["HTTP"]

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def addresses(self) -> dict[str, str]:
        return dict(_LISTENS.findall(self.said))

    def close(self) -> None:
        self.process.terminate()
        assert self.process.wait(ANSWER_SECONDS) == 0, self.said


class Cluster(NamedTuple):
    lookupd: Daemon
    nsqd: Daemon
    admin: Daemon
    environment: dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("v6")
    named = f"--broadcast-address={HOST}"
    lookupd = Daemon(directory, "nsqlookupd", named)
    nsqd = Daemon(directory, "nsqd", named, f"--lookupd-tcp-address={lookupd.tcp}", f"--data-path={directory}")
    admin = Daemon(directory, "nsqadmin", f"--lookupd-http-address={lookupd.http}", kinds=("HTTP",))
    contexts = directory / "contexts.toml"
    contexts.write_text(
        f'[contexts.nsqd]\nnsqd_http_addresses = ["{nsqd.http}"]\n'
        f'[contexts.lookupd]\nlookupd_http_addresses = ["{lookupd.http}"]\n'
        f'[contexts.url]\nnsqd_http_addresses = ["http://{nsqd.http}"]\nnsqd_tcp_addresses = ["{nsqd.tcp}"]\n'
        f'[contexts.scope]\nnsqd_http_addresses = ["{nsqd.http.replace("]", "%1]")}"]\n'
    )
    wait_until(lambda: get(lookupd.http, "/nodes")["producers"], "the nsqd is registered")
    yield Cluster(lookupd, nsqd, admin, {**os.environ, "NSQTW_CONTEXTS": str(contexts)})
    for daemon in (admin, nsqd, lookupd):
        daemon.close()
        assert "Traceback" not in daemon.said


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}") as answer:
        return json.load(answer)


def publish(cluster: Cluster, topic: str, *bodies: str) -> None:
    url = f"http://{cluster.nsqd.http}/mpub?topic={topic}"
    urllib.request.urlopen(url, "\n".join(bodies).encode()).close()


def finished(cluster: Cluster, topic: str, channel: str) -> bool:
    (found,) = get(cluster.nsqd.http, f"/stats?format=json&topic={topic}")["topics"]
    counts = [each for each in found["channels"] if each["channel_name"] == channel]
    return bool(counts) and not counts[0]["depth"] + counts[0]["in_flight_count"] + counts[0]["deferred_count"]


def run(cluster: Cluster, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        [BIN / words[0], *words[1:]],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        env=cluster.environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def running(directory: Path, *words: str) -> Iterator[Path]:
    """Run a tool until the context ends. Its output is in the file."""
    output = directory / "output"
    with output.open("wb") as file:
        process = subprocess.Popen([BIN / words[0], *words[1:]], stdout=file, stderr=file, cwd=directory)
    try:
        yield output
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(ANSWER_SECONDS)


@pytest.mark.parametrize("context", ["nsqd", "lookupd", "url", "scope"])
def test_verbs(cluster: Cluster, context: str) -> None:
    topic = f"verbs-{context}"

    def nsqtw(*words: str) -> str:
        return run(cluster, "nsqtw", *words, "--context", context)

    nsqtw("topic", "create", topic)
    nsqtw("channel", "create", topic, "c")
    nsqtw("pub", topic, "one")
    assert topic in nsqtw("topic", "list")
    assert "one" in nsqtw("tail", topic, "c", "-n", "1")
    if context == "scope":
        return
    assert "one" not in nsqtw("peek", topic, "c")
    assert cluster.nsqd.http in nsqtw("nodes")
    nsqtw("seek", topic, "c", "earliest", "--yes")
    assert topic in nsqtw("stat", "-o", "json")
    report = nsqtw("doctor", "-o", "json")
    for finding in json.loads(report)["findings"] if report.startswith("{") else json.loads(report):
        assert finding["level"] != "error", finding


def test_verbs_with_addresses(cluster: Cluster) -> None:
    for flag in (f"--nsqd-http-address={cluster.nsqd.http}", f"--lookupd-http-address={cluster.lookupd.http}"):
        run(cluster, "nsqtw", "pub", "flags", "one", flag)
        assert "flags" in run(cluster, "nsqtw", "topic", "list", flag)
    for address in (cluster.nsqd.http, cluster.lookupd.http, cluster.admin.http):
        run(cluster, "nsqtw", "health", address)


def test_nsqadmin(cluster: Cluster) -> None:
    publish(cluster, "admin", "one")
    admin = cluster.admin.http
    assert "admin" in get(admin, "/api/topics")["topics"]
    (node,) = get(admin, "/api/nodes")["nodes"]
    assert node["broadcast_address"] == HOST
    assert get(admin, f"/api/nodes/{cluster.nsqd.http}")["node"]
    assert get(admin, "/api/topics/admin")["nodes"][0]["node"] == cluster.nsqd.http
    for page in ("/", "/nodes", f"/nodes/{cluster.nsqd.http}", "/topics/admin"):
        with urllib.request.urlopen(f"http://{admin}{page}") as answer:
            assert cluster.nsqd.http in answer.read().decode() or page == "/", page
    request = urllib.request.Request(f"http://{admin}/api/topics/admin", b'{"action": "pause"}', method="POST")
    urllib.request.urlopen(request).close()
    assert get(cluster.nsqd.http, "/stats?format=json&topic=admin")["topics"][0]["paused"]
    body = json.dumps({"topic": "admin"}).encode()
    request = urllib.request.Request(f"http://{admin}/api/nodes/{cluster.nsqd.http}", body, method="DELETE")
    urllib.request.urlopen(request).close()
    assert not get(cluster.nsqd.http, "/stats?format=json&topic=admin")["topics"]


@pytest.mark.parametrize("has_brackets", [True, False])
def test_a_tombstone_names_the_node(cluster: Cluster, has_brackets: bool) -> None:
    topic = f"tombstone-{has_brackets}"
    publish(cluster, topic, "one")
    node = cluster.nsqd.http if has_brackets else cluster.nsqd.http.replace("[", "").replace("]", "")
    wait_until(lambda: topic in get(cluster.lookupd.http, "/topics")["topics"], "the topic is registered")
    url = f"http://{cluster.lookupd.http}/topic/tombstone?{urlencode({'topic': topic, 'node': node})}"
    urllib.request.urlopen(url, b"").close()
    (producer,) = get(cluster.lookupd.http, "/nodes")["producers"]
    assert dict(zip(producer["topics"], producer["tombstones"], strict=True))[topic]


JOINED = re.compile(r"""(host|address)[\w.'"\]\[()]*\}:\{[^}]*port|%s:%d|\{address\[0\]\}""")
JOINING = {
    *("nsqtw/options/addresses.py", "contrib/spark/pyspark_nsq/options/addresses.py"),
    *("nsqtw/api/stats.py", "contrib/demo/broker.py"),
}
"""The function itself and its copy, a text of the original, and names that are no addresses."""


def test_only_one_function_joins_a_host_and_a_port() -> None:
    places = {
        str(path.relative_to(ROOT))
        for folder in ("nsqtw", "contrib")
        for path in (ROOT / folder).rglob("*.py")
        if JOINED.search(path.read_text("utf-8"))
    }
    assert places <= JOINING


@pytest.mark.parametrize(
    ("url", "wire", "host"),
    [
        ("http://[::1]:1/a", b"http://[::1]:1/a", b""),
        ("http://[fe80::1%lo]:1/a", b"http://[fe80::1%lo]:1/a", b"[fe80::1]:1"),
        ("http://[fe80::1%lo]/", b"http://[fe80::1%lo]/", b"[fe80::1]"),
        ("http://bücher.example/é x", b"http://xn--bcher-kva.example/%C3%A9%20x", b""),
    ],
)
def test_the_zone_of_an_address_is_not_sent(url: str, wire: bytes, host: bytes) -> None:
    sent: list[tuple[bytes, bytes]] = []

    class Agent:
        def request(self, method: bytes, uri: bytes, headers: Any, body: Any) -> Deferred[None]:
            sent.append((uri, headers.getRawHeaders(b"Host", [b""])[0]))
            return Deferred()

    HttpClient(Agent()).request("GET", url)  # type: ignore[arg-type]
    assert sent == [(wire, host)]
    if url.isascii():
        request = request_bytes(urlsplit(url), "GET", {}, b"").decode()
        assert "%" not in request and "Host: [" in request


def test_to_nsq_nsq_tail_and_nsq_stat(cluster: Cluster) -> None:
    nsqd, lookupd = f"--nsqd-tcp-address={cluster.nsqd.tcp}", f"--lookupd-http-address={cluster.lookupd.http}"
    for source in (nsqd, lookupd):
        run(cluster, "to_nsq", "--topic=tools", nsqd, stdin="one\n")
        assert run(cluster, "nsq_tail", "--topic=tools", "--channel=c0", "--n=1", source) == "one\n"
    for source in (f"--nsqd-http-address={cluster.nsqd.http}", lookupd):
        shown = run(cluster, "nsq_stat", "--topic=tools", "--channel=c0", "--count=1", "--interval=10ms", source)
        assert len(shown.splitlines()) > 2


def test_nsq_to_file(cluster: Cluster, tmp_path: Path) -> None:
    publish(cluster, "files", "one")
    lookupd = f"--lookupd-http-address={cluster.lookupd.http}"
    with running(tmp_path, "nsq_to_file", "--topic=files", f"--output-dir={tmp_path}/out", lookupd):
        wait_until(lambda: finished(cluster, "files", "nsq_to_file"), "the message is written")
    (written,) = (tmp_path / "out").iterdir()
    assert written.read_text() == "one\n"


def test_nsq_to_http(cluster: Cluster, tmp_path: Path) -> None:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6

    publish(cluster, "to-http", "one")
    with Server((HOST, 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        post = f"--post=http://[{HOST}]:{server.server_port}/"
        with running(tmp_path, "nsq_to_http", "--topic=to-http", post, f"--nsqd-tcp-address={cluster.nsqd.tcp}"):
            wait_until(lambda: finished(cluster, "to-http", "nsq_to_http"), "the message is sent")
        server.shutdown()
    assert bodies == [b"one"]


def test_nsq_to_nsq(cluster: Cluster, tmp_path: Path) -> None:
    publish(cluster, "to-nsq", "one")
    flags = (f"--destination-nsqd-tcp-address={cluster.nsqd.tcp}", f"--lookupd-http-address={cluster.lookupd.http}")
    with running(tmp_path, "nsq_to_nsq", "--topic=to-nsq", "--destination-topic=arrived", *flags):
        wait_until(lambda: finished(cluster, "to-nsq", "nsq_to_nsq"), "the message is sent")
    (topic,) = get(cluster.nsqd.http, "/stats?format=json&topic=arrived")["topics"]
    assert topic["message_count"] == 1
