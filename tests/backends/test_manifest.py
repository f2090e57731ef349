"""The manifest: which backend has the messages of a data path, and what a start with another one is told."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from nsqtw.backends import manifest as module
from nsqtw.backends.manifest import (
    MANIFEST_FILE,
    Manifest,
    backends_with_messages,
    check_backend,
    has_interrupted_restore,
    read_manifest,
    write_manifest,
    write_restore_mark,
)
from nsqtw.backends.sqlite.backend import SqliteBackend
from nsqtw.errors import BackendError, BackendFull
from nsqtw.testing.contracts import make_segment
from tests.backends.data_path import DataPath


def on_disk(directory: Path) -> None:
    stored = DataPath(directory)
    stored.commit_each(make_segment(0, 3))
    stored.close()


def in_sqlite(directory: Path) -> None:
    backend = SqliteBackend(str(directory), lambda *damage: None)
    backend.commit([(backend.queue("t"), [make_segment(0, 3)])], False)
    backend.close()


def refusal(directory: Path, backend: str) -> str:
    with pytest.raises(BackendError) as refused:
        check_backend(str(directory), backend)
    return str(refused.value)


@pytest.mark.parametrize(
    "manifest", [Manifest("disk"), Manifest('own:a "b"\\\té', migrating_to="sqlite"), Manifest("sqlite", "", "disk")]
)
def test_what_is_written_is_read(tmp_path: Path, manifest: Manifest) -> None:
    write_manifest(str(tmp_path), manifest)
    assert read_manifest(str(tmp_path)) == manifest
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_FILE]


def test_the_mark_of_a_restore_refuses_every_backend(tmp_path: Path) -> None:
    write_restore_mark(str(tmp_path))
    assert has_interrupted_restore(str(tmp_path))
    assert refusal(tmp_path, "disk") == f"a restore to {tmp_path} was interrupted: run 'nsqtw restore' again"
    write_manifest(str(tmp_path), Manifest("disk"))
    assert not has_interrupted_restore(str(tmp_path))
    assert check_backend(str(tmp_path), "disk") == ""


def test_a_fresh_data_path_gets_the_backend_of_its_first_start(tmp_path: Path) -> None:
    assert read_manifest(str(tmp_path)) is None
    assert check_backend(str(tmp_path), "sqlite") == ""
    assert check_backend(str(tmp_path), "sqlite") == ""
    assert refusal(tmp_path, "disk") == (
        f"the messages of {tmp_path} are kept by the backend 'sqlite', not by 'disk': start with --backend=sqlite, or"
        f" move them with 'nsqtw migrate-backend --data-path={tmp_path} sqlite disk'"
    )
    assert read_manifest(str(tmp_path)) == Manifest("sqlite")


@pytest.mark.parametrize(("store", "backend", "other"), [(on_disk, "disk", "sqlite"), (in_sqlite, "sqlite", "disk")])
def test_files_tell_the_backend_of_an_older_nsqtw(tmp_path: Path, store, backend: str, other: str) -> None:
    store(tmp_path)
    assert backends_with_messages(str(tmp_path)) == [backend]
    assert "are kept by" in refusal(tmp_path, other)
    assert "are kept by" in refusal(tmp_path, "dummy")
    assert read_manifest(str(tmp_path)) is None
    assert check_backend(str(tmp_path), backend) == ""
    assert read_manifest(str(tmp_path)) == Manifest(backend)


def test_messages_of_two_backends_are_told(tmp_path: Path) -> None:
    on_disk(tmp_path)
    in_sqlite(tmp_path)
    assert check_backend(str(tmp_path), "sqlite") == (
        "the backend 'disk' has messages too, which are not served: see 'nsqtw fsck'"
    )
    assert read_manifest(str(tmp_path)) == Manifest("sqlite")


def test_a_database_without_messages_is_no_storage(tmp_path: Path) -> None:
    SqliteBackend(str(tmp_path), lambda *damage: None).close()
    assert backends_with_messages(str(tmp_path)) == []
    (tmp_path / "messages.db").write_bytes(b"")
    assert backends_with_messages(str(tmp_path)) == []
    (tmp_path / "messages.db").write_bytes(b"no database" * 1000)
    assert backends_with_messages(str(tmp_path)) == ["sqlite"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"backend = disk\n", "Expecting value"),
        (b"\xff", "codec can't decode"),
        (b"", "Expecting value"),
        (b"[]", "backend is missing"),
        (b"{}", "backend is missing"),
        (b'{"backend":1}', "unknown key backend"),
        (b'{"backend":"disk","backend_x":"a"}', "unknown key backend_x"),
    ],
)
def test_a_manifest_that_cannot_be_understood(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(text)
    said = refusal(tmp_path, "disk")
    assert re.match(rf"{tmp_path}/manifest.json cannot be understood: .*{why}.*; write ", said)
    assert "\n" not in said


def test_a_full_disk_does_not_prevent_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: str, manifest: Manifest) -> None:
        raise BackendFull("write manifest.json: no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_manifest", full)
        assert check_backend(str(tmp_path), "disk").startswith("write manifest.json: no space left on device: ")
    assert check_backend(str(tmp_path), "disk") == ""


def test_an_interrupted_migration_is_told(tmp_path: Path) -> None:
    write_manifest(str(tmp_path), Manifest("disk", migrating_to="sqlite"))
    command = f"'nsqtw migrate-backend --data-path={tmp_path} disk sqlite' again"
    assert check_backend(str(tmp_path), "disk").endswith(command)
    write_manifest(str(tmp_path), Manifest("sqlite", migrated_from="disk"))
    assert check_backend(str(tmp_path), "sqlite").endswith(command)
    assert "are kept by" in refusal(tmp_path, "disk")


def test_a_manifest_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    class Failing(module.Files):
        def rename(self, old: str, new: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

    write_manifest(str(tmp_path), Manifest("disk"))
    with pytest.raises(BackendError, match=r"write manifest\.json: input/output error"):
        write_manifest(str(tmp_path), Manifest("sqlite"), Failing())
    assert read_manifest(str(tmp_path)) == Manifest("disk")
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_FILE]
