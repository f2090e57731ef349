"""Authentication without a server: mistakes of an authorizer."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent
from twisted.web.resource import Resource
from twisted.web.test.requesthelper import DummyRequest

from nsqtw.admin.access import Access
from nsqtw.admin.authentication import AuthenticatedResource
from nsqtw.admin.viewer import Viewer
from nsqtw.options.admin import AdminOptions


class Application(Resource):
    """The application. No request may reach it."""

    def render(self, request: Any) -> bytes:
        raise AssertionError("a request without a user was passed on")


class BrokenAccess(Access):
    """As with an authorizer that fails."""

    def __init__(self) -> None:
        super().__init__(AdminOptions(), None)

    async def authenticate(self, request: Any) -> Viewer | None:
        raise ZeroDivisionError


class SlowAccess(BrokenAccess):
    """As with an authorizer that does not answer."""

    async def authenticate(self, request: Any) -> Viewer | None:
        await Deferred()
        return None


def request() -> Any:
    made = DummyRequest([b"api", b"topics"])
    made.uri = made.path = b"/api/topics"
    made.getRequestHostname = lambda: b"admin"
    return made


def test_a_mistake_passes_no_request_on(logged_failures: list[LogEvent]) -> None:
    made = request()
    AuthenticatedResource(Application(), BrokenAccess(), "").render(made)
    assert (made.responseCode, b"".join(made.written)) == (500, b'{"message":"INTERNAL_ERROR"}')
    assert [event["log_failure"].type for event in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


def test_a_client_that_leaves_before_its_user_is_known() -> None:
    made = request()
    AuthenticatedResource(Application(), SlowAccess(), "").render(made)
    made.processingFailed(ConnectionError("gone"))
    assert made.written == []
