"""One declaration for a V2 command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import nsqtw.protocols
from nsqtw.core.client import ClientState
from nsqtw.errors import ClientError
from nsqtw.options.types import LEVELS
from nsqtw.protocols.frames import RESPONSE, frame
from nsqtw.protocols.parameters import shown_name
from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_command import MESSAGE, CommandSpec
from nsqtw.protocols.v2_session import V2Session
from nsqtw.rights import PUBLISH
from tests.protocols.dialogue import END, V2Harness, error, response, sized
from tests.protocols.test_v2_auth import Door

PROTOCOLS = Path(nsqtw.protocols.__file__).parent


def check_echo(session: V2Session, verb: bytes, params: Sequence[bytes]) -> None:
    if params != [b"word"]:
        raise ClientError("E_INVALID", "ECHO takes a word")


def echo(session: V2Session, verb: bytes, params: Sequence[bytes], payload: list[bytes], now: float) -> None:
    """Answer with the body."""
    session._replies.add(frame(RESPONSE, payload[0]))


ECHO = CommandSpec(
    frozenset({ClientState.INIT}), echo, check=check_echo, right=PUBLISH, body=MESSAGE, shown=(shown_name,)
)


@pytest.mark.plain  # a handler of a test is a function of Python
def test_one_declaration_makes_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its states, its check, its body, what the log shows of it, and what carries it out come from there."""
    monkeypatch.setitem(COMMANDS, b"ECHO", ECHO)
    stage = V2Harness(log_level=LEVELS["debug"])
    client = stage.connect()
    client.send(b"ECHO word\n" + sized(b"hello"))
    client.expect(response(b"hello"))
    assert any("[ECHO word]" in line for _, line in stage.core.lines)
    client.subscribe()
    client.send(b"ECHO word\n" + sized(b"hello"))
    (refused, *_) = client.read()
    assert refused == error(b"E_INVALID cannot ECHO in current state")


@pytest.mark.plain
def test_its_check_is_made_before_its_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, b"ECHO", ECHO)
    client = V2Harness().connect()
    client.send(b"ECHO\n")
    client.expect(error(b"E_INVALID ECHO takes a word"), END)


@pytest.mark.plain
def test_its_right_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, b"ECHO", ECHO)
    stage = V2Harness()
    stage.broker.authorizations = Door()
    client = stage.connect()
    client.send(b"ECHO word\n" + sized(b"hello"))
    client.expect(error(b"E_AUTH_FIRST AUTH required before ECHO"), END)


@pytest.mark.plain
def test_its_body_that_never_comes_is_the_error_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, b"ECHO", ECHO)
    client = V2Harness().connect()
    client.send(b"ECHO word\n" + sized(b"hello")[:-1])
    client.shut()
    client.expect(error(b"E_BAD_MESSAGE ECHO failed to read message body"), END)


def test_no_module_but_the_table_has_to_know_a_command() -> None:
    """A verb is written where it is declared. The others are texts of nsqd's, and the run of FINs."""
    verbs = "|".join(verb.decode() for verb in COMMANDS)
    literal = re.compile(rf'b"({verbs})"')
    written = {path.name: set(literal.findall(path.read_text())) for path in PROTOCOLS.glob("v2_*.py")}
    assert {name: found for name, found in written.items() if found} == {
        "v2_auth.py": {"SUB"},
        "v2_codec.py": {"FIN"},
        "v2_subscription.py": {"SUB"},
    }


def test_a_command_is_handled_by_the_session_or_the_subscriber() -> None:
    for spec in COMMANDS.values():
        assert (spec.handle is None) != (spec.consume is None)
