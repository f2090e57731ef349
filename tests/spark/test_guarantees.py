"""The page of guarantees promises nothing without a test."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs/reference/spark-guarantees.md").read_text("utf-8")
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def test_every_line_names_its_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith("| shown by |")]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row.rpartition(" | ")[2])] == []


def test_every_test_that_is_named_is_there() -> None:
    there = {
        (file.name, node.name)
        for file in HERE.rglob("test_*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert set() == set(NAMED.findall(PAGE)) - there
