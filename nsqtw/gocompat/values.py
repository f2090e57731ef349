"""Values of a config file in the words of nsqd's error texts: Go's `%v`, `%T` and `%q`."""

from __future__ import annotations

import math

from nsqtw.gocompat.text import quoted as quoted_bytes

_TYPE_NAMES = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def type_name(value: object) -> str:
    """Go's name for the type of a value that a TOML file can hold."""
    return _TYPE_NAMES.get(type(value), "time.Time")


def shown(value: object) -> str:
    """A value as Go's `%v` prints it: text bare, lists as `[a b]`, tables as `map[a:1]`."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return _float(value)
        case list():
            return f"[{' '.join(map(shown, value))}]"
        case dict():
            return f"map[{' '.join(f'{key}:{shown(value[key])}' for key in sorted(value))}]"
    return str(value)


def quoted(text: str) -> str:
    """A text as Go's `%q` prints it."""
    return quoted_bytes(text.encode("utf-8", "surrogateescape"))


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")
