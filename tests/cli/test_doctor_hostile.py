"""`nsqtw doctor` and nodes that answer anything: each costs its own findings alone."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.cli import stdlib_http
from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.doctor.cluster import check_cluster
from nsqtw.cli.doctor.local import Finding, Level
from nsqtw.cli.server_answers import ClusterNames
from nsqtw.errors import ConnectFailed
from tests.cli.serving import serving
from tests.cluster.odd_answers import documents, lookupd_documents, odd_documents

resolve = socket.getaddrinfo
INFO = {"version": "1.3.0", "broadcast_address": "127.0.0.1", "hostname": "h", "http_port": 1, "tcp_port": 1}
READY = {"/readyz": (200, b"{}")}
LONG_LABEL = "a" * 70 + ".example"


def errors(found: list[Finding], check: str) -> list[str]:
    """Return the errors of a check."""
    return [finding.text for finding in found if finding.check == check and finding.level is Level.ERROR]


def of_node(body: bytes, **more: Any) -> list[Finding]:
    """Return the findings about a node that answers /info with a body, beside those about a sound one."""
    with (
        serving("/info", body, more={**READY, **more.pop("more", {})}, **more) as odd,
        serving("/info", json.dumps({**INFO, "tcp_port": 0}).encode(), more=READY) as sound,
    ):
        found = list(check_cluster(ClusterAccess(nsqd_http_addresses=(odd, sound))))
    assert [finding.level for finding in found if finding.what == sound and finding.check == "ready"] == [Level.OK]
    return found


def of_registration(**fields: Any) -> list[Finding]:
    """Return the findings about a node that an nsqlookupd names, beside a sound one."""
    with serving("/info", json.dumps({**INFO, "tcp_port": 0}).encode(), more=READY) as sound:
        port = int(sound.rpartition(":")[2])
        producers = [{**INFO, **fields}, {**INFO, "http_port": port}]
        with serving("/nodes", json.dumps({"producers": producers}).encode()) as lookupd:
            found = list(check_cluster(ClusterAccess(lookupd_http_addresses=(lookupd,))))
    assert [finding.level for finding in found if finding.what == sound and finding.check == "ready"] == [Level.OK]
    return found


@pytest.mark.parametrize(
    "body", [b"[1]", b"[" * 200_000, b"\xff", b"{}", b'{"version": []}', b'{"version": "1", "tcp_port": "x"}']
)
def test_a_node_whose_info_is_none(body: bytes) -> None:
    (text,) = errors(of_node(body), "nsqd")
    assert text.startswith("its answer is not that of an nsqd: ")


@pytest.mark.parametrize("date", ["garbage", "Sat, 99 Nov 2026 07:00:00 GMT", "1", "\xff"])
def test_a_date_that_is_none(date: str) -> None:
    found = of_node(json.dumps(INFO).encode(), date=date)
    assert next(finding.level for finding in found if finding.check == "clock") is Level.WARNING


def test_a_date_without_a_zone() -> None:
    found = of_node(json.dumps(INFO).encode(), date="Sat, 28 Nov 2020 07:00:00 -0000")
    (text,) = errors(found, "clock")
    assert text.endswith(" behind this machine")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tcp_port": 99999}, "it is no port"),
        ({"tcp_port": -1}, "it is no port"),
        ({"broadcast_address": "a\x00b"}, "clients cannot connect"),
        ({"broadcast_address": LONG_LABEL}, "no address of a server"),
    ],
)
def test_an_address_for_clients_that_is_none(fields: dict[str, Any], text: str) -> None:
    (error,) = errors(of_node(json.dumps({**INFO, **fields}).encode()), "TCP port")
    assert text in error


@pytest.mark.parametrize(
    "fields",
    [
        {"http_port": 99999},
        {"http_port": -1},
        {"broadcast_address": LONG_LABEL},
        {"broadcast_address": "x\x00y"},
        {"broadcast_address": "a b\r\nX: y"},
        {"broadcast_address": "["},
        {"broadcast_address": ""},
    ],
)
def test_a_registered_address_that_is_none(fields: dict[str, Any]) -> None:
    (error,) = errors(of_registration(**fields), "broadcast address")
    assert error.startswith("cannot be resolved here: ")


def test_a_node_that_closes_the_connection_instead_of_saying_that_it_is_ready() -> None:
    with closing_at(b"/readyz") as odd:
        found = list(check_cluster(ClusterAccess(nsqd_http_addresses=(odd,))))
    (error,) = errors(found, "ready")
    assert error.startswith("does not say: ")


def test_an_answer_of_single_bytes_without_end() -> None:
    with closing_at(b"", drips=True) as odd, pytest.raises(ConnectFailed, match="timed out"):
        stdlib_http.get(ClusterAccess(), odd, "/info", 0.5)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), date=st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30))
def test_any_answers(data: Any, date: str) -> None:
    info = data.draw(odd_documents(documents("127.0.0.1:1", 1)["/info"]))
    ready = data.draw(st.sampled_from([200, 404, 503])), data.draw(odd_documents({"reasons": {"disk": "full"}}))
    nodes = data.draw(odd_documents({"producers": [{**INFO, "topics": ["t"], "tombstones": [False]}]}))
    with serving("/info", info, more={"/readyz": ready, "/nodes": (200, nodes)}, date=date) as odd:
        for access in (ClusterAccess(nsqd_http_addresses=(odd,)), ClusterAccess(lookupd_http_addresses=(odd,))):
            with patch.object(socket, "getaddrinfo", numeric):
                found = list(check_cluster(access))
            assert not [finding.text for finding in found if "unforeseen" in finding.text]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_names_of_any_answers(data: Any) -> None:
    answers = {path: data.draw(odd_documents(document)) for path, document in lookupd_documents().items()}
    stats = data.draw(odd_documents(documents("127.0.0.1:1", 1)["/stats"]))
    with serving("/stats", stats, more={path: (200, body) for path, body in answers.items()}) as odd:
        for access in (ClusterAccess(nsqd_http_addresses=(odd,)), ClusterAccess(lookupd_http_addresses=(odd,))):
            names = ClusterNames(access)
            assert all(isinstance(name, str) for name in (*names.topics(), *names.channels("t"), *names.nodes()))


def numeric(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
    """Resolve an address as `socket.getaddrinfo` does, and no name: nobody is asked for one."""
    return resolve(host, port, *arguments, **{**more, "flags": socket.AI_NUMERICHOST})


@contextmanager
def closing_at(path: bytes, *, drips: bool = False) -> Iterator[str]:
    """A server with INFO that closes connections which ask for a path, or sends a byte now and then without end."""
    body = json.dumps(INFO).encode()
    is_over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            asked = connection.recv(65536)
            if drips:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                try:
                    while not is_over.wait(0.1):
                        connection.sendall(b" ")
                except OSError:
                    return
            elif asked.split()[1] != path:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        is_over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
