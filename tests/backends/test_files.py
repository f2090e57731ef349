"""The calls storage makes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from nsqtw.backends.files import Files, backend_error, remove_temporaries, write_all
from nsqtw.errors import BackendError, BackendFull


class ShortFiles(Files):
    """Writes a few bytes at a time."""

    def __init__(self, most: int) -> None:
        self.most = most

    def write(self, fd: int, buffers: Sequence[bytes], position: int) -> int:
        return super().write(fd, [b"".join(buffers)[: self.most]], position)


@pytest.mark.parametrize("files", [Files(), ShortFiles(1), ShortFiles(7)])
@pytest.mark.parametrize("count", [1, 3, 3000])
def test_all_is_written(tmp_path: Path, files: Files, count: int) -> None:
    """However little one call takes, and however many buffers there are."""
    buffers = [b"%d," % number for number in range(count)]
    fd = files.open(str(tmp_path / "file"), create=True)
    assert write_all(files, fd, buffers, 5) == 5 + len(b"".join(buffers))
    assert files.read(fd, 1 << 20, 0) == bytes(5) + b"".join(buffers)
    files.close(fd)


def test_a_device_that_takes_nothing(tmp_path: Path) -> None:
    """Is not asked for ever."""
    files = ShortFiles(0)
    fd = files.open(str(tmp_path / "file"), create=True)
    with pytest.raises(OSError, match="Input/output error"):
        write_all(files, fd, [b"data"], 0)
    files.close(fd)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, BackendFull), (errno.EDQUOT, BackendFull), (errno.EIO, BackendError)]
)
def test_errors_at_the_border(number: int, kind: type[BackendError]) -> None:
    """No space is told from everything else; the text says what was done."""
    error = backend_error(OSError(number, os.strerror(number)), "write of topic t")
    assert type(error) is kind
    assert str(error) == f"write of topic t: {os.strerror(number).lower()}"


def test_only_temporaries_of_a_file_are_removed(tmp_path: Path) -> None:
    kept = ["nsqd.dat", "nsqd.dat.tmp", "nsqd.dat.1.tmp.x", "xnsqd.dat.1.tmp", "nsqd.dat.a.tmp", "other.1.tmp"]
    for name in (*kept, "nsqd.dat.1.tmp", "nsqd.dat.9223372036854775807.tmp"):
        (tmp_path / name).touch()
    remove_temporaries(Files(), str(tmp_path / "nsqd.dat"))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    remove_temporaries(Files(), str(tmp_path / "nowhere" / "nsqd.dat"))
