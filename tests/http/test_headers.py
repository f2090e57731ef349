"""Header fields: which lines are one, and what they say of a request."""

from __future__ import annotations

import pytest

from nsqtw.http.headers import error_in, is_field, persists, read_field
from nsqtw.http.responses import BAD_HOST, NO_HOST, UNEXPECTED, Answer


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"hOST:x", (b"Host", b"x")),
        (b"content-length: \t5 \t", (b"Content-Length", b"5")),
        (b"A:", (b"A", b"")),
        (b"A: b\tc\xff", (b"A", b"b\tc\xff")),
        (b"A: " + b"b" * 1000, (b"A", b"b" * 1000)),
        (b"", None),
        (b"A", None),
        (b": b", None),
        (b"A : b", None),
        (b" A: b", None),
        (b"A: b\n", None),
        (b"A: b\x00", None),
        (b"A" * 1000, None),
    ],
)
def test_a_line_is_a_field_or_none(line: bytes, field: tuple[bytes, bytes] | None) -> None:
    assert read_field(line) == field
    assert is_field(bytearray(line)) is (field is not None)


@pytest.mark.parametrize(
    ("fields", "version", "error"),
    [
        ({b"Host": b"x"}, b"HTTP/1.1", None),
        ({b"Host": b""}, b"HTTP/1.1", None),
        ({}, b"HTTP/1.0", None),
        ({}, b"HTTP/1.1", NO_HOST),
        ({b"Host": b"a b"}, b"HTTP/1.0", BAD_HOST),
        ({b"Host": b"x", b"Expect": b"100-Continue"}, b"HTTP/1.1", None),
        ({b"Host": b"x", b"Expect": b"miracles"}, b"HTTP/1.1", UNEXPECTED),
    ],
)
def test_fields_may_be_a_mistake_by_themselves(
    fields: dict[bytes, bytes], version: bytes, error: Answer | None
) -> None:
    assert error_in(fields, version) is error


@pytest.mark.parametrize(
    ("field", "kept_1_0", "kept_1_1"),
    [(None, False, True), (b"Keep-Alive", True, True), (b"close", False, False), (b"keep-alive, Close", False, False)],
)
def test_another_request_may_follow(field: bytes | None, kept_1_0: bool, kept_1_1: bool) -> None:
    assert (persists(field, b"HTTP/1.0"), persists(field, b"HTTP/1.1")) == (kept_1_0, kept_1_1)
