"""Arrow's column of messages, encoded in one go."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.sink import entries as entries_module
from pyspark_nsq.sink.entries import entries_of

from tests.spark.fake_nsqd import unpack

MESSAGES = st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=30)


def test_the_bytes_of_entries() -> None:
    [entries] = entries_of(pa.array(["ab", "ä"]))
    assert bytes(entries.cut(0, 2)) == b"\x00\x00\x00\x02ab\x00\x00\x00\x02\xc3\xa4"
    assert bytes(entries.part(1, 2).cut(0, 1)) == b"\x00\x00\x00\x02\xc3\xa4"
    assert (len(entries), entries.bytes_between(0, 2), entries.bytes_between(1, 2)) == (2, 12, 6)


def test_no_messages_are_no_entries() -> None:
    assert list(entries_of(pa.array([], pa.string()))) == []


def test_how_many_fit() -> None:
    [entries] = entries_of(pa.array(["12", "34", "56"]))
    assert [entries.fit(0, most) for most in (0, 5, 6, 11, 12, 18, 99)] == [0, 0, 1, 1, 2, 3, 3]
    assert [entries.fit(1, most) for most in (5, 6, 12)] == [1, 2, 3]


@given(MESSAGES, st.integers(0, 29), st.integers(0, 30))
def test_a_slice_of_a_column(messages: list[bytes], start: int, count: int) -> None:
    wanted = messages[start : start + count]
    got = b"".join(
        entries.cut(0, len(entries)) for entries in entries_of(pa.array(messages, pa.binary()).slice(start, count))
    )
    assert wanted == (unpack(struct.pack(">i", len(wanted)) + got) if wanted else [])


def test_what_is_too_much_for_arrows_offsets_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries_module, "_MOST_JOINED_BYTES", 100)
    monkeypatch.setattr(entries_module, "_FEW_ROWS", 4)
    pieces = list(entries_of(pa.array(["x" * 20] * 10)))
    assert [len(piece) for piece in pieces] == [4, 4, 2]
