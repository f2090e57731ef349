"""
The codec's table: what a client may send, and the commands or the error it is.

Every row is fed whole, byte by byte, in all pairs of pieces, all at once before the first look, and with the
beginning of a next command behind it. Runs are taken apart: how many commands one run becomes depends on the pieces.
"""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.protocols.v2 import COMMANDS
from nsqtw.protocols.v2_codec import V2Codec
from tests.protocols.dialogue import int32, mpub, pub, sized
from tests.protocols.feeding import FIN, ID, TOO_LONG, Found, Limits, accept, command, drain, fed, fin

MAX_LINE_BYTES = 16384
OTHER = b"fedcba9876543210"
BINARY = bytes(range(128, 144))

COMPLETE: dict[str, tuple[bytes, Found]] = {
    "one word": (b"NOP\n", [command(b"NOP")]),
    "empty line": (b"\n", [command(b"")]),
    "empty line with CR": (b"\r\n", [command(b"")]),
    "one CR is dropped": (b"NOP\r\n", [command(b"NOP")]),
    "only one CR is dropped": (b"NOP\r\r\n", [command(b"NOP\r")]),
    "CR elsewhere stays": (b"\rNOP\n", [command(b"\rNOP")]),
    "lower case is another command": (b"nop\n", [command(b"nop")]),
    "parameters": (b"SUB t c\n", [command(b"SUB", b"t", b"c")]),
    "consecutive spaces": (b"SUB  t c\n", [command(b"SUB", b"", b"t", b"c")]),
    "leading space": (b" NOP\n", [command(b"", b"NOP")]),
    "trailing space": (b"RDY \n", [command(b"RDY", b"")]),
    "trailing space and CR": (b"RDY \r\n", [command(b"RDY", b"")]),
    "TAB is no separator": (b"RDY\t5\n", [command(b"RDY\t5")]),
    "NUL and high bytes": (b"\x00\xff \xe4\n", [command(b"\x00\xff", b"\xe4")]),
    "several lines": (b"NOP\nRDY 5\n\nCLS\n", [command(b"NOP"), command(b"RDY", b"5"), command(b""), command(b"CLS")]),
    "FIN": (FIN, [fin(ID)]),
    "FIN run": (FIN * 3 + b"FIN " + OTHER + b"\n", [fin(ID)] * 3 + [fin(OTHER)]),
    "FIN of any bytes": (b"FIN " + BINARY + b"\n", [fin(BINARY)]),
    "FIN run, 15 bytes in the middle": (FIN + b"FIN " + ID[1:] + b"\n" + FIN, [fin(ID), fin(ID[1:]), fin(ID)]),
    "FIN run, 17 bytes in the middle": (FIN + b"FIN x" + ID + b"\n" + FIN, [fin(ID), fin(b"x" + ID), fin(ID)]),
    "FIN run, CR in the middle": (FIN + b"FIN " + ID + b"\r\n" + FIN, [fin(ID)] * 3),
    "FIN run, 15 bytes and CR": (FIN + b"FIN " + ID[1:] + b"\r\n" + FIN, [fin(ID), fin(ID[1:]), fin(ID)]),
    "FIN run, all with CR": ((b"FIN " + ID + b"\r\n") * 3, [fin(ID)] * 3),
    "FIN run, CR within an id": (FIN + b"FIN \r" + ID[1:] + b"\n" + FIN, [fin(ID), fin(b"\r" + ID[1:]), fin(ID)]),
    "FIN run, TAB within an id": (FIN + b"FIN \t" + ID[1:] + b"\n" + FIN, [fin(ID), fin(b"\t" + ID[1:]), fin(ID)]),
    "FIN run, two spaces": (FIN + b"FIN  " + ID[1:] + b"\n" + FIN, [fin(ID), fin(b"", ID[1:]), fin(ID)]),
    "FIN run, space within an id": (FIN + b"FIN 01 3456789abcdef\n" + FIN, [fin(ID), fin(b"01", ID[3:]), fin(ID)]),
    "FIN run, space behind an id": (FIN + b"FIN " + ID + b" \n" + FIN, [fin(ID), fin(ID, b""), fin(ID)]),
    "FIN run, extra parameter": (FIN + b"FIN " + ID + b" x\n" + FIN, [fin(ID), fin(ID, b"x"), fin(ID)]),
    "FIN run, TAB for the space": (
        FIN + b"FIN\t" + ID + b"\n" + FIN,
        [fin(ID), command(b"FIN\t" + ID), fin(ID)],
    ),
    "FIN run, TAB for the space and a space at the end": (
        FIN + b"FIN\t" + ID[1:] + b" \n" + FIN,
        [fin(ID), command(b"FIN\t" + ID[1:], b""), fin(ID)],
    ),
    "FIN run, no id": (FIN + b"FIN\n" + FIN, [fin(ID), command(b"FIN"), fin(ID)]),
    "FIN run, empty id": (FIN + b"FIN \n" + FIN, [fin(ID), fin(b""), fin(ID)]),
    "FIN run, empty line": (FIN + b"\n" + FIN, [fin(ID), command(b""), fin(ID)]),
    "FIN run, lower case": (FIN + b"fin " + ID + b"\n" + FIN, [fin(ID), command(b"fin", ID), fin(ID)]),
    "FIN run, as long a line of another command": (
        FIN + b"TOUCH 123456789abcde\n" + FIN,
        [fin(ID), command(b"TOUCH", b"123456789abcde"), fin(ID)],
    ),
    "FIN run, as long as one but two lines": (
        FIN + b"FIN 01234\nNOP 67890\n\n" + FIN,
        [fin(ID), fin(b"01234"), command(b"NOP", b"67890"), command(b""), fin(ID)],
    ),
    "FIN and other commands": (
        FIN + b"REQ " + ID + b" 0\n" + FIN + b"NOP\n" + FIN * 2 + pub(FIN[:20]) + FIN,
        [fin(ID), command(b"REQ", ID, b"0"), fin(ID), command(b"NOP"), fin(ID), fin(ID)]
        + [command(b"PUB", b"t", payload=[FIN[:20]]), fin(ID)],
    ),
    "PUB": (pub(b"hello"), [command(b"PUB", b"t", payload=[b"hello"])]),
    "PUB with CR": (b"PUB t\r\n" + sized(b"x"), [command(b"PUB", b"t", payload=[b"x"])]),
    "PUB of all a message may have": (pub(b"x" * 20), [command(b"PUB", b"t", payload=[b"x" * 20])]),
    "PUB of what looks like commands": (pub(b"NOP\nPUB t\n"), [command(b"PUB", b"t", payload=[b"NOP\nPUB t\n"])]),
    "PUB run": (pub(b"a", b"bb", b"ccc"), [command(b"PUB", b"t", payload=[b]) for b in (b"a", b"bb", b"ccc")]),
    "PUB run, another topic in the middle": (
        pub(b"a") + pub(b"b", topic=b"tt") + pub(b"c"),
        [command(b"PUB", t, payload=[b]) for t, b in ((b"t", b"a"), (b"tt", b"b"), (b"t", b"c"))],
    ),
    "PUB run, CR in the middle": (
        pub(b"a") + b"PUB t\r\n" + sized(b"b") + pub(b"c"),
        [command(b"PUB", b"t", payload=[b]) for b in (b"a", b"b", b"c")],
    ),
    "PUB run, extra parameter in the middle": (
        pub(b"a") + b"PUB t x\n" + sized(b"b") + pub(b"c"),
        [command(b"PUB", *p, payload=[b]) for p, b in (((b"t",), b"a"), ((b"t", b"x"), b"b"), ((b"t",), b"c"))],
    ),
    "PUB run and other commands": (
        pub(b"a", b"b") + b"NOP\n" + FIN + pub(b"c"),
        [command(b"PUB", b"t", payload=[b]) for b in (b"a", b"b")]
        + [command(b"NOP"), fin(ID), command(b"PUB", b"t", payload=[b"c"])],
    ),
    "DPUB": (b"DPUB t 5\n" + sized(b"x"), [command(b"DPUB", b"t", b"5", payload=[b"x"])]),
    "DPUBs are no run": (
        (b"DPUB t 5\n" + sized(b"x")) * 2,
        [command(b"DPUB", b"t", b"5", payload=[b"x"])] * 2,
    ),
    "IDENTIFY": (b"IDENTIFY\n" + sized(b"{}"), [command(b"IDENTIFY", payload=[b"{}"])]),
    "IDENTIFY of all a body may have": (
        b"IDENTIFY\n" + sized(b" " * 64),
        [command(b"IDENTIFY", payload=[b" " * 64])],
    ),
    "IDENTIFY with parameters": (b"IDENTIFY a b\n" + sized(b"{}"), [command(b"IDENTIFY", b"a", b"b", payload=[b"{}"])]),
    "AUTH": (b"AUTH\n" + sized(b"secret"), [command(b"AUTH", payload=[b"secret"])]),
    "MPUB": (mpub(b"x"), [command(b"MPUB", b"t", payload=[b"x"])]),
    "MPUB, equal sizes": (mpub(b"ab", b"cd", b"ef"), [command(b"MPUB", b"t", payload=[b"ab", b"cd", b"ef"])]),
    "MPUB, unequal sizes": (mpub(b"a", b"bcd", b"ef"), [command(b"MPUB", b"t", payload=[b"a", b"bcd", b"ef"])]),
    "MPUB, the last is shorter": (mpub(b"ab", b"cd", b"e"), [command(b"MPUB", b"t", payload=[b"ab", b"cd", b"e"])]),
    "MPUB, the last is longer": (mpub(b"ab", b"cd", b"efg"), [command(b"MPUB", b"t", payload=[b"ab", b"cd", b"efg"])]),
    "MPUB of all it may have": (mpub(*[b"x"] * 12), [command(b"MPUB", b"t", payload=[b"x"] * 12)]),
    "MPUB of bodies that look like sizes": (
        mpub(int32(4), int32(4), int32(8) * 2),
        [command(b"MPUB", b"t", payload=[int32(4), int32(4), int32(8) * 2])],
    ),
    "MPUB, its total says less": (
        b"MPUB t\n" + int32(1) + int32(2) + sized(b"a") + sized(b"bb"),
        [command(b"MPUB", b"t", payload=[b"a", b"bb"])],
    ),
    "MPUB, its total says more": (
        b"MPUB t\n" + int32(64) + int32(1) + sized(b"a") + b"NOP\n",
        [command(b"MPUB", b"t", payload=[b"a"]), command(b"NOP")],
    ),
    "MPUBs, unequal ones before equal ones": (
        mpub(b"a", b"bc") + mpub(b"d", b"e") + pub(b"f"),
        [command(b"MPUB", b"t", payload=[b"a", b"bc"]), command(b"MPUB", b"t", payload=[b"d", b"e"])]
        + [command(b"PUB", b"t", payload=[b"f"])],
    ),
    "the longest line": (
        b"NOP " + b"x" * (MAX_LINE_BYTES - 5) + b"\n",
        [command(b"NOP", b"x" * (MAX_LINE_BYTES - 5))],
    ),
}

MPUB = b"MPUB t\n"
REFUSED: dict[str, tuple[bytes, Found]] = {
    "PUB size 0": (b"PUB t\n" + int32(0), ["E_BAD_MESSAGE PUB invalid message body size 0"]),
    "PUB size -1": (b"PUB t\n" + int32(-1), ["E_BAD_MESSAGE PUB invalid message body size -1"]),
    "PUB size lowest": (b"PUB t\n" + int32(-(2**31)), ["E_BAD_MESSAGE PUB invalid message body size -2147483648"]),
    "PUB too big": (b"PUB t\n" + int32(21), ["E_BAD_MESSAGE PUB message too big 21 > 20"]),
    "PUB far too big": (b"PUB t\n" + int32(2**31 - 1), ["E_BAD_MESSAGE PUB message too big 2147483647 > 20"]),
    "PUB run, size 0 at its end": (
        pub(b"a", b"b") + b"PUB t\n" + int32(0),
        [command(b"PUB", b"t", payload=[b]) for b in (b"a", b"b")] + ["E_BAD_MESSAGE PUB invalid message body size 0"],
    ),
    "PUB run, too big at its end": (
        pub(b"a") + b"PUB t\n" + int32(21),
        [command(b"PUB", b"t", payload=[b"a"]), "E_BAD_MESSAGE PUB message too big 21 > 20"],
    ),
    "DPUB size 0": (b"DPUB t 1\n" + int32(0), ["E_BAD_MESSAGE DPUB invalid message body size 0"]),
    "DPUB size -1": (b"DPUB t 1\n" + int32(-1), ["E_BAD_MESSAGE DPUB invalid message body size -1"]),
    "DPUB too big": (b"DPUB t 1\n" + int32(21), ["E_BAD_MESSAGE DPUB message too big 21 > 20"]),
    "IDENTIFY size 0": (b"IDENTIFY\n" + int32(0), ["E_BAD_BODY IDENTIFY invalid body size 0"]),
    "IDENTIFY size -1": (b"IDENTIFY\n" + int32(-1), ["E_BAD_BODY IDENTIFY invalid body size -1"]),
    "IDENTIFY too big": (b"IDENTIFY\n" + int32(65), ["E_BAD_BODY IDENTIFY body too big 65 > 64"]),
    "AUTH size 0": (b"AUTH\n" + int32(0), ["E_BAD_BODY AUTH invalid body size 0"]),
    "AUTH size -1": (b"AUTH\n" + int32(-1), ["E_BAD_BODY AUTH invalid body size -1"]),
    "AUTH too big": (b"AUTH\n" + int32(65), ["E_BAD_BODY AUTH body too big 65 > 64"]),
    "MPUB total 0": (MPUB + int32(0), ["E_BAD_BODY MPUB invalid body size 0"]),
    "MPUB total -1": (MPUB + int32(-1), ["E_BAD_BODY MPUB invalid body size -1"]),
    "MPUB too big": (MPUB + int32(65), ["E_BAD_BODY MPUB body too big 65 > 64"]),
    "MPUB count 0": (MPUB + int32(8) + int32(0), ["E_BAD_BODY MPUB invalid message count 0"]),
    "MPUB count -1": (MPUB + int32(8) + int32(-1), ["E_BAD_BODY MPUB invalid message count -1"]),
    "MPUB count too high": (MPUB + int32(8) + int32(13), ["E_BAD_BODY MPUB invalid message count 13"]),
    "MPUB first size 0": (
        MPUB + int32(64) + int32(2) + int32(0),
        ["E_BAD_MESSAGE MPUB invalid message(0) body size 0"],
    ),
    "MPUB first size -1": (
        MPUB + int32(64) + int32(2) + int32(-1),
        ["E_BAD_MESSAGE MPUB invalid message(0) body size -1"],
    ),
    "MPUB first too big": (MPUB + int32(64) + int32(2) + int32(21), ["E_BAD_MESSAGE MPUB message too big 21 > 20"]),
    "MPUB second size 0": (
        MPUB + int32(64) + int32(3) + sized(b"a") + int32(0),
        ["E_BAD_MESSAGE MPUB invalid message(1) body size 0"],
    ),
    "MPUB third size -1 after unequal ones": (
        MPUB + int32(64) + int32(3) + sized(b"a") + sized(b"bc") + int32(-1),
        ["E_BAD_MESSAGE MPUB invalid message(2) body size -1"],
    ),
    "MPUB third too big": (
        MPUB + int32(64) + int32(3) + sized(b"a") * 2 + int32(21),
        ["E_BAD_MESSAGE MPUB message too big 21 > 20"],
    ),
    "commands before the error": (
        b"NOP\n" + FIN + b"PUB t\n" + int32(0),
        [command(b"NOP"), fin(ID), "E_BAD_MESSAGE PUB invalid message body size 0"],
    ),
    "no LF in 16384 bytes": (b"x" * MAX_LINE_BYTES, [TOO_LONG]),
    "no LF in 16384 bytes of a FIN": ((b"FIN " + b"x" * MAX_LINE_BYTES)[:MAX_LINE_BYTES], [TOO_LONG]),
    "16384 bytes and then LF": (b"NOP " + b"x" * (MAX_LINE_BYTES - 4) + b"\n", [TOO_LONG]),
    "a command before the line without an end": (b"NOP\n" + b"x" * MAX_LINE_BYTES, [command(b"NOP"), TOO_LONG]),
}

# Input that ends where more must come, and the error when nothing more does.
UNFINISHED: dict[str, tuple[bytes, str | None]] = {
    "nothing": (b"", None),
    "after a command": (b"NOP\n", None),
    "within a line": (b"PUB t", None),
    "within a FIN": (FIN[:-1], None),
    "16383 bytes without LF": (b"x" * (MAX_LINE_BYTES - 1), None),
    "PUB, no size": (b"PUB t\n", "E_BAD_MESSAGE PUB failed to read message body size"),
    "PUB, half a size": (b"PUB t\n\0\0\0", "E_BAD_MESSAGE PUB failed to read message body size"),
    "PUB, no body": (b"PUB t\n" + int32(3), "E_BAD_MESSAGE PUB failed to read message body"),
    "PUB, half a body": (b"PUB t\n" + int32(3) + b"ab", "E_BAD_MESSAGE PUB failed to read message body"),
    "PUB run, no size": (pub(b"a") + b"PUB t\n", "E_BAD_MESSAGE PUB failed to read message body size"),
    "PUB run, half a body": (pub(b"a", b"abc")[:-1], "E_BAD_MESSAGE PUB failed to read message body"),
    "DPUB, no size": (b"DPUB t 1\n", "E_BAD_MESSAGE DPUB failed to read message body size"),
    "DPUB, half a body": (b"DPUB t 1\n" + int32(3) + b"ab", "E_BAD_MESSAGE DPUB failed to read message body"),
    "IDENTIFY, no size": (b"IDENTIFY\n", "E_BAD_BODY IDENTIFY failed to read body size"),
    "IDENTIFY, half a size": (b"IDENTIFY\n\0", "E_BAD_BODY IDENTIFY failed to read body size"),
    "IDENTIFY, half a body": (b"IDENTIFY\n" + int32(2) + b"{", "E_BAD_BODY IDENTIFY failed to read body"),
    "AUTH, no size": (b"AUTH\n", "E_BAD_BODY AUTH failed to read body size"),
    "AUTH, half a body": (b"AUTH\n" + int32(2) + b"x", "E_BAD_BODY AUTH failed to read body"),
    "MPUB, no total": (MPUB, "E_BAD_BODY MPUB failed to read body size"),
    "MPUB, half a total": (MPUB + b"\0\0\0", "E_BAD_BODY MPUB failed to read body size"),
    "MPUB, no count": (MPUB + int32(64), "E_BAD_BODY MPUB failed to read message count"),
    "MPUB, half a count": (MPUB + int32(64) + b"\0", "E_BAD_BODY MPUB failed to read message count"),
    "MPUB, no first size": (
        MPUB + int32(64) + int32(3),
        "E_BAD_MESSAGE MPUB failed to read message(0) body size",
    ),
    "MPUB, half a first body": (
        MPUB + int32(64) + int32(3) + int32(2) + b"x",
        "E_BAD_MESSAGE MPUB failed to read message body",
    ),
    "MPUB, no second size": (
        MPUB + int32(64) + int32(3) + sized(b"ab"),
        "E_BAD_MESSAGE MPUB failed to read message(1) body size",
    ),
    "MPUB, half a third size, unequal": (
        MPUB + int32(64) + int32(3) + sized(b"ab") + sized(b"c") + b"\0\0",
        "E_BAD_MESSAGE MPUB failed to read message(2) body size",
    ),
    "MPUB, half a last body": (mpub(b"ab", b"cd", b"ef")[:-1], "E_BAD_MESSAGE MPUB failed to read message body"),
}

ROWS = {**COMPLETE, **REFUSED}


def table(rows: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in rows.items()])


@table(ROWS)
def test_fed_whole(row: tuple[bytes, Found]) -> None:
    data, wanted = row
    assert wanted == fed(data)[0]


@table(ROWS)
def test_fed_byte_by_byte(row: tuple[bytes, Found]) -> None:
    data, wanted = row
    assert wanted == fed(*[data[at : at + 1] for at in range(len(data))])[0]


@table({name: row for name, row in ROWS.items() if len(row[0]) < 1000})
def test_fed_in_two_pieces_cut_anywhere(row: tuple[bytes, Found]) -> None:
    data, wanted = row
    for at in range(len(data) + 1):
        assert wanted == fed(data[:at], data[at:])[0], f"cut at {at}"


@pytest.mark.parametrize("before", [pub(b"a"), mpub(b"a", b"b")], ids=["PUB", "MPUB"])
@table(ROWS)
def test_fed_after_a_line_that_was_right_and_may_come_again(row: tuple[bytes, Found], before: bytes) -> None:
    data, wanted = row
    known = fed(before)[0]
    assert known + wanted == fed(before + data)[0]
    for at in range(0, len(data) + 1, 1 + len(data) // 100):
        assert known + wanted == fed(before, data[:at], data[at:])[0], f"cut at {at}"


@table(ROWS)
def test_fed_in_pieces_that_are_looked_at_together(row: tuple[bytes, Found]) -> None:
    data, wanted = row
    codec = V2Codec(Limits, accept, COMMANDS)
    for at in range(0, len(data), 7):
        codec.feed(data[at : at + 7])
    assert wanted == drain(codec)


@pytest.mark.parametrize("behind", [b"N", b"NOP", b"FIN ", FIN[:-1], b"PUB t", b"MPU", b"x y z"])
@table(COMPLETE)
def test_the_beginning_of_a_next_command_changes_nothing(row: tuple[bytes, Found], behind: bytes) -> None:
    data, wanted = row
    found, codec = fed(data + behind)
    assert wanted == found
    codec.feed(b"\n")
    assert len(drain(codec)) == (0 if behind.startswith(b"PUB") else 1), "what was behind is still there"


@pytest.mark.parametrize("behind", [b"\n", b"NOP\n", FIN, pub(b"a"), b"\0" * 30])
@table({name: row for name, row in REFUSED.items() if row[1][-1] is not TOO_LONG})
def test_bytes_behind_an_error_change_nothing(row: tuple[bytes, Found], behind: bytes) -> None:
    data, wanted = row
    assert wanted == fed(data + behind)[0]


@table(UNFINISHED)
def test_what_is_interrupted(row: tuple[bytes, str | None]) -> None:
    data, wanted = row
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        found, codec = fed(*pieces)
        assert not [item for item in found if isinstance(item, str)]
        interrupted = codec.interrupted()
        assert wanted == (None if interrupted is None else str(interrupted))
        assert interrupted is None or interrupted.fatal


def test_what_is_complete_is_not_interrupted() -> None:
    for data, _ in COMPLETE.values():
        assert fed(data)[1].interrupted() is None
