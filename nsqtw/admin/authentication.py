"""
Authentication of requests: finds the user of each request, and passes it on only if the user may read.

A browser without a user is sent to the login; other requests without one are refused. Every answer has headers that
forbid a browser to load anything from another origin, to run scripts or apply styles in a page itself, to show the page
inside another one, and to guess types.
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
from nsqtw.admin.access import FORBIDDEN, Access, browser_fields
from nsqtw.admin.routing import answer_to, refusal
from nsqtw.admin.server import WebRequest
from nsqtw.errors import AuthError
from nsqtw.http.browsers import CROSS_ORIGIN, HOST_NOT_ALLOWED, AllowedHosts, is_of_another_site
from nsqtw.http.routes import has_escaped_slash
from nsqtw.stats.daemon_pages import OPEN_PATHS
from nsqtw.version import VERSION_FIELD

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "Server": "nsqadmin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    VERSION_FIELD: __version__,
}
"""The headers of every answer."""
CREDENTIAL_REQUIRED = "CREDENTIAL_REQUIRED"
_PUBLIC_PATHS = ("/ping", "/login", "/logout", *OPEN_PATHS)
_ONLY_LOOKING = (b"GET", b"HEAD")
_PUBLIC_FOLDERS = ("/static/", "/fonts/")

_log = Logger()


class AuthenticatedResource(Resource):
    """Passes the requests of users that may read on to `resource`."""

    isLeaf = True

    def __init__(self, resource: Any, access: Access, base_path: str, hosts: AllowedHosts | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._resource = resource
        self._access = access
        self._base_path = base_path
        self._hosts = hosts

    def render(self, request: WebRequest) -> Any:
        """IResource API."""
        for name, value in HEADERS.items():
            request.setHeader(name, value)
        ended: list[object] = []
        answering: Deferred[None] | None = None

        def end(outcome: object) -> None:
            ended.append(outcome)
            if answering is not None and isinstance(outcome, Failure):  # the connection is closed
                answering.cancel()

        request.notifyFinish().addBoth(end)
        answering = Deferred.fromCoroutine(self._answer(request, ended))
        answering.addErrback(self._fail, request, ended)
        return NOT_DONE_YET

    async def _answer(self, request: WebRequest, ended: list[object]) -> None:
        """Pass a request on, or refuse it, unless its connection is closed meanwhile."""
        answer: Any = await self._refusal(request)
        if ended:
            return
        if answer is None:
            answer = self._resource.render(request)
        if answer is not NOT_DONE_YET:
            request.write(answer)
            request.finish()

    async def _refusal(self, request: WebRequest) -> bytes | None:
        """Return the answer to a request that is not allowed; None for others, whose user is recorded."""
        if not (_is_text(request.path) and _is_text(request.getRequestHostname())):
            return refusal(request, 404, "NOT_FOUND")
        fields = browser_fields(request)
        if self._hosts is not None and not request.isSecure() and self._hosts.refuse(fields):
            option = f"--allowed-host={request.getRequestHostname().decode('utf-8', 'replace')}"
            return refusal(request, 403, f"{HOST_NOT_ALLOWED}: ask by address, or start nsqadmin with {option}")
        if request.method in _ONLY_LOOKING and is_of_another_site(fields, is_change=False):
            return refusal(request, 403, CROSS_ORIGIN)
        raw = request.uri.partition(b"?")[0]
        if has_escaped_slash(raw):
            return refusal(request, 404, "NOT_FOUND")
        path = raw.decode("latin-1").removeprefix(self._base_path)
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
            return self._refuse(request, path)
        self._access.set_viewer(request, viewer)
        return None

    def _fail(self, failure: Failure, request: WebRequest, ended: list[object]) -> None:
        """Answer a request whose user cannot be found because of a mistake of the program or of a plugin."""
        if ended and isinstance(failure.value, CancelledError):
            return
        _log.failure("answering a request failed", failure=failure)
        if ended:
            return
        request.write(refusal(request, 500, "INTERNAL_ERROR"))
        request.finish()

    def _refuse(self, request: WebRequest, path: str) -> bytes:
        """Return the answer to a request without a user that may read."""
        if not self._access.has_login:
            return refusal(request, 403, FORBIDDEN)
        is_page = request.method == b"GET" and not path.startswith("/api/")
        if is_page and "text/html" in (request.getHeader("Accept") or ""):
            request.setResponseCode(303)
            query = urlencode({"next": request.uri.decode("latin-1")})
            request.setHeader("Location", f"{self._base_path}/login?{query}")
            return b""
        if not request.getHeader("Sec-Fetch-Mode"):
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
