"""Pages work alone, on a fresh broker, from the top. Pages with more to check have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import reading


@pytest.mark.parametrize(
    ("page", "flags"),
    [
        ("how-to/consume-over-http.md", ["--http-subscribe"]),
        ("how-to/expiry.md", []),
        ("how-to/limits.md", []),
        ("how-to/logs.md", []),
        ("how-to/monitoring.md", []),
        ("how-to/ordering.md", []),
        ("how-to/priorities.md", []),
        ("reference/http.md", []),
    ],
)
def test_a_reader_can_follow_the_page(page: str, flags: list[str], tmp_path: Path) -> None:
    with reading(page, tmp_path, *flags) as reader:
        assert reader.follow() or not reader.page.blocks("")
