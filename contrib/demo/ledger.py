"""The ledger of a consumer: the identity of each delivery, a line each, written before the message is finished.

The order matters. A message that is finished has been noted, so what is missing in the ledger at the end
is missing indeed; one that is noted and not finished comes again and shows up as a repeat.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Self


def identity(body: bytes) -> str:
    """What tells this record from all others: the field "id" every record of the demo has."""
    found = json.loads(body)["id"]
    assert isinstance(found, str)
    return found


class LedgerWriter:
    """A consumer's side; a context manager that closes the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def record(self, identities: Iterable[str]) -> None:
        """Returns when they are with the operating system."""
        self._file.writelines(f"{json.dumps(one)}\n" for one in identities)
        self._file.flush()


class Ledger:
    """The show's side: reads what is new."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open(encoding="utf-8")
        self._partial = ""
        self.deliveries = 0
        self.distinct: set[str] = set()

    def poll(self) -> None:
        """Take in what has been noted since the last time."""
        *lines, self._partial = (self._partial + self._file.read()).split("\n")
        self.deliveries += len(lines)
        self.distinct.update(json.loads(line) for line in lines)

    def close(self) -> None:
        self._file.close()
