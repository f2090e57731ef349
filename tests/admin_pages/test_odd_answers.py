"""
A whole nsqadmin without a network, and a node that answers anything: the pages and the API of the others go on, and an
error that nothing has foreseen is no outcome that is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent

from nsqtw.admin.access import Access
from nsqtw.admin.site import AdminWeb
from nsqtw.cluster.http import Timeouts
from nsqtw.options.admin import AdminOptions
from tests.cluster.odd_answers import ODD, SOUND, AnsweredCluster, answers_of, documents, odd_documents

PATHS = (
    *("/", "/topics", "/topics?list=channels", "/nodes", "/counter", "/topics/t", "/topics/t/c", f"/nodes/{ODD}"),
    *("/topics/t/c?view=messages", "/topics/t/c?view=messages&state=in_flight&show=hex", "/topics/t?view=messages"),
    *("/actions/set_policy_channel?topic=t&channel=c", "/actions/seek_channel?topic=t&channel=c"),
    *("/api/topics", "/api/topics/t", "/api/topics/t/c", "/api/nodes", f"/api/nodes/{ODD}", "/api/counter"),
    *("/api/policies/t", "/api/policies/t/c", f"/actions/release_node?node={ODD}"),
)


class Admin:
    """An nsqadmin of a cluster that answers what a test says."""

    def __init__(self, answers: Mapping[tuple[str, str], bytes | None], **options: Any) -> None:
        self.cluster = AnsweredCluster(answers)
        self._reactor: Any = self.cluster.reactor
        made = AdminOptions(nsqd_http_address=(SOUND, ODD), **options)
        self._web = AdminWeb(self._reactor, made, self.cluster, Access(made, None), Timeouts())
        self._web.start()
        self._settle()

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of the answer to a request."""
        protocol: Any = self._web.site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 9))
        transport = StringTransport(peerAddress=IPv4Address("TCP", "127.0.0.1", 9))
        protocol.makeConnection(transport)
        head = f"{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        protocol.dataReceived(head.encode() + body)
        self._settle()
        answered, _, rest = transport.value().partition(b"\r\n\r\n")
        return int(answered.split()[1]), rest

    def _settle(self) -> None:
        """Run what is due now."""
        for _ in range(30):
            self._reactor.advance(0)


def test_sound_answers() -> None:
    admin = Admin(answers_of())
    assert {path: admin.ask("GET", path)[0] for path in PATHS} == dict.fromkeys(PATHS, 200)
    assert b'"depth":4' in admin.ask("GET", "/api/topics/t/c")[1]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_odd_answer_of_one_node_fails_no_page(data: Any) -> None:
    sound = documents(ODD, 1)
    path = data.draw(st.sampled_from(["/info", "/stats", "/stats", "/stats", *sound]))
    admin = Admin(answers_of({path: data.draw(odd_documents(sound[path]))}))
    found = {asked: admin.ask("GET", asked)[0] for asked in PATHS}
    of_odd = {asked: found.pop(asked) for asked in (f"/nodes/{ODD}", f"/api/nodes/{ODD}")}
    assert found == dict.fromkeys(found, 200)
    assert set(of_odd.values()) <= {200, 404, 502}


PAUSE = json.dumps({"action": "pause"}).encode()


def test_an_unforeseen_error_concerns_one_node(logged_failures: list[LogEvent], outcomes: list[str]) -> None:
    admin = Admin(answers_of())
    answered = admin.cluster.requests.__dict__["_request"]

    async def request(kind: str, method: str, program: str, address: str, *more: Any) -> Any:
        if address == ODD and method == "POST":
            raise ZeroDivisionError
        return await answered(kind, method, program, address, *more)

    admin.cluster.requests.__dict__["_request"] = request
    status, body = admin.ask("POST", "/api/topics/t/c", PAUSE)
    warning = "unforeseen ZeroDivisionError: the log says more"
    assert (status, json.loads(body)["message"]) == (200, f"WARNING: {warning}")
    assert outcomes == [f"done in part: {warning}"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


def test_the_outcome_after_an_unforeseen_error_is_unknown(
    logged_failures: list[LogEvent], outcomes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(answers_of())

    async def pause(topic: str, channel: str) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(admin.cluster, "pause", pause)
    assert admin.ask("POST", "/api/topics/t/c", PAUSE)[0] == 500
    assert outcomes == ["unknown: an error that nothing has foreseen; the log says more"]
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
