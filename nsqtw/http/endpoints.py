"""
Endpoints of an HTTP API: one declaration for a method and path.

The decorator `endpoint` stands on the method of a `Section` that serves the requests. The table of routes and the
OpenAPI document (`api.openapi`) are made from what it says:

    class Publishing(Section):
        @endpoint("POST", "/pub", "Publish a message", required=(TOPIC,), errors={400: ["MSG_EMPTY"]}, needs=PUBLISH)
        def publish(self, request: HttpRequest) -> Answer | None: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import field, frozen

from nsqtw.http.responses import INVALID_REQUEST, Answer
from nsqtw.http.routes import BODY_IGNORED, Handler, HandlerOfHead, Route
from nsqtw.rights import ADMIN

_ENDPOINTS = "_endpoints"
_NAME = {"type": "string", "maxLength": 64, "pattern": "^[.a-zA-Z0-9_-]+(#ephemeral)?$"}

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json; charset=utf-8"

Errors = Mapping[int, Sequence[str]]
"""By status, the error words of `http.errors`; empty for a status whose body is plain text."""

Method = TypeVar("Method", bound=Callable[..., Any])


@frozen
class Parameter:
    """A parameter of the query string, or the last part of a path, with its JSON schema."""

    name: str
    schema: Mapping[str, Any]


TOPIC = Parameter("topic", _NAME)
CHANNEL = Parameter("channel", _NAME)
MESSAGE_ID = Parameter("id", {"type": "string", "pattern": "^[0-9a-fA-F]{16}$", "description": "the id of the message"})
DRY_RUN = Parameter(
    "dry_run", {"type": "boolean", "default": False, "description": "answer what the change would do, and do nothing"}
)


@frozen(kw_only=True)
class Endpoint:
    """
    A method and path. A path may end with `/:opt` or the like, which stands for any last part, described by `last`.
    `about`, `needs`, `too_big`, `broken`, `logged`, `repeats` and `is_change` are those of `Route`.
    """

    method: str
    path: str
    summary: str
    required: Sequence[Parameter] = ()
    optional: Sequence[Parameter] = ()
    last: Parameter | None = None
    body: str = ""
    """A description of the body; empty when it is ignored."""
    body_schema: Mapping[str, Any] | None = None
    """The schema of a body that is JSON."""
    max_body: str | int = ""
    """The size of the largest body, or the option that has it."""
    success: Mapping[str, Any] | None = field(factory=dict)
    """The schema of a 200 by content type; None where there is no 200."""
    headers: Sequence[str] = ()
    """Header fields of a 200 that are numbers."""
    errors: Errors = field(factory=dict)
    needs: str = ADMIN
    too_big: Answer | None = None
    broken: Answer | None = INVALID_REQUEST
    logged: bool = True
    repeats: bool = False
    is_change: bool = False

    @property
    def about(self) -> tuple[str, ...]:
        """The parameters that name the topic and channel for which a credential must have the permission."""
        return tuple(parameter.name for parameter in self.required if parameter in (TOPIC, CHANNEL))

    def route(self, handler: Handler, options: object, handler_of_head: HandlerOfHead | None = None) -> Route:
        """Return the route that calls `handler`, or for some heads another one."""
        return Route(
            self.method.encode(),
            self.path.encode(),
            handler,
            limit=self._limit(options),
            too_big=self.too_big,
            broken=self.broken,
            logged=self.logged,
            needs=self.needs,
            about=self.about,
            repeats=self.repeats,
            is_change=self.is_change,
            handler_of_head=handler_of_head,
        )

    def _limit(self, options: object) -> int:
        if isinstance(self.max_body, int):
            return self.max_body
        return getattr(options, self.max_body) if self.max_body else BODY_IGNORED


def endpoint(method: str, path: str, summary: str, **fields: Any) -> Callable[[Method], Method]:
    """Declare that a method of a `Section` serves this method and path; `fields` are those of `Endpoint`."""
    declared = Endpoint(method=method, path=path, summary=summary, **fields)

    def mark(handler: Method) -> Method:
        setattr(handler, _ENDPOINTS, [declared, *getattr(handler, _ENDPOINTS, ())])
        return handler

    return mark


class Section:
    """A part of an API: a class whose methods serve endpoints."""

    @classmethod
    def endpoints(cls) -> list[Endpoint]:
        """Return all endpoints, in the order of their methods."""
        return [declared for method in vars(cls).values() for declared in getattr(method, _ENDPOINTS, ())]

    def routes(self, options: object = None) -> list[Route]:
        """Return a route for each endpoint; `options` has the sizes of the largest bodies."""
        return [
            declared.route(self.handler(getattr(self, name)), options, self.handler_of_head(declared))
            for name, method in vars(type(self)).items()
            for declared in getattr(method, _ENDPOINTS, ())
        ]

    def handler(self, method: Callable[..., Any]) -> Handler:
        """Return the handler that calls a method of this section: the method itself."""
        return method

    def handler_of_head(self, endpoint: Endpoint) -> HandlerOfHead | None:
        """Return the chooser of handlers by head for an endpoint of this section; None: there is one handler."""
        return None


def numbers(*names: str) -> dict[str, Any]:
    """Return the schema of a JSON object of whole numbers."""
    properties = {name: {"type": "integer"} for name in names}
    return {JSON: {"type": "object", "properties": properties, "required": list(names)}}


A_TEXT: Mapping[str, Any] = {TEXT: {"type": "string"}}
A_PAGE: Mapping[str, Any] = {HTML: {"type": "string"}}
AN_OK: Mapping[str, Any] = {TEXT: {"type": "string", "enum": ["OK"]}}
A_DOCUMENT: Mapping[str, Any] = {JSON: {"type": "object"}}

FAILED: Errors = {500: ["INTERNAL_ERROR"]}
NOT_STORED: Errors = {500: ["INTERNAL_ERROR"], 503: ["EXITING"]}
BAD_QUERY: Errors = {400: ["INVALID_REQUEST"]}
CHANNEL_WORDS = (
    "INVALID_REQUEST",
    "MISSING_ARG_TOPIC",
    "INVALID_ARG_TOPIC",
    "MISSING_ARG_CHANNEL",
    "INVALID_ARG_CHANNEL",
)
LOG_WORDS = ("INVALID_REQUEST", "MISSING_ARG_TOPIC", "EPHEMERAL_TOPIC")
