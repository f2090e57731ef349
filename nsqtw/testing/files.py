"""
Files for tests, which can fail and crash at any step.

    files = FaultyFiles(directory)
    backend = DiskBackend(directory, 1000, report, files)
    ...
    files.fail("sync", errno.EIO)            the next fsync fails
    files.space = 100                        the disk is full after 100 more bytes
    ...
    for step in range(len(files.trace) + 1):
        files.crash(elsewhere, step)         what was on disk when the process was killed then
        files.crash(elsewhere, step, power_loss=True)    ... and what was there when the machine lost power
        files.crash(elsewhere, step, power_loss=True, chance=Random(seed))     ... or may have been there

A power loss here is the worst one the rules allow: of a file only what was synced is left, of a directory only
the names it had when the directory was synced. With `chance` more of it is left: of a directory the names up to some
change, as a journal keeps them, and of a file any of the blocks written since it was synced.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import NamedTuple

from attrs import define, field

from nsqtw.backends.files import FILE_MODE, Files

_BLOCK_BYTES = 512
"""The unit that a disk writes completely or not at all."""
_SURVIVES = 0.5


class Step(NamedTuple):
    """
    One change that was made. Paths are relative to the directory watched; `path` is where a rename starts, and
    `file` the number of a file, which stays when its name changes.
    """

    operation: str
    path: str = ""
    new_path: str = ""
    file: int = 0
    position: int = 0
    data: bytes = b""


@define
class _Fault:
    operation: str
    error: int
    after: int
    times: int


class FaultyFiles(Files):
    """
    Real files under `directory`; every change is recorded in `trace`. A sync is only recorded: so tests are quick, and
    its effect shows in a simulated power loss.
    """

    def __init__(self, directory: str) -> None:
        self._root = directory
        self._faults: list[_Fault] = []
        self._at_start = _Image(directory)
        self._now = _Image(directory)
        self._numbers: dict[int, int] = {}
        self.trace: list[Step] = []
        self.space: int | None = None
        """Bytes that can still be written; None: any number."""
        self.unwritten = 0.0
        """Bytes that other programs have written and no disk has got."""
        self.elsewhere: set[str] = set()
        """Paths that are on another file system."""

    def fail(self, operation: str, error: int, *, after: int = 0, times: int = 1) -> None:
        """Let the method of this name raise OSError with `error`: `times` calls of it, once `after` more went well."""
        self._faults.append(_Fault(operation, error, after, times))

    def heal(self) -> None:
        """Nothing fails any more."""
        self._faults.clear()
        self.space = None

    def crash(
        self,
        directory: str,
        steps: int,
        *,
        torn: int | None = None,
        power_loss: bool = False,
        chance: Random | None = None,
    ) -> None:
        """
        Make `directory`, which is new, what the watched one was after `steps` steps. With `torn` the next step, a
        write, was done up to that byte. With `chance` a power loss leaves some of what was not synced.
        """
        image = deepcopy(self._at_start)
        for step in self.trace[:steps]:
            image.take(step)
        if torn is not None:
            step = self.trace[steps]
            image.take(step._replace(data=step.data[:torn]))
        if power_loss:
            image.root.lose_power(chance)
        image.root.write_to(directory)

    def open(self, path: str, *, create: bool = False, mode: int = FILE_MODE) -> int:
        self._meet("open")
        fd = super().open(path, create=create, mode=mode)
        if create:
            self._record(Step("create", self._relative(path)))
        self._numbers[fd] = self._now.number_of(self._relative(path))
        return fd

    def close(self, fd: int) -> None:
        del self._numbers[fd]
        super().close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        self._meet("read")
        return super().read(fd, size, position)

    def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        self._meet("write")
        data = b"".join(buffers)
        if self.space is not None:
            if data and not self.space:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.space]
            self.space -= len(data)
        written = super().write(fd, [data], position)
        self._record(Step("write", file=self._numbers[fd], position=position, data=data[:written]))
        return written

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate")
        super().truncate(fd, size)
        self._record(Step("truncate", file=self._numbers[fd], position=size))

    def allocate(self, fd: int, position: int, size: int) -> None:
        self._meet("allocate")
        super().allocate(fd, position, size)

    def sync(self, fd: int) -> None:
        self._meet("sync")
        self._record(Step("sync", file=self._numbers[fd]))

    def sync_directory(self, path: str) -> None:
        self._meet("sync_directory")
        os.stat(path)
        self._record(Step("sync_directory", self._relative(path)))

    def open_filesystem(self, directory: str) -> int:
        self._meet("open_filesystem")
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_filesystem(self, fd: int) -> None:
        self._meet("sync_filesystem")
        self._record(Step("sync_filesystem"))

    def unwritten_bytes(self) -> float:
        return self.unwritten

    def device(self, path: str) -> int:
        return 0 if path in self.elsewhere else super().device(path)

    def size(self, path: str) -> int:
        self._meet("size")
        return super().size(path)

    def names(self, directory: str) -> list[str]:
        self._meet("names")
        return super().names(directory)

    def make_directory(self, path: str) -> None:
        self._meet("make_directory")
        super().make_directory(path)
        self._record(Step("make_directory", self._relative(path)))

    def rename(self, old: str, new: str) -> None:
        self._meet("rename")
        super().rename(old, new)
        self._record(Step("rename", self._relative(old), new_path=self._relative(new)))

    def link(self, old: str, new: str) -> None:
        self._meet("link")
        super().link(old, new)
        self._record(Step("link", self._relative(old), new_path=self._relative(new)))

    def unlink(self, path: str) -> None:
        self._meet("unlink")
        super().unlink(path)
        self._record(Step("unlink", self._relative(path)))

    def remove_directory(self, path: str) -> None:
        self._meet("remove_directory")
        super().remove_directory(path)
        self._record(Step("unlink", self._relative(path)))

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _record(self, step: Step) -> None:
        self.trace.append(step)
        self._now.take(step)

    def _meet(self, operation: str) -> None:
        """Count down the faults of an operation, and fail if one is due."""
        for fault in [fault for fault in self._faults if fault.operation == operation]:
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            raise OSError(fault.error, os.strerror(fault.error))


@define
class _File:
    number: int
    content: bytearray
    synced: bytes
    dirty: list[Step] = field(factory=list)

    def write(self, position: int, data: bytes) -> None:
        self.content.extend(bytes(max(0, position - len(self.content))))
        self.content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def sync(self) -> None:
        self.synced = bytes(self.content)
        self.dirty.clear()

    def lose_power(self, chance: Random | None) -> None:
        self.content = bytearray(self.synced)
        for step in self.dirty if chance is not None else ():
            assert chance is not None
            if step.operation == "truncate":
                if chance.random() < _SURVIVES:
                    self.truncate(step.position)
                continue
            for start in range(0, len(step.data), _BLOCK_BYTES):
                if chance.random() < _SURVIVES:
                    self.write(step.position + start, step.data[start : start + _BLOCK_BYTES])

    def write_to(self, path: str) -> None:
        with open(path, "wb") as file:
            file.write(self.content)


@define
class _Directory:
    names: dict[str, _File | _Directory] = field(factory=dict)
    synced: dict[str, _File | _Directory] = field(factory=dict)
    dirty: list[dict[str, _File | _Directory | None]] = field(factory=list)
    """Each change of names since: what they became, None for a name that is gone."""

    def change(self, names: dict[str, _File | _Directory | None]) -> None:
        for name, entry in names.items():
            if entry is None:
                del self.names[name]
            else:
                self.names[name] = entry

    def sync(self, *, deep: bool = False) -> None:
        """The names in it; `deep`: in all directories below, too."""
        self.synced = dict(self.names)
        self.dirty.clear()
        for entry in self.names.values() if deep else ():
            if isinstance(entry, _Directory):
                entry.sync(deep=True)

    def lose_power(self, chance: Random | None) -> None:
        self.names = dict(self.synced)
        for change in self.dirty[: chance.randint(0, len(self.dirty))] if chance is not None else ():
            self.change(change)
        for entry in self.names.values():
            entry.lose_power(chance)

    def write_to(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
        for name, entry in self.names.items():
            entry.write_to(os.path.join(path, name))


class _Image:
    """A directory as a file system keeps it: what there is, and what of it is on stable storage."""

    def __init__(self, directory: str) -> None:
        self._files: dict[int, _File] = {}
        self.root = self._read(directory)

    def number_of(self, path: str) -> int:
        directory, name = self._parent(path)
        file = directory.names[name]
        assert isinstance(file, _File), f"{path} is a directory"
        return file.number

    def take(self, step: Step) -> None:
        getattr(self, f"_{step.operation}")(step)

    def _create(self, step: Step) -> None:
        self._change(step.path, self._new_file(b""))

    def _write(self, step: Step) -> None:
        file = self._files[step.file]
        file.write(step.position, step.data)
        file.dirty.append(step)

    def _truncate(self, step: Step) -> None:
        file = self._files[step.file]
        file.truncate(step.position)
        file.dirty.append(step)

    def _sync(self, step: Step) -> None:
        self._files[step.file].sync()

    def _sync_directory(self, step: Step) -> None:
        self._directory(step.path).sync()

    def _sync_filesystem(self, step: Step) -> None:
        for file in self._files.values():
            file.sync()
        self.root.sync(deep=True)

    def _make_directory(self, step: Step) -> None:
        self._change(step.path, _Directory())

    def _rename(self, step: Step) -> None:
        directory, name = self._parent(step.path)
        entry = directory.names[name]
        new_directory, new_name = self._parent(step.new_path)
        if new_directory is directory:
            self._record(directory, {name: None, new_name: entry})
        else:
            self._record(new_directory, {new_name: entry})
            self._record(directory, {name: None})

    def _link(self, step: Step) -> None:
        directory, name = self._parent(step.path)
        self._change(step.new_path, directory.names[name])

    def _unlink(self, step: Step) -> None:
        self._change(step.path, None)

    def _change(self, path: str, entry: _File | _Directory | None) -> None:
        directory, name = self._parent(path)
        self._record(directory, {name: entry})

    def _record(self, directory: _Directory, names: dict[str, _File | _Directory | None]) -> None:
        directory.change(names)
        directory.dirty.append(names)

    def _directory(self, path: str) -> _Directory:
        directory = self.root
        for part in path.split(os.sep):
            if part not in ("", os.curdir):
                inner = directory.names[part]
                assert isinstance(inner, _Directory), f"{path} is no directory"
                directory = inner
        return directory

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, name = os.path.split(path)
        return self._directory(parent), name

    def _new_file(self, content: bytes) -> _File:
        file = _File(len(self._files) + 1, bytearray(content), content)
        self._files[file.number] = file
        return file

    def _read(self, path: str) -> _Directory:
        directory = _Directory()
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_dir():
                directory.names[entry.name] = self._read(entry.path)
            else:
                with open(entry.path, "rb") as file:
                    directory.names[entry.name] = self._new_file(file.read())
        directory.synced = dict(directory.names)
        return directory
