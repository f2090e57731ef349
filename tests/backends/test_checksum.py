"""The checksum of what is stored is zlib's, whoever computes it."""

from __future__ import annotations

import runpy
import sys
import zlib

import isal.isal_zlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtw.backends import checksum


@given(st.binary(max_size=3000), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_it_is_the_number_that_zlib_gives(data: bytes, before: int, times: int) -> None:
    assert checksum.crc32(data * times, before) == zlib.crc32(data * times, before)


def test_the_fast_one_is_used_where_it_is_installed() -> None:
    assert checksum.crc32 is isal.isal_zlib.crc32


def test_without_it_zlib_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert runpy.run_path(checksum.__file__)["crc32"] is zlib.crc32
