"""docs/how-to/consume-over-http.md does what it says, with a broker as users run it and clients written by others."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from nsqtw.api.subscribe.client_message import MAX_TEXT
from nsqtw.api.subscribe.section import MAX_WAIT_SECONDS, MOST, WAIT_SECONDS
from nsqtw.options.broker import Options
from tests.certificates import Certificates
from tests.pages import CURL, JQ
from tests.process import NOTHING, Counts, NsqdProcess, wait_until
from tests.wire import ANSWER_SECONDS, HOST

PAGE = (Path(__file__).parent.parent / "docs/how-to/consume-over-http.md").read_text("utf-8")
ADDRESS = "127.0.0.1:4151"
TOKEN = "5f1c0a9be2d4.1.0269ac8e2d3f4001.1"
ABOUT = "topic=orders&channel=billing"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for word, text in found if word == language]


def here(nsqd: NsqdProcess, text: str) -> str:
    return text.replace(ADDRESS, f"{HOST}:{nsqd.http_port}")


def curl(nsqd: NsqdProcess, path: str) -> list[str]:
    """The method, the target and the body of the command of the page that asks this path."""
    (line,) = (line for line in "".join(blocks("")).splitlines() if line.startswith("curl ") and path in line)
    words = shlex.split(line)
    method = "GET" if "-N" in words else "POST"
    return [method, words[-1].partition(ADDRESS)[2], words[words.index("-d") + 1] if "-d" in words else ""]


def poll(nsqd: NsqdProcess) -> list[dict[str, Any]]:
    method, target, _ = curl(nsqd, "/poll")
    return json.loads(nsqd.http(method, target).body)["messages"]


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path, "--http-subscribe")
    process.start()
    process.create("orders", "billing")
    process.publish("orders", [b"one", b"two", b"three"])
    yield process
    process.assert_no_traceback()
    process.close()


def test_every_command_does_what_the_page_says(nsqd: NsqdProcess) -> None:
    one, two, three = poll(nsqd)
    (shown,) = blocks("json")
    assert list(json.loads(shown)["messages"][0]) == list(one)
    for path, message, answer in (
        ("/finish", one, {"finished": 1, "failed": []}),
        ("/touch", two, {"touched": 1, "failed": []}),
        ("/requeue", two, {"requeued": 1, "failed": []}),
        ("/finish", one, {"finished": 0, "failed": [{"token": one["token"], "error": "NOT_IN_FLIGHT"}]}),
    ):
        method, target, body = curl(nsqd, path)
        assert body == TOKEN
        assert json.loads(nsqd.http(method, target, message["token"].encode()).body) == answer
    assert nsqd.counts("orders", "billing") == Counts(0, 1, 1)
    assert three["body"] == "three"


def test_the_script_consumes(nsqd: NsqdProcess, tmp_path: Path) -> None:
    for name, program in (("curl", CURL), ("jq", JQ)):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\n{program}")
        path.chmod(0o755)
    (script,) = blocks("sh")
    done = subprocess.run(
        ["sh", "-c", here(nsqd, script)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "ONCE": "1"},
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
    )
    assert (done.stdout, done.stderr) == ("got one\ngot two\ngot three\n", "")
    nsqd.await_counts("orders", "billing", NOTHING)


def test_the_program_consumes(nsqd: NsqdProcess, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("python")
    names: dict[str, Any] = {}
    exec(here(nsqd, program), names)
    names["consume_once"]()
    assert capsys.readouterr().out == "got one\ngot two\ngot three\n"
    nsqd.await_counts("orders", "billing", NOTHING)


def events(response: HTTPResponse, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = response.readline().decode()
        assert line, "the stream has ended"
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
    return found


def test_events_and_a_connection_that_breaks(nsqd: NsqdProcess) -> None:
    method, target, _ = curl(nsqd, "/events")
    connection = HTTPConnection(HOST, nsqd.http_port, timeout=ANSWER_SECONDS)
    connection.request(method, target)
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    messages = events(response, 3)
    assert [message["body"] for message in messages] == ["one", "two", "three"]
    assert nsqd.http("POST", f"/v2/subscribe/finish?{ABOUT}", messages[0]["token"].encode()).status == 200
    response.close()
    connection.close()
    nsqd.await_counts("orders", "billing", Counts(2, 0, 0))


def test_a_websocket_of_another_library_over_a_crash(nsqd: NsqdProcess) -> None:
    url = f"ws://{HOST}:{nsqd.http_port}/v2/subscribe/websocket?{ABOUT}&max_in_flight=2"
    with connect(url) as socket:
        messages = json.loads(socket.recv(ANSWER_SECONDS))["messages"]
        assert [message["body"] for message in messages] == ["one", "two"]
        socket.send(json.dumps({"finish": [messages[0]["token"]]}))
        (third,) = json.loads(socket.recv(ANSWER_SECONDS))["messages"]
        assert third["body"] == "three"
        socket.ping().wait(ANSWER_SECONDS)
        nsqd.store()
        nsqd.kill()
        with pytest.raises(ConnectionClosed):
            socket.recv(ANSWER_SECONDS)
    nsqd.start()
    again = poll(nsqd)
    assert [(message["body"], message["attempts"]) for message in again] == [("two", 2), ("three", 2)]
    old = nsqd.http("POST", f"/v2/subscribe/finish?{ABOUT}", third["token"].encode())
    assert json.loads(old.body)["failed"] == [{"token": third["token"], "error": "INVALID_TOKEN"}]


def test_a_websocket_is_told_about_the_end(nsqd: NsqdProcess) -> None:
    url = f"ws://{HOST}:{nsqd.http_port}/v2/subscribe/websocket?{ABOUT}&max_in_flight=0"
    with connect(url) as one, connect(url) as two:
        one.send('{"max": 1}')
        with pytest.raises(ConnectionClosed) as broken:
            one.recv(ANSWER_SECONDS)
        assert broken.value.rcvd is not None
        assert (broken.value.rcvd.code, broken.value.rcvd.reason) == (1008, "unknown: 'max'")
        nsqd.stop()
        with pytest.raises(ConnectionClosed) as stopped:
            two.recv(ANSWER_SECONDS)
        assert stopped.value.rcvd is not None
        assert (stopped.value.rcvd.code, stopped.value.rcvd.reason) == (1001, "EXITING")


def test_a_stop_does_not_wait_for_polls(nsqd: NsqdProcess) -> None:
    connection = HTTPConnection(HOST, nsqd.http_port, timeout=ANSWER_SECONDS)
    connection.request("POST", "/v2/subscribe/poll?topic=orders&channel=other&wait=60s")
    wait_until(lambda: any(one["channel_name"] == "other" for one in nsqd.stats("orders")[0]["channels"]), "it polls")
    nsqd.stop()
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (503, {"message": "EXITING"})


def test_all_of_it_over_https(tmp_path: Path, certificates: Certificates) -> None:
    said = "HTTPS: listening on "
    nsqd = NsqdProcess(tmp_path, "--http-subscribe", *certificates.server.flags(), f"--https-address={HOST}:0")
    try:
        nsqd.start()
        nsqd.create("orders", "billing")
        nsqd.publish("orders", [b"x" * 1_000_000, b"two"])
        port = int(nsqd.said().partition(said)[2].split()[0].rpartition(":")[2])
        trust = ssl.create_default_context(cafile=certificates.authority.certificate)
        url = f"wss://localhost:{port}/v2/subscribe/websocket?{ABOUT}"
        with connect(
            url, ssl=trust, max_size=None, additional_headers={"Origin": f"https://localhost:{port}"}
        ) as socket:
            (message,) = json.loads(socket.recv(ANSWER_SECONDS))["messages"]
            assert len(message["body"]) == 1_000_000
            socket.send(json.dumps({"finish": [message["token"]]}))
            assert json.loads(socket.recv(ANSWER_SECONDS))["messages"][0]["body"] == "two"
            (client,) = nsqd.stats("orders")[0]["channels"][0]["clients"]
            assert (client["version"], client["tls"]) == ("HTTP", True)
        nsqd.await_counts("orders", "billing", Counts(1, 0, 0))
        connection = HTTPSConnection("localhost", port, timeout=ANSWER_SECONDS, context=trust)
        connection.request("POST", f"/v2/subscribe/poll?{ABOUT}")
        assert [message["body"] for message in json.loads(connection.getresponse().read())["messages"]] == ["two"]
        connection.close()
        nsqd.assert_no_traceback()
    finally:
        nsqd.close()


def test_the_numbers_of_the_page_are_those_of_the_broker() -> None:
    for text in (
        f"(10; up to {MOST})",
        f"({WAIT_SECONDS:.0f}s; up to {MAX_WAIT_SECONDS:.0f}s)",
        f"at most {MAX_TEXT} characters",
        f"`--max-http-subscribers` ({Options().max_http_subscribers})",
    ):
        assert text in PAGE, text
