"""Completion in zsh and fish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shells import FISH, ZSH, Shell

COMPLETED = [(FISH, "topic\tshow and change topics\n"), (ZSH, "_nsqtw_completion\n")]


@pytest.mark.parametrize(("shell", "completed"), COMPLETED, ids=lambda value: getattr(value, "name", ""))
def test_a_shell_loads_its_script_and_uses_it(
    shell: Shell, completed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSQTW_CONTEXTS", str(tmp_path / "config.toml"))
    assert shell.errors_of_script(tmp_path) == ""
    assert shell.completed(tmp_path) == completed
