"""
The OpenAPI document of an HTTP API, made from its endpoints.

The errors that any request may meet, by the limits, authorization and TLS, are added to those an endpoint declares.
Loaded when the document is requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nsqtw import __version__
from nsqtw.http.bearer_auth import FREE
from nsqtw.http.endpoints import JSON, TEXT, Endpoint, Errors, Parameter
from nsqtw.http.errors import DETAILS

_BEARER = {"type": "http", "scheme": "bearer", "description": "the secret that AUTH takes, with an authorizer"}
_ANY_REQUEST: Errors = {
    403: ["CROSS_ORIGIN", "HOST_NOT_ALLOWED", "TLS_REQUIRED"],
    408: ["REQUEST_TIMEOUT"],
    503: ["TOO_MANY_CONNECTIONS", "TOO_MANY_UNFINISHED_REQUESTS"],
}
_WITH_AUTHORIZER: Errors = {
    401: ["CREDENTIAL_REQUIRED", "CREDENTIAL_REFUSED"],
    403: ["FORBIDDEN"],
    503: ["AUTH_FAILED"],
}


def described(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(path_of(endpoint), {})[endpoint.method.lower()] = _operation(endpoint)
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


def path_of(endpoint: Endpoint) -> str:
    """Return a path as OpenAPI writes it: /config/{opt} for /config/:opt."""
    return endpoint.path if endpoint.last is None else f"{endpoint.path.rpartition('/')[0]}/{{{endpoint.last.name}}}"


def words_of(endpoint: Endpoint) -> dict[int, list[str]]:
    """Return the words of each error status, with those that any request may meet."""
    statuses = {status: list(words) for status, words in endpoint.errors.items()}
    for errors in (_ANY_REQUEST, {} if endpoint.needs == FREE else _WITH_AUTHORIZER):
        for status, words in errors.items():
            statuses.setdefault(status, []).extend(words)
    return statuses


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": _responses(endpoint)}
    if endpoint.needs == FREE:
        operation["security"] = []
    listed = [
        *(_parameter(parameter, "query", True) for parameter in endpoint.required),
        *(_parameter(parameter, "query", False) for parameter in endpoint.optional),
        *(_parameter(parameter, "path", True) for parameter in (endpoint.last,) if parameter is not None),
    ]
    if listed:
        operation["parameters"] = listed
    if endpoint.body:
        content: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        if endpoint.body_schema is not None:
            content = {"application/json": {"schema": endpoint.body_schema}}
        operation["requestBody"] = {"description": endpoint.body, "required": True, "content": content}
    return operation


def _parameter(parameter: Parameter, where: str, is_required: bool) -> dict[str, Any]:
    return {"name": parameter.name, "in": where, "required": is_required, "schema": parameter.schema}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if endpoint.success is not None:
        content = {kind: {"schema": schema} for kind, schema in endpoint.success.items()}
        responses["200"] = {"description": "done", **({"content": content} if content else {})}
        if endpoint.headers:
            responses["200"]["headers"] = {name: {"schema": {"type": "integer"}} for name in endpoint.headers}
    for status, words in sorted(words_of(endpoint).items()):
        content = {JSON: {"schema": _message(words)}} if words else {TEXT: {"schema": {"type": "string"}}}
        details = " ".join(f"{word}: {DETAILS[word]}" for word in words)
        responses[str(status)] = {"description": details or "a text that says why", "content": content}
        if words:
            responses[str(status)]["headers"] = {"X-Nsqtw-Detail": {"schema": {"type": "string"}}}
    return responses


def _message(words: Sequence[str]) -> dict[str, Any]:
    message = {"type": "string", "enum": list(words)}
    return {"type": "object", "properties": {"message": message}, "required": ["message"]}
