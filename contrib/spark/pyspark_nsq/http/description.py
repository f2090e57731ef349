"""The OpenAPI document of an nsqd of nsqtw: what this version of it can do."""

from __future__ import annotations

import json

DESCRIPTION_PATH = "/v2/openapi.json"


def has_parameter(document: bytes, path: str, name: str) -> bool:
    """Return whether a document names a parameter of POST requests to a path; False for another document."""
    try:
        parameters = json.loads(document)["paths"][path]["post"]["parameters"]
        return any(parameter["name"] == name for parameter in parameters)
    except (ValueError, KeyError, TypeError):
        return False
