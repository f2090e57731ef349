"""
`nsqtw` in a process of its own for each call, without the time to import: the processes are forks of one that has
imported everything. A reactor runs once in a process, so verbs that use it cannot run in that of the tests.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60.0


class Ran(NamedTuple):
    """What a call wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout as JSON."""
        return json.loads(self.out)


def _child(words: list[str], directory: str, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(os.path.join(directory, name), flags, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  # for good
    from nsqtw.cli.main import run_nsqtw

    code = run_nsqtw(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_forked(directory: Path, *words: str, stdin: bytes = b"", **environment: str) -> Ran:
    """Run `nsqtw` with words. `directory` has its standard streams."""
    (directory / "stdin").write_bytes(stdin)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nsqtw.cli.main", "nsqtw.client.twisted", "treq", "rich.table", "tests.cli.forked"])
    process = context.Process(target=_child, args=(list(words), str(directory), {**os.environ, **environment}))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    out, err = ((directory / name).read_text("utf-8") for name in ("stdout", "stderr"))
    assert "Traceback" not in err, err
    return Ran(process.exitcode, out, err)
