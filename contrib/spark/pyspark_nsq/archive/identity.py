"""The identity of an archive: the checkpoint, the format and the topics that belong to it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from pyspark_nsq.archive.files import Files
from pyspark_nsq.archive.layout import IDENTITY, schema_of
from pyspark_nsq.errors import ArchiveError

_IN_CHECKPOINT = "nsqtw-archive.json"
#: Versions of the file: the first two are of archives without the column `attempts`.
_WITHOUT_HEADERS, _WITH_HEADERS, _WITH_ATTEMPTS = 1, 2, 3


@dataclass(frozen=True)
class Identity:
    """The content of the file `IDENTITY`. `subscription`: the topics, or the pattern of topics.

    An archive keeps the columns that it was begun with. Each new column has a version of its own: the compaction of an
    earlier connector would drop the column.
    """

    id: str
    format: str
    subscription: str
    has_headers: bool = False
    has_attempts: bool = True

    @property
    def schema(self) -> StructType:
        """The columns of the archive."""
        return schema_of(has_headers=self.has_headers, has_attempts=self.has_attempts)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Identity:
        """Return the identity of a document. Raises KeyError."""
        has_attempts = found["version"] == _WITH_ATTEMPTS
        has_headers = bool(found["headers"]) if has_attempts else found["version"] == _WITH_HEADERS
        return cls(str(found["id"]), str(found["format"]), str(found["subscription"]), has_headers, has_attempts)

    def to_text(self) -> str:
        """Return the document of an archive that begins now."""
        document = {"version": _WITH_ATTEMPTS, "id": self.id, "format": self.format}
        return json.dumps(document | {"subscription": self.subscription, "headers": self.has_headers})


def read_identity(files: Files) -> Identity | None:
    """Return the identity of the archive in a folder, or None when there is none. Raises ArchiveError."""
    text = files.read(IDENTITY)
    if text is None:
        return None
    try:
        found = json.loads(text)
        if found["version"] not in (_WITHOUT_HEADERS, _WITH_HEADERS, _WITH_ATTEMPTS):
            raise ArchiveError(f"{files.path(IDENTITY)} was written by a later version; update the connector")
        return Identity.of(found)
    except (ValueError, KeyError, TypeError):
        raise ArchiveError(f"{files.path(IDENTITY)} is damaged; restore it from a backup") from None


def must_exist(files: Files) -> Identity:
    """Return the identity of the archive in a folder. Raises ArchiveError when there is no archive."""
    found = read_identity(files)
    if found is None:
        raise ArchiveError(f"{files.root} has no archive; check --output")
    return found


def claim(files: Files, checkpoint: Files, format_: str, subscription: str, *, has_headers: bool = False) -> Identity:
    """Bind an archive and a checkpoint to each other on the first run, and compare them on later ones.

    The stream starts at the checkpoint's positions, so that an archive with another checkpoint would get rows twice, or
    not at all. Raises ArchiveError.
    """
    known = read_identity(files)
    text = checkpoint.read(_IN_CHECKPOINT)
    bound = str(json.loads(text)["id"]) if text is not None else None
    if known is None:
        if checkpoint.exists("offsets"):
            raise ArchiveError(
                f"the checkpoint {checkpoint.root} has been used, but {files.root} has no archive; "
                "use a new --checkpoint, or the --output that belongs to it"
            )
        known = Identity(bound or uuid.uuid4().hex, format_, subscription, has_headers)
        if bound is None:
            checkpoint.create(_IN_CHECKPOINT, json.dumps({"id": known.id}))
        files.create(IDENTITY, known.to_text())
        return known
    if bound != known.id:
        raise ArchiveError(
            f"the checkpoint {checkpoint.root} is not that of the archive in {files.root}; "
            "use the --checkpoint of its first run, or a new --output"
        )
    if known.format != format_:
        raise ArchiveError(f"the archive in {files.root} has the format {known.format}; use --format {known.format}")
    if known.subscription != subscription:
        raise ArchiveError(
            f"the archive in {files.root} is of {known.subscription}, not of {subscription}; use a new --output for it"
        )
    if known.has_headers != has_headers:
        begun, remedy = ("with", "add --headers") if known.has_headers else ("without", "leave out --headers")
        raise ArchiveError(f"the archive in {files.root} was begun {begun} headers; {remedy}, or use a new --output")
    return known
