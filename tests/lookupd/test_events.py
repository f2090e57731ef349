"""Server-sent events: what each change becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nsqtw.lookupd.changes import (
    ChannelCreated,
    ChannelDeleted,
    ProducerAdded,
    ProducerBack,
    ProducerRemoved,
    ProducerSilent,
    Registered,
    StateComplete,
    StateFollows,
    StreamItem,
    Tombstoned,
    TombstoneEnded,
    TopicCreated,
    TopicDeleted,
    Unregistered,
)
from nsqtw.lookupd.events import events
from tests.lookupd.harness import producer

ONE = producer(7, 'a"<\n')
SHOWN = json.loads(ONE.document)


@pytest.mark.parametrize(
    ("told", "name", "data"),
    [
        (StateFollows(), "reset", {}),
        (StateComplete(), "complete", {}),
        (ProducerAdded(ONE), "producer", {"id": 7, "producer": SHOWN}),
        (ProducerRemoved(ONE), "producer_gone", {"id": 7}),
        (ProducerSilent(ONE), "silent", {"id": 7}),
        (ProducerBack(ONE), "back", {"id": 7}),
        (TopicCreated("t"), "topic", {"topic": "t"}),
        (TopicDeleted("t"), "topic_deleted", {"topic": "t"}),
        (ChannelCreated("t", "c"), "channel", {"topic": "t", "channel": "c"}),
        (ChannelDeleted("t", "c"), "channel_deleted", {"topic": "t", "channel": "c"}),
        (Registered("t", None, ONE), "registered", {"id": 7, "topic": "t", "channel": None, "producer": SHOWN}),
        (Registered("t", "c", ONE), "registered", {"id": 7, "topic": "t", "channel": "c", "producer": SHOWN}),
        (Unregistered("t", None, ONE), "unregistered", {"id": 7, "topic": "t", "channel": None}),
        (Unregistered("t", "c", ONE), "unregistered", {"id": 7, "topic": "t", "channel": "c"}),
        (Tombstoned("t", ONE), "tombstoned", {"id": 7, "topic": "t"}),
        (TombstoneEnded("t", ONE), "tombstone_ended", {"id": 7, "topic": "t"}),
    ],
)
def test_every_change(told: StreamItem, name: str, data: dict[str, Any]) -> None:
    lines = events([told], 5).decode().split("\n")
    assert lines[:2] == [f"event: {name}", "id: 5"]
    assert json.loads(lines[2].removeprefix("data: ")) == data
    assert lines[3:] == ["", ""]


def test_events_are_numbered() -> None:
    assert events([StateFollows(), StateComplete()], 1).count(b"\n\n") == 2
    assert b"id: 2\n" in events([StateFollows(), StateComplete()], 1)
    assert events([], 1) == b""
