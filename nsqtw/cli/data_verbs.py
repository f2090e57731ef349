"""Verbs about the files of a broker that does not run: `fsck`, `migrate-backend`, `hash-secret`."""

from __future__ import annotations

from nsqtw.cli.session import Session
from nsqtw.tools import hash_secret as hashing
from nsqtw.tools import migrate_backend as migration
from nsqtw.tools.fsck import command


def fsck(session: Session, directory: str, must_repair: bool) -> int:
    """`nsqtw fsck`. The exit code."""
    return command.run(directory, must_repair)


def migrate_backend(session: Session, source: str, target: str, data_path: str) -> int:
    """`nsqtw migrate-backend`. The exit code."""
    return migration.run(data_path, source, target)


def hash_secret(session: Session, generate: bool, salt_of: str | None) -> int:
    """`nsqtw hash-secret`. The exit code."""
    return hashing.run(salt_of, generate)
