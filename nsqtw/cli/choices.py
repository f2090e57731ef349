"""Words that options have as values, and what they mean."""

from __future__ import annotations

STATES = {"waiting": "ready", "deferred": "deferred", "in-flight": "in_flight"}
"""The values of --state of `peek`: states of messages, as the nodes name them."""

SORTS = {
    "name": ("topic", False),
    "depth": ("depth", True),
    "in": ("in_rate", True),
    "out": ("out_rate", True),
    "age": ("oldest_message_age", True),
}
"""The values of --sort of `stat`: a key of the rows, and whether the largest value comes first."""

CHECKS = {"ready": "/readyz", "live": "/livez", "ping": "/ping"}
"""The values of --check of `health`: paths."""

DEFAULT = "default"
"""The value of the options of `topic set` that stands for what the options of the nodes say."""

PRIORITIES = ("high", "normal", "low")
"""The values of --priority of `pub`."""
