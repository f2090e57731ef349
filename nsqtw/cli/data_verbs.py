"""Verbs about the files of a broker: `backup`, `restore`, `fsck`, `migrate-backend`, `hash-secret`."""

from __future__ import annotations

from click import UsageError, get_current_context

from nsqtw.cli.session import Session
from nsqtw.tools import hash_secret as hashing
from nsqtw.tools import migrate_backend as migration
from nsqtw.tools.backup import backup as backups
from nsqtw.tools.backup import restore as restores
from nsqtw.tools.fsck import command


def backup(
    session: Session,
    directory: str,
    target: str,
    nsqd_http_address: str,
    secret_file: str,
    root_ca_file: str,
    must_link: bool,
) -> int:
    """`nsqtw backup`. The exit code."""
    return backups.run(directory, target, nsqd_http_address, secret_file, root_ca_file, must_link)


def restore(session: Session, backup: str, directory: str | None, must_replace: bool, must_only_check: bool) -> int:
    """`nsqtw restore`. The exit code. UsageError without a directory to restore to."""
    if directory is None and not must_only_check:
        raise UsageError("missing argument 'DATA_PATH'", get_current_context())
    return restores.run(backup, directory or "", must_replace, must_only_check)


def fsck(session: Session, directory: str, must_repair: bool) -> int:
    """`nsqtw fsck`. The exit code."""
    return command.run(directory, must_repair)


def migrate_backend(session: Session, source: str, target: str, data_path: str) -> int:
    """`nsqtw migrate-backend`. The exit code."""
    return migration.run(data_path, source, target)


def hash_secret(session: Session, generate: bool, salt_of: str | None) -> int:
    """`nsqtw hash-secret`. The exit code."""
    return hashing.run(salt_of, generate)
