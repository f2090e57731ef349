"""A broker of the tests whose messages and positions are in files."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from nsqtw.backends.positions.store import Positions
from nsqtw.core.checkpoint import NamedTopic
from nsqtw.core.pending import PAGE_ROWS
from nsqtw.interfaces import IBackend
from nsqtw.plugins import find_backend
from nsqtw.tools.backup.backup import make_backup
from nsqtw.tools.backup.restore import check_backup, put_in_place
from nsqtw.tools.migrate_backend import migrate_backend
from tests.core.harness import BrokerHarness


class _Backend:
    """A backend whose methods a test can replace: those of a compiled one are read-only."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class StoredHarness(BrokerHarness):
    """On the files of a backend in `directory`. A kill leaves them as they are: the next process gets a copy."""

    def __init__(self, directory: Path, backend: str, page_rows: int = PAGE_ROWS, **options: Any) -> None:
        super().__init__(page_rows, **options)
        self._directory = directory
        self._backend = backend
        self._factory, self._argument = find_backend(backend)
        self._lives = 0
        self._open()

    def stored(self) -> list[str]:
        return self.backend.topics()

    def crash(self, named: Iterable[NamedTopic] = ()) -> None:
        """SIGKILL, and a start."""
        before = self._path
        self._lives += 1
        shutil.copytree(before, self._path)
        self._close(is_clean=False)
        self._open()

    def stop_and_start(self) -> None:
        """SIGTERM, and a start."""
        self._stop()
        self._open()

    def migrate(self) -> None:
        """SIGTERM, `nsqtw migrate-backend` to the other backend, and a start."""
        self._stop()
        before, self._backend = self._backend, {"disk": "sqlite", "sqlite": "disk"}[self._backend]
        migrate_backend(str(self._path), before, self._backend, lambda line: None)
        self._factory, self._argument = find_backend(self._backend)
        self._open()

    def restore_backup(self) -> None:
        """SIGTERM, `nsqtw backup`, `nsqtw restore` to another data path, and a start."""
        self._stop()
        backup = str(self._directory / f"backup.{self._lives}")
        _, findings = make_backup(str(self._path), backup, None)
        assert findings == []
        self._lives += 1
        assert put_in_place(backup, check_backup(backup), str(self._path), must_replace=False) == ([], "")
        self._open()

    def close(self) -> None:
        """No file stays open."""
        self._close(is_clean=False)

    @property
    def _path(self) -> Path:
        return self._directory / str(self._lives)

    def _stop(self) -> None:
        self.broker.stop(self.now)
        self.save()
        self._close(is_clean=True)

    def _open(self) -> None:
        self._path.mkdir(exist_ok=True)
        self.positions = Positions(str(self._path / "positions.db"))  # type: ignore[assignment]
        saved = self.positions.load()
        backend = self._factory.open(self._argument, str(self._path), self.options, self.report)
        self.backend = cast(IBackend, _Backend(backend))
        self._start(saved)

    def _close(self, *, is_clean: bool) -> None:
        self.backend.close()
        self.positions.close(is_clean)
