"""
A plugin for the second run of tests that failed: `pytest -p tests.flaky --last-failed`. A test that passes now is
flaky. At the end it prints how many there are and their names, and it adds them to the file `.flaky`.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime

import pytest

FILE = ".flaky"
AGAIN = ("-p", "tests.flaky", "--last-failed", "--last-failed-no-failures=none")
"""The words of pytest for the second run."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    yield  # the names follow pytest's own summary
    reports: dict[str, list[pytest.TestReport]] = terminalreporter.stats
    failed = {report.nodeid for kind in ("failed", "error") for report in reports.get(kind, [])}
    names = sorted({report.nodeid for report in reports.get("passed", [])} - failed)
    if not names:
        return
    terminalreporter.write_line(f"flaky: {len(names)}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with (config.rootpath / FILE).open("a", encoding="utf-8") as file:
        for name in names:
            terminalreporter.write_line(f"  {name}")
            file.write(f"{now} {name}\n")
