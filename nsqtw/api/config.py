"""
GET and PUT /config/:opt: the options of the running broker, by their config keys.

Every option can be read, in its effective value. Two can be changed until the broker stops: their users read them each
time, or are told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from nsqtw.api.context import ApiContext
from nsqtw.http.endpoints import FAILED, JSON, TEXT, Parameter, Section, endpoint
from nsqtw.http.request import HttpRequest
from nsqtw.http.responses import Answer, document, failure, text
from nsqtw.options.broker import BY_KEY, config_value
from nsqtw.options.types import LEVELS

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_PATH = "/config/:opt"
_KEY = Parameter("opt", {"type": "string", "description": "a config key"})
_AN_OPTION = {TEXT: {"type": "string"}, JSON: {}}
_INVALID_OPTION = failure(400, "INVALID_OPTION")
_INVALID_VALUE = failure(400, "INVALID_VALUE")
_INVALID_SIZE = failure(413, "INVALID_VALUE")


class Configuration(Section):
    """Shows and changes the options of a broker."""

    def __init__(self, context: ApiContext) -> None:
        self._options = context.broker.options
        self._changed = context.reconfigured
        self._nulls: set[str] = set()
        """Lists that were set to null, which nsqd shows as null and not as `[]`."""

    @endpoint(
        "GET",
        _PATH,
        "An option in its effective value",
        last=_KEY,
        success=_AN_OPTION,
        errors={400: ["INVALID_OPTION", "INVALID_REQUEST"]},
    )
    def show(self, request: HttpRequest) -> Answer:
        """GET /config/:opt"""
        return self._shown(_key(request))

    @endpoint(
        "PUT",
        _PATH,
        "Change log_level or nsqlookupd_tcp_addresses until the broker stops",
        last=_KEY,
        body=f"one of {', '.join(LEVELS)}; or a JSON list of texts",
        max_body="max_msg_size",
        too_big=_INVALID_SIZE,
        success=_AN_OPTION,
        errors={400: ["INVALID_OPTION", "INVALID_VALUE", "INVALID_REQUEST"], 413: ["INVALID_VALUE"], **FAILED},
    )
    def change(self, request: HttpRequest) -> Answer:
        """PUT /config/:opt"""
        if request.is_overlong or not request.body:
            return _INVALID_SIZE
        key = _key(request)
        read = _CHANGEABLE.get(key)
        if read is None:
            return _INVALID_OPTION
        try:
            value = read(request.body)
        except ValueError:
            return _INVALID_VALUE
        self._nulls.discard(key)
        if value is None:
            self._nulls.add(key)
            value = ()
        setattr(self._options, BY_KEY[key].name, value)
        self._changed()
        return self._shown(key)

    def _shown(self, key: str) -> Answer:
        """The option as it is now."""
        if key in self._nulls:
            return document(None)
        try:
            value = config_value(self._options, key)
        except KeyError:
            return _INVALID_OPTION
        if isinstance(value, str):
            return text(value.encode("utf-8", "surrogateescape"))
        return document(value)


def _key(request: HttpRequest) -> str:
    return request.last_part.decode("utf-8", "surrogateescape")


def _read_level(body: bytes) -> Any:
    """A level by its word. ValueError."""
    return BY_KEY["log_level"].kind.parse(body.decode("utf-8"))


def _read_texts(body: bytes) -> tuple[str, ...] | None:
    """A JSON list of texts, or null; a null in the list is an empty text. ValueError."""
    try:
        value = json.loads(body.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if value is None:
        return None
    if not isinstance(value, list) or not all(item is None or isinstance(item, str) for item in value):
        raise ValueError("no list of texts")
    return tuple(_HALF_CHARACTER.sub("\ufffd", item or "") for item in value)


_CHANGEABLE: dict[str, Callable[[bytes], Any]] = {
    "log_level": _read_level,
    "nsqlookupd_tcp_addresses": _read_texts,
}
