"""NSQ's tools as processes, with our broker: the happy way, wrong flags, and faults."""

from __future__ import annotations

import gzip
import re
import resource
import signal
import subprocess
import sys
import threading
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nsqtw.testing import Broker, broker
from tests.closing_servers import SERVERS, closing_server
from tests.process import LookupdProcess, wait_until
from tests.tools.nsq_tool import Start, ToolProcess, publish, run_tool, topic_stats, unfinished, wait_drained

LINES = [b"line %d" % number for number in range(1000)]
NO_SOURCE = "--nsqd-tcp-address or --lookupd-http-address required"
TWO_SOURCES = "use --nsqd-tcp-address or --lookupd-http-address not both"
SOURCE = ("-nsqd-tcp-address=a:1",)
BOTH = (*SOURCE, "-lookupd-http-address=b:1")


@pytest.mark.parametrize(
    ("tool", "flags", "complaint"),
    [
        ("nsq_tail", (), NO_SOURCE),
        ("nsq_tail", BOTH, TWO_SOURCES),
        ("nsq_tail", SOURCE, "--topic required"),
        ("to_nsq", (), "--topic required"),
        ("to_nsq", ("-topic=t", "-delimiter=ab"), "--delimiter must be a single byte"),
        ("to_nsq", ("-topic=t",), "--nsqd-tcp-address required"),
        ("nsq_stat", (), "--topic and --channel are required"),
        ("nsq_stat", ("-topic=t", "-channel=c", "-interval=0"), "--interval should be positive"),
        ("nsq_stat", ("-topic=t", "-channel=c", "-count=-1"), "--count should be positive"),
        ("nsq_stat", ("-topic=t", "-channel=c"), "--nsqd-http-address or --lookupd-http-address required"),
        (
            "nsq_stat",
            ("-topic=t", "-channel=c", "-nsqd-http-address=http://a:1"),
            "--nsqd-http-address error - address should not contain scheme",
        ),
        ("nsq_to_file", ("word",), "unknown arguments: [word]"),
        ("nsq_to_file", ("-log-level=loud",), "--log-level is invalid"),
        ("nsq_to_file", ("-channel=",), "--channel is required"),
        ("nsq_to_file", (), f"{NO_SOURCE}."),
        ("nsq_to_file", BOTH, TWO_SOURCES),
        ("nsq_to_file", (*SOURCE, "-gzip-level=0"), "invalid --gzip-level value (0), should be 1-9"),
        ("nsq_to_file", SOURCE, "--topic or --topic-pattern required"),
        (
            "nsq_to_file",
            (*SOURCE, "-topic-pattern=x"),
            "--lookupd-http-address must be specified when no --topic specified",
        ),
        ("nsq_to_http", ("-header=x",), "--header value format should be 'key=value'"),
        ("nsq_to_http", (), "--topic and --channel are required"),
        ("nsq_to_http", ("-topic=t", "-content-type=a/b"), "--content-type only used with --post"),
        ("nsq_to_http", ("-topic=t",), NO_SOURCE),
        ("nsq_to_http", ("-topic=t", *BOTH), TWO_SOURCES),
        ("nsq_to_http", ("-topic=t", *SOURCE), "--get or --post required"),
        ("nsq_to_http", ("-topic=t", *SOURCE, "-get=x%s", "-post=y"), "use --get or --post not both"),
        ("nsq_to_http", ("-topic=t", *SOURCE, "-get=x"), "invalid GET address - must be a printf string"),
        (
            "nsq_to_http",
            ("-topic=t", *SOURCE, "-post=x", "-sample=1.5"),
            "ERROR: --sample must be between 0.0 and 1.0",
        ),
        ("nsq_to_nsq", (), "--topic and --channel are required"),
        ("nsq_to_nsq", ("-topic=a b",), "--topic is invalid"),
        ("nsq_to_nsq", ("-topic=t", "-destination-topic=a b"), "--destination-topic is invalid"),
        ("nsq_to_nsq", ("-topic=t", *SOURCE), "--destination-nsqd-tcp-address required"),
    ],
)
def test_options_that_will_not_do(tool: str, flags: tuple[str, ...], complaint: str) -> None:
    done = run_tool(tool, *flags)
    assert (done.returncode, done.stdout) == (1, b"")
    assert re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d " + re.escape(complaint) + "\n", done.stderr.decode())


@pytest.mark.parametrize("tool", ["nsq_tail", "nsq_stat", "nsq_to_file", "nsq_to_http", "nsq_to_nsq"])
def test_versions_help_and_unknown_flags(tool: str) -> None:
    assert run_tool(tool, "--version").stdout.decode() == f"{tool} v1.3.0\n"
    shown = run_tool(tool, "-h")
    assert (shown.returncode, shown.stderr[: len(tool) + 10].decode()) == (0, f"Usage of {tool}:")
    unknown = run_tool(tool, "-nope")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith(b"flag provided but not defined: -nope")


def test_a_wrong_option_of_the_client() -> None:
    done = run_tool("nsq_tail", "-topic=t", *SOURCE, "-consumer-opt=nope,1")
    assert done.returncode == 2
    assert done.stderr.startswith(b'invalid value "nope,1" for flag -consumer-opt: invalid option nope')


def test_nobody_listens() -> None:
    done = run_tool("nsq_tail", "-topic=t", "-nsqd-tcp-address=127.0.0.1:1")
    assert done.returncode == 1
    assert b" dial tcp 127.0.0.1:1: connect: connection refused\n" in done.stderr


def test_from_a_shell_to_a_shell(nsqd: Broker, topic: str) -> None:
    done = run_tool("to_nsq", f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", stdin=b"one\n\ntwo\nthree")
    assert (done.returncode, done.stderr) == (0, b"")
    flags = (f"-topic={topic}", "-channel=c", "-n=3", f"-nsqd-tcp-address={nsqd.tcp_address}", "-print-topic")
    done = run_tool("nsq_tail", *flags)
    assert (done.returncode, done.stdout.decode()) == (
        0,
        "".join(f"{topic} | {word}\n" for word in ("one", "two", "three")),
    )
    assert unfinished(nsqd, topic, "c") == 0, "the last one is finished, too"


def test_to_nsq_refuses_what_nsqd_refuses(nsqd: Broker) -> None:
    done = run_tool("to_nsq", "-topic=a b", f"-nsqd-tcp-address={nsqd.tcp_address}", stdin=b"x\n")
    assert done.returncode == 1
    assert b'E_BAD_TOPIC PUB topic name "a b" is not valid' in done.stderr


def test_to_nsq_holds_its_rate(nsqd: Broker, topic: str) -> None:
    flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", "-rate=50")
    done = run_tool("to_nsq", *flags, stdin=b"x\n" * 20)
    assert done.returncode == 0
    assert b"Throttling messages rate to max:50/second" in done.stderr
    assert topic_stats(nsqd, topic)["message_count"] == 20


def test_nsq_tail_ends_when_nobody_reads_it(nsqd: Broker, topic: str) -> None:
    publish(nsqd, topic, [line.ljust(1000, b".") for line in LINES])  # more than a pipe holds
    command = f"{Path(sys.executable).with_name('nsq_tail')} -topic={topic} -nsqd-tcp-address={nsqd.tcp_address}"
    done = subprocess.run(f"{command} -channel=c | head -1", shell=True, capture_output=True, timeout=60)
    assert done.stdout.startswith(b"line 0.")
    assert b"failed to write to os.Stdout" in done.stderr
    assert b"Traceback" not in done.stderr


def test_nsq_stat_prints_nothing_but_its_table(nsqd: Broker, topic: str) -> None:
    """The original's has lines of its client library, with DBG, in the table."""
    publish(nsqd, topic, [b"x"])
    with urllib.request.urlopen(f"http://{nsqd.http_address}/channel/create?topic={topic}&channel=c", b""):
        pass
    flags = (f"-nsqd-http-address={nsqd.http_address}", f"-topic={topic}", "-interval=10ms", "-count=2")
    done = run_tool("nsq_stat", *flags, "-channel=c")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines and not [line for line in lines if re.search("DBG|INF|WRN", line)]


def test_nsq_stat_shows_rates(nsqd: Broker, topic: str) -> None:
    publish(nsqd, topic, LINES)
    run_tool("nsq_tail", f"-topic={topic}", "-channel=c", "-n=1", f"-nsqd-tcp-address={nsqd.tcp_address}")
    flags = (f"-topic={topic}", f"-nsqd-http-address={nsqd.http_address}", "-interval=100ms", "-count=2")
    done = run_tool("nsq_stat", *flags, "-channel=c")
    lines = done.stdout.decode().splitlines()
    assert (done.returncode, len(lines)) == (0, 4)
    wanted = "      0       0 |     999     999       0     0     0 |       0       0         1000       0"
    assert lines[2:] == [wanted, wanted] or "     999" in lines[2]
    done = run_tool("nsq_stat", *flags, "-channel=nope")
    assert done.returncode == 1
    assert f"failed to find channel(nope) in stats metadata for topic({topic})".encode() in done.stderr


# -- nsq_to_file


def archive(start: Start, nsqd: Broker, topic: str, directory: Path, *flags: str) -> ToolProcess:
    """Start nsq_to_file for one topic."""
    fixed = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", f"-output-dir={directory}")
    return start("nsq_to_file", *fixed, "-sync-interval=100ms", "-host-identifier=h", *flags)


def archived(directory: Path) -> list[bytes]:
    """Return the lines of all files, as far as they can be read."""
    lines: list[bytes] = []
    for path in sorted(directory.glob("*.log*")):
        data = path.read_bytes()
        lines += (readable(data) if path.suffix == ".gz" else data).splitlines()
    return lines


def readable(data: bytes) -> bytes:
    """Return the content of a gzip file up to where it is cut off."""
    found = b""
    while data:
        member = zlib.decompressobj(31)
        found += member.decompress(data)
        data = member.unused_data
    return found


@pytest.mark.parametrize("flags", [(), ("-gzip",), ("-rotate-size=2000",)])
def test_messages_become_lines(start: Start, nsqd: Broker, topic: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    publish(nsqd, topic, LINES)
    tool = archive(start, nsqd, topic, tmp_path / "out", *flags)
    wait_drained(nsqd, topic, "nsq_to_file")
    assert tool.end() == 0
    assert archived(tmp_path / "out") == LINES
    count = len([*(tmp_path / "out").iterdir()])
    assert count > 3 if "-rotate-size=2000" in flags else count == 1


def test_a_closed_file_is_followed_by_another(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    tool = archive(start, nsqd, topic, tmp_path / "out", f"-work-dir={work}", "-gzip", "-skip-empty-files")
    publish(nsqd, topic, LINES[:5])
    wait_drained(nsqd, topic, "nsq_to_file")
    tool.send(signal.SIGHUP)
    wait_until(lambda: not [*work.iterdir()], "the file is moved")
    assert len([*(tmp_path / "out").iterdir()]) == 1
    publish(nsqd, topic, LINES[5:9])
    wait_drained(nsqd, topic, "nsq_to_file")
    assert tool.end() == 0
    assert archived(tmp_path / "out") == LINES[:9]
    assert [gzip.decompress(path.read_bytes()) != b"" for path in (tmp_path / "out").iterdir()] == [True, True]


@pytest.mark.parametrize("flags", [(), ("-gzip",)])
def test_a_kill_loses_nothing(start: Start, nsqd: Broker, topic: str, tmp_path: Path, flags: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    fixed = ("-max-in-flight=50", "-consumer-opt=msg_timeout,1s", *flags)
    for number in range(3):
        publish(nsqd, topic, [b"%d %b" % (number, line) for line in LINES])
        tool = archive(start, nsqd, topic, out, *fixed)
        before = len(archived(out)) if out.exists() else 0
        wait_until(lambda before=before: out.exists() and len(archived(out)) > before + 50, "lines are written")  # type: ignore[misc]
        tool.end(signal.SIGKILL)
    tool = archive(start, nsqd, topic, out, *fixed)
    wait_drained(nsqd, topic, "nsq_to_file")
    assert tool.end() == 0
    found = Counter(archived(out))
    published = Counter(b"%d %b" % (number, line) for number in range(3) for line in LINES)
    assert set(published) <= set(found), "nothing is lost"
    repeats = sum((found - published).values())
    assert repeats <= 3 * 51, "at most the messages in flight at each kill, and a line that was cut off"


def test_new_topics_are_discovered(start: Start, tmp_path: Path) -> None:
    lookupd = LookupdProcess(tmp_path / "lookupd")
    lookupd.start()
    try:
        address = f"127.0.0.1:{lookupd.http_port}"
        with broker(lookupd_tcp_address=f"127.0.0.1:{lookupd.tcp_port}") as nsqd:
            publish(nsqd, "logs.first", [b"1"])
            publish(nsqd, "other", [b"x"])
            wait_until(lambda: "other" in lookupd.ask("/topics")["topics"], "the topics are registered")
            flags = ("-topic-pattern=^logs", f"-lookupd-http-address={address}", "-topic-refresh=200ms")
            dead = "-lookupd-http-address=127.0.0.1:1"
            tool = start("nsq_to_file", *flags, dead, f"-output-dir={tmp_path / 'out'}", "-sync-interval=100ms")
            wait_drained(nsqd, "logs.first", "nsq_to_file")
            publish(nsqd, "logs.second", [b"2"])
            wait_drained(nsqd, "logs.second", "nsq_to_file")
            assert tool.end() == 0
            assert sorted(archived(tmp_path / "out")) == [b"1", b"2"]
            assert "could not retrieve topic list" in tool.log
            assert "skipping topic other (doesn't match pattern ^logs)" in tool.log
    finally:
        lookupd.close()


def test_a_full_disk_ends_the_tool_and_loses_nothing(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    publish(nsqd, topic, LINES)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = tmp_path / "out"
    limit = f"ulimit -f 4; exec {Path(sys.executable).with_name('nsq_to_file')}"
    flags = f"-topic={topic} -nsqd-tcp-address={nsqd.tcp_address} -output-dir={out} -sync-interval=100ms"
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; {limit} {flags}"], capture_output=True, timeout=60)
    assert before == resource.getrlimit(resource.RLIMIT_FSIZE)
    assert done.returncode == 1
    assert b"FATAL: " in done.stderr and b"file too large" in done.stderr
    tool = archive(start, nsqd, topic, tmp_path / "more")
    wait_drained(nsqd, topic, "nsq_to_file")
    tool.end()
    assert set(LINES) <= {*archived(out), *archived(tmp_path / "more")}


# -- nsq_to_http and nsq_to_nsq


class HttpDestination:
    """An HTTP server that counts bodies. While `status` is not 200 it takes none."""

    def __init__(self) -> None:
        destination = self
        self.status = 200
        self.bodies: Counter[bytes] = Counter()
        self.headers: dict[str, str] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                destination.headers = dict(self.headers)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(body)

            def do_GET(self) -> None:
                self.answer(self.path.partition("=")[2].encode())

            def answer(self, body: bytes) -> None:
                if destination.status < 300:
                    destination.bodies[body] += 1
                self.send_response(destination.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None: ...

        class Server(ThreadingHTTPServer):
            request_queue_size = 500

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def destination() -> Iterator[HttpDestination]:
    """An HTTP server."""
    server = HttpDestination()
    yield server
    server.close()


QUICK = (
    "-consumer-opt=default_requeue_delay,0",
    "-consumer-opt=backoff_multiplier,10ms",
    "-consumer-opt=max_attempts,0",
)


def test_messages_are_posted(start: Start, nsqd: Broker, topic: str, destination: HttpDestination) -> None:
    publish(nsqd, topic, LINES[:200])
    flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", "-header=x-mine: 1", "-status-every=100")
    tool = start("nsq_to_http", *flags, f"-post={destination.url}")
    wait_drained(nsqd, topic, "nsq_to_http")
    assert tool.end() == 0
    assert destination.bodies == Counter(LINES[:200])
    assert destination.headers["User-Agent"] == "nsq_to_http v1.3.0"
    assert (destination.headers["Content-Type"], destination.headers["X-Mine"]) == ("application/octet-stream", "1")
    assert "[aggregate]: finished 100 - 99th: " in tool.log


@pytest.mark.parametrize("behaviour", ["HTTP/1.0", "connection: CLOSE", "closes at the second request"])
def test_a_server_that_closes_connections_fails_no_request(
    start: Start, nsqd: Broker, topic: str, behaviour: str
) -> None:
    publish(nsqd, topic, LINES[:200])
    flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", "-n=4", "-max-in-flight=4")
    with closing_server(SERVERS[behaviour]) as server:
        tool = start("nsq_to_http", *flags, f"-post=http://{server.address}/")
        wait_drained(nsqd, topic, "nsq_to_http")
        assert tool.end() == 0
    assert Counter(body for _, body in server.answered) == Counter(LINES[:200])
    assert "ERR" not in tool.log
    assert topic_stats(nsqd, topic)["channels"][0]["requeue_count"] == 0  # type: ignore[index]


def test_a_get_must_be_answered_with_200(start: Start, nsqd: Broker, topic: str, destination: HttpDestination) -> None:
    destination.status = 201
    publish(nsqd, topic, [b"a b&c"])
    flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", *QUICK)
    tool = start("nsq_to_http", *flags, f"-get={destination.url}?x=%s")
    wait_until(lambda: "got status code 201" in tool.log, "a refusal")
    destination.status = 200
    wait_drained(nsqd, topic, "nsq_to_http")
    assert tool.end() == 0
    assert destination.bodies[b"a+b%26c"] > 1, "201 is counted by the server, and 200 in the end"


def test_a_destination_that_fails_holds_messages_back(
    start: Start, nsqd: Broker, topic: str, destination: HttpDestination
) -> None:
    destination.status = 500
    publish(nsqd, topic, LINES[:100])
    flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", *QUICK)
    tool = start("nsq_to_http", *flags, f"-post={destination.url}", "-consumer-opt=max_backoff_duration,50ms")
    wait_until(lambda: "backing off" in tool.log, "backoff")
    assert unfinished(nsqd, topic, "nsq_to_http") == 100
    destination.status = 200
    wait_drained(nsqd, topic, "nsq_to_http")
    assert tool.end() == 0
    assert destination.bodies == Counter(LINES[:100])


def test_messages_go_to_another_broker(start: Start, nsqd: Broker, topic: str) -> None:
    publish(nsqd, topic, [b'{"a":1,"b":2}', b'{"b":1}', b"no json"])
    with broker() as other:
        flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", "-destination-topic=there")
        fields = ("-require-json-field=a", "-whitelist-json-field=a")
        tool = start("nsq_to_nsq", *flags, *fields, f"-destination-nsqd-tcp-address={other.tcp_address}")
        wait_drained(nsqd, topic, "nsq_to_nsq")
        assert tool.end() == 0
        assert "ERROR: Unable to decode json: no json" in tool.log
        done = run_tool("nsq_tail", "-topic=there", "-channel=c", "-n=1", f"-nsqd-tcp-address={other.tcp_address}")
        assert done.stdout == b'{"a":1}\n'
        assert topic_stats(other, "there")["message_count"] == 1


def test_a_destination_that_dies_loses_nothing(start: Start, nsqd: Broker, topic: str) -> None:
    with broker() as other:
        flags = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", *QUICK)
        tool = start("nsq_to_nsq", *flags, f"-destination-nsqd-tcp-address={other.tcp_address}")
        publish(nsqd, topic, LINES[:500])
        wait_drained(nsqd, topic, "nsq_to_nsq")
        other.kill()
        publish(nsqd, topic, LINES[500:])
        wait_until(lambda: "failed to publish" in tool.log, "the failure")
        other.restart()
        wait_drained(nsqd, topic, "nsq_to_nsq")
        assert tool.end() == 0
        count = topic_stats(other, topic)["message_count"]
        depth = topic_stats(other, topic)["depth"]
        assert isinstance(depth, int) and depth >= 1000, (count, depth)
