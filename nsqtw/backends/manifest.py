"""
The manifest of a data path: which storage backend has its messages.

    <data path>/manifest.json
        {"backend":"disk"}          NAME or NAME:ARGUMENT, as for --backend
        ,"migrating_to":"sqlite"    while `nsqtw migrate-backend` copies: that backend has a part of the messages
        ,"migrated_from":"disk"     while it deletes: that backend still has some of them
        {"restoring":true}          while `nsqtw restore` copies into the data path: it is not complete

Two backends do not see each other's messages, so a broker with another backend would take the data path for an empty
one, and save positions that say so. The file is written before anything is stored and changes as a whole.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from shlex import quote

from attrs import frozen

from nsqtw.backends.connection import connect_read_only
from nsqtw.backends.disk.format import first_of_log
from nsqtw.backends.files import Files, backend_error, replace_file
from nsqtw.backends.sqlite.schema import FILE as SQLITE_FILE
from nsqtw.errors import BackendError, BackendFull
from nsqtw.names import is_ephemeral, name_of_directory

MANIFEST_FILE = "manifest.json"
_RESTORING = {"restoring": True}
_KEYS = ("backend", "migrating_to", "migrated_from")


@frozen
class Manifest:
    """The contents of the file. "" for a missing key."""

    backend: str
    migrating_to: str = ""
    migrated_from: str = ""


def read_manifest(directory: str) -> Manifest | None:
    """
    The manifest of a data path; None when it has none. BackendError when it cannot be read or understood, or when the
    data path is not complete.
    """
    path = os.path.join(directory, MANIFEST_FILE)
    try:
        with open(path, "rb") as file:
            document = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise backend_error(failure, f"read of {path}") from failure
    except ValueError as error:  # no JSON, or bytes that are no UTF-8
        raise BackendError(_not_understood(path, " ".join(str(error).split()))) from error
    if document == _RESTORING:
        raise BackendError(f"a restore to {directory} was interrupted: run 'nsqtw restore' again")
    if not isinstance(document, dict) or not document.get("backend"):
        raise BackendError(_not_understood(path, "backend is missing"))
    unknown = sorted(key for key in document if key not in _KEYS or not isinstance(document[key], str))
    if unknown:
        raise BackendError(_not_understood(path, f"unknown key {unknown[0]}"))
    return Manifest(**document)


def write_manifest(directory: str, manifest: Manifest, files: Files | None = None) -> None:
    """Replace the manifest; it is on stable storage on return. BackendError: then it is what it was."""
    files = files or Files()
    values = {key: getattr(manifest, key) for key in _KEYS}
    text = json.dumps({key: value for key, value in values.items() if value}, separators=(",", ":"))
    try:
        replace_file(files, os.path.join(directory, MANIFEST_FILE), text.encode())
        files.sync_directory(directory)
    except OSError as failure:
        raise backend_error(failure, f"write {MANIFEST_FILE}") from failure


def write_restore_mark(directory: str) -> None:
    """Let no broker start with a data path until it has another manifest. On stable storage on return. OSError."""
    replace_file(Files(), os.path.join(directory, MANIFEST_FILE), json.dumps(_RESTORING).encode())
    Files().sync_directory(directory)


def has_interrupted_restore(directory: str) -> bool:
    """Return whether a data path has the mark of a restore that did not end."""
    try:
        with open(os.path.join(directory, MANIFEST_FILE), "rb") as file:
            return bool(json.load(file) == _RESTORING)
    except (OSError, ValueError):
        return False


def backends_with_messages(directory: str) -> list[str]:
    """Which of the backends disk and sqlite have messages under a data path, perhaps finished ones only."""
    names = []
    files = Files()
    for entry in files.names(directory):
        topic = name_of_directory(entry)
        if topic is None or is_ephemeral(topic):
            continue
        if any(first_of_log(name) is not None for name in files.names(os.path.join(directory, entry))):
            names.append("disk")
            break
    if _has_rows(os.path.join(directory, SQLITE_FILE)):
        names.append("sqlite")
    return names


def check_backend(directory: str, backend: str) -> str:
    """
    Record that `backend` has the messages of a data path, unless a backend is recorded. A data path of an older nsqtw
    has no manifest: its files show the backend. BackendError, with the remedy, when it is another one. Returns a
    warning for the operator, or "".
    """
    manifest = read_manifest(directory)
    present = backends_with_messages(directory) if manifest is None else []
    if manifest is None:
        recorded = backend if backend in present or not present else present[0]
    else:
        recorded = manifest.backend
    if recorded != backend:
        raise BackendError(
            f"the messages of {directory} are kept by the backend {recorded!r}, not by {backend!r}: start with"
            f" --backend={quote(recorded)}, or move them with"
            f" 'nsqtw migrate-backend --data-path={directory} {quote(recorded)} {backend}'"
        )
    if manifest is None:
        try:
            write_manifest(directory, Manifest(backend))
        except BackendFull as full:  # the start goes on: a full disk heals only while a broker runs
            return f"{full}: the next start records the backend"
        others = [name for name in present if name != backend]
        return f"the backend {others[0]!r} has messages too, which are not served: see 'nsqtw fsck'" if others else ""
    unfinished = manifest.migrating_to or manifest.migrated_from
    if unfinished:
        source, target = (backend, unfinished) if manifest.migrating_to else (unfinished, backend)
        return (
            f"a migration was interrupted, and the backend {unfinished!r} has copies of messages: run"
            f" 'nsqtw migrate-backend --data-path={directory} {quote(source)} {quote(target)}' again"
        )
    return ""


def _not_understood(path: str, why: str) -> str:
    return (
        f"{path} cannot be understood: {why}; write 'backend = \"NAME\"' into it, or delete it: files tell the backend"
    )


def _has_rows(path: str) -> bool:
    """Return whether a database of the backend sqlite has messages. One that cannot be read may have some."""
    if not os.path.exists(path) or not os.path.getsize(path):
        return False
    try:
        with closing(connect_read_only(path)) as connection:
            return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM segment)").fetchone()[0])
    except sqlite3.Error as error:
        return "no such table" not in str(error)
