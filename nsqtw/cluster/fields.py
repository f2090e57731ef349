"""
Fields of the JSON answers of servers, each with its type and its bounds.

They are read as NSQ's programs read them: a missing field or null is zero. Another type is ServerFailed, and so are a
number that is not finite or beyond signed 64 bits, a text that is no Unicode, and a name that no topic or channel can
have. A long text is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nsqtw.errors import ServerFailed
from nsqtw.names import is_valid_name

JsonObject = Mapping[str, Any]
V = TypeVar("V")
N = TypeVar("N", int, float)

MAX_TEXT = 1000
"""Characters of a text; nsqd and nsqtw have at most 255 in those of their clients, and an error may be longer."""
_LIMIT = 2**63
_PLAIN = (str, int, float, bool)


def checked(value: Any, kind: type[V] | Callable[..., V], key: str) -> V:
    """Return a value that has a type."""
    if type(value) is not kind:
        raise wrong_type(key)
    return value


def typed(fields: JsonObject, key: str, kind: Any, absent: Any) -> Any:
    """Return a field that has a type, or `absent` without it."""
    value = fields.get(key)
    if value is None:
        return absent
    if type(value) is not kind:
        raise wrong_type(key)
    return value


def text(fields: JsonObject, key: str) -> str:
    """Return a text, the end of a long one cut."""
    found: str = typed(fields, key, str, "")
    return unicode(found, key)[:MAX_TEXT]


def name(fields: JsonObject, key: str) -> str:
    """Return the name of a topic or channel."""
    found: str = typed(fields, key, str, "")
    if not is_valid_name(found):
        raise ServerFailed(f"the answer has no valid name at {key!r}")
    return found


def texts(fields: JsonObject, key: str) -> tuple[str, ...]:
    return tuple(unicode(checked(found, str, key), key)[:MAX_TEXT] for found in array(fields, key))


def unicode(found: str, key: str) -> str:
    """Return a text of any length."""
    if not found.isascii():
        try:
            found.encode()
        except UnicodeEncodeError as error:  # half of a pair of surrogates
            raise ServerFailed(f"the answer has a text that is no Unicode at {key!r}") from error
    return found


def integer(fields: JsonObject, key: str) -> int:
    number: int = typed(fields, key, int, 0)
    return in_range(number, key)


def count(fields: JsonObject, key: str) -> int:
    """Return an integer that is not below zero: a count of one server takes nothing from the sums of all."""
    number: int = typed(fields, key, int, 0)
    return in_range(number, key, lowest=0)


def optional_count(fields: JsonObject, key: str) -> int | None:
    """Return a count, None without one."""
    return None if fields.get(key) is None else count(fields, key)


def optional_integer(fields: JsonObject, key: str) -> int | None:
    """Return an integer, None without one."""
    return None if fields.get(key) is None else integer(fields, key)


def boolean(fields: JsonObject, key: str) -> bool:
    flag: bool = typed(fields, key, bool, False)
    return flag


def number(fields: JsonObject, key: str) -> float:
    value = fields.get(key)
    if value is None:
        return 0.0
    if type(value) not in (int, float):
        raise wrong_type(key)
    return float(in_range(value, key))


def optional_number(fields: JsonObject, key: str) -> float | None:
    """Return a number, None without one."""
    return None if fields.get(key) is None else number(fields, key)


def in_range(value: N, key: str, lowest: int = -_LIMIT) -> N:
    """Return a number within the bounds of all."""
    if not lowest <= value < _LIMIT:  # neither is NaN
        raise ServerFailed(f"the answer has a number out of range at {key!r}")
    return value


def array(fields: JsonObject, key: str) -> list[Any]:
    found: list[Any] = typed(fields, key, list, [])
    return found


def objects(fields: JsonObject, key: str) -> list[JsonObject]:
    return [checked(found, dict, key) for found in array(fields, key)]


def plain_values(fields: JsonObject, key: str) -> dict[str, Any]:
    """Return an object of texts, numbers and booleans: the settings of a policy."""
    return {unicode(setting, key): plain(value, setting) for setting, value in typed(fields, key, dict, {}).items()}


def plain(value: Any, key: str) -> Any:
    """Return a text, a number or a boolean."""
    kind = type(value)
    if kind not in _PLAIN:
        raise wrong_type(key)
    if kind is str:
        return unicode(value, key)[:MAX_TEXT]
    return value if kind is bool else in_range(value, key)


def wrong_type(key: str) -> ServerFailed:
    """Return the error for a field of another type."""
    return ServerFailed(f"the answer has another type at {key!r}")
