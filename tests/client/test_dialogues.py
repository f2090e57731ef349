"""Our client without IO against the bytes that NSQ's own nsqd and nsqlookupd were recorded to send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nsqtw.client.lookup import answer_of, producers_of
from nsqtw.errors import LookupFailed
from nsqtw.protocols.compression import Deflate, Snappy
from tests.client.dialogues import DIALOGUES, RECORD, NoOwner, Player

WHOLE = 1 << 20


def record() -> dict[str, Any]:
    """Return the record."""
    found: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return found


@pytest.mark.parametrize("size", [1, 7, WHOLE])
@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue(name: str, size: int) -> None:
    """Whatever pieces the bytes of nsqd come in, the client decodes them and says what it said then."""
    dialogue = DIALOGUES[name]
    said = [(side, bytes.fromhex(data)) for side, data in record()[name]]
    unread = [
        data[start : start + size] for side, data in said if side == "nsqd" for start in range(0, len(data), size)
    ]
    written: list[bytes] = []
    player = Player(dialogue, written.append, lambda: unread.pop(0))
    player.play()
    if size == WHOLE:  # the times of NOP depend on the pieces
        assert _plain(b"".join(written), dialogue.options) == _plain(
            b"".join(data for side, data in said if side == "client"), dialogue.options
        )
    for rest in unread:  # the end of a compressed block
        assert player.connection.receive(rest, NoOwner()) == ([], [])


def _plain(data: bytes, options: dict[str, Any]) -> bytes:
    """Return what a client wrote, without compression: another release of the library may compress otherwise."""
    handshake, end = data.split(b"}", 1)
    stream: Deflate | Snappy
    if options.get("snappy"):
        stream = Snappy()
    elif options.get("deflate"):
        stream = Deflate(6)
    else:
        return data
    stream.feed(end)
    pieces = []
    while piece := stream.read():
        pieces.append(piece)
    return handshake + b"}" + b"".join(pieces)


def test_the_nsqds_of_a_topic() -> None:
    status, content_type, body = record()["lookups"]["t"]
    (address,) = producers_of(answer_of(status, content_type, body.encode())).addresses
    assert address.startswith("nsqd.example:")


def test_a_topic_that_is_not_known() -> None:
    status, content_type, body = record()["lookups"]["unknown"]
    with pytest.raises(LookupFailed, match="TOPIC_NOT_FOUND"):
        answer_of(status, content_type, body.encode())
