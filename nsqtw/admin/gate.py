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
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from nsqtw import __version__
from nsqtw.admin.access import FORBIDDEN, Access
from nsqtw.admin.routing import answer_to, refusal
from nsqtw.admin.server import WebRequest
from nsqtw.errors import AuthError
from nsqtw.stats.daemon_pages import OPEN_PATHS

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
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
        ended: list[object] = []
        request.notifyFinish().addBoth(ended.append)
        entering = Deferred.fromCoroutine(self._enter(request, ended))
        entering.addErrback(lambda failure: _log.failure("panic at the gate", failure=failure))
        request.notifyFinish().addErrback(lambda _: entering.cancel())
        return NOT_DONE_YET

    async def _enter(self, request: Any, ended: list[object]) -> None:
        for name, value in SECURITY_HEADERS.items():
            request.setHeader(name, value)
        request.setHeader("Server", "nsqadmin")
        request.setHeader("X-Nsqtw-Version", __version__)
        path = request.uri.partition(b"?")[0].decode("latin-1").removeprefix(self._base_path)
        body = b""
        if not (_is_text(request.path) and _is_text(request.getRequestHostname())):
            request.write(refusal(request, 404, "NOT_FOUND"))
            request.finish()
            return
        is_let_in = path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS)
        if not is_let_in:
            if self._access.has_login:
                request.setHeader("Cache-Control", "no-store")
            try:
                viewer = await self._access.authenticate(request)
            except CancelledError:
                return
            except AuthError as error:
                _log.warn("AUTH failed {error}", error=str(error))
                body = refusal(request, *answer_to(error))
            else:
                is_let_in = viewer is not None
                if viewer is not None:
                    self._access.admit(request, viewer)
                else:
                    body = self._turn_away(request, path)
        if ended:
            return
        if is_let_in:
            answer = self._inside.render(request)
            if answer is NOT_DONE_YET:
                return
            body = answer
        request.write(body)
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
