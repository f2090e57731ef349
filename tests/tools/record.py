"""
Records what NSQ's own tools do, for test_recorded.py: `python -m tests.tools.record DIRECTORY`, with the directory of
their programs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from nsqtw.testing import broker
from tests.tools.command_lines import COMMAND_LINES, played
from tests.tools.nsq_tool import Programs
from tests.tools.scenarios import SCENARIOS, Stage

RECORDED = Path(__file__).with_name("recorded")


def play(tools: Programs, names: list[str]) -> dict[str, Any]:
    """Return the outcome of each scenario, by name."""
    outcomes: dict[str, Any] = {}
    with broker() as nsqd, tempfile.TemporaryDirectory() as directory:
        for name in names:
            place = Path(directory, name)
            place.mkdir()
            outcomes[name] = SCENARIOS[name](Stage(tools, nsqd, place, name))
    return outcomes


def main(words: list[str]) -> None:
    """Write the files in `recorded`."""
    tools = Programs(Path(words[0]).resolve())
    lines = {line: played(tools, line) for line in COMMAND_LINES}
    for name, found in (("scenarios", play(tools, [*SCENARIOS])), ("command_lines", lines)):
        rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(outcome)}" for key, outcome in found.items())
        RECORDED.joinpath(f"{name}.json").write_text(f"{{\n{rows}\n}}\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
