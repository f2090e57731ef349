"""The file from which a replay continues after a crash: the options, the plan, and the number of finished sections."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pyspark_nsq.errors import OptionError
from pyspark_nsq.jobs.messages import Section

_VERSION = 1


@dataclass
class Progress:
    """The plan of a replay, and its finished part. `request`: the options that select the messages."""

    request: dict[str, Any]
    messages: int
    sections: list[Section] = field(default_factory=list)
    sections_done: int = 0
    published: int = 0

    @property
    def is_done(self) -> bool:
        return self.sections_done == len(self.sections)


class Checkpoint:
    """A file that is replaced atomically after each section. With an empty path there is no file.

    Only one process may have it. Raises OptionError when another one has, or the file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._lock: int | None = None
        if self._path is None:
            return
        try:
            self._lock = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(
                f'--checkpoint "{path}" is in use by another replay; wait for it, or use another'
            ) from None
        except OSError as error:
            raise OptionError(f'--checkpoint "{path}": {error.strerror}; its folder must exist') from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def read(self, request: dict[str, Any]) -> Progress | None:
        """Return the progress of an earlier run, or None. Raises OptionError for a file of another replay."""
        if self._path is None or not self._path.exists():
            return None
        try:
            found = json.loads(self._path.read_text("utf-8"))
            if found["version"] != _VERSION:
                raise OptionError(f'--checkpoint "{self._path}" was written by another version; use another file')
            done = Progress(
                dict(found["request"]),
                int(found["messages"]),
                [Section(*section) for section in found["sections"]],
                int(found["sections_done"]),
                int(found["published"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            raise OptionError(f'--checkpoint "{self._path}" is no checkpoint of a replay; use another file') from None
        for name in sorted(done.request.keys() | request.keys()):
            if (before := done.request.get(name)) != (now := request.get(name)):
                raise OptionError(
                    f'--checkpoint "{self._path}" is of another replay: {name} was {_shown(before)}, '
                    f"and is {_shown(now)}; give the same options, or another file"
                )
        return done

    def write(self, progress: Progress) -> None:
        """Replace the file, and sync it. Raises OSError."""
        if self._path is None:
            return
        sections = [list(section.__dict__.values()) for section in progress.sections]
        document = progress.__dict__ | {"version": _VERSION, "sections": sections}
        draft = self._path.with_name(f"{self._path.name}.new")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _shown(value: Any) -> str:
    return "not given" if value in ("", None) else json.dumps(value)
