"""
Plays scenarios, the kit's and our own, against our servers, which the kit starts and stops itself.

The kit is a program and is run as one; what became of each scenario is read from the lines it prints.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.process import EXECUTABLE, LOOKUPD

KIT = Path(__file__).parent / "kit"
SCENARIOS = (KIT / "suite", Path(__file__).parent / "own")
"""Those that came with the kit, and ours, recorded with it."""

JOBS = 3
"""
Scenarios played at a time. On two cores those of the kit took 204, 106, 67 and 58 s with 1, 2, 3 and 4, once each and
only the last without other work beside it: most of it is waiting. The fourth gains little and is one more to be late.
"""

_PATIENCE_SECONDS = 540
_LINE = re.compile(r"(?:ok   (?P<passed>\S+) \([\d.]+s\)|FAIL (?P<failed>[^\s:]+): (?P<difference>.*))")
_ADDRESSES = " --tcp-address=127.0.0.1:{tcp_port} --http-address=127.0.0.1:{http_port}"

Played = dict[str, str]
"""By scenario, as `pub/basic`: its first difference, empty if it passed. What was not played is not in it."""


def scenarios() -> list[str]:
    """All there are."""
    return sorted(f"{file.parent.name}/{file.stem}" for suite in SCENARIOS for file in suite.rglob("*.json"))


def play(only: Iterable[str], flags: Iterable[str] = (), jobs: int = JOBS) -> Played:
    """
    Play some scenarios, with more flags for each nsqd.

    RuntimeError if the kit itself fails, or would leave out the scenarios of TLS for want of openssl.
    """
    if shutil.which("openssl") is None:
        raise RuntimeError("the scenarios of TLS make their certificates with openssl, and there is none on PATH")
    nsqd = " ".join([f"{EXECUTABLE}{_ADDRESSES} --data-path={{data_path}}", *flags, "{extra}"])
    lookupd = f"{LOOKUPD}{_ADDRESSES} {{extra}}"
    command = [sys.executable, str(KIT / "conformance.py"), "run", "-v", f"--jobs={jobs}"]
    command += [f"--server={nsqd}", f"--lookupd={lookupd}"]
    command += [f"--suite={suite}" for suite in SCENARIOS]
    command += [f"--only={scenario}" for scenario in only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    played = read(done.stdout)
    if done.returncode != int(any(played.values())):
        raise RuntimeError(f"the kit ended with status {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return played


def read(said: str) -> Played:
    """What the kit says of each scenario, when asked to be verbose."""
    found = (_LINE.fullmatch(line) for line in said.splitlines())
    return {line["passed"] or line["failed"]: line["difference"] or "" for line in found if line}
