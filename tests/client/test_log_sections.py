"""Sections of a log that a server makes up, with checksums that are right."""

from __future__ import annotations

import struct
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.client.log_sections import messages_of
from nsqtw.errors import LookupFailed, NsqtwError


def section(content: bytes, kind: int = 1) -> bytes:
    """Return a section with any content."""
    head = struct.pack(">4sIQIIQQI", b"NSQL", kind, 0, 1, len(content), 0, 0, crc32(content))
    return head + struct.pack(">I", crc32(head)) + content


@pytest.mark.parametrize("content", [b"\xff\xff\xff\xfc", b"\0", b"\0\0\0\x09", b"\x7f\xff\xff\xff"])
@pytest.mark.parametrize("kind", [1, 3])
def test_a_size_that_cannot_be(content: bytes, kind: int) -> None:
    with pytest.raises(LookupFailed, match="a section of the log is damaged"):
        messages_of(section(content, kind))


@given(st.binary(max_size=60), st.sampled_from([1, 2, 3]), st.booleans())
def test_any_bytes_are_read_or_refused(content: bytes, kind: int, is_whole: bool) -> None:
    with suppress(NsqtwError):
        messages_of(section(content, kind) if is_whole else content)
