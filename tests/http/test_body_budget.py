"""Bodies of responses, which count together."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone

from nsqtw.errors import ServerFailed
from nsqtw.http.client import BodyBudget, read_body


@attrs.define
class Response:
    """A response of which a test sends the body."""

    body: Any = None
    is_aborted: bool = False

    def deliverBody(self, protocol: Any) -> None:
        self.body = protocol
        protocol.makeConnection(self)

    def abortConnection(self) -> None:
        self.is_aborted = True

    def send(self, data: bytes) -> None:
        self.body.dataReceived(data)

    def end(self) -> None:
        self.body.connectionLost(Failure(ResponseDone()))


def begin(budget: BodyBudget) -> tuple[Response, Deferred[bytes]]:
    response = Response()
    return response, read_body(response, 100, ServerFailed, budget)


def test_the_largest_of_bodies_that_are_too_large_together_is_broken_off() -> None:
    budget = BodyBudget(150)
    (large, large_body), (small, small_body) = begin(budget), begin(budget)
    large.send(b"x" * 90)
    small.send(b"y" * 60)
    assert not large.is_aborted
    small.send(b"y")
    assert (large.is_aborted, small.is_aborted) == (True, False)
    failure = large_body.addErrback(lambda failure: failure.value).result
    assert isinstance(failure, ServerFailed)
    assert str(failure) == "the answers of all servers together have more than 150 bytes"
    large.send(b"x" * 90)
    small.end()
    assert small_body.result == b"y" * 61
    assert budget.used == 0


def test_a_body_that_was_received_counts_while_it_is_kept() -> None:
    budget = BodyBudget(150)
    response, _ = begin(budget)
    response.send(b"x" * 90)
    response.end()
    budget.keep(90)
    other, other_body = begin(budget)
    other.send(b"y" * 61)
    assert other.is_aborted
    other_body.addErrback(lambda failure: failure.trap(ServerFailed))
    budget.free(90)
    assert budget.used == 0


@pytest.mark.parametrize("end", ["cancel", "lose"])
def test_a_body_that_ends_early_counts_no_more(end: str) -> None:
    budget = BodyBudget(150)
    response, body = begin(budget)
    response.send(b"x" * 90)
    if end == "cancel":
        body.cancel()
    else:
        response.body.connectionLost(Failure(ConnectionError()))
    body.addErrback(lambda failure: None)
    assert budget.used == 0
