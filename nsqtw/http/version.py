"""
The version of nsqtw, beside the version of NSQ that clients are told.

It is always in a header field. A JSON document has it as a key only where `include_version=true` asks for it: tools and
tests of NSQ's compare the keys with those of nsqd.
"""

from __future__ import annotations

from typing import Any

from nsqtw import __version__
from nsqtw.http.query import parameters
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, Refused, document
from nsqtw.version import VERSION_FIELD

HEADER = (VERSION_FIELD.encode(), __version__.encode())
_ON = ("true", "1")


def versioned(request: HttpRequest, fields: dict[str, Any]) -> Answer:
    """Answer with `fields`, the version in the header, and beside them if the request asks for it."""
    if request.query and _is_asked_for(request.query):
        fields = {**fields, "nsqtw_version": __version__}
    return document(fields, HEADER)


def _is_asked_for(query: bytes) -> bool:
    try:
        return parameters(query).get("include_version") in _ON
    except Refused:  # where nothing but this is asked for, nsqd takes any query
        return False
