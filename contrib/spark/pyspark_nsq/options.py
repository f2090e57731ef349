"""What the user of ``format("nsq")`` may set, checked in one place.

| option               | default  | meaning                                                              |
|----------------------|----------|----------------------------------------------------------------------|
| nsqdHttpAddresses    | required | ``host:port,...``; ``https://host:port`` too. Tasks start at         |
|                      |          | different ones and move on to the next when one fails                |
| topic                | none     | where all rows go; overrides the column ``topic``                    |
| batchSize            | 1000     | most messages in one request                                         |
| batchBytes           | 1048576  | most bytes in one request; a bigger single message travels alone     |
| maxInFlight          | 2        | requests under way at a time, for each task                          |
| requestTimeoutMs     | 10000    | for one whole attempt, the reading of the answer included            |
| retries              | 5        | attempts after the first one                                         |
| backoffMs            | 100      | pause before the first retry, doubled for each next one              |
| maxBackoffMs         | 5000     | longest such pause                                                   |
| onEmpty              | fail     | ``fail`` or ``skip`` rows whose value is null or empty               |
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self
from urllib.parse import urlsplit

from pyspark_nsq.errors import OptionError

#: nsqd's --max-msg-size and --max-body-size as it ships; both in bytes.
MAX_MESSAGE_BYTES = 1024 * 1024
MAX_BODY_BYTES = 5 * 1024 * 1024
#: A request body of MAX_BODY_BYTES holds no more messages than this: 4 bytes of count, then 4 + 1 for each.
MAX_BATCH_SIZE = (MAX_BODY_BYTES - 4) // 5

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
_MAX_NAME_LENGTH = 64
_HOUR_MS = 3_600_000


def is_topic_name(name: str) -> bool:
    """Whether NSQ takes this as the name of a topic."""
    return len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def _number(name: str, default: int, low: int, high: int) -> Any:
    return field(default=default, metadata={"name": name, "low": low, "high": high})


@dataclass(frozen=True)
class Options:
    """The options of one write. Use `parse`: it is what checks them."""

    #: Base URLs without a trailing slash, at least one.
    addresses: tuple[str, ...] = field(metadata={"name": "nsqdHttpAddresses"})
    topic: str | None = field(default=None, metadata={"name": "topic"})
    batch_size: int = _number("batchSize", 1000, 1, MAX_BATCH_SIZE)
    batch_bytes: int = _number("batchBytes", 1024 * 1024, 1, MAX_BODY_BYTES)
    max_in_flight: int = _number("maxInFlight", 2, 1, 1000)
    request_timeout_ms: int = _number("requestTimeoutMs", 10_000, 1, _HOUR_MS)
    retries: int = _number("retries", 5, 0, 1000)
    backoff_ms: int = _number("backoffMs", 100, 0, _HOUR_MS)
    max_backoff_ms: int = _number("maxBackoffMs", 5000, 0, _HOUR_MS)
    on_empty: str = field(default="fail", metadata={"name": "onEmpty", "choices": ("fail", "skip")})

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """The options in `given`, whose keys Spark may have put into lower case.

        Raises OptionError for an option that is missing, unknown or has a bad value.
        """
        by_key = {f.metadata["name"].lower(): f for f in fields(cls)}
        values: dict[str, Any] = {}
        for key, text in given.items():
            if key.lower() not in by_key:
                raise OptionError(_unknown(key, [f.metadata["name"] for f in by_key.values()]))
            known = by_key[key.lower()]
            values[known.name] = _convert(text, known.metadata)
        if "addresses" not in values:
            raise OptionError('option "nsqdHttpAddresses" is required, for example "127.0.0.1:4151"')
        return cls(**values)


def _unknown(key: str, names: list[str]) -> str:
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f'did you mean "{lowered[near[0]]}"?' if near else f"known are: {', '.join(names)}"
    return f'unknown option "{key}"; {hint}'


def _convert(text: str, about: Mapping[str, Any]) -> Any:
    name = about["name"]
    if "low" in about:
        return _whole_number(name, text, about["low"], about["high"])
    if "choices" in about:
        return _choice(name, text, about["choices"])
    return _addresses(name, text) if name == "nsqdHttpAddresses" else _topic(name, text)


def _whole_number(name: str, text: str, low: int, high: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise OptionError(f'option "{name}" must be a whole number, not "{text}"') from None
    if not low <= number <= high:
        raise OptionError(f'option "{name}" must be between {low} and {high}, not {number}')
    return number


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise OptionError(f'option "{name}" must be one of {", ".join(choices)}, not "{text}"')
    return text.lower()


def _topic(name: str, text: str) -> str:
    if not is_topic_name(text):
        raise OptionError(f'option "{name}": "{text}" is no topic name; 1 to {_MAX_NAME_LENGTH} of a-z A-Z 0-9 . _ -')
    return text


def _addresses(name: str, text: str) -> tuple[str, ...]:
    urls = tuple(_base_url(name, part.strip()) for part in text.split(",") if part.strip())
    if not urls:
        raise OptionError(f'option "{name}" names no address, for example "127.0.0.1:4151"')
    return urls


def _base_url(name: str, address: str) -> str:
    wrong = OptionError(f'option "{name}": "{address}" is not host:port or http(s)://host:port')
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    extra = parts.username or parts.query or parts.fragment or parts.path not in ("", "/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or extra:
        raise wrong
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"
