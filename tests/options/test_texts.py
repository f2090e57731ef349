"""Texts of durations and sizes, which options read again."""

from __future__ import annotations

import pytest

from nsqtw.options.texts import duration_text, parse_size, readable_size

SECOND = 10**9


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (999, "999ns"),
        (1_000, "1µs"),
        (24_616, "24.616µs"),
        (1_500_000, "1.5ms"),
        (999_999_999, "999.999999ms"),
        (SECOND, "1s"),
        (10 * SECOND, "10s"),
        (1_801_597_766, "1.801597766s"),
        (60 * SECOND, "1m0s"),
        (65 * SECOND, "1m5s"),
        (60 * SECOND + SECOND // 2, "1m0.5s"),
        (3600 * SECOND, "1h0m0s"),
        (100 * 3600 * SECOND + 61 * SECOND, "100h1m1s"),
        (-61 * SECOND, "-1m1s"),
    ],
)
def test_durations_are_written_as_go_writes_them(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@pytest.mark.parametrize("text", ["0 B", "1023 B", "1 KB", "1.5 KB", "64 MB", "10 GB", "1000 GB", "1 TB", "2000 TB"])
def test_a_size_that_was_set_reads_the_same(text: str) -> None:
    assert readable_size(parse_size(text.replace(" ", ""))) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1_000_000, "977 KB"),
        (79_100_000_000, "73.7 GB"),
        (10 * 2**30 + 2**20, "10.0 GB"),
        (2**30 - 1, "1.0 GB"),
        (2**20 - 600, "1023 KB"),
    ],
)
def test_a_unit_is_1024_of_the_one_below(count: int, text: str) -> None:
    assert readable_size(count) == text
