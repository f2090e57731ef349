"""Headers over V2: asked for in IDENTIFY, and then message frames of another type, for messages that have some."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from nsqtw.message_headers import encode_headers
from tests.protocols.dialogue import Peer, V2Harness, identify

HEADERS = {"k": "v", "a": "ü"}
ENCODED = b"\1a\0\2\xc3\xbc\1k\0\1v"


def asked(stage: V2Harness, **fields: Any) -> tuple[Peer, dict[str, Any]]:
    """A client that has identified itself, and the answer."""
    client = stage.connect()
    client.send(identify(**fields))
    (answer,) = client.read()
    return client, json.loads(answer[1]) if answer[1] != b"OK" else {}


def put(stage: V2Harness, *headers: dict[str, str]) -> None:
    """Publish a message `x` with each of these headers."""
    encoded = [encode_headers(one) for one in headers]
    stage.broker.topic("t").put([b"x"] * len(headers), 0, lambda error: None, encoded)
    stage.turn()


def received(client: Peer) -> list[tuple[int, bytes]]:
    """Type and data of all frames; without timestamp, attempts and id in those of type 3."""
    return [(kind, data[26:] if kind == 3 else data) for kind, data, _ in client.read()]


@pytest.fixture
def stage() -> V2Harness:
    return V2Harness()


def test_they_are_negotiated_only_if_asked_for(stage: V2Harness) -> None:
    _, answer = asked(stage, feature_negotiation=True, headers=True)
    assert answer["headers"] is True
    for fields in ({"headers": False}, {}):
        _, answer = asked(stage, feature_negotiation=True, **fields)
        assert "headers" not in answer


def test_a_message_with_headers_has_a_frame_of_type_3(stage: V2Harness) -> None:
    client, _ = asked(stage, feature_negotiation=True, headers=True)
    client.subscribe(ready=10)
    put(stage, HEADERS, {}, HEADERS)
    put(stage, {})
    body = struct.pack(">H", len(ENCODED)) + ENCODED + b"x"
    assert received(client) == [(3, body), (2, b"x"), (3, body), (2, b"x")]


@pytest.mark.parametrize("fields", [{"headers": True}, {"feature_negotiation": True}])
def test_others_get_the_body_alone(stage: V2Harness, fields: dict[str, Any]) -> None:
    client, _ = asked(stage, **fields)
    client.subscribe(ready=10)
    put(stage, HEADERS, {})
    assert received(client) == [(2, b"x"), (2, b"x")]


def test_a_redelivery_has_them_too(stage: V2Harness) -> None:
    client, _ = asked(stage, feature_negotiation=True, headers=True)
    client.subscribe(ready=10)
    put(stage, HEADERS)
    ((_, first, _),) = client.read()
    client.send(b"REQ " + first[10:26] + b" 0\n")
    ((kind, again, _),) = client.read()
    assert (kind, again[8:10], again[10:]) == (3, b"\0\2", first[10:])
