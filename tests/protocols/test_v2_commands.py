"""One declaration for a V2 command."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nsqtw.core.client import ClientState
from nsqtw.options.types import LEVELS
from nsqtw.protocols.frames import RESPONSE, frame
from nsqtw.protocols.parameters import shown_name
from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_command import MESSAGE, CommandSpec
from nsqtw.protocols.v2_session import V2Session
from tests.protocols.dialogue import V2Harness, error, response, sized


def echo(session: V2Session, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
    """Answer with the body."""
    session._replies.add(frame(RESPONSE, payload[0]))


@pytest.mark.plain  # a handler of a test is a function of Python
def test_one_declaration_makes_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its states, its body, what the log shows of it, and what carries it out come from there."""
    spec = CommandSpec(frozenset({ClientState.INIT}), echo, body=MESSAGE, shown=(shown_name,))
    monkeypatch.setitem(COMMANDS, b"ECHO", spec)
    stage = V2Harness(log_level=LEVELS["debug"])
    client = stage.connect()
    client.send(b"ECHO word\n" + sized(b"hello"))
    client.expect(response(b"hello"))
    assert any("[ECHO word]" in line for _, line in stage.core.lines)
    client.subscribe()
    client.send(b"ECHO word\n" + sized(b"hello"))
    (refused, *_) = client.read()
    assert refused == error(b"E_INVALID cannot ECHO in current state")


def test_a_command_is_handled_by_the_session_or_the_subscriber() -> None:
    for spec in COMMANDS.values():
        assert (spec.handle is None) != (spec.consume is None)
