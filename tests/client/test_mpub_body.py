"""The body of an /mpub with headers, as the broker reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.api.message_headers import MAGIC, messages_with_headers
from nsqtw.client.mpub_body import mpub_body
from nsqtw.errors import InvalidHeaders
from nsqtw.message_headers import decode_headers
from nsqtw.options.broker import Options
from tests.core.test_segment_headers import NAMES, VALUES

HEADERS = st.dictionaries(NAMES, VALUES, max_size=5)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), HEADERS), min_size=1, max_size=9))
def test_the_broker_reads_the_body(messages: list[tuple[bytes, dict[str, str]]]) -> None:
    body = mpub_body(messages)
    assert body.startswith(MAGIC)
    bodies, headers = messages_with_headers(body, Options(), {})
    assert [*zip(bodies, map(decode_headers, headers), strict=True)] == messages


@pytest.mark.parametrize("headers", [{"": "x"}, {"\xe4": "x"}, {"a": "\ud800"}, {"a" * 256: "x"}, {"a": "x" * 65536}])
def test_headers_that_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidHeaders):
        mpub_body([(b"body", headers)])
