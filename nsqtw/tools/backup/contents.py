"""
The contents of a backup: `contents.json`, which has each file with its size and its checksum.

    {"format": 1, "created": "2026-11-21T09:00:00+00:00", "version": "0.1.0", "backend": "disk",
     "files": {"positions.db": {"size": 36864, "sha256": "..."}, "orders/00000000000001.log": {...}}}

It is written last, so a directory without it is no backup, or not a complete one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from attrs import asdict, field, frozen

from nsqtw.backends.files import Files, backend_error, replace_file
from nsqtw.backends.manifest import MANIFEST_FILE
from nsqtw.errors import BackendError
from nsqtw.interfaces import IBackendFiles
from nsqtw.nsqd.build import POSITIONS_FILE
from nsqtw.nsqd.nsqd_dat import METADATA_FILE
from nsqtw.tools.backend_files import known_backends
from nsqtw.tools.owner import Owner, open_regular

CONTENTS_FILE = "contents.json"
FORMAT = 1
CHUNK_BYTES = 4 << 20
DEFAULT_BACKEND = "disk"
_SHA256 = re.compile("[0-9a-f]{64}")
_VERSION = re.compile("[0-9A-Za-z.+-]{1,64}")
_BACKEND = re.compile(r"[0-9A-Za-z_.-]{1,64}(:[0-9A-Za-z_./-]*)?")
_FILES = (POSITIONS_FILE, MANIFEST_FILE, METADATA_FILE)
_NAME = re.compile(r"(?!\.\.?/)([^/\0]+/)?(?!\.\.?$)[^/\0]+")
"""NAME or DIRECTORY/NAME."""

Progress = Callable[[int], None]
"""Is told of so many more bytes that were read."""


@frozen
class StoredFile:
    """The size and the checksum of a file."""

    size: int
    sha256: str


@frozen
class Contents:
    """The contents of a backup: `files` by their path in it."""

    created: str
    version: str
    backend: str
    files: dict[str, StoredFile] = field(factory=dict)

    @property
    def total_bytes(self) -> int:
        """The size of all files together."""
        return sum(one.size for one in self.files.values())


def checksum(path: str, progress: Progress) -> StoredFile:
    """Read a file. BackendError when it is no file, OSError."""
    digest, size = hashlib.sha256(), 0
    with open(open_regular(path), "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            progress(len(chunk))
    return StoredFile(size, digest.hexdigest())


def write_contents(directory: str, contents: Contents) -> None:
    """Write the file; it is on stable storage on return. BackendError."""
    text = json.dumps({"format": FORMAT, **asdict(contents)}, indent=1)
    path = os.path.join(directory, CONTENTS_FILE)
    try:
        replace_file(Files(), path, text.encode())
        Files().sync_directory(directory)
    except OSError as failure:
        raise backend_error(failure, f"write of {path}") from failure


def read_contents(directory: str) -> Contents:
    """Return the contents of a backup. BackendError, one line, when it is none, or cannot be read."""
    path = os.path.join(directory, CONTENTS_FILE)
    try:
        with Owner.of(directory).rights(), open(open_regular(path), "rb") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise BackendError(f"{directory} is no backup, or not a complete one: it has no {CONTENTS_FILE}") from None
    except OSError as failure:
        raise backend_error(failure, f"read of {path}") from failure
    except ValueError:
        raise BackendError(f"{path} is damaged") from None
    if isinstance(document, dict) and document.get("format", FORMAT) != FORMAT:
        raise BackendError(f"{path} has format {document['format']}, and this nsqtw reads format {FORMAT}")
    try:
        return _parsed(document)
    except (TypeError, KeyError, ValueError):
        raise BackendError(f"{path} is damaged") from None


def check_files(directory: str, contents: Contents, progress: Progress) -> None:
    """Read every file of a backup. BackendError, one line, for the first that is not what it was."""
    for name, expected in contents.files.items():
        path = os.path.join(directory, name)
        try:
            found = checksum(path, progress)
        except FileNotFoundError:
            raise BackendError(f"the backup is damaged: {path} is missing") from None
        except OSError as failure:
            raise backend_error(failure, f"read of {path}") from failure
        check_file(path, found, expected)


def check_file(path: str, found: StoredFile, expected: StoredFile) -> None:
    """Compare a file of a backup with what it was. BackendError, one line, when it is another one."""
    if found.size != expected.size:
        raise BackendError(f"the backup is damaged: {path} has {found.size} bytes instead of {expected.size}")
    if found.sha256 != expected.sha256:
        raise BackendError(f"the backup is damaged: the checksum of {path} is wrong")


def _parsed(document: Any) -> Contents:
    """
    The contents: what a backup can have, and nothing else. BackendError for a backend whose files are not known;
    TypeError, KeyError, ValueError.
    """
    backend = document["backend"]
    if not _BACKEND.fullmatch(backend):
        raise ValueError(backend)
    backends = known_backends([backend])
    if backend not in backends.known:
        raise BackendError(f"a backup of the backend {backend!r} cannot be used: {backends.unknown.get(backend, '')}")
    files = {}
    for name, stored in document["files"].items():
        if not is_file_of_data_path(name, backends.known.values()) or not _SHA256.fullmatch(stored["sha256"]):
            raise ValueError(name)
        files[name] = StoredFile(int(stored["size"]), stored["sha256"])
    created, version = document["created"], document["version"]
    datetime.fromisoformat(created)
    if not _VERSION.fullmatch(version):
        raise ValueError(document)
    return Contents(created, version, backend, files)


def is_file_of_data_path(name: str, backends: Iterable[IBackendFiles]) -> bool:
    """Return whether a backup may have a file of this name."""
    return name in _FILES or (_NAME.fullmatch(name) is not None and any(one.owns(name) for one in backends))
