"""
The entrance of all requests: the user is determined first, and only a user that may read gets to the application.

A browser without a user is sent to the login, all others are refused. Every answer has headers that forbid a browser to
load anything from elsewhere, to show the page inside another one, and to guess types.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes, urlencode

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from nsqtw import __version__
from nsqtw.admin.access import FORBIDDEN, Access
from nsqtw.admin.routing import answer_to, refusal
from nsqtw.admin.server import WebRequest
from nsqtw.errors import AuthError
from nsqtw.stats.daemon_pages import OPEN_PATHS
from nsqtw.version import VERSION_FIELD

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "Server": "nsqadmin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    VERSION_FIELD: __version__,
}
"""The headers of every answer."""
CREDENTIAL_REQUIRED = "CREDENTIAL_REQUIRED"
_PUBLIC_PATHS = ("/ping", "/login", "/logout", *OPEN_PATHS)
_PUBLIC_FOLDERS = ("/static/", "/fonts/")

_log = Logger()


class Gate(Resource):
    """Lets requests in to `inside`."""

    isLeaf = True

    def __init__(self, inside: Any, access: Access, base_path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inside = inside
        self._access = access
        self._base_path = base_path

    def render(self, request: Any) -> Any:
        """IResource API."""
        for name, value in HEADERS.items():
            request.setHeader(name, value)
        ended: list[object] = []
        entering: Deferred[None] | None = None

        def end(outcome: object) -> None:
            ended.append(outcome)
            if entering is not None and isinstance(outcome, Failure):  # the connection is closed
                entering.cancel()

        request.notifyFinish().addBoth(end)
        entering = Deferred.fromCoroutine(self._enter(request, ended))
        entering.addErrback(self._fail, request, ended)
        return NOT_DONE_YET

    async def _enter(self, request: Any, ended: list[object]) -> None:
        """Let a request in, or refuse it, unless its connection is closed meanwhile."""
        answer: Any = await self._refusal(request)
        if ended:
            return
        if answer is None:
            answer = self._inside.render(request)
        if answer is not NOT_DONE_YET:
            request.write(answer)
            request.finish()

    async def _refusal(self, request: Any) -> bytes | None:
        """Return the answer to a request that may not be let in; None for others, whose user is noted."""
        if not (_is_text(request.path) and _is_text(request.getRequestHostname())):
            return refusal(request, 404, "NOT_FOUND")
        path = request.uri.partition(b"?")[0].decode("latin-1").removeprefix(self._base_path)
        if path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS):
            return None
        if self._access.has_login:
            request.setHeader("Cache-Control", "no-store")
        try:
            viewer = await self._access.authenticate(request)
        except AuthError as error:
            _log.warn("AUTH failed {error}", error=str(error))
            return refusal(request, *answer_to(error))
        if viewer is None:
            return self._turn_away(request, path)
        self._access.admit(request, viewer)
        return None

    def _fail(self, failure: Failure, request: Any, ended: list[object]) -> None:
        """Answer a request whose user cannot be determined because of a mistake of the program or of a plugin."""
        if ended and isinstance(failure.value, CancelledError):
            return
        _log.failure("panic at the gate", failure=failure)
        if ended:
            return
        request.write(refusal(request, 500, "INTERNAL_ERROR"))
        request.finish()

    def _turn_away(self, request: WebRequest, path: str) -> bytes:
        """Return the answer to a request without a user that may read."""
        if not self._access.has_login:
            return refusal(request, 403, FORBIDDEN)
        login = f"{self._base_path}/login?{urlencode({'next': request.uri.decode('latin-1')})}"
        is_page = request.method == b"GET" and not path.startswith("/api/")
        if is_page and "text/html" in (request.getHeader("Accept") or ""):
            request.setResponseCode(303)
            request.setHeader("Location", login)
            return b""
        if request.getHeader("HX-Request"):
            request.setHeader("HX-Redirect", f"{self._base_path}/login")
        elif not request.getHeader("Sec-Fetch-Mode"):
            # A browser would ask for name and secret in a window of its own.
            request.setHeader("WWW-Authenticate", 'Basic realm="nsqadmin", charset="UTF-8"')
        return refusal(request, 401, CREDENTIAL_REQUIRED)


def _is_text(name: bytes) -> bool:
    """Return whether the names in a path, or a host, are UTF-8: no topic, channel or node has others."""
    try:
        unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        return False
    return True
