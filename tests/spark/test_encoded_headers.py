"""Columns of headers become the bytes that nsqd's own encoder makes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_nsq.errors import RowError
from pyspark_nsq.headers import column_of
from pyspark_nsq.sink.encoded_headers import encoded_headers

from nsqtw.message_headers import encode_headers

MAP = pa.map_(pa.string(), pa.string())
NAMES = st.sampled_from(["id", "key", "Key", "tenant", "a.b"])
VALUES = st.none() | st.text(st.characters(blacklist_categories=["Cc", "Cs"]), max_size=5)
ROWS = st.lists(
    st.tuples(st.none() | st.lists(st.tuples(NAMES, VALUES), max_size=4, unique_by=lambda item: item[0]), VALUES),
    max_size=6,
)


def expected(items: list[tuple[str, str | None]] | None, key: str | None) -> bytes:
    given = [*(items or ()), ("key", key)]
    return encode_headers({name.lower(): value for name, value in given if value is not None})


@given(ROWS, st.integers(0, 2))
def test_rows_are_encoded_as_nsqd_does_it_and_read_back(
    rows: list[tuple[list[tuple[str, str | None]] | None, str | None]], skipped: int
) -> None:
    maps, keys = ([row[column] for row in rows] for column in (0, 1))
    batch = pa.record_batch({"maps": pa.array(maps, MAP), "key": pa.array(keys, pa.string())})
    batch = batch.slice(skipped)
    wanted = [expected(*row) for row in rows[skipped:]]
    found = encoded_headers(len(wanted), batch.column("maps"), {"key": batch.column("key")})
    if found is None:
        assert not any(wanted)
        return
    assert wanted == found.to_pylist()
    content = b"".join(len(each).to_bytes(4, "big") + each for each in wanted)
    again = column_of(content, len(wanted), 0, len(wanted)).to_pylist()
    assert [b"" if row is None else encode_headers(dict(row)) for row in again] == wanted


def test_without_headers_there_is_no_column() -> None:
    assert encoded_headers(0, pa.array([], MAP), {}) is None
    assert encoded_headers(2, pa.array([None, [("a", None)]], MAP), {"id": pa.nulls(2, pa.string())}) is None


def test_the_bounds_are_those_of_a_message_not_of_a_batch() -> None:
    many = [[(f"n{number}", "x" * 200) for number in range(64)]] * 3
    found = encoded_headers(3, pa.array(many, MAP), {})
    assert found is not None
    assert found.to_pylist() == [encode_headers(dict(many[0]))] * 3
    with pytest.raises(RowError, match="64 headers at most"):
        encoded_headers(3, pa.array(many, MAP), {"id": pa.array([None, None, "x"])})
    with pytest.raises(RowError, match='the header "id" has a control character'):
        encoded_headers(3, None, {"id": pa.array(["a", "\t", None])})
