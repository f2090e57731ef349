"""The causes of failed attempts that another attempt may resolve."""

from enum import Enum


class Cause(Enum):
    """A cause. Its value is its name in figures, after ``retried``."""

    BUSY = "429"
    SERVER = "5xx"
    TIMEOUT = "Timeout"
    REFUSED = "Refused"
    """No connection was made, TLS included, or no nsqd is known."""
    LOST = "Lost"
    """The connection ended before the answer."""
