"""
Starts `nsqd` as its console script does, with what the nemesis needs in it:

    launcher.py CONTROL FILES SABOTAGE FLAG...

CONTROL is the file to be told by, FILES the file layer of the backends (`narrow` or `volatile`), SABOTAGE a promise to
be broken (`tests.crash.sabotage`, and those of policies and of takeovers), or empty. The wall clock is made of the
monotonic one, so that nobody but the nemesis moves it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Behind the others: one of them may have nsqtw compiled (tests.compiled).
    sys.path[:1] = []
    sys.path.append(str(Path(__file__).parents[2]))

from nsqtw import tap

from nsqtw.daemon import lazy_imports  # isort: skip

from nsqtw.backends.disk import backend as disk
from nsqtw.backends.files import Files
from nsqtw.backends.sqlite import backend as sqlite
from tests.crash.control import WALL_START_NS, Control
from tests.crash.file_layers import Narrow, Volatile


def inject(control: Control, layer: str) -> None:
    """Let the broker of this process have these files and this clock."""

    def files(directory: str) -> Files:
        return Volatile(directory, control) if layer == "volatile" else Narrow(control)

    def open_disk(self: Any, argument: str, directory: str, options: Any, report: Any) -> disk.DiskBackend:
        return disk.DiskBackend(directory, options.max_bytes_per_file, report, files(directory))

    def open_sqlite(self: Any, argument: str, directory: str, options: Any, report: Any) -> sqlite.SqliteBackend:
        return sqlite.SqliteBackend(directory, report, files(directory))

    disk.DiskFactory.open = open_disk
    sqlite.SqliteFactory.open = open_sqlite
    with lazy_imports.without_tls(True):
        from nsqtw.runtime import pump
    pump.time_ns = lambda: WALL_START_NS + time.monotonic_ns() + control.wall_offset_ns  # type: ignore[attr-defined]


def main(words: list[str]) -> int:
    """The exit code."""
    control, layer, broken, *flags = words
    inject(Control(Path(control)), layer)
    if broken:
        from tests.crash import sabotage
        from tests.crash.policies import sabotage as of_policies
        from tests.crash.takeover import sabotage as of_replicas

        (sabotage.SABOTAGES | of_policies.SABOTAGES | of_replicas.SABOTAGES)[broken]()
    return tap.NSQD_PROGRAM.run(flags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
