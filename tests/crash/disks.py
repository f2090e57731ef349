"""Brokers on a disk that a test can fill: a layer in the broker's process, or a small file system of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Protocol

from tests.crash.faults import FaultyNsqd
from tests.process import EXECUTABLE, NsqdProcess

_SIZE = 32 << 20


class Disk(Protocol):
    """The disk of `nsqd`."""

    nsqd: NsqdProcess

    def fill(self) -> None:
        """There is no space left from now on."""

    def free(self) -> None:
        """There is space again."""

    def close(self) -> None:
        """Leave nothing behind."""


class FaultyDisk:
    """Every write fails with `error`: ENOSPC also shows in the free space, EDQUOT only when somebody writes."""

    def __init__(self, directory: Path, error: str, *flags: str) -> None:
        self._error = error
        self.nsqd = self._nsqd = FaultyNsqd(directory, *flags)

    def fill(self) -> None:
        self._nsqd.fail("write", self._error)

    def free(self) -> None:
        self._nsqd.heal()

    def close(self) -> None:
        self.nsqd.close()


class MountedNsqd(NsqdProcess):
    """In the mount namespace of the process `keeper`."""

    def __init__(self, directory: Path, keeper: int, *flags: str) -> None:
        self._keeper = keeper
        super().__init__(directory, *flags)

    def program(self) -> list[str]:
        return ["nsenter", "-t", str(self._keeper), "-m", str(EXECUTABLE)]


class MountedDisk:
    """A small tmpfs that only the broker sees, and a file that fills it."""

    def __init__(self, directory: Path, *flags: str) -> None:
        data_path = directory / "data"
        data_path.mkdir(parents=True)
        mount = f'mount -t tmpfs -o size={_SIZE} none "$0" && echo mounted && exec sleep infinity'
        self._keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", mount, str(data_path)], stdout=subprocess.PIPE, text=True
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "mounted\n":
            self._end_keeper()
            raise AssertionError("nothing was mounted")
        self._filler = Path(f"/proc/{self._keeper.pid}/root{data_path}/filler")
        self.nsqd: NsqdProcess = MountedNsqd(directory, self._keeper.pid, *flags)

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file:
            block = bytes(1 << 16)
            try:
                while file.write(block) == len(block):
                    pass
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        try:
            self.nsqd.close()
        finally:
            self._end_keeper()

    def _end_keeper(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()


@cache
def can_mount() -> bool:
    """Whether this process may give a child a file system of its own."""
    if not (shutil.which("unshare") and shutil.which("nsenter") and os.geteuid() == 0):
        return False
    attempt = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt && exec nsenter -t $$ -m true"]
    return subprocess.run(attempt, capture_output=True, check=False).returncode == 0
