"""
What is saved of a topic and of a channel, as JSON documents: the fields of `TopicState` and `CursorState` that are not
rows of their own. A run is an array: `"dropped": [[10, 12]]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from nsqtw.core.checkpoint import CursorState, TopicState, Waiting
from nsqtw.errors import InvalidPolicy, ReplicaError
from nsqtw.options.settings import ChannelPolicy, PolicyClass, TopicPolicy, policy_json, read_policy

State = TypeVar("State")

_TOPIC_PLAIN = (
    *("paused", "released", "released_total", "end", "put_total", "durability", "retention_time", "retention_bytes"),
    "floor",
)
_TOPIC_RUNS = ("dropped", "marks", "runs")
_CURSOR = (
    *("paused", "next", "taken_total", "first_deliveries", "interrupted", "pending_count", "replays", "counted_to"),
    *("positions", "class_depths"),
)


def topic_document(topic: TopicState) -> str:
    """Return the document of a topic."""
    waiting = [(run.first, run.count, run.delay_ms) for run in topic.waiting]
    return _text(topic, (*_TOPIC_PLAIN, *_TOPIC_RUNS), TopicPolicy, {"waiting": waiting})


def cursor_document(cursor: CursorState) -> str:
    """Return the document of a channel."""
    return _text(cursor, _CURSOR, ChannelPolicy, {})


def read_topic(name: str, text: str) -> TopicState:
    """Return a topic, without channels. ReplicaError."""
    return _read(f"topic {name}", text, lambda document: _topic(name, document))


def read_cursor(topic: str, name: str, text: str) -> CursorState:
    """Return a channel, without pending rows. ReplicaError."""
    return _read(f"channel {topic}/{name}", text, lambda document: _cursor(name, document))


def _topic(name: str, document: dict[str, Any]) -> TopicState:
    topic = TopicState(name, policy=read_policy(TopicPolicy, document["policy"]))
    _fill(topic, document, _TOPIC_PLAIN)
    topic.waiting = [Waiting(first, count, delay_ms) for first, count, delay_ms in document["waiting"]]
    topic.dropped = [(first, end) for first, end in document["dropped"]]
    topic.marks = [(first, until_ms, size) for first, until_ms, size in document["marks"]]
    topic.runs = [(first, count) for first, count in document["runs"]]
    return topic


def _cursor(name: str, document: dict[str, Any]) -> CursorState:
    cursor = CursorState(name, policy=read_policy(ChannelPolicy, document["policy"]))
    _fill(cursor, document, _CURSOR)
    return cursor


def _text(state: object, names: Iterable[str], kind: PolicyClass, more: Mapping[str, Any]) -> str:
    values = {name: getattr(state, name) for name in names}
    policy: Mapping[str, Any] = getattr(state, "policy")  # noqa: B009
    return json.dumps({**values, **more, "policy": policy_json(kind, policy)}, separators=(",", ":"))


def _fill(state: object, document: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        setattr(state, name, document[name])


def _read(what: str, text: str, made: Callable[[dict[str, Any]], State]) -> State:
    try:
        return made(json.loads(text))
    except InvalidPolicy as error:
        raise ReplicaError(f"PostgreSQL: what is saved of {what} cannot be used: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReplicaError(f"PostgreSQL: what is saved of {what} makes no sense") from error
