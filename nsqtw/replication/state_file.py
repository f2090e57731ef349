"""
The file `replica.state` of a data path: which copy of which data set the data path has.

One line of JSON with a checksum, padded to 512 bytes, which are written in place with one system call: so a killed
process leaves the line before or the new one.

    crc32 of the rest, 8 hex digits | space | JSON object | spaces | newline

The line is written after each transaction, and is not synced. After a loss of power it may be newer than the messages
it speaks of, so it has the boot of the machine in it: what another boot left is trusted only after a clean stop.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from secrets import token_hex
from zlib import crc32

from attrs import asdict, evolve, frozen

from nsqtw.backends.files import FILE_MODE, Files, backend_error, replace_file
from nsqtw.errors import BackendError, NotACopy, ReplicaError

STATE_FILE = "replica.state"
_LINE_BYTES = 512
_CHANGED = "changed"
"""The boot of a data path that is not trusted."""
_UNKNOWN = "unknown"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@frozen(kw_only=True)
class CopyState:
    """What a data path has."""

    data_set: str
    """The identity of the data set."""
    broker: str
    """The identity of this data path, by which it is the owner or a standby."""
    epoch: int = 0
    """The epoch in which the transaction `lsn` was committed."""
    token: str = ""
    """The token of that epoch's claim; "" before the first transaction."""
    lsn: int = 0
    """The data path has all segments of the transactions up to here that the store had when it was copied."""
    claim: str = ""
    """The token of the last claim of this broker; "" before the first one."""
    checkpoint_lsn: int = 0
    """
    The checkpoint that positions.db has, which this broker saved as the owner; 0: positions.db is not that of the copy.
    """
    boot: str = ""
    """The start of the machine in which this was written; "" after a clean stop, when all of it is synced."""

    @property
    def is_trusted(self) -> bool:
        """Whether the messages up to `lsn` are certainly there."""
        return self.boot == "" or (self.boot == this_boot() and self.boot != _UNKNOWN)


def this_boot() -> str:
    """Return a text that names this start of the machine."""
    with suppress(OSError), open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
    return _UNKNOWN


def read_state(directory: str) -> CopyState | None:
    """Return the state of a data path; None if it is no copy. NotACopy when the file is damaged; ReplicaError."""
    path = os.path.join(directory, STATE_FILE)
    try:
        with open(path, "rb") as file:
            line = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReplicaError(f"read of {path}: {error.strerror}") from error
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % crc32(text):
        raise NotACopy(f"{path} is damaged: --replicate-from=store sets this data path aside and copies the data set")
    try:
        return CopyState(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise NotACopy(f"{path} is of another version of nsqtw: {error}") from error


def distrust(directory: str) -> None:
    """Have the next start copy the data set again: something else has changed the data path. NotACopy, BackendError."""
    state = read_state(directory)
    if state is not None:
        try:
            replace_file(Files(), os.path.join(directory, STATE_FILE), _line(evolve(state, boot=_CHANGED)), FILE_MODE)
        except OSError as error:
            raise backend_error(error, f"write to {STATE_FILE}") from error


def new_state(data_set: str) -> CopyState:
    """Return the state of a data path that has nothing of a data set yet."""
    return CopyState(data_set=data_set, broker=token_hex(8), boot=this_boot())


class StateFile:
    """The file of a data path that is in use. `record` is called from one thread at a time."""

    def __init__(self, directory: str, state: CopyState, files: Files | None = None) -> None:
        self.state = evolve(state, boot=this_boot())
        """As it was recorded last."""
        self._files = files or Files()
        self._path = os.path.join(directory, STATE_FILE)
        try:
            replace_file(self._files, self._path, _line(self.state), FILE_MODE)
            self._fd = self._files.open(self._path)
        except OSError as error:
            raise backend_error(error, f"write to {STATE_FILE}") from error

    def record(self, *, epoch: int, token: str, lsn: int, checkpoint_lsn: int | None = None) -> None:
        """
        The data path has what the transaction `lsn` stored. Without `checkpoint_lsn` positions.db stays that of the
        copy, unless another broker's claim is newer. BackendError.
        """
        if checkpoint_lsn is None:
            checkpoint_lsn = self.state.checkpoint_lsn if token == self.state.claim else 0
        self._write(evolve(self.state, epoch=epoch, token=token, lsn=lsn, checkpoint_lsn=checkpoint_lsn))

    def claimed(self, *, epoch: int, token: str, lsn: int, checkpoint_lsn: int) -> None:
        """This broker has claimed the data set, and has all of it. BackendError."""
        changed = evolve(self.state, epoch=epoch, token=token, claim=token, lsn=lsn, checkpoint_lsn=checkpoint_lsn)
        self._write(changed)

    def rename(self, broker: str) -> None:
        """Have another identity of the broker. BackendError."""
        self._write(evolve(self.state, broker=broker))

    def forget_checkpoint(self) -> None:
        """positions.db changes now, and has no checkpoint of the store until the next one. BackendError."""
        self._write(evolve(self.state, checkpoint_lsn=0))

    def distrust(self) -> None:
        """
        The data path lacks something, or is damaged: the next start copies the data set again. What is recorded later
        says so, too.
        """
        self.state = evolve(self.state, boot=_CHANGED)
        with suppress(BackendError):  # then nothing newer is recorded either
            self._write(self.state)

    def close(self, *, is_synced: bool) -> None:
        """Close the file. `is_synced`: the messages and positions are on stable storage. BackendError."""
        try:
            if is_synced and self.state.boot != _CHANGED:
                self._write(evolve(self.state, boot=""))
                self._files.sync(self._fd)
        except OSError as error:
            raise backend_error(error, f"sync of {STATE_FILE}") from error
        finally:
            self._files.close(self._fd)

    def _write(self, state: CopyState) -> None:
        try:
            self._files.write(self._fd, [_line(state)], 0)
        except OSError as error:
            raise backend_error(error, f"write to {STATE_FILE}") from error
        self.state = state


def remove_state(directory: str) -> None:
    """The data path is no copy any more. BackendError."""
    try:
        os.unlink(os.path.join(directory, STATE_FILE))
    except OSError as error:
        raise backend_error(error, f"removal of {STATE_FILE}") from error


def _line(state: CopyState) -> bytes:
    text = json.dumps(asdict(state)).encode().ljust(_LINE_BYTES - 10) + b"\n"
    return b"%08x %s" % (crc32(text), text)
