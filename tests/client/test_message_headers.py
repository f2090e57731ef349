"""The client's own code for headers agrees with the broker's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.api.message_headers import MAGIC, messages_with_headers
from nsqtw.client import message_headers
from nsqtw.core import headers as core_headers
from nsqtw.errors import InvalidHeaders
from nsqtw.options.broker import Options
from tests.core.test_headers import NAMES, VALUES

HEADERS = st.dictionaries(NAMES, VALUES, max_size=5)


@given(HEADERS)
def test_the_encoding_is_that_of_the_broker(headers: dict[str, str]) -> None:
    encoded = message_headers.encode_headers(headers)
    assert encoded == core_headers.encode_headers(headers)
    assert message_headers.decode_headers(encoded) == headers


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), HEADERS), min_size=1, max_size=9))
def test_the_broker_reads_the_body(messages: list[tuple[bytes, dict[str, str]]]) -> None:
    body = message_headers.mpub_body(messages)
    assert body.startswith(MAGIC)
    bodies, headers = messages_with_headers(body, Options(), {})
    assert [*zip(bodies, map(core_headers.decode_headers, headers), strict=True)] == messages


@pytest.mark.parametrize("headers", [{"": "x"}, {"\xe4": "x"}, {"a": "\ud800"}, {"a" * 256: "x"}, {"a": "x" * 65536}])
def test_headers_without_an_encoding_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidHeaders):
        message_headers.encode_headers(headers)


@pytest.mark.parametrize("encoded", [b"\x01", b"\x01a\x00", b"\x01a\x00\x01\xff"])
def test_damaged_headers_are_recognized(encoded: bytes) -> None:
    with pytest.raises(InvalidHeaders):
        message_headers.decode_headers(encoded)
