"""
The HTTP API as an OpenAPI document, for tools: GET /v2/openapi.json.

One table, `OPERATIONS`, says of each route of `http_api` what it takes and what it answers; a test holds the two
together. Loaded when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from nsqtw import __version__
from nsqtw.net.http_answers import Answer, document
from nsqtw.net.http_request import HttpRequest
from nsqtw.option_values import LEVELS
from nsqtw.topic_rules import DURABILITIES

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_NAME = {"type": "string", "maxLength": 64, "pattern": "^[.a-zA-Z0-9_-]+(#ephemeral)?$"}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "topic": _NAME,
    "channel": _NAME,
    "defer": {"type": "integer", "minimum": 0, "description": "milliseconds"},
    "binary": {"type": "string", "enum": ["true", "false"]},
    "format": {"type": "string", "enum": ["json", "text"]},
    "include_clients": {"type": "string", "enum": ["true", "false"]},
    "include_mem": {"type": "string", "enum": ["true", "false"]},
    "class": {"type": "string", "enum": [*DURABILITIES, "default"]},
    "rate": {"type": "integer"},
    "seconds": {"type": "integer", "minimum": 1, "default": 30},
    "opt": {"type": "string", "description": "a config key"},
}


@frozen
class Operation:
    """
    One method and path. `required` and `optional` are parameters of the query, `success` the content types of 200, None
    where there is no 200; `errors` the words of each status, none for one that is answered with a bare text.
    """

    method: str
    path: str
    summary: str
    required: Sequence[str] = ()
    optional: Sequence[str] = ()
    body: str = ""
    success: Mapping[str, Any] | None = field(factory=dict)
    errors: Mapping[int, Sequence[str]] = field(factory=dict)

    def described(self) -> dict[str, Any]:
        """As it stands in the document."""
        found: dict[str, Any] = {"summary": self.summary, "responses": self._responses()}
        named = [(name, True) for name in self.required] + [(name, False) for name in self.optional]
        listed = [_parameter(name, "query", is_required) for name, is_required in named]
        listed += [_parameter("opt", "path", True)] if self.path.endswith("{opt}") else []
        if listed:
            found["parameters"] = listed
        if self.body:
            content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            found["requestBody"] = {"description": self.body, "required": True, "content": content}
        return found

    def _responses(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.success is not None:
            content = {kind: {"schema": schema} for kind, schema in self.success.items()}
            found["200"] = {"description": "done", **({"content": content} if content else {})}
        for status, words in sorted(self.errors.items()):
            content = {_JSON: {"schema": _message(words)}} if words else {_TEXT: {"schema": {"type": "string"}}}
            found[str(status)] = {"description": ", ".join(words) or "a text that says why", "content": content}
        return found


def served(request: HttpRequest) -> Answer:
    """GET /v2/openapi.json"""
    return document(described())


def described() -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described()
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "nsqtw",
            "version": __version__,
            "description": "The HTTP API of a broker: nsqd's, and what stands under /v2.",
        },
        "paths": paths,
    }


def _parameter(name: str, where: str, is_required: bool) -> dict[str, Any]:
    return {"name": name, "in": where, "required": is_required, "schema": _PARAMETERS[name]}


def _message(words: Sequence[str]) -> dict[str, Any]:
    message = {"type": "string", "enum": list(words)}
    return {"type": "object", "properties": {"message": message}, "required": ["message"]}


_A_TEXT = {_TEXT: {"type": "string"}}
_OK = {_TEXT: {"type": "string", "enum": ["OK"]}}
_A_DOCUMENT = {_JSON: {"type": "object"}}
_A_PAGE = {_HTML: {"type": "string"}}
_AN_OPTION = {_TEXT: {"type": "string"}, _JSON: {}}
_STATS = {_TEXT: {"type": "string"}, _JSON: {"type": "object", "required": ["version", "health", "topics"]}}
_BAD_QUERY = {400: ["INVALID_REQUEST"]}
_FAILED = {500: ["INTERNAL_ERROR"]}
_NOT_STORED = {500: ["INTERNAL_ERROR"], 503: ["EXITING"]}
_PUBLISHED = {400: ["INVALID_REQUEST", "MSG_EMPTY", "MISSING_ARG_TOPIC", "INVALID_TOPIC", "INVALID_DEFER"]}
_PUBLISHED_MANY = {400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC"]}
_TOPIC_ERRORS = {400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC"], **_NOT_STORED}
_CLASS_ERRORS = {400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_CLASS"]}
_CHANNEL_ARGUMENTS = ("MISSING_ARG_TOPIC", "INVALID_ARG_TOPIC", "MISSING_ARG_CHANNEL", "INVALID_ARG_CHANNEL")
_CHANNEL_ERRORS = {
    400: ["INVALID_REQUEST", *_CHANNEL_ARGUMENTS],
    404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"],
    **_NOT_STORED,
}
_CHANGES = {
    "create": "make it, if it is not there",
    "delete": "remove it and all in it",
    "empty": "drop what is in it",
    "pause": "let nothing out of it",
    "unpause": "let out what is in it",
}
_REPORTS = {
    "block": "what the reactor waits for",
    "cmdline": "the words that started the broker, with NUL between them",
    "goroutine": "the stack of every thread",
    "heap": "objects by type",
    "symbol": "nothing: addresses have no meaning here",
    "threadcreate": "the threads",
}


def _of_topics() -> list[Operation]:
    found = []
    for what, summary in _CHANGES.items():
        errors = _TOPIC_ERRORS if what == "create" else {**_TOPIC_ERRORS, 404: ["TOPIC_NOT_FOUND"]}
        found.append(Operation("POST", f"/topic/{what}", f"Topic: {summary}", ["topic"], errors=errors))
    return found


def _of_channels() -> list[Operation]:
    return [
        Operation("POST", f"/channel/{what}", f"Channel: {summary}", ["topic", "channel"], errors=_CHANNEL_ERRORS)
        for what, summary in _CHANGES.items()
    ]


def _of_debugging() -> list[Operation]:
    where = "/debug/pprof/"
    found = [Operation("GET", where, "A page that lists the others", success=_A_PAGE)]
    found += [Operation("GET", where + name, what, success=_A_TEXT) for name, what in _REPORTS.items()]
    return [
        *found,
        Operation("POST", f"{where}symbol", _REPORTS["symbol"], success=_A_TEXT),
        Operation(
            *("GET", f"{where}profile", "Where the time goes from now on"),
            optional=["seconds"],
            success=_A_TEXT,
            errors={**_BAD_QUERY, 500: []},
        ),
        Operation(
            *("POST", "/debug/freememory", "Collect garbage; the answer is an error, as nsqd's is"),
            success=None,
            errors=_FAILED,
        ),
        Operation(
            *("PUT", "/debug/setblockrate", "Nothing; the answer to a good rate is an error, as nsqd's is", ["rate"]),
            success=None,
            errors={400: [], **_FAILED},
        ),
    ]


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/ping", "Whether the last attempt to store something went well", success=_OK, errors={500: []}),
    Operation("GET", "/info", "Version, addresses, ports and limits", success=_A_DOCUMENT),
    Operation(
        *("GET", "/stats", "Topics, channels and clients"),
        optional=["format", "topic", "channel", "include_clients", "include_mem"],
        success=_STATS,
        errors=_BAD_QUERY,
    ),
    Operation(
        *("POST", "/pub", "Publish a message", ["topic"], ["defer"], "the message"),
        success=_OK,
        errors={**_PUBLISHED, 413: ["MSG_TOO_BIG"], **_NOT_STORED},
    ),
    Operation(
        *("POST", "/mpub", "Publish messages", ["topic"], ["binary"]),
        body="a message a line; with binary=true int32 count, and int32 size before each",
        success=_OK,
        errors={**_PUBLISHED_MANY, 413: ["BODY_TOO_BIG", "MSG_TOO_BIG", "BAD_BODY", "BAD_MESSAGE"], **_NOT_STORED},
    ),
    *_of_topics(),
    Operation(
        *("POST", "/v2/topic/durability", "What an OK means for a topic", ["topic", "class"]),
        errors={
            400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_CLASS"],
            404: ["TOPIC_NOT_FOUND"],
            **_NOT_STORED,
        },
    ),
    *_of_channels(),
    Operation(
        *("GET", "/config/{opt}", "An option in its effective value"),
        success=_AN_OPTION,
        errors={400: ["INVALID_OPTION", "INVALID_REQUEST"]},
    ),
    Operation(
        *("PUT", "/config/{opt}", "Change log_level or nsqlookupd_tcp_addresses until the broker stops"),
        body=f"one of {', '.join(LEVELS)}; or a JSON list of texts",
        success=_AN_OPTION,
        errors={400: ["INVALID_OPTION", "INVALID_VALUE", "INVALID_REQUEST"], 413: ["INVALID_VALUE"], **_FAILED},
    ),
    *_of_debugging(),
    Operation("GET", "/v2/openapi.json", "This document", success=_A_DOCUMENT),
)
