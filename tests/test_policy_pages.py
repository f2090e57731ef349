"""Pages about policies work alone, on a fresh broker, from the top. Other pages have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import reading


@pytest.mark.parametrize("page", ["expiry", "limits", "ordering", "priorities"])
def test_a_reader_can_follow_the_page(page: str, tmp_path: Path) -> None:
    with reading(f"how-to/{page}.md", tmp_path) as reader:
        assert reader.follow() or not reader.page.blocks("")
