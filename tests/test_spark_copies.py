"""The modules of the broker in the connector for Spark, and no links in the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from contrib.spark.copies import COPIES, PACKAGE, copy_all, differing

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.plain


def test_the_copies_are_as_their_originals() -> None:
    """Brought up to date by: python -m contrib.spark.copies"""
    assert differing(PACKAGE) == []


def test_a_copy_that_differs_or_is_missing_is_found_and_renewed(tmp_path: Path) -> None:
    copy_all(tmp_path)
    assert differing(tmp_path) == []
    changed, missing = sorted(COPIES)[:2]
    (tmp_path / changed).write_bytes(b"# changed in the copy\n")
    (tmp_path / missing).unlink()
    assert differing(tmp_path) == [changed, missing]
    copy_all(tmp_path)
    assert differing(tmp_path) == []


def test_nothing_is_a_link() -> None:
    folders = [ROOT / name for name in ("contrib", "docs", "nsqtw", "tests", "twisted")]
    assert [path for folder in folders for path in folder.rglob("*") if path.is_symlink()] == []
