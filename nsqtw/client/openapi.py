"""The OpenAPI document of an nsqd of nsqtw, `GET /v2/openapi.json`: what this version of it can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DESCRIPTION_PATH = "/v2/openapi.json"


def has_parameter(description: Mapping[str, Any], path: str, name: str) -> bool:
    """Return whether a document names a parameter of requests to a path; False for another document."""
    try:
        methods = description["paths"][path].values()
        return any(parameter["name"] == name for method in methods for parameter in method.get("parameters", ()))
    except (KeyError, TypeError, AttributeError):
        return False
