"""
Scenarios that NSQ's tools and ours play alike: what a tool is given, and what came of it as JSON.

A scenario is a function with a `Stage`, which has the broker and runs the tools of one directory. What differs from run
to run, such as times, process ids and ports, is replaced, so two outcomes can be compared. Nothing here checks: the
originals' outcomes are kept in `recorded`, and test_recorded.py compares ours with them.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from nsqtw.testing import Broker, broker
from tests.process import wait_until
from tests.tools.nsq_tool import END_SECONDS, Done, Programs, Running, publish, topic_stats, wait_drained

Scenario = Callable[["Stage"], Any]
SCENARIOS: dict[str, Scenario] = {}
"""All scenarios, by name."""
_TIME = re.compile(r"(?m)^(\[\w+\] )?\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)? ")
_LIBRARY = re.compile(r"(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (DBG|INF|WRN|ERR) .*\n")
_LOG_LINE = re.compile(r"(?m)^\[nsq_to_file\] .*\n")
_OWN_HEADERS = ("Host:", "Connection:", "Referer:")
"""Headers that differ with the HTTP library."""
_HEAD = "------rate------+"


def without_times(text: str) -> str:
    """Return what a tool wrote without times, lines of the client library and lines of nsq_to_file's log."""
    return _TIME.sub("", _LIBRARY.sub("", _LOG_LINE.sub("", text)))


def outcome_of(done: Done) -> dict[str, Any]:
    """Return the exit code of a tool, and what it wrote, of a usage text only the reason."""
    stderr = done.stderr.decode("utf-8", "replace")
    if done.returncode == 2 or stderr.startswith("Usage of "):
        stderr = stderr.partition("\n")[0].partition("Usage of")[0]
    return {"exit": done.returncode, "stdout": done.stdout.decode("latin-1"), "stderr": without_times(stderr)}


def scenario(play: Scenario) -> Scenario:
    """Register a scenario under the name of its function."""
    SCENARIOS[play.__name__] = play
    return play


class Stage:
    """A broker, a directory of its own for each scenario, and the tools."""

    def __init__(self, tools: Programs, nsqd: Broker, directory: Path, name: str) -> None:
        self.tools = tools
        self.nsqd = nsqd
        self.directory = directory
        self.topic = name.replace("_", "-")
        self.tcp = f"-nsqd-tcp-address={nsqd.tcp_address}"

    def run(self, tool: str, *flags: str, stdin: bytes = b"") -> dict[str, Any]:
        """Run a tool to its end. Returns the exit code and what it wrote."""
        return self.named(outcome_of(self.tools.run(tool, *flags, stdin=stdin, cwd=self.directory)))

    def named(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Return an outcome with names instead of the broker's addresses."""
        return {key: self.plain(value) if isinstance(value, str) else value for key, value in outcome.items()}

    def plain(self, text: str) -> str:
        """Return a text with names instead of the broker's addresses."""
        return text.replace(self.nsqd.tcp_address, "NSQD").replace(self.nsqd.http_address, "HTTP")

    @contextmanager
    def running(self, tool: str, *flags: str) -> Iterator[Running]:
        """Run a tool while the context lasts, then end it with SIGTERM. What it writes is in the file `stderr`."""
        process = self.tools.start(tool, *flags, output=self.directory / "stderr")
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(END_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def stderr(self) -> str:
        """What the running tool wrote."""
        return self.plain(without_times((self.directory / "stderr").read_text("utf-8", "replace")))

    def publish(self, *bodies: bytes, topic: str = "") -> None:
        """Publish messages, one at a time, so that their order is known."""
        for body in bodies:
            publish(self.nsqd, topic or self.topic, [body])

    def create_channel(self, channel: str) -> None:
        """Create a channel, which then gets what is published."""
        _create(self.nsqd, self.topic, channel)

    def counts(self, channel: str) -> dict[str, int]:
        """Return how many messages of a channel are left, and how many were requeued."""
        for found in topic_stats(self.nsqd, self.topic).get("channels") or ():  # type: ignore[attr-defined]
            if found["channel_name"] == channel:
                left = found["depth"] + found["in_flight_count"] + found["deferred_count"]
                return {"left": left, "requeued": found["requeue_count"]}
        return {"left": -1, "requeued": 0}

    def wait_connected(self, channel: str) -> None:
        """Wait until a tool consumes a channel."""

        def is_connected() -> bool:
            channels = topic_stats(self.nsqd, self.topic).get("channels") or ()
            return any(found["client_count"] for found in channels if found["channel_name"] == channel)  # type: ignore[attr-defined]

        wait_until(is_connected, f"{self.topic}/{channel} has a consumer", END_SECONDS)

    def wait_answered(self, channel: str, count: int) -> dict[str, int]:
        """Wait until `count` messages are finished or requeued. Returns `counts`."""

        def answered() -> bool:
            counts = self.counts(channel)
            finished = _published(self.nsqd, self.topic) - counts["left"]
            return counts["left"] >= 0 and finished + counts["requeued"] >= count

        wait_until(answered, f"{self.topic}/{channel} has {count} answers", END_SECONDS)
        return self.counts(channel)


def _create(nsqd: Broker, topic: str, channel: str) -> None:
    for path in (f"topic/create?topic={topic}", f"channel/create?topic={topic}&channel={channel}"):
        with urllib.request.urlopen(f"http://{nsqd.http_address}/{path}", b"") as answer:
            answer.read()


def _published(nsqd: Broker, topic: str) -> int:
    count = topic_stats(nsqd, topic).get("message_count", 0)
    assert isinstance(count, int)
    return count


# -- nsq_to_file


def _files(directory: Path) -> dict[str, Any]:
    """Return each file below a directory: its text, and the number of members of a gzip file."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(directory))
            found[name] = _gzip(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes().decode("latin-1")
    return found


def _gzip(data: bytes) -> str:
    text = b""
    while data:
        member = zlib.decompressobj(31)
        text += member.decompress(data) + member.flush()
        assert member.eof, "the last member is whole"
        data = member.unused_data
    return text.decode("latin-1")


def _archive(
    stage: Stage,
    *flags: str,
    bodies: Sequence[bytes] = (b"one", b"two", b"three"),
    before: dict[str, bytes] | None = None,
    during: Callable[[Running], None] = lambda process: None,
) -> dict[str, Any]:
    """Let nsq_to_file write `bodies` beside files from `before`, and do `during` when all are written."""
    out, work = stage.directory / "out", stage.directory / "work"
    for name, content in (before or {}).items():
        path = stage.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    stage.create_channel("nsq_to_file")
    stage.publish(*bodies)
    fixed = (f"-topic={stage.topic}", stage.tcp, f"-output-dir={out}", "-host-identifier=h", "-datetime-format=D")
    flags = tuple(flag.replace("WORK", str(work)) for flag in flags)
    with stage.running("nsq_to_file", *fixed, "-sync-interval=50ms", "-max-in-flight=1", *flags) as process:
        stage.wait_connected("nsq_to_file")
        stage.wait_answered("nsq_to_file", len(bodies))
        during(process)
    pid = str(process.pid)
    found = {
        "exit": process.returncode,
        "left": stage.counts("nsq_to_file")["left"],
        "out": {name.replace(pid, "PID"): text for name, text in _files(out).items()},
    }
    if work.exists():
        found["work"] = _files(work)
    return found


def _file_scenario(name: str, *flags: str, **named: Any) -> None:
    SCENARIOS[f"file_{name}"] = lambda stage: _archive(stage, *flags, **named)


_file_scenario("plain")
_file_scenario("bodies", bodies=(b"a\tb", b"\xff\x00", b" ", b"\r", "é".encode(), b"x" * 300))
_file_scenario("gzip", "-gzip")
_file_scenario("gzip_level", "-gzip", "-gzip-level=9")
_file_scenario("gzip_extension", "-gzip", "-filename-format=<TOPIC><REV>.gz")
_file_scenario("gzip_other_extension", "-gzip", "-filename-format=<TOPIC><REV>.gzip")
_file_scenario("gzip_false", "-gzip=false")
_file_scenario("directories", "-filename-format=<HOST>/<TOPIC>/<DATETIME>.log")
_file_scenario("pid", "-filename-format=<TOPIC>.<PID>.log")
_file_scenario("nothing_replaced", "-filename-format=fixed")
_file_scenario("host", "-host-identifier=a.b")
_file_scenario("repeated_parts", "-filename-format=<TOPIC>.<TOPIC>.<DATETIME>.<DATETIME>")
_file_scenario("time_literal", "-datetime-format=%%x%q-%")
_file_scenario("rotate_size", "-rotate-size=5", bodies=(b"one", b"two", b"three", b"a", b"b"))
_file_scenario("rotate_size_gzip", "-rotate-size=5", "-gzip", bodies=(b"one", b"two", b"three", b"a", b"b"))
_file_scenario("rotate_size_exact", "-rotate-size=4", bodies=(b"one", b"two", b"six"))
_file_scenario("rotate_interval_long", "-rotate-interval=1h")
_file_scenario("work_dir", "-work-dir=WORK")
_file_scenario("work_dir_gzip", "-work-dir=WORK", "-gzip")
# Without a tick of the interval, at which the file that is full gives way to an empty one.
_file_scenario("work_dir_rotate_size", "-work-dir=WORK", "-rotate-size=5", "-sync-interval=1h")
_file_scenario("work_dir_directories", "-work-dir=WORK", "-filename-format=<TOPIC>/<DATETIME><REV>.log")
_file_scenario("work_dir_taken", "-work-dir=WORK", "-filename-format=x<REV>.log", before={"out/x-000000.log": b"old\n"})
_file_scenario("appended", "-filename-format=x.log", before={"out/x.log": b"old\n"})
_file_scenario("gzip_taken", "-gzip", "-filename-format=x<REV>", before={"out/x-000000.gz": b""})
_file_scenario("interval_taken", "-rotate-interval=1h", "-filename-format=x<REV>", before={"out/x-000000": b"old\n"})
_file_scenario("size_continued", "-rotate-size=50", "-filename-format=x<REV>", before={"out/x-000000": b"old\n"})
_file_scenario(
    "size_full", "-rotate-size=3", "-filename-format=x<REV>", before={"out/x-000000": b"old\n"}, bodies=(b"1",)
)
_file_scenario("pattern_matches", "-topic-pattern=^file-.attern")
_file_scenario("wrong_consumer_opt", "-consumer-opt=nope,1")
_file_scenario("deflate", "-consumer-opt=deflate", "-consumer-opt=deflate-level,9")
_file_scenario("snappy", "-consumer-opt=snappy,true")


@scenario
def file_hang_up(stage: Stage) -> Any:
    def hang_up(process: Running) -> None:
        (stage.directory / "out/x.log").rename(stage.directory / "out/moved.log")
        process.send_signal(signal.SIGHUP)
        # The file is closed once the tool has nothing open below the directory.
        descriptors = Path(f"/proc/{process.pid}/fd")
        wait_until(
            lambda: not any(str(stage.directory / "out") in _link(one) for one in descriptors.iterdir()), "it is closed"
        )
        stage.publish(b"four")
        stage.wait_answered("nsq_to_file", 4)

    return _archive(stage, "-filename-format=x.log", "-skip-empty-files", during=hang_up)


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


@scenario
def file_empty(stage: Stage) -> Any:
    def wait(process: Running) -> None:
        wait_until(lambda: (stage.directory / "out").exists() and _files(stage.directory / "out"), "a file")

    return _archive(stage, bodies=(), during=wait)


@scenario
def file_empty_gzip(stage: Stage) -> Any:
    def wait(process: Running) -> None:
        wait_until(lambda: any(stage.directory.rglob("*.gz")), "a file")

    outcome = _archive(stage, "-gzip", bodies=(), during=wait)
    return {**outcome, "sizes": [path.stat().st_size for path in (stage.directory / "out").iterdir()]}


@scenario
def file_skip_empty(stage: Stage) -> Any:
    return _archive(stage, "-skip-empty-files", bodies=())


# -- nsq_to_http


class Request(NamedTuple):
    """A request that a server got."""

    server: str
    method: str
    path: str
    headers: list[str]
    body: str


class HttpServer:
    """An HTTP server that notes requests. `answers` are statuses, or a status and headers; then it is 200."""

    def __init__(self, name: str, answers: Sequence[Any] = ()) -> None:
        self.name = name
        self.answers = list(answers)
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = [f"{name.title()}: {value}" for name, value in self.headers.items()]
                headers = sorted(header for header in headers if not header.startswith(_OWN_HEADERS))
                outer.requests.append(Request(outer.name, self.command, self.path, headers, body.decode("latin-1")))
                answer = outer.answers.pop(0) if outer.answers else 200
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST = do_PUT = do

            def log_message(self, format: str, *arguments: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _send(
    stage: Stage,
    *flags: str,
    bodies: Sequence[bytes] = (b"one",),
    answers: Sequence[Sequence[Any]] = ((),),
    drains: bool = False,
) -> dict[str, Any]:
    """
    Let nsq_to_http send `bodies`, one at a time, to a server for each of `answers`, until each has an answer, with
    `drains` until each is finished. The URLs of the servers are A, B and C in `flags`. Returns what the servers got,
    and the headers of the first request with each method.
    """
    servers = [HttpServer(name, script) for name, script in zip("ABC", answers, strict=False)]
    try:
        urls = {server.name: server.url for server in servers}
        words = [re.sub(r"^(-post|-get)=([ABC])", lambda match: f"{match[1]}={urls[match[2]]}", flag) for flag in flags]
        stage.create_channel("nsq_to_http")
        stage.publish(*bodies)
        fixed = (f"-topic={stage.topic}", stage.tcp, "-n=1", "-max-in-flight=1", "-consumer-opt=max_backoff_duration,0")
        with stage.running("nsq_to_http", *fixed, *words) as process:
            if drains:
                wait_drained(stage.nsqd, stage.topic, "nsq_to_http")
            counts = stage.wait_answered("nsq_to_http", len(bodies))
        requests = [request for server in servers for request in server.requests]
        return {
            "exit": process.returncode,
            **counts,
            "requests": [" ".join((one.server, one.method, one.path, one.body)) for one in requests],
            "headers": {one.method: one.headers for one in reversed(requests)},
        }
    finally:
        for server in servers:
            server.close()


def _http_scenario(name: str, *flags: str, **named: Any) -> None:
    SCENARIOS[f"http_{name}"] = lambda stage: _send(stage, *flags, **named)


_EIGHT_BIT = bytes(range(1, 10)) + bytes(range(11, 256))
_http_scenario("post", "-post=A/path?q=1", bodies=(b"one", b"\xff\x00\r"))
_http_scenario("post_bare", "-post=A")
_http_scenario("get", "-get=A/path?q=%s", bodies=(b"one", b"a b&c=d/e?f#g%h+i", "é".encode(), b"~-._!*'()"))
_http_scenario("get_every_byte", "-get=A/?%s", bodies=(_EIGHT_BIT,))
_http_scenario("get_in_path", "-get=A/x/%s/y", bodies=(b"a/b",))
_http_scenario("content_type", "-post=A/", "-content-type=text/plain; charset=utf-8")
_http_scenario(
    "headers",
    "-post=A/",
    "-header=x-one: 1",
    "-header=User-Agent: mine",
    "-header=content-type:a/b",
    "-header=X-Two:a:b: c",
    "-header=X-Two: last",
    "-header=aCCept-encoding: identity",
)
_http_scenario("get_headers", "-get=A/%s", "-header=Content-Type: a/b")
_STATUSES = (200, 201, 202, 204, 206, 299, 300, 304, 400, 401, 404, 429, 500, 503)
_AGAIN = "-consumer-opt=default_requeue_delay,0"
for _method, _flag in (("post", "-post=A/"), ("get", "-get=A/%s")):
    # Who is not content with a status sends the message again.
    _http_scenario(
        f"{_method}_statuses",
        _flag,
        _AGAIN,
        bodies=[b"%d" % one for one in _STATUSES],
        answers=(_STATUSES,),
        drains=True,
    )
for _status in (301, 302, 303, 307, 308):
    _there = ((_status, {"Location": "/there"}),)
    _http_scenario(f"post_{_status}", "-post=A/", answers=(_there,))
    _http_scenario(f"get_{_status}", "-get=A/%s", answers=(_there,))
_http_scenario("post_redirect_nowhere", "-post=A/", answers=((307,),))
_http_scenario("post_redirects_end", "-post=A/", answers=(((302, {"Location": "/x"}),) * 12,))
_FIVE = tuple(b"%d" % number for number in range(5))
for _mode in ("hostpool", "round-robin", "multicast", "anything"):
    _http_scenario(f"mode_{_mode}", "-post=A/", "-post=B/", f"-mode={_mode}", bodies=_FIVE, answers=((), ()))
_http_scenario("mode_default", "-post=A/", "-post=B/", "-post=C/", bodies=_FIVE, answers=((), (), ()))
_http_scenario("hostpool_dead", "-post=A/", "-post=B/", bodies=_FIVE, answers=((500,) * 9, ()))
_http_scenario("hostpool_all_dead", "-post=A/", "-post=B/", bodies=_FIVE, answers=((500,) * 9, (500,) * 9))
_http_scenario("round_robin_dead", "-post=A/", "-post=B/", "-mode=round-robin", bodies=_FIVE, answers=((500,) * 9, ()))
_http_scenario("multicast_first_fails", "-post=A/", "-post=B/", "-mode=all", answers=((500,), ()))
_http_scenario("multicast_second_fails", "-post=A/", "-post=B/", "-mode=all", answers=((), (500,)))
_http_scenario("sample_none", "-post=A/", "-sample=0", bodies=_FIVE)
_http_scenario("sample_all", "-post=A/", "-sample=1", bodies=_FIVE)
_http_scenario("get_mode_round_robin", "-get=A/%s", "-get=B/%s", "-mode=round-robin", bodies=_FIVE, answers=((), ()))


@scenario
def http_nobody_listens(stage: Stage) -> Any:
    return _send(stage, "-post=http://127.0.0.1:1/")


@scenario
def http_status_lines(stage: Stage) -> Any:
    outcome = _send(stage, "-post=A/", "-post=B/", "-status-every=3", bodies=_FIVE * 2, answers=((), ()))
    lines = re.sub(r"\d+(\.\d+)?[mµ]?s\b", "TIME", stage.stderr)
    return {"exit": outcome["exit"], "log": re.sub(r"http://[\d.:]+/", "URL", lines).splitlines()}


# -- nsq_to_nsq


def _republish(stage: Stage, *flags: str, bodies: Sequence[bytes]) -> dict[str, Any]:
    """Let nsq_to_nsq republish `bodies` to another topic of the broker. Returns that topic's messages, in order."""
    there = f"{stage.topic}-there"
    _create(stage.nsqd, there, "c")
    stage.create_channel("nsq_to_nsq")
    stage.publish(*bodies)
    fixed = (
        f"-topic={stage.topic}",
        stage.tcp,
        f"-destination-nsqd-tcp-address={stage.nsqd.tcp_address}",
        f"-destination-topic={there}",
        "-max-in-flight=1",
        "-consumer-opt=max_backoff_duration,0",
    )
    with stage.running("nsq_to_nsq", *fixed, *flags) as process:
        counts = stage.wait_answered("nsq_to_nsq", len(bodies))
    published = _published(stage.nsqd, there)
    bodies_there = ""
    if published:
        tail = (f"-topic={there}", "-channel=c", stage.tcp, "-max-in-flight=1", f"-n={published}")
        bodies_there = stage.run("nsq_tail", *tail)["stdout"]
    log = [line for line in stage.stderr.splitlines() if line.startswith("ERROR")]
    return {"exit": process.returncode, **counts, "published": bodies_there.split("\n")[:-1], "log": log}


def _nsq_scenario(name: str, *flags: str, bodies: Sequence[bytes]) -> None:
    SCENARIOS[f"nsq_{name}"] = lambda stage: _republish(stage, *flags, bodies=bodies)


_OBJECTS = (
    b'{"a":"1","b":2}',
    b'{"a":1,"b":2}',
    b'{"a":1.0}',
    b'{"a":1e0}',
    b'{"a":"01"}',
    b'{"a":true}',
    b'{"a":null}',
    b'{"a":[1]}',
    b'{"a":{}}',
    b'{"b":1}',
    b"{}",
    b"null",
    b" {} ",
    b"[]",
    b"7",
    b'"a"',
    b"{",
    b"{'a':1}",
    b'{"a":1}x',
    b'{"a":1,"a":2}',
    b'{"A":1}',
    b'{"a":NaN}',
    b'{"a":1,}',
    b'{"a":01}',
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":"\xff"}',
    b'{"a":"\x01"}',
    b'{"a":1e999}',
    b'{"a":"\\ud800"}',
    b"\xff",
    b'{"a":"x\\u0031"}',
)
_nsq_scenario("untouched", bodies=(b"\xff\x00", b"{", b' {"a" : 1}'))
_nsq_scenario("field", "-require-json-field=a", bodies=_OBJECTS)
_nsq_scenario("number", "-require-json-field=a", "-require-json-value=1", bodies=_OBJECTS)
_nsq_scenario("number_hex", "-require-json-field=a", "-require-json-value=0x1p0", bodies=_OBJECTS)
_nsq_scenario(
    "number_underscore", "-require-json-field=a", "-require-json-value=1_0", bodies=(b'{"a":10}', b'{"a":"1_0"}')
)
_nsq_scenario("number_space", "-require-json-field=a", "-require-json-value= 1", bodies=(b'{"a":1}', b'{"a":" 1"}'))
_nsq_scenario("word", "-require-json-field=a", "-require-json-value=true", bodies=_OBJECTS)
_nsq_scenario("value_alone", "-require-json-value=1", bodies=(b'{"a":1}', b"x"))
_nsq_scenario("kept", "-whitelist-json-field=a", bodies=_OBJECTS)
_nsq_scenario(
    "kept_values",
    "-whitelist-json-field=z",
    "-whitelist-json-field=a",
    "-whitelist-json-field=nope",
    bodies=(
        b'{"z":1,"a":2,"x":3}',
        b'{"a":12345678901234567890}',
        b'{"a":[1e21,1e20,1e-6,1e-7,-0,-0.0,0.1,100,1.5e300,5e-324,123456789.125]}',
        b'{"a":"<>&\\u2028\\u2029\\u007f\\u00e9\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001"}',
        b'{"a":{"z":1,"b":{"y":[true,false,null]},"a":"x"}}',
        b'{"a":"\xff\xfe","z":"\\ud83d\\ude00\\ud800x"}',
        b'{"a":{"\\u00e9<":1}}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":9007199254740993}',
        b'{"a":1.7976931348623157e308}',
        b'{"a":[]}',
        b'{"a":{}}',
        b'{"a":""}',
    ),
)
_nsq_scenario("both", "-require-json-field=a", "-require-json-value=1", "-whitelist-json-field=b", bodies=_OBJECTS)


# -- nsq_tail, nsq_stat, to_nsq


def _tail(stage: Stage, *flags: str, bodies: Sequence[bytes]) -> dict[str, Any]:
    stage.create_channel("c")
    stage.publish(*bodies)
    return stage.run("nsq_tail", f"-topic={stage.topic}", "-channel=c", stage.tcp, "-max-in-flight=1", *flags)


def _tail_scenario(name: str, *flags: str, bodies: Sequence[bytes] = (b"one", b"two", b"three")) -> None:
    SCENARIOS[f"tail_{name}"] = lambda stage: _tail(stage, *flags, bodies=bodies)


_tail_scenario("n", "-n=3")
_tail_scenario("n_less", "--n", "2")
_tail_scenario("print_topic", "-n=3", "-print-topic")
_tail_scenario("print_topic_false", "-n=3", "-print-topic=false")
_tail_scenario("bytes", "-n=2", bodies=(_EIGHT_BIT, b"\x00"))


def _stat(stage: Stage, *flags: str) -> dict[str, Any]:
    http = f"-nsqd-http-address={stage.nsqd.http_address}"
    return stage.run("nsq_stat", f"-topic={stage.topic}", http, "-interval=10ms", *flags)


@scenario
def stat_lines(stage: Stage) -> Any:
    stage.create_channel("c")
    stage.publish(*_FIVE)
    return _stat(stage, "-channel=c", "-count=3")


@scenario
def stat_requeued(stage: Stage) -> Any:
    stage.create_channel("nsq_to_http")
    _send(stage, "-post=A/", bodies=_FIVE, answers=((500,) * 9,))
    return _stat(stage, "-channel=nsq_to_http", "-count=1")


@scenario
def stat_two_brokers(stage: Stage) -> Any:
    stage.create_channel("c")
    stage.publish(*_FIVE)
    with broker() as other:
        _create(other, stage.topic, "c")
        publish(other, stage.topic, [b"x"])
        return _stat(stage, "-channel=c", "-count=1", f"-nsqd-http-address={other.http_address}")


@scenario
def stat_head_repeats(stage: Stage) -> Any:
    stage.create_channel("c")
    lines = _stat(stage, "-channel=c", "-count=51")["stdout"].splitlines()
    return [number for number, line in enumerate(lines) if line.startswith(_HEAD)]


@scenario
def stat_no_channel(stage: Stage) -> Any:
    stage.create_channel("c")
    return _stat(stage, "-channel=nope", "-count=1")


@scenario
def stat_no_topic(stage: Stage) -> Any:
    return _stat(stage, "-channel=nope", "-count=1")


def _to_nsq(stage: Stage, stdin: bytes, *flags: str) -> dict[str, Any]:
    """Let to_nsq publish `stdin`. Returns its outcome, and the messages that came of it."""
    stage.create_channel("c")
    outcome = stage.run("to_nsq", f"-topic={stage.topic}", stage.tcp, *flags, stdin=stdin)
    published = _published(stage.nsqd, stage.topic)
    if published:
        tail = (f"-topic={stage.topic}", "-channel=c", stage.tcp, "-max-in-flight=1", f"-n={published}")
        outcome["messages"] = stage.run("nsq_tail", *tail)["stdout"]
    return {**outcome, "published": published}


def _to_nsq_scenario(name: str, stdin: bytes, *flags: str) -> None:
    SCENARIOS[f"to_nsq_{name}"] = lambda stage: _to_nsq(stage, stdin, *flags)


_to_nsq_scenario("lines", b"one\ntwo\nthree\n")
_to_nsq_scenario("nothing", b"")
_to_nsq_scenario("empty_lines", b"\n\none\n\n\ntwo\n\n")
_to_nsq_scenario("unterminated", b"one\ntwo\nthree")
_to_nsq_scenario("single_byte", b"z")
_to_nsq_scenario("carriage_returns", b"one\r\ntwo\r\n")
_to_nsq_scenario("delimiter", b"one,two\nthree,", "-delimiter=,")
_to_nsq_scenario("bytes", b"\xff\x00\xfe\n\x00\n")
_to_nsq_scenario("large", b"x" * 9000 + b"\n")
_to_nsq_scenario("too_large", b"one\n" + b"x" * 1_100_000 + b"\ntwo\n")
_to_nsq_scenario("rate", b"a\nb\nc\n", "-rate=50")
_to_nsq_scenario("bad_topic", b"one\n", "-topic=a*")
_to_nsq_scenario("topic_of_two_words", b"one\n", "-topic=a b")
_to_nsq_scenario("nobody_listens", b"one\n", "-nsqd-tcp-address=127.0.0.1:1")
