"""Notifications of actions."""

from __future__ import annotations

import re
import socket
import time
from base64 import b64encode
from collections.abc import Iterator

import pytest

from tests.admin.conftest import Nodes, StartAdmin
from tests.admin.endpoint import Endpoint, endpoint, stalled_endpoint
from tests.admin.process import AdminProcess
from tests.process import ReservedPort, wait_until
from tests.wire import HOST

FIELDS = ["action", "topic", "timestamp", "remote_ip", "user_agent", "url", "via"]


@pytest.fixture
def receiver() -> Iterator[Endpoint]:
    with endpoint() as found:
        yield found


@pytest.fixture
def notifying(receiver: Endpoint, start: StartAdmin) -> AdminProcess:
    return start(f"--notification-http-endpoint=http://{receiver.address}/hook")


def actions_of(receiver: Endpoint, count: int) -> list[str]:
    """Wait for so many notifications; their actions in order."""
    wait_until(lambda: len(receiver.requests) >= count, f"{count} notifications")
    return [document["action"] for document in receiver.documents]


def test_the_document(notifying: AdminProcess, receiver: Endpoint, topic: str) -> None:
    before = int(time.time())
    notifying.ask("POST", "/api/topics?x=1", {"topic": topic}, {"User-Agent": "agent", "X-Scheme": "https"})
    actions_of(receiver, 1)
    path, headers, _ = receiver.requests[0]
    (document,) = receiver.documents
    assert (path, headers["content-type"]) == ("/hook", "application/json")
    assert list(document) == FIELDS
    assert (document["action"], document["topic"], document["user_agent"]) == ("create_topic", topic, "agent")
    assert before <= document["timestamp"] <= time.time()
    assert re.fullmatch(rf"{re.escape(HOST)}:\d+", document["remote_ip"])
    assert document["url"] == f"https://{HOST}:{notifying.http_port}/api/topics?x=1"
    assert document["via"] == socket.gethostname()


def test_a_channel_is_two_creations(notifying: AdminProcess, receiver: Endpoint, topic: str) -> None:
    notifying.ask("POST", "/api/topics", {"topic": topic, "channel": "c"})
    assert actions_of(receiver, 2) == ["create_topic", "create_channel"]
    first, second = receiver.documents
    assert list(first) == FIELDS
    assert list(second) == ["action", "topic", "channel", *FIELDS[2:]]
    assert second["channel"] == "c"


def test_every_action(notifying: AdminProcess, receiver: Endpoint, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    for path in (f"/api/topics/{topic}", f"/api/topics/{topic}/c"):
        for action in ("pause", "unpause", "empty"):
            notifying.ask("POST", path, {"action": action})
    notifying.ask("DELETE", f"/api/topics/{topic}/c")
    notifying.ask("DELETE", f"/api/nodes/{nodes.addresses[0]}", {"topic": topic})
    notifying.ask("DELETE", f"/api/topics/{topic}")
    assert actions_of(receiver, 9) == [
        *("pause_topic", "unpause_topic", "empty_topic"),
        *("pause_channel", "unpause_channel", "empty_channel"),
        *("delete_channel", "tombstone_topic_producer", "delete_topic"),
    ]
    assert receiver.documents[7]["node"] == nodes.addresses[0]


def test_a_failed_action(notifying: AdminProcess, receiver: Endpoint, topic: str) -> None:
    notifying.ask("DELETE", f"/api/topics/{topic}-none")
    notifying.ask("POST", "/api/topics", {"topic": "not valid"})
    notifying.ask("POST", f"/api/topics/{topic}-none", {"action": "pause"})
    assert actions_of(receiver, 1) == ["pause_topic"]


def test_the_user_of_basic_authentication(notifying: AdminProcess, receiver: Endpoint, topic: str) -> None:
    headers = {"Authorization": f"Basic {b64encode(b'ann:word').decode()}", "X-Forwarded-User": "bob"}
    notifying.ask("POST", "/api/topics", {"topic": topic}, headers)
    notifying.ask("POST", "/api/topics", {"topic": topic}, {"X-Forwarded-User": "bob"})
    actions_of(receiver, 2)
    assert [document["user"] for document in receiver.documents] == ["ann", "bob"]


def test_a_client_does_not_choose_the_user(receiver: Endpoint, start: StartAdmin, topic: str) -> None:
    admin = start(f"--notification-http-endpoint=http://{receiver.address}/hook", "--admin-user=boss")
    headers = {"Authorization": f"Basic {b64encode(b'ann:word').decode()}", "X-Forwarded-User": "boss"}
    assert admin.ask("POST", "/api/topics", {"topic": topic}, headers).status == 200
    actions_of(receiver, 1)
    assert receiver.documents[0]["user"] == "boss"


def test_an_endpoint_that_does_not_end_its_answer(start: StartAdmin, topic: str) -> None:
    with stalled_endpoint() as stalled:
        url = f"http://{stalled.address}/"
        admin = start(f"--notification-http-endpoint={url}", "--http-client-request-timeout=200ms")
        for number in range(3):
            assert admin.ask("POST", "/api/topics", {"topic": f"{topic}{number}"}).status == 200
        wait_until(lambda: stalled.count == 3, "all notifications were posted")
        wait_until(lambda: admin.said().count("failed to POST notification - ") == 3, "the failures are logged")


def test_an_endpoint_that_is_not_there(start: StartAdmin, topic: str) -> None:
    port = ReservedPort()
    admin = start(f"--notification-http-endpoint=http://user:word@{HOST}:{port.number}/")
    assert admin.ask("POST", "/api/topics", {"topic": topic}).status == 200
    wait_until(lambda: "ERROR: failed to POST notification - " in admin.said(), "the failure is logged")
    assert admin.get("/ping").status == 200
    assert "word" not in admin.said()
    port.release()
