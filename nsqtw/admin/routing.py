"""
Routes of nsqadmin: their declaration beside their handlers, their mount in a Klein application, and answers in the form
of the original's API.

    class Api:
        @route("GET", "/api/topics")
        async def topics(self, request: WebRequest) -> object: ...

A handler returns the document of its answer: a text is sent as it is, None as nothing, all else as JSON. One that
returns bytes has set the head itself. An exception becomes an answer in `ErrorAnswers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
from klein import Klein
from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import RequestRedirect

from nsqtw.admin.server import WebRequest
from nsqtw.errors import (
    AccessDenied,
    ApiError,
    AuthError,
    ClusterError,
    InvalidName,
    InvalidPolicy,
    NsqtwError,
    UnknownObject,
)
from nsqtw.gocompat.text import json_text
from nsqtw.http.query import parameters
from nsqtw.http.responses import Refused

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
_VERSION = ("X-NSQ-Content-Type", "nsq; version=1.0")
_ROUTES = "nsqadmin_routes"

F = TypeVar("F", bound=Callable[..., Any])

_log = Logger()


@attrs.frozen
class JsonText:
    """A document that is JSON already."""

    text: bytes


@attrs.frozen
class Route:
    """A route: a method of HTTP and a path below the base path, with `<name>` for a variable part."""

    method: str
    path: str


def route(method: str, path: str) -> Callable[[F], F]:
    """Declare the route of a handler, which may have several."""

    def declare(handler: F) -> F:
        setattr(handler, _ROUTES, [*getattr(handler, _ROUTES, []), Route(method, path)])
        return handler

    return declare


def mount_routes(app: Klein, base_path: str, section: object) -> None:
    """Add the routes of an object's methods to an application."""
    for name in dir(type(section)):
        for declared in getattr(getattr(type(section), name), _ROUTES, ()):
            _mount(app, base_path, declared, getattr(section, name))


def _mount(app: Klein, base_path: str, declared: Route, handler: Callable[..., Any]) -> None:
    async def answer(request: WebRequest, **parts: str) -> bytes:
        ended: list[object] = []
        request.notifyFinish().addBoth(ended.append)
        try:
            document = await handler(request, **parts)
        except NsqtwError as error:
            if ended:  # the client has left
                raise CancelledError from error
            raise
        return document if isinstance(document, bytes) else written(request, document)

    path = f"{base_path}{declared.path}"
    app.route(path, methods=[declared.method], endpoint=f"{declared.method} {path}")(answer)


def argument(request: WebRequest, name: str) -> str | None:
    """Return the first value of an argument of the query; None without one. ApiError for a query that is none."""
    try:
        return parameters(request.uri.partition(b"?")[2]).get(name)
    except Refused as error:
        raise ApiError(400, "INVALID_REQUEST") from error


def written(request: WebRequest, document: object, status: int = 200) -> bytes:
    """Set the head of an answer, and return its body."""
    request.setResponseCode(status)
    request.setHeader(*_VERSION)
    if document is None:
        return b""
    if isinstance(document, JsonText):
        request.setHeader("Content-Type", JSON)
        return document.text
    if isinstance(document, str):
        request.setHeader("Content-Type", TEXT)
        return document.encode("utf-8", "surrogateescape")
    request.setHeader("Content-Type", JSON)
    return json_text(document)


def plain(request: WebRequest, text: str, status: int = 200) -> bytes:
    """Set the head of an answer with plain text and without the header of the API, and return its body."""
    request.setResponseCode(status)
    request.setHeader("Content-Type", TEXT)
    return text.encode()


def refusal(request: WebRequest, status: int, code: str) -> bytes:
    """Set the head of an answer with an error, and return its body."""
    return written(request, {"message": code}, status)


class ErrorAnswers:
    """Answers for exceptions of the handlers of an application."""

    def __init__(self, app: Klein) -> None:
        self._app = app
        app.handle_errors(RequestRedirect, NotFound)(self._not_found)
        app.handle_errors(MethodNotAllowed)(self._wrong_method)
        app.handle_errors(Exception)(self._failed)

    def _not_found(self, request: WebRequest, failure: Failure) -> bytes:
        path = self._canonical_path(request)
        if path is None:
            return refusal(request, 404, "NOT_FOUND")
        _, question, query = request.uri.partition(b"?")
        request.setHeader("Location", path + (question + query).decode("latin-1"))
        request.setResponseCode(301 if request.method == b"GET" else 307)
        return b""

    def _canonical_path(self, request: WebRequest) -> str | None:
        """Return the path of a route that a request means: without a slash at the end, in lower case where it is."""
        raw = request.uri.partition(b"?")[0].decode("latin-1")
        segments = [segment for segment in raw.split("/") if segment]
        for rule in self._app.url_map.iter_rules():
            pattern = [segment for segment in rule.rule.split("/") if segment]
            if len(pattern) != len(segments):
                continue
            if all(p.startswith("<") or p.lower() == s.lower() for p, s in zip(pattern, segments, strict=True)):
                found = "/" + "/".join(s if p.startswith("<") else p for p, s in zip(pattern, segments, strict=True))
                return found if found != raw else None
        return None

    def _wrong_method(self, request: WebRequest, failure: Failure) -> bytes:
        wrong: Any = failure.value
        methods = {*(wrong.valid_methods or ()), "OPTIONS"} - {"HEAD"}
        request.setHeader("Allow", ", ".join(sorted(methods)))
        if request.method == b"OPTIONS":
            return b""
        return refusal(request, 405, "METHOD_NOT_ALLOWED")

    def _failed(self, request: WebRequest, failure: Failure) -> bytes:
        error: Any = failure.value
        status, code = answer_to(error)
        if status == 500 and not isinstance(error, ApiError):
            _log.failure("an HTTP handler failed", failure=failure)
        elif isinstance(error, ClusterError):
            _log.error("{error}", error=str(error))
        return refusal(request, status, code)


def answer_to(error: BaseException) -> tuple[int, str]:
    """Return status and message of the answer to an exception; 500 for one that is a mistake of the program."""
    match error:
        case ApiError():
            return error.status, error.code
        case AccessDenied():
            return 403, error.code
        case AuthError():
            return 503, "AUTHORIZATION_UNAVAILABLE"
        case UnknownObject():
            return 404, f"{error.kind.upper()}_NOT_FOUND"
        case ClusterError():
            return 502, f"UPSTREAM_ERROR: {error}"
        case InvalidPolicy():
            return 400, f"INVALID_POLICY: {error}"
        case InvalidName():
            return 400, "INVALID_TOPIC"
        case HTTPException():
            return error.code or 500, (error.name or "").upper().replace(" ", "_")
    return 500, "INTERNAL_ERROR"
