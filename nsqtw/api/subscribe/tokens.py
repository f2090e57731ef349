"""
Acknowledgement tokens: the names of deliveries.

    5f1c0a9be2d4.3.0269ac8e2d3f4001.1      process . subscription . message id . attempts

A message that is delivered again gets another token, because its attempts differ. So a token that comes late, after the
timeout of its delivery, finishes nothing. The process is a random number: no token of an earlier process is valid.
"""

from __future__ import annotations

import re
from secrets import token_hex
from typing import NamedTuple

_PROCESS_BYTES = 6
_TOKEN = re.compile(r"([0-9a-f]{12})\.([1-9][0-9]{0,11})\.([0-9a-f]{16})\.([0-9]{1,5})")
MAX_ATTEMPTS = 0xFFFF
"""The frame of a message has 16 bits for the attempts."""


class Token(NamedTuple):
    """A token, read."""

    subscription: int
    message_id: bytes
    attempts: int
    """The lower 16 bits of them."""


class Tokens:
    """The tokens of one process."""

    def __init__(self) -> None:
        self._process = token_hex(_PROCESS_BYTES)

    def write(self, subscription: int, message_id: str, attempts: int) -> str:
        """Return the token of a delivery."""
        return f"{self._process}.{subscription}.{message_id}.{attempts & MAX_ATTEMPTS}"

    def read(self, text: str) -> Token | None:
        """Return the parts of a token; None when this process has not written it."""
        match = _TOKEN.fullmatch(text)
        if match is None or match[1] != self._process:
            return None
        return Token(int(match[2]), match[3].encode(), int(match[4]))
