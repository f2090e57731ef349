"""The login of users of --auth: GET and POST /login, POST /logout."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from nsqtw.admin.access import Access
from nsqtw.admin.audit import DONE, Audit, Target, refused
from nsqtw.admin.routing import argument, route
from nsqtw.admin.server import WebRequest
from nsqtw.errors import AccessDenied, ApiError, AuthError

LoginPage = Callable[[WebRequest, str, str], bytes]
"""Return the login page of a request, from an error, "" for none, and the path to go to after the login."""
WRONG = "wrong name or secret"
UNAVAILABLE = "the secret cannot be checked now, try again later"
_MAX_BODY_BYTES = 128 * 1024


class Login:
    """The routes of the login. `page` makes its page."""

    def __init__(self, access: Access, audit: Audit, base_path: str, page: LoginPage) -> None:
        self._access = access
        self._audit = audit
        self._base_path = base_path
        self._page = page

    @route("GET", "/login")
    async def show(self, request: WebRequest) -> object:
        self._check_has_login()
        return self._html(request, "", argument(request, "next") or "")

    @route("POST", "/login")
    async def log_in(self, request: WebRequest) -> object:
        """Start a session, and go on to the page that was asked for."""
        self._check_has_login()
        form = parse_qs(request.content.read(_MAX_BODY_BYTES).decode("utf-8", "replace"))
        name, secret, target = (form.get(field, [""])[0] for field in ("name", "secret", "next"))
        try:
            self._access.check_origin(request)
            viewer = await self._access.log_in(request, name, secret)
        except AccessDenied as error:
            self._audit.record(request, name, "login", Target(), refused(error))
            raise
        except AuthError as error:
            self._audit.record(request, name, "login", Target(), f"failed: {error}")
            request.setResponseCode(503)
            return self._html(request, UNAVAILABLE, target)
        if viewer is None:
            self._audit.record(request, name, "login", Target(), f"failed: {WRONG}")
            request.setResponseCode(401)
            return self._html(request, WRONG, target)
        self._audit.record(request, viewer.name, "login", Target(), DONE)
        return _redirected(request, self._local(target))

    @route("POST", "/logout")
    async def log_out(self, request: WebRequest) -> object:
        """End the session."""
        self._check_has_login()
        self._access.check_origin(request)
        viewer = await self._access.authenticate(request)
        self._access.log_out(request)
        self._audit.record(request, viewer.name if viewer else "", "logout", Target(), DONE)
        return _redirected(request, f"{self._base_path}/login")

    def _check_has_login(self) -> None:
        if not self._access.has_login:
            raise ApiError(404, "NOT_FOUND")

    def _local(self, target: str) -> str:
        """Return a path of nsqadmin: the one to go to if it is one, else that of the first page."""
        parts = urlsplit(target)
        is_local = not parts.scheme and not parts.netloc and target.startswith(f"{self._base_path}/")
        is_plain = target.isprintable() and "\\" not in target and not target.startswith("//")
        return target if is_local and is_plain else f"{self._base_path}/"

    def _html(self, request: WebRequest, error: str, target: str) -> bytes:
        request.setHeader("Content-Type", "text/html; charset=utf-8")
        request.setHeader("Cache-Control", "no-store")
        return self._page(request, error, self._local(target))


def _redirected(request: WebRequest, path: str) -> bytes:
    request.setResponseCode(303)
    request.setHeader("Location", path.encode("utf-8"))
    return b""
