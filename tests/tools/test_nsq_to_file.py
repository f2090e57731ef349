"""nsq_to_file as a process: flags, discovery, signals, kills and full disks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nsqtw.testing import Broker, broker
from tests.process import LookupdProcess, wait_until
from tests.tools.nsq_tool import END_SECONDS, Start, ToolProcess, publish, run_tool, unfinished, wait_drained

CHANNEL = "nsq_to_file"
LINES = [b"line %d" % number for number in range(1000)]

MISTAKES = [
    (("word",), (), "unknown arguments: [word]"),
    (("-log-level=loud",), (), "--log-level is invalid"),
    (("-channel=",), (), "--channel is required"),
    (("-http-client-connect-timeout=0",), (), "--http-client-connect-timeout should be positive"),
    (("-http-client-request-timeout=-1s",), (), "--http-client-request-timeout should be positive"),
    ((), ("-nsqd-tcp-address=a:1",), "--nsqd-tcp-address or --lookupd-http-address required."),
    (("-lookupd-http-address=b:1",), (), "use --nsqd-tcp-address or --lookupd-http-address not both"),
    (("-gzip-level=0",), (), "invalid --gzip-level value (0), should be 1-9"),
    ((), ("-topic-pattern=x",), "--topic or --topic-pattern required"),
    ((), ("-topic=t",), "--lookupd-http-address must be specified when no --topic specified"),
    (("-sync-interval=0",), (), "--sync-interval should be positive"),
]
"""The mistakes in the order of their checks: flags that make each, flags that mend each, and its line."""


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_the_first_mistake_is_told(number: int) -> None:
    """Of all mistakes that can be made at the same time, those before are mended."""
    mended = [flag for _, mending, _ in MISTAKES[:number] for flag in mending]
    made = [flag for making, _, _ in MISTAKES[number:] for flag in making if flag != "-lookupd-http-address=b:1"]
    if "not both" in MISTAKES[number][2]:
        made.append("-lookupd-http-address=b:1")
    words = [word for word in made if not word.startswith("-")]
    done = run_tool(CHANNEL, *mended, *(flag for flag in made if flag not in words), *words)
    assert (done.returncode, done.stdout) == (1, b"")
    line = re.escape(MISTAKES[number][2])
    assert re.fullmatch(rf"\d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d {line}\n", done.stderr.decode())


def test_the_version_comes_after_the_log_level() -> None:
    assert run_tool(CHANNEL, "-version", "-channel=").stdout == b"nsq_to_file v1.3.0\n"
    done = run_tool(CHANNEL, "-version", "-log-level=loud")
    assert (done.returncode, done.stdout) == (1, b"")


def archive(start: Start, nsqd: Broker, topic: str, directory: Path, *flags: str) -> ToolProcess:
    """Start nsq_to_file for one topic."""
    fixed = (f"-topic={topic}", f"-nsqd-tcp-address={nsqd.tcp_address}", f"-output-dir={directory}")
    return start(CHANNEL, *fixed, "-sync-interval=50ms", "-host-identifier=h", *flags)


def readable(data: bytes) -> bytes:
    """Return the content of a gzip file up to where it is cut off."""
    found = b""
    while data:
        member = zlib.decompressobj(31)
        found += member.decompress(data)
        data = member.unused_data
    return found


def content(path: Path) -> bytes:
    """Return what can be read of a file."""
    data = path.read_bytes()
    return readable(data) if path.suffix == ".gz" else data


def lines_in(*directories: Path) -> list[bytes]:
    """Return the lines of all files. A file that is being moved has two names, and counts once."""
    paths = [path for directory in directories for path in sorted(directory.rglob("*")) if path.is_file()]
    files = {path.stat().st_ino: path for path in paths}
    return [line for path in files.values() for line in content(path).splitlines()]


def test_lines_of_the_log(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    tool = archive(start, nsqd, topic, tmp_path / "out", "-log-prefix=<x> ", "-consumer-opt=nope,1")
    publish(nsqd, topic, [b"1"])
    wait_drained(nsqd, topic, CHANNEL)
    assert tool.end() == 0
    form = r"<x> \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} %s: "
    assert re.search(form % "WARNING" + "--consumer-opt nope,1 is ignored: invalid option nope\n", tool.log)
    assert re.search(form % "INFO" + rf"\[{topic}/nsq_to_file\] opened {tmp_path}/out/\S+\n", tool.log)


def test_topics_that_cannot_be_written_keep_the_process(start: Start, tmp_path: Path) -> None:
    flags = ("-nsqd-tcp-address=127.0.0.1:1", f"-output-dir={tmp_path / 'out'}", "-topic=good", "-topic=a b")
    tool = start(CHANNEL, *flags, "-sync-interval=10ms")
    wait_until(lambda: "no topic is written" in tool.log, "both failed")
    failed = "ERROR: couldn't create logger for new topic "
    assert f"{failed}good: dial tcp 127.0.0.1:1: connect: connection refused\n" in tool.log
    assert f"{failed}a b: invalid topic name\n" in tool.log
    assert tool.runs
    assert tool.end() == 0
    assert not (tmp_path / "out").exists()


def test_a_format_without_a_place_for_revisions(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    tool = archive(start, nsqd, topic, tmp_path / "out", "-gzip", "-filename-format=<TOPIC>.log")
    wait_until(lambda: "missing <REV> in --filename-format when gzip, rotation, or work dir enabled" in tool.log, "it")
    assert tool.end() == 0


@pytest.mark.parametrize("pattern", ["nothing$", "a(b", r"\Ca{1001}"])
def test_the_pattern_holds_for_named_topics(start: Start, tmp_path: Path, pattern: str) -> None:
    flags = ("-nsqd-tcp-address=127.0.0.1:1", f"-output-dir={tmp_path}", "-topic=aab", f"-topic-pattern={pattern}")
    tool = start(CHANNEL, *flags)
    wait_until(lambda: f"WARNING: skipping topic aab (doesn't match pattern {pattern})\n" in tool.log, "it is skipped")
    assert tool.end() == 0


def test_rotation_by_age(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    flags = ("-rotate-interval=150ms", "-skip-empty-files", "-gzip")
    tool = archive(start, nsqd, topic, tmp_path / "out", *flags)
    for number in range(3):
        publish(nsqd, topic, [b"%d" % number])
        wait_drained(nsqd, topic, CHANNEL)
        wait_until(lambda number=number: tool.log.count("] closed ") > number, "the file is closed")  # type: ignore[misc]
    assert tool.end() == 0
    assert [content(path) for path in sorted((tmp_path / "out").iterdir())] == [b"0\n", b"1\n", b"2\n"]


def test_a_renamed_file_is_followed_by_another_after_sighup(
    start: Start, nsqd: Broker, topic: str, tmp_path: Path
) -> None:
    tool = archive(start, nsqd, topic, tmp_path / "out", "-filename-format=<TOPIC>.log", "-skip-empty-files")
    publish(nsqd, topic, LINES[:5])
    wait_drained(nsqd, topic, CHANNEL)
    path = tmp_path / "out" / f"{topic}.log"
    path.rename(tmp_path / "old")
    tool.send(signal.SIGHUP)
    wait_until(lambda: "] closed " in tool.log, "the file is closed")
    publish(nsqd, topic, LINES[5:9])
    wait_drained(nsqd, topic, CHANNEL)
    assert tool.end() == 0
    assert (tmp_path / "old").read_bytes().splitlines() == LINES[:5]
    assert path.read_bytes().splitlines() == LINES[5:9]


def test_a_topic_with_the_name_of_a_directory(start: Start, nsqd: Broker, tmp_path: Path) -> None:
    publish(nsqd, "..", [b"inside"])
    tool = archive(start, nsqd, "..", tmp_path / "a/out", "-filename-format=<TOPIC>/x")
    wait_drained(nsqd, "..", CHANNEL)
    assert tool.end() == 0
    assert [path for path in tmp_path.rglob("*") if path.name == "x"] == [tmp_path / "a/out/%2E%2E/x"]


@pytest.mark.parametrize("flags", [(), ("-gzip",), ("-rotate-size=1000",)])
def test_kills_with_a_work_dir_lose_nothing(
    start: Start, nsqd: Broker, topic: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Each life begins with what the last one left. Before each start the files so far are noted: they only grow."""
    out, work = tmp_path / "out", tmp_path / "work"
    fixed = ("-max-in-flight=50", "-consumer-opt=msg_timeout,1s", f"-work-dir={work}", *flags)
    lives, published, left = 0, list[bytes](), list[Path]()
    while lives < 7 or not left:  # a kill just behind a rotation leaves nothing
        lines = [b"%d %b" % (lives, line) for line in LINES]
        publish(nsqd, topic, lines)
        published += lines
        lives += 1
        before = Counter(lines_in(out, work))
        tool = archive(start, nsqd, topic, out, *fixed)
        wait_until(
            lambda before=before: len(lines_in(out)) + _safe_count(work) > before.total() + 60,  # type: ignore[misc]
            "lines are written",
            END_SECONDS,
        )
        tool.end(signal.SIGKILL)
        assert before - Counter(lines_in(out, work)) == Counter(), "nothing is overwritten"
        left = [path for path in work.iterdir() if path.stat().st_size]
    tool = archive(start, nsqd, topic, out, *fixed)
    wait_drained(nsqd, topic, CHANNEL)
    assert tool.end() == 0
    assert [*work.iterdir()] == []
    found = Counter(lines_in(out))
    assert set(published) <= set(found), "nothing is lost"
    assert (found - Counter(published)).total() <= lives * 51, "the messages in flight at each kill, and a cut line"
    assert "which a killed process left, to " in tool.log


def _safe_count(directory: Path) -> int:
    """Return how many lines are in files that another process may move."""
    try:
        return len(lines_in(directory))
    except FileNotFoundError:
        return 0


def test_a_cut_line_does_not_spoil_the_next(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "out" / f"{topic}.log"
    path.parent.mkdir()
    path.write_bytes(b"line 0\nlin")
    publish(nsqd, topic, [b"line 1"])
    tool = archive(start, nsqd, topic, path.parent, "-filename-format=<TOPIC>.log")
    wait_drained(nsqd, topic, CHANNEL)
    assert tool.end() == 0
    assert path.read_bytes() == b"line 0\nlin\nline 1\n"


def test_a_disk_that_stays_full_loses_nothing(nsqd: Broker, topic: str, start: Start, tmp_path: Path) -> None:
    """Each start delivers the message again, more often than NSQ's default of max_attempts."""
    publish(nsqd, topic, [b"x" * 5000])
    flags = f"-topic={topic} -nsqd-tcp-address={nsqd.tcp_address} -output-dir={tmp_path / 'out'} -sync-interval=50ms"
    command = f"trap '' XFSZ; ulimit -f 1; exec {Path(sys.executable).with_name(CHANNEL)} {flags}"
    for _ in range(7):
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=END_SECONDS)
        assert done.returncode == 1
        failed = rb"\[nsq_to_file\] \S+ \S+ FATAL: \[\S+/nsq_to_file\] failed to write \S+: file too large\n"
        assert re.search(failed, done.stderr), done.stderr
        assert unfinished(nsqd, topic, CHANNEL) == 1
    tool = archive(start, nsqd, topic, tmp_path / "more")
    wait_drained(nsqd, topic, CHANNEL)
    assert tool.end() == 0
    assert lines_in(tmp_path / "more") == [b"x" * 5000]


def test_two_processes_share_a_work_dir(start: Start, nsqd: Broker, topic: str, tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    tools = [archive(start, nsqd, topic, out, f"-work-dir={work}", "-max-in-flight=20") for _ in range(2)]
    wait_until(lambda: work.is_dir() and len([*work.iterdir()]) == 2, "each has a file")
    publish(nsqd, topic, LINES)
    wait_drained(nsqd, topic, CHANNEL)
    assert [tool.end() for tool in tools] == [0, 0]
    assert sorted(lines_in(out)) == sorted(LINES)
    assert len([*out.iterdir()]) == 2


class _OddLookupd(BaseHTTPRequestHandler):
    """Answers with JSON that is no list of topics."""

    def do_GET(self) -> None:
        body = b'{"topics": 7}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


def test_discovery_begins_at_once_and_goes_on_without_some(start: Start, tmp_path: Path) -> None:
    lookupd = LookupdProcess(tmp_path / "lookupd")
    odd = ThreadingHTTPServer(("127.0.0.1", 0), _OddLookupd)
    threading.Thread(target=odd.serve_forever, daemon=True).start()
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        lookupd.start()
        with broker(lookupd_tcp_address=f"127.0.0.1:{lookupd.tcp_port}") as nsqd:
            publish(nsqd, "logs.first", [b"1"])
            publish(nsqd, "other", [b"x"])
            wait_until(lambda: {"logs.first", "other"} <= {*lookupd.ask("/topics")["topics"]}, "the topics are known")
            ports = (silent.getsockname()[1], 1, odd.server_port, lookupd.http_port)
            addresses = [f"-lookupd-http-address=127.0.0.1:{port}" for port in ports]
            flags = (
                "-topic-pattern=^logs",
                "-topic-refresh=1h",
                "-sync-interval=50ms",
                f"-output-dir={tmp_path / 'out'}",
            )
            tool = start(CHANNEL, *addresses, *flags, "-http-client-request-timeout=1h")
            wait_drained(nsqd, "logs.first", CHANNEL)
            wait_until(lambda: tool.log.count("ERROR: could not retrieve topic list: ") == 2, "two failed", END_SECONDS)
            assert "WARNING: skipping topic other (doesn't match pattern ^logs)\n" in tool.log
            assert tool.end() == 0
            assert lines_in(tmp_path / "out") == [b"1"]
    finally:
        silent.close()
        odd.shutdown()
        odd.server_close()
        lookupd.close()


def test_a_stop_during_the_start(start: Start, tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        address = f"-nsqd-tcp-address=127.0.0.1:{silent.getsockname()[1]}"
        tool = start(CHANNEL, "-topic=t", address, f"-output-dir={tmp_path / 'out'}", "-sync-interval=10ms")
        connection, _ = silent.accept()
        tool.send(signal.SIGTERM)
        connection.close()
        assert tool.wait() == 0
        assert not os.path.exists(tmp_path / "out")
    finally:
        silent.close()
