"""The lock of a spool, on a file beside it: only one query writes to a spool."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from pyspark_nsq.errors import SpoolError

#: The process of a stopped query runs for a moment longer.
_PATIENCE_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.05


class SpoolLock:
    """
    The lock, until `release` or the end of the process. Raises SpoolError when another process keeps it for `patience`
    seconds.
    """

    def __init__(self, path: str, patience: float = _PATIENCE_SECONDS) -> None:
        lock = Path(f"{path}.lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolError(
                f"the spool {path}: {error.strerror}: {lock}; name a folder that can be written to"
            ) from error
        deadline = time.monotonic() + patience
        while not self._try():
            if time.monotonic() > deadline:
                os.close(self._file)
                raise SpoolError(f"the spool {path} is in use by another query; each query needs one of its own")
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        os.close(self._file)
