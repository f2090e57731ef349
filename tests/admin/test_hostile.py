"""Requests that no browser and no program makes."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

import pytest

from tests.admin.conftest import Nodes, StartAdmin
from tests.admin.endpoint import Endpoint, endpoint
from tests.admin.process import AdminProcess
from tests.process import wait_until
from tests.wire import ANSWER_SECONDS, HOST

MANY = 300
CHUNKED = b'13\r\n{"topic":"chunked"}\r\n0\r\n\r\n'


def send(admin: AdminProcess, data: bytes) -> bytes:
    """Send bytes and the end; what is answered up to the end of the connection."""
    answer = b""
    with socket.create_connection((HOST, admin.http_port), ANSWER_SECONDS) as client, suppress(ConnectionError):
        client.sendall(data)
        while piece := client.recv(65536):
            answer += piece
    return answer


def request(line: str, *fields: bytes, body: bytes = b"") -> bytes:
    lines = [f"{line} HTTP/1.1".encode("latin-1"), b"Connection: close", *fields]
    if not any(field.startswith(b"Host:") for field in fields):
        lines.append(b"Host: localhost")
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", b""]) + body


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request("GET /api/topics", b"X-Forwarded-User: \xff\xfe"), 200),
        (request("GET /api/topics", b"Cookie: nsqadmin_session=\xff; a"), 200),
        (request("GET /api/topics", b"Authorization: Basic \xff"), 200),
        (request("GET /api/topics", b"Accept: \xff", b"User-Agent: \xff"), 200),
        (request("GET /api/topics", b"Host: \xff"), 404),
        (request("GET /api/topics?inactive=%ff"), 200),
        (request("GET /api/topics/%00"), 502),
        (request("GET /api/topics/" + "a" * 9000), 502),
        (request("GET /api/topics/%0d%0aX:y"), 502),
        (request("GET /ping", b"Host: a", b"Host: a"), 400),
        (request("POST /api/topics", b"Host: a", b"Host: evil", b"Origin: http://evil", body=b'{"topic":"t"}'), 400),
        (request("POST /api/topics", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity") + CHUNKED, 400),
        (request("POST /api/topics", b"Transfer-Encoding: identity", body=b'{"topic":"t"}'), 400),
        (request("POST /api/topics", b"Transfer-Encoding: chunked") + CHUNKED, 200),
        (request("GET /api%2Ftopics"), 404),
        (request("GET /api/topics/a%2fb"), 404),
        (request("GET /static%2f..%2fapi/topics"), 404),
        (request("GET /API/topics%0d%0aSet-Cookie:x"), 404),
        (request("GET //elsewhere.example"), 404),
        (request("GET http://elsewhere.example/api/topics"), 404),
        (request("GET *"), 405),
        (request("CONNECT a:1"), 404),
        (request("BREW /api/topics"), 405),
        (request("POST /api/topics", b"Origin: \xff", body=b'{"topic":"t"}'), 403),
        (request("POST /api/topics", body=b"\xff\xfe"), 400),
        (request("POST /api/topics", body=b"[" * 100_000), 400),
        (request("POST /api/topics", b"Content-Type: multipart/form-data; boundary=x", body=b"--x--"), 400),
        (request("PUT /config/log_level", body=b"\xff\xfe"), 400),
        (request("PUT /config/nsqlookupd_http_addresses", body=b"[" * 100_000), 400),
    ],
)
def test_an_odd_request_is_answered(admin: AdminProcess, data: bytes, status: int) -> None:
    assert send(admin, data).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_redirect_stays_on_the_site(admin: AdminProcess) -> None:
    answer = send(admin, request("GET //API//topics/%0d%0aSet-Cookie:x/"))
    location = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"location:"))
    assert location.split(b": ")[1] == b"/api/topics/%0d%0aSet-Cookie:x"
    assert b"\nSet-Cookie" not in answer


def test_noise(start: StartAdmin) -> None:
    admin = start()
    chance = random.Random(5)
    alphabet = b"GETPOS /:\r\n%apitocx{}\xff1"
    for _ in range(MANY):
        with (
            socket.create_connection((HOST, admin.http_port), ANSWER_SECONDS) as client,
            suppress(ConnectionError),
        ):
            client.sendall(bytes(chance.choice(alphabet) for _ in range(chance.randrange(200))))
    assert admin.get("/ping").status == 200


NOT_UTF_8 = "\xff\x9b31m"


@pytest.mark.parametrize(
    "fields",
    [
        b'"start_time": 1%s' % (b"0" * 30),
        b'"topics": [{"topic_name": "t", "depth": 1%s}]' % (b"0" * 400),
        b'"topics": [{"topic_name": "t", "channels": [{"oldest_message_age_seconds": Infinity}]}]',
        b'"topics": [{"topic_name": "t", "e2e_processing_latency": {"percentiles": [{"value": NaN}]}}]',
        b'"topics": [{"topic_name": "\\ud800"}]',
        b'"topics": [{"topic_name": "sound", "channels": [{"channel_name": "c", "policy": {"expired": [""]}}]}]',
    ],
    ids=["start_time", "depth", "age", "latency", "name", "policy"],
)
def test_a_node_with_odd_figures_is_a_warning_and_the_figures_of_the_others_go_on(
    start: StartAdmin, nodes: Nodes, fields: bytes
) -> None:
    nodes.prepare("sound", "c")
    with endpoint() as odd:
        odd.body = _figures(odd, fields)
        admin = start(f"--nsqd-http-address={odd.address}", f"--nsqd-http-address={nodes.addresses[0]}")
        for path in ("/", "/topics", "/topics/sound", "/topics/sound/c", "/nodes", f"/nodes/{nodes.addresses[0]}"):
            assert admin.get(path).status == 200
        assert "sound" in admin.get("/topics").body.decode()
        _await_round(odd)
        assert odd.address in admin.get("/").body.decode()


def test_a_node_with_bytes_in_its_header_that_are_no_text(start: StartAdmin, nodes: Nodes) -> None:
    nodes.prepare("heard", "c")
    with endpoint() as odd:
        odd.body = _figures(
            odd, b'"topics": [{"topic_name": "heard", "channels": [{"channel_name": "c", "depth": 7}]}]'
        )
        odd.fields = {"X-Nsqtw-Version": NOT_UTF_8, "X-Nsqtw-Detail": NOT_UTF_8}
        admin = start(f"--nsqd-http-address={odd.address}", f"--nsqd-http-address={nodes.addresses[0]}")
        admin.get("/")
        _await_round(odd)
        for path in ("/", "/topics", "/topics/heard/c", "/nodes", f"/nodes/{odd.address}", "/api/counter"):
            assert admin.get(path, Accept="text/html").status == 200
        channel = admin.get("/api/topics/heard/c").document
        assert (channel["depth"], channel["message"]) == (7, "")
        odd.status = 500
        assert NOT_UTF_8 not in admin.get("/api/topics/heard/c").document["message"]
        assert admin.ask("DELETE", "/api/topics/heard/c").status == 200
        assert admin.await_audit("delete_channel").partition(": ")[2].startswith("done in part: ")


def _figures(odd: Endpoint, fields: bytes) -> bytes:
    """Return /info and /stats of a node at the address of the endpoint."""
    port = odd.address.rpartition(":")[2].encode()
    return b'{"version": "1.3.0", "broadcast_address": "127.0.0.1", "http_port": %s, %s}' % (port, fields)


def _await_round(odd: Endpoint) -> None:
    """Wait until the sampler has asked the node twice."""
    asked = len(odd.requests)
    wait_until(lambda: len(odd.requests) >= asked + 4, "the next round of the sampler")
