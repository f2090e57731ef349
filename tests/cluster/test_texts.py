"""Texts of sizes, which options read again."""

from __future__ import annotations

import pytest

from nsqtw.cluster.texts import size_text
from nsqtw.options.types import parse_size


@pytest.mark.parametrize("text", ["0 B", "1023 B", "1 KB", "1.5 KB", "64 MB", "10 GB", "1000 GB", "1 TB", "2000 TB"])
def test_a_size_that_was_set_reads_the_same(text: str) -> None:
    assert size_text(parse_size(text.replace(" ", ""))) == text


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
    assert size_text(count) == text
