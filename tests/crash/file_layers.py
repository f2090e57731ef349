"""
The file layers of a launched broker: they fail when the nemesis says so.

`Narrow` is the real one, on a disk that can get full. `Volatile` keeps in memory what of the files is on stable
storage, and SIGUSR2 lets the power fail: it leaves that in a directory beside the data path, and the process ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

from nsqtw.backends.files import Files
from nsqtw.testing.files import FaultyFiles
from tests.crash.control import Control

POWER_FAILED = 75
"""The exit code of a broker that lost power."""
_CHANGES = ("open", "close", "write", "truncate", "sync", "sync_directory", "make_directory", "rename", "unlink")


class FullDisk:
    """How much room there is, as the nemesis has it."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._window = 0
        self._space = 0

    def take(self, wanted: int) -> int:
        """How many of so many bytes can be written. OSError when it is none."""
        window = self._control.window
        if not window:
            return wanted
        if window != self._window:
            self._window, self._space = window, self._control.space
        granted = min(wanted, self._space)
        if wanted and not granted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._space -= granted
        return granted

    def free(self, real: tuple[int, int]) -> tuple[int, int]:
        """Free and total space."""
        return (0, real[1]) if self._control.window else real


class Narrow(Files):
    """Real files on a disk that can get full."""

    def __init__(self, control: Control) -> None:
        self._disk = FullDisk(control)

    def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        size = sum(map(len, buffers))
        granted = self._disk.take(size)
        return super().write(fd, buffers if granted == size else [b"".join(buffers)[:granted]], position)

    def free_space(self, directory: str) -> tuple[int, int]:
        return self._disk.free(super().free_space(directory))


class Volatile(FaultyFiles):
    """Files that forget what was not synced when the power fails. Its image of the disk changes with the disk."""

    def __init__(self, directory: str, control: Control) -> None:
        super().__init__(directory)
        self._directory = directory
        self._disk = FullDisk(control)
        self._lock = RLock()
        for name in _CHANGES:
            setattr(self, name, self._alone(getattr(self, name)))
        signal.signal(signal.SIGUSR2, self._lose_power)

    def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        data = b"".join(buffers)
        return super().write(fd, [data[: self._disk.take(len(data))]], position)

    def free_space(self, directory: str) -> tuple[int, int]:
        return self._disk.free(super().free_space(directory))

    def _alone(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def locked(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                return change(*arguments, **options)

        return locked

    def _lose_power(self, number: int, frame: object) -> None:
        with self._lock:
            self.crash(left_by(self._directory), len(self.trace), power_loss=True)
            os._exit(POWER_FAILED)


def left_by(directory: str | Path) -> str:
    """Where a power loss leaves what was on stable storage of a data path."""
    return f"{directory}.left"


def bring_back(data_path: Path) -> None:
    """
    The power is back: topics are as the power loss left them. The positions stay as the process left them: SQLite keeps
    them, and what is on stable storage of those nobody here can tell.
    """
    left = Path(left_by(data_path))
    for entry in [entry for entry in data_path.iterdir() if entry.is_dir()]:
        shutil.rmtree(entry)
    for entry in [entry for entry in left.iterdir() if entry.is_dir()]:
        entry.rename(data_path / entry.name)
    shutil.rmtree(left)
