"""The programs of docs/how-to/client.md and the commands of docs/start/tools.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsqtw.testing import Broker, broker
from nsqtw.tools.documentation import pages, tools
from tests.process import ReservedPort, wait_until

ROOT = Path(__file__).parent.parent
CLIENT_PAGE = (ROOT / "docs/how-to/client.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", CLIENT_PAGE, re.MULTILINE | re.DOTALL)
TOOLS_PAGE = (ROOT / "docs/start/tools.md").read_text("utf-8")
COMMANDS = re.findall(r"^```\n(.*?)\n```$", TOOLS_PAGE, re.MULTILINE | re.DOTALL)
BIN = Path(sys.executable).parent


@pytest.mark.parametrize("program", [text for text in PROGRAMS if "127.0.0.1:4150" in text and "attempt" in text])
def test_the_five_minute_programs_run(program: str, nsq_broker: Broker) -> None:
    text = program.replace("127.0.0.1:4150", nsq_broker.tcp_address)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"b'{body}' attempt 1" for body in ("one", "two", "three")], done.stderr
    assert done.stderr == ""


def test_the_program_with_headers_runs() -> None:
    (text,) = [text for text in PROGRAMS if "headers=" in text]
    with broker(protocol="V2,V3") as running:
        program = text.replace("127.0.0.1:4150", running.tcp_address)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    wanted = ["b'four' {'customer': '17'}", "b'five' {'customer': '18'}", "b'six' {}"]
    assert (done.stdout.splitlines(), done.stderr) == (wanted, "")


def test_the_test_of_an_application_passes(tmp_path: Path) -> None:
    (text,) = [text for text in PROGRAMS if "nsq_broker" in text]
    (tmp_path / "test_orders.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_message_that_comes_twice_is_handled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = [text for text in PROGRAMS if "INSERT OR IGNORE" in text]
    names: dict[str, Any] = {}
    exec(text, names)  # a program of the page
    with closing(names["database"]) as database:
        database.execute("INSERT INTO account VALUES (0)")
        for number in (b"first", b"first", b"second"):
            names["handle"](SimpleNamespace(id=number))
        assert database.execute("SELECT amount FROM account").fetchall() == [(2,)]


def test_sigterm_ends_the_program_that_shuts_down_in_order(nsq_broker: Broker) -> None:
    (text,) = [text for text in PROGRAMS if "SIGTERM" in text]
    process = subprocess.Popen(
        [sys.executable, "-c", text.replace("127.0.0.1:4150", nsq_broker.tcp_address)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert get(nsq_broker, "/pub?topic=orders", b"one") == b"OK"
        wait_until(lambda: b'"topic_name":"mails"' in get(nsq_broker, "/stats?format=json"), "its handler publishes")
        process.terminate()
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def get(broker: Broker, path: str, body: bytes | None = None) -> bytes:
    """The answer to a GET, or to a POST of a body."""
    with urllib.request.urlopen(f"http://{broker.http_address}{path}", body, timeout=60) as answer:
        return bytes(answer.read())


def test_other_programs_are_python() -> None:
    for text in PROGRAMS:
        compile(text, "client.md", "exec", flags=0x2000)  # top-level await


def test_the_walk_through_archives_messages_of_both_brokers(tmp_path: Path) -> None:
    ports = [ReservedPort() for _ in range(6)]
    names = ["4160", "4161", "4150", "4151", "5150", "5151"]
    running: list[subprocess.Popen[bytes]] = []

    def here(command: str) -> list[str]:
        for name, port in zip(names, ports, strict=True):
            command = command.replace(f"127.0.0.1:{name}", f"127.0.0.1:{port.number}")
        words = shlex.split(command.replace("/tmp/", f"{tmp_path}/"))
        return [str(BIN / words[0]) if (BIN / words[0]).exists() else words[0], *words[1:]]

    def start(command: str, *flags: str) -> None:
        with (tmp_path / "log").open("ab") as log:
            running.append(subprocess.Popen([*here(command), *flags], stdout=log, stderr=log))

    def log() -> str:
        return (tmp_path / "log").read_text("utf-8", "replace")

    make_directories, nsqlookupd, first, second, publish, archive, publish_other, show, tail, stat = COMMANDS
    subprocess.run(here(make_directories), check=True)
    tcp, http = f"--tcp-address=127.0.0.1:{ports[0].number}", f"--http-address=127.0.0.1:{ports[1].number}"
    try:
        start(nsqlookupd, tcp, http)
        wait_until(lambda: log().count("HTTP: listening on") == 1, "nsqlookupd listens")
        start(first, f"--tcp-address=127.0.0.1:{ports[2].number}", f"--http-address=127.0.0.1:{ports[3].number}")
        start(second)
        wait_until(lambda: log().count("HTTP: listening on") == 3, "both brokers listen")
        assert subprocess.run([*here(publish), "-s"], capture_output=True).stdout == b"OK"
        start(archive)
        assert subprocess.run([*here(publish_other), "-s"], capture_output=True).stdout == b"OK"
        wanted = ["hello from the other one", "hello world"]

        def archived() -> list[str]:
            done = subprocess.run(shlex.join(here(show)).replace("'", ""), shell=True, capture_output=True, text=True)
            return sorted(done.stdout.splitlines())

        wait_until(lambda: archived() == wanted, "the files have both lines", 90)
        done = subprocess.run([*here(stat)[:-1], "--count=1", "--interval=100ms"], capture_output=True, text=True)
        assert len(done.stdout.splitlines()) == 3, done.stderr
        start(tail)
        wait_until(lambda: "Adding consumer for topic: test" in log(), "nsq_tail starts")
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)
        for port in ports:
            port.release()
    assert "Traceback" not in log()


def test_every_tool_is_documented() -> None:
    assert {path: path.read_text("utf-8") for path in pages()} == pages()
    assert len(tools()) == 6
