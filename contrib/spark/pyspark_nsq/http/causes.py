"""The causes of failed attempts that another attempt may heal."""

from enum import Enum


class Cause(Enum):
    """The value is how the cause is named in figures, after ``retried``."""

    BUSY = "429"
    SERVER = "5xx"
    TIMEOUT = "Timeout"
    REFUSED = "Refused"
    """No connection was made, TLS included, or no nsqd is known."""
    LOST = "Lost"
    """The connection ended before the answer."""
