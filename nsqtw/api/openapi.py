"""
The HTTP API as an OpenAPI document, for tools: GET /v2/openapi.json.

One table, `OPERATIONS`, says of each route of `api.site` what it takes and what it answers; a test holds the two
together. What any request may be answered, by the limits, the door and TLS, is added to each. Loaded when somebody asks
for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from nsqtw import __version__
from nsqtw.api.log import CONTENT_TYPE
from nsqtw.core.peek import STATES
from nsqtw.http.errors import DETAILS
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, document
from nsqtw.options.topics import DURABILITIES, STARTS
from nsqtw.options.types import LEVELS

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_MOMENT = "Unix time in seconds or milliseconds, or RFC 3339"
_NAME = {"type": "string", "maxLength": 64, "pattern": "^[.a-zA-Z0-9_-]+(#ephemeral)?$"}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "topic": _NAME,
    "channel": _NAME,
    "defer": {"type": "integer", "minimum": 0, "description": "milliseconds"},
    "binary": {"type": "string", "enum": ["true", "false"]},
    "format": {"type": "string", "enum": ["json", "text"]},
    "include_clients": {"type": "string", "enum": ["true", "false"]},
    "include_mem": {"type": "string", "enum": ["true", "false"]},
    "include_limits": {"type": "string", "enum": ["true", "false"]},
    "include_version": {"type": "string", "enum": ["true", "false"]},
    "class": {"type": "string", "enum": [*DURABILITIES, "default"]},
    "time": {"type": "string", "description": "a duration such as 24h, 0 for any time, or default"},
    "bytes": {"type": "string", "pattern": "^([0-9]{1,18}|default)$", "description": "0 for any number"},
    "state": {"type": "string", "enum": list(STATES), "default": STATES[0]},
    "limit": {"type": "integer", "minimum": 1, "default": 10, "description": "of messages; 1000 at most"},
    "wait": {"type": "integer", "minimum": 0, "default": 0, "description": "milliseconds, 60000 at most"},
    "from": {"type": "string", "pattern": "^(earliest|latest|[0-9]{1,16})$", "default": "earliest"},
    "to": {"type": "string", "description": f"earliest, latest, the id of a message, {_MOMENT}"},
    "start": {"type": "string", "description": _MOMENT},
    "end": {"type": "string", "description": _MOMENT},
    "rate": {"type": "integer"},
    "seconds": {"type": "integer", "minimum": 1, "default": 30},
    "opt": {"type": "string", "description": "a config key"},
}
_BEARER = {"type": "http", "scheme": "bearer", "description": "the secret that AUTH takes, with an authorizer"}
_ANY_REQUEST = {
    403: ["TLS_REQUIRED"],
    408: ["REQUEST_TIMEOUT"],
    503: ["TOO_MANY_CONNECTIONS", "TOO_MANY_UNFINISHED_REQUESTS"],
}
_WITH_AUTHORIZER = {401: ["CREDENTIAL_REQUIRED", "CREDENTIAL_REFUSED"], 403: ["FORBIDDEN"], 503: ["AUTH_FAILED"]}
_A_CHANGE = {403: ["CROSS_ORIGIN"]}


@frozen
class Operation:
    """
    One method and path. `required` and `optional` are parameters of the query, `own` the schemas of those that mean
    something else elsewhere; `success` the content types of 200, None where there is no 200, and `headers` the numbers
    in its head; `errors` the words of each status, none for one that is answered with a bare text. One that `is_free`
    needs no credential.
    """

    method: str
    path: str
    summary: str
    required: Sequence[str] = ()
    optional: Sequence[str] = ()
    body: str = ""
    success: Mapping[str, Any] | None = field(factory=dict)
    headers: Sequence[str] = ()
    errors: Mapping[int, Sequence[str]] = field(factory=dict)
    is_free: bool = False
    own: Mapping[str, Mapping[str, Any]] = field(factory=dict)

    def described(self) -> dict[str, Any]:
        """As it stands in the document."""
        operation: dict[str, Any] = {"summary": self.summary, "responses": self._responses()}
        if self.is_free:
            operation["security"] = []
        named = [(name, True) for name in self.required] + [(name, False) for name in self.optional]
        listed = [self._parameter(name, "query", is_required) for name, is_required in named]
        listed += [self._parameter("opt", "path", True)] if self.path.endswith("{opt}") else []
        if listed:
            operation["parameters"] = listed
        if self.body:
            content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            operation["requestBody"] = {"description": self.body, "required": True, "content": content}
        return operation

    def _parameter(self, name: str, where: str, is_required: bool) -> dict[str, Any]:
        schema = self.own.get(name) or _PARAMETERS[name]
        return {"name": name, "in": where, "required": is_required, "schema": schema}

    def words(self) -> dict[int, list[str]]:
        """The words of each error status, with those that any request may meet."""
        statuses = {status: list(words) for status, words in self.errors.items()}
        met = [_ANY_REQUEST, {} if self.is_free else _WITH_AUTHORIZER, {} if self.method == "GET" else _A_CHANGE]
        for status, words in (item for errors in met for item in errors.items()):
            statuses.setdefault(status, []).extend(words)
        return statuses

    def _responses(self) -> dict[str, Any]:
        responses: dict[str, Any] = {}
        if self.success is not None:
            content = {kind: {"schema": schema} for kind, schema in self.success.items()}
            responses["200"] = {"description": "done", **({"content": content} if content else {})}
            if self.headers:
                responses["200"]["headers"] = {name: {"schema": {"type": "integer"}} for name in self.headers}
        for status, words in sorted(self.words().items()):
            content = {_JSON: {"schema": _message(words)}} if words else {_TEXT: {"schema": {"type": "string"}}}
            described = " ".join(f"{word}: {DETAILS[word]}" for word in words)
            responses[str(status)] = {"description": described or "a text that says why", "content": content}
            if words:
                responses[str(status)]["headers"] = {"X-Nsqtw-Detail": {"schema": {"type": "string"}}}
        return responses


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
        "components": {"securitySchemes": {"bearer": _BEARER}},
        "security": [{}, {"bearer": []}],
    }


def _numbers(*names: str) -> dict[str, Any]:
    """A document of numbers."""
    properties = {name: {"type": "integer"} for name in names}
    return {_JSON: {"type": "object", "properties": properties, "required": list(names)}}


def _message(words: Sequence[str]) -> dict[str, Any]:
    message = {"type": "string", "enum": list(words)}
    return {"type": "object", "properties": {"message": message}, "required": ["message"]}


_A_TEXT = {_TEXT: {"type": "string"}}
_OK = {_TEXT: {"type": "string", "enum": ["OK"]}}
_A_DOCUMENT = {_JSON: {"type": "object"}}
_A_PAGE = {_HTML: {"type": "string"}}
_AN_OPTION = {_TEXT: {"type": "string"}, _JSON: {}}
_STATS = {_TEXT: {"type": "string"}, _JSON: {"type": "object", "required": ["version", "health", "topics"]}}
_MESSAGE = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "timestamp": {"type": "integer", "description": "nanoseconds"},
        "attempts": {"type": "integer"},
        "body": {"type": "string"},
        "encoding": {"type": "string", "enum": ["text", "base64"]},
        "due": {"type": "integer"},
        "deadline": {"type": "integer"},
        "consumer": {"type": "object"},
    },
    "required": ["id", "timestamp", "attempts", "body", "encoding"],
}
_MESSAGES = {
    _JSON: {
        "type": "object",
        "properties": {"messages": {"type": "array", "items": _MESSAGE}, "more": {"type": "boolean"}},
        "required": ["messages", "more"],
    }
}
_BAD_QUERY = {400: ["INVALID_REQUEST"]}
_FAILED = {500: ["INTERNAL_ERROR"]}
_NOT_STORED = {500: ["INTERNAL_ERROR"], 503: ["EXITING"]}
_PUBLISHED = {400: ["INVALID_REQUEST", "MSG_EMPTY", "MISSING_ARG_TOPIC", "INVALID_TOPIC", "INVALID_DEFER"]}
_PUBLISHED_MANY = {400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC"]}
_NO_NEW_TOPIC = {**_FAILED, 503: ["EXITING", "TOO_MANY_TOPICS"]}
_TOPIC_ERRORS = {400: ["INVALID_REQUEST", "MISSING_ARG_TOPIC", "INVALID_TOPIC"], **_NOT_STORED}
_LOG_WORDS = ("INVALID_REQUEST", "MISSING_ARG_TOPIC", "EPHEMERAL_TOPIC")
_LOG_ERRORS = {404: ["TOPIC_NOT_FOUND"], **_FAILED}
_CHANNEL_ARGUMENTS = ("MISSING_ARG_TOPIC", "INVALID_ARG_TOPIC", "MISSING_ARG_CHANNEL", "INVALID_ARG_CHANNEL")
_CHANNEL_ERRORS = {
    400: ["INVALID_REQUEST", *_CHANNEL_ARGUMENTS],
    404: ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"],
    **_NOT_STORED,
}
_NO_NEW_CHANNEL = {
    400: [*_CHANNEL_ERRORS[400], "INVALID_START", "EPHEMERAL_CHANNEL"],
    404: ["TOPIC_NOT_FOUND"],
    **_FAILED,
    503: ["EXITING", "TOO_MANY_CHANNELS"],
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
    operations = []
    for what, summary in _CHANGES.items():
        errors = {**_TOPIC_ERRORS, **(_NO_NEW_TOPIC if what == "create" else {404: ["TOPIC_NOT_FOUND"]})}
        operations.append(Operation("POST", f"/topic/{what}", f"Topic: {summary}", ["topic"], errors=errors))
    return operations


def _of_channels() -> list[Operation]:
    named = ["topic", "channel"]
    create, *others = _CHANGES
    return [
        Operation(
            *("POST", f"/channel/{create}", f"Channel: {_CHANGES[create]}", named, ["start"]),
            own={"start": {"type": "string", "enum": list(STARTS)}},
            errors=_NO_NEW_CHANNEL,
        ),
        *(
            Operation("POST", f"/channel/{what}", f"Channel: {_CHANGES[what]}", named, errors=_CHANNEL_ERRORS)
            for what in others
        ),
    ]


def _of_replay() -> list[Operation]:
    channel_words = [*_CHANNEL_ERRORS[400], "EPHEMERAL_CHANNEL"]
    channel_not_found = ["TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"]
    return [
        Operation(
            *("POST", "/v2/channel/seek", "Move a channel in its topic's log", ["topic", "channel", "to"]),
            success=_numbers("position", "skipped", "replayed", "depth"),
            errors={
                400: [*channel_words, "MISSING_ARG_TO", "INVALID_TO"],
                404: [*channel_not_found, "MESSAGE_NOT_FOUND"],
                **_NOT_STORED,
            },
        ),
        Operation(
            *("GET", "/v2/channel/messages", "Look at a channel's messages", ["topic", "channel"], ["state", "limit"]),
            success=_MESSAGES,
            errors={400: [*channel_words, "INVALID_STATE", "INVALID_LIMIT"], 404: channel_not_found, **_FAILED},
        ),
        Operation(
            *("GET", "/v2/topic/messages", "Look at what waits for a topic's channels", ["topic"], ["limit"]),
            success=_MESSAGES,
            errors={400: [*_LOG_WORDS, "INVALID_LIMIT"], **_LOG_ERRORS},
        ),
    ]


def _of_logs() -> list[Operation]:
    return [
        Operation(
            *("GET", "/v2/topic/log", "A topic's log from a position on", ["topic"], ["from", "limit", "wait"]),
            own={"limit": {"type": "integer", "minimum": 1, "description": "about so many bytes, 4194304 at most"}},
            success={CONTENT_TYPE.decode(): {"type": "string", "format": "binary"}},
            headers=[f"X-Nsqtw-{name}" for name in ("Next", "End", "Earliest", "Messages", "Lost")],
            errors={400: [*_LOG_WORDS, "INVALID_FROM", "INVALID_LIMIT", "INVALID_WAIT"], **_LOG_ERRORS},
        ),
        Operation(
            *("GET", "/v2/topic/log/range", "The positions of the messages of a time", ["topic"], ["start", "end"]),
            success=_numbers("first", "end", "earliest", "latest"),
            errors={400: [*_LOG_WORDS, "INVALID_START", "INVALID_END"], **_LOG_ERRORS},
        ),
        Operation(
            *("POST", "/v2/topic/retention", "What a topic keeps of what is finished", ["topic"], ["time", "bytes"]),
            errors={
                400: [*_LOG_WORDS, "MISSING_ARG_TIME_OR_BYTES", "INVALID_TIME", "INVALID_BYTES"],
                404: ["TOPIC_NOT_FOUND"],
                **_NOT_STORED,
            },
        ),
    ]


def _of_debugging() -> list[Operation]:
    where = "/debug/pprof/"
    operations = [Operation("GET", where, "A page that lists the others", success=_A_PAGE)]
    operations += [Operation("GET", where + name, what, success=_A_TEXT) for name, what in _REPORTS.items()]
    return [
        *operations,
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
    Operation(
        "GET",
        "/ping",
        "Whether the last attempt to store something went well",
        success=_OK,
        errors={500: []},
        is_free=True,
    ),
    Operation(
        *("GET", "/info", "Version, addresses, ports and limits"), optional=["include_version"], success=_A_DOCUMENT
    ),
    Operation(
        *("GET", "/stats", "Topics, channels and clients"),
        optional=["format", "topic", "channel", "include_clients", "include_mem", "include_limits", "include_version"],
        success=_STATS,
        errors=_BAD_QUERY,
    ),
    Operation(
        *("POST", "/pub", "Publish a message", ["topic"], ["defer"], "the message"),
        success=_OK,
        errors={**_PUBLISHED, 413: ["MSG_TOO_BIG"], **_NO_NEW_TOPIC},
    ),
    Operation(
        *("POST", "/mpub", "Publish messages", ["topic"], ["binary"]),
        body="a message a line; with binary=true int32 count, and int32 size before each",
        success=_OK,
        errors={**_PUBLISHED_MANY, 413: ["BODY_TOO_BIG", "MSG_TOO_BIG", "BAD_BODY", "BAD_MESSAGE"], **_NO_NEW_TOPIC},
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
    *_of_replay(),
    *_of_logs(),
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
