"""What all statements for SQLite are like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGES = [Path(__file__).parents[2] / name for name in ("nsqtw", "contrib/spark/pyspark_nsq")]


@pytest.mark.plain  # about the tree
def test_no_statement_numbers_its_values() -> None:
    """Python 3.12.0 to 3.12.3 take `?1` for a name and warn for each value: a statement takes three times as long."""
    modules = [path for package in PACKAGES for path in package.rglob("*.py")]
    texts = {path: path.read_text("utf-8") for path in modules}
    sql = {path: text for path, text in texts.items() if "import sqlite3" in text}
    assert len(sql) > 8
    assert [path.name for path, text in sql.items() if re.search(r"\?\d", text)] == []
