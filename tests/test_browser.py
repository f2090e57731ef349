"""The tests with a browser stay apart from the others, and say in one line what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import __main__ as command
from tests.browser import browser

HERE = Path(__file__).parent / "browser"


def test_a_missing_browser_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(browser, "CHROMIUM", "/nowhere/chromium")
    assert command.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "make test-browser needs /nowhere/chromium. On Debian and Ubuntu: apt-get install chromium"


def test_an_unknown_name_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "missing", str)
    assert command.main(["nothing"]) == 1
    assert capsys.readouterr().err == "No file of tests/browser has nothing in its name.\n"


def test_the_other_tests_do_not_collect_them() -> None:
    names = {path.name for path in HERE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert not [name for name in names if name.startswith("test_") or name.endswith("_test.py")]
    assert len([name for name in names if name.startswith("check_")]) >= 6
