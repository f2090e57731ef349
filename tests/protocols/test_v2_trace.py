"""What a session says in the log: nsqd's lines, and never a message body or a secret."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.options.types import LEVELS
from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_trace import command_text
from tests.protocols.dialogue import OK, UNKNOWN_ID, V2Harness, dpub, identify, int32, message, mpub, pub, sized

MARKER = b"Quixotic-Zwieback"
ENDS = ["info: PROTOCOL(V2): [1.2.3.4:5] exiting ioloop", "info: PROTOCOL(V2): [1.2.3.4:5] exiting messagePump"]


def stage_at(level: str, **options: Any) -> V2Harness:
    return V2Harness(log_level=LEVELS[level], **options)


def said(stage: V2Harness, *parts: str) -> list[str]:
    """What was said since the last time: the lines that contain one of `parts`, or all."""
    lines = [f"{level}: {text}" for level, text in stage.core.lines]
    stage.core.lines.clear()
    return [line for line in lines if not parts or any(part in line for part in parts)]


def test_command_lines_are_said_at_debug() -> None:
    stage = stage_at("debug")
    client = stage.connect()
    client.send(b"SUB t c\r\n")
    client.send(b"RDY 1\nNOP\n" + pub(b"a", b"b") + mpub(b"c", b"d") + dpub(5, b"e"))
    commands = [line.removeprefix("debug: PROTOCOL(V2): [1.2.3.4:5] ") for line in said(stage, "PROTOCOL(V2): [")]
    assert commands == ["[SUB t c]", "[RDY 1]", "[NOP]", "[PUB t]", "[PUB t]", "[MPUB t]", "[DPUB t 5]"]
    client.send(pub(b"f"))
    assert len(said(stage, "[PUB t]")) == 1


def test_messages_are_said_with_id_and_length_and_so_is_the_credit() -> None:
    stage = stage_at("debug")
    client = stage.connect()
    client.subscribe(ready=3)
    assert said(stage, "state")[-1] == "debug: [1.2.3.4:5] state rdy:    3 inflt:    0"
    client.send(pub(b"a", b"bc"))
    first, second = (m.id.decode() for m in client.expect(OK, OK, message(b"a"), message(b"bc")))
    assert said(stage, "writing", "state")[-3:] == [
        f"debug: PROTOCOL(V2): writing msg({first}) to client(1.2.3.4:5) - 1 bytes",
        f"debug: PROTOCOL(V2): writing msg({second}) to client(1.2.3.4:5) - 2 bytes",
        "debug: [1.2.3.4:5] state rdy:    3 inflt:    2",
    ]
    client.send(f"FIN {first}\nFIN {second}\n".encode())
    assert said(stage) == [
        f"debug: PROTOCOL(V2): [1.2.3.4:5] [FIN {first}]",
        f"debug: PROTOCOL(V2): [1.2.3.4:5] [FIN {second}]",
        "debug: [1.2.3.4:5] state rdy:    3 inflt:    0",
    ]


def test_the_level_may_change_under_a_connection() -> None:
    stage = stage_at("info")
    client = stage.connect()
    client.send(b"NOP\n")
    assert said(stage) == []
    stage.broker.options.log_level = LEVELS["debug"]
    client.send(b"NOP\n")
    assert said(stage) == ["debug: PROTOCOL(V2): [1.2.3.4:5] [NOP]"]


def test_identify_is_said_with_everything_the_client_may_say() -> None:
    stage = stage_at("info")
    client = stage.connect()
    client.send(identify(client_id="c", hostname="h" * 255, user_agent="ua/1", tls_v1=True, msg_timeout=5000, x="y"))
    assert said(stage) == [
        f"info: [1.2.3.4:5] IDENTIFY: {{ClientID:c Hostname:{'h' * 200} HeartbeatInterval:0 OutputBufferSize:0"
        " OutputBufferTimeout:0 FeatureNegotiation:false TLSv1:true Deflate:false DeflateLevel:0 Snappy:false"
        " SampleRate:0 UserAgent:ua/1 MsgTimeout:5000 TopologyRegion: TopologyZone:}"
    ]


def test_an_error_is_said_and_again_when_it_ends_the_connection() -> None:
    stage = stage_at("info")
    client = stage.connect()
    client.subscribe()
    said(stage)
    client.send(b"FIN " + UNKNOWN_ID + b"\n")
    assert said(stage) == ["error: [1.2.3.4:5] - E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"]
    client.send(b"PUB b@d\n")
    text = 'E_BAD_TOPIC PUB topic name "b@d" is not valid'
    assert said(stage) == [f"error: [1.2.3.4:5] - {text}", ENDS[0], f"error: client(1.2.3.4:5) - {text}", ENDS[1]]


@pytest.mark.parametrize(
    ("sent", "why"), [(b"x" * 16384, "bufio: buffer full"), (b"NOP\n", "i/o timeout"), (b"PU", "i/o timeout")]
)
def test_an_end_without_an_error_frame_is_said(sent: bytes, why: str) -> None:
    stage = stage_at("info")
    client = stage.connect()
    client.send(sent)
    for _ in range(3):
        stage.wait(30)
    assert said(stage) == [ENDS[0], f"error: client(1.2.3.4:5) - failed to read command - {why}", ENDS[1]]


def test_an_end_without_an_error_is_said_as_such() -> None:
    stage = stage_at("info")
    client = stage.connect()
    client.send(b"NOP\n")
    client.shut()
    assert said(stage) == ENDS


def test_what_is_not_done_as_asked_is_said() -> None:
    stage = stage_at("info")
    client = stage.connect()
    client.subscribe()
    said(stage)
    client.send(b"REQ " + UNKNOWN_ID + b" 3600001\nCLS\nRDY 1\n")
    assert said(stage, "info") == [
        "info: PROTOCOL(V2): [1.2.3.4:5] REQ timeout 3600001000000 out of range 0-3600000000000."
        " Setting to 3600000000000",
        "info: PROTOCOL(V2): [1.2.3.4:5] ignoring RDY after CLS in state ClientStateV2Closing",
    ]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"SUB t c extra words", "SUB t c (11 bytes)"),
        (b"PUB b@d", 'PUB "b@d"'),
        (b"PUB t\xff\n", 'PUB "t\\xff\\n"'),
        (b"PUB " + 65 * b"t", "PUB (65 bytes)"),
        (b"DPUB t soon", "DPUB t (4 bytes)"),
        (b"RDY ", "RDY "),
        (b"RDY " + 21 * b"1", "RDY (21 bytes)"),
        (b"FIN short", "FIN (5 bytes)"),
        (b"REQ 0123456789abcdef 10", "REQ 0123456789abcdef 10"),
        (b"AUTH secret", "AUTH (6 bytes)"),
        (b"pub t", "(5 bytes)"),
        (b"", ""),
    ],
)
def test_of_a_line_only_what_belongs_there_is_shown(line: bytes, shown: str) -> None:
    verb, *params = line.split(b" ")
    assert command_text(COMMANDS, verb, params) == shown


@pytest.mark.parametrize(
    "sent",
    [
        pub(MARKER, MARKER) + mpub(MARKER, MARKER) + dpub(1, MARKER),
        b"PUB t\n" + int32(3) + MARKER + b"\n",
        b"PUB t\n" + int32(3) + MARKER + b" " + MARKER + b"\nNOP\n",
        b"PUB t\n" + int32(1000) + MARKER,
        b"PUB t " + MARKER + b"\n" + sized(MARKER),
        b"DPUB t " + MARKER + b"\n" + sized(MARKER),
        b"DPUB t 99999999999\n" + sized(MARKER),
        b"MPUB t\n" + int32(30) + int32(2) + sized(MARKER) + int32(-1) + MARKER,
        b"MPUB t\n" + sized(MARKER),
        b"AUTH\n" + sized(MARKER),
        b"AUTH " + MARKER + b"\n",
        b"AUTH\n" + int32(3) + MARKER + b"\n",
        b"IDENTIFY\n" + sized(MARKER),
        b"IDENTIFY\n" + sized(b'{"secret":"' + MARKER + b'"}'),
        b"RDY " + MARKER + b"\n",
        b"SUB t c\nRDY " + MARKER + b"\n",
        b"SUB t c\nFIN " + MARKER[:16] + b"\n",
        b"SUB t c\nREQ " + MARKER[:16] + b" 0\nTOUCH " + MARKER[:16] + b"\n",
        b"SUB t c\nREQ " + UNKNOWN_ID + b" " + MARKER + b"\n",
        b"SUB t c\nRDY 9\n" + pub(MARKER) + b"NOP " + MARKER + b"\nCLS " + MARKER + b"\n",
        b"\xff" + MARKER + b"\n",
        MARKER + b"\r\n",
    ],
)
def test_nothing_of_a_body_or_a_secret_is_ever_said(sent: bytes) -> None:
    stage = stage_at("debug")
    client = stage.connect()
    client.send(sent)
    client.shut()
    stage.wait(100)
    everything = "\n".join(said(stage))
    assert everything
    secret = MARKER.decode()
    pieces = {secret[start : start + 4] for start in range(len(secret) - 3)}
    assert not [piece for piece in pieces if piece in everything]


@pytest.mark.parametrize(
    "line", [b"\xff\n", b"PUB \xff\n", "\U0010ffff\n".encode(), b"\xed\xa0\x80\n", b"PUB \xed\xa0\n"]
)
def test_lines_are_text_whatever_the_client_sends(line: bytes) -> None:
    stage = stage_at("debug")
    stage.connect().send(line)
    for text in said(stage):
        assert text.encode().decode() == text
