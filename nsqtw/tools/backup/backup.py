"""`nsqtw backup DATA_PATH TARGET`: arguments, output and exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime

from nsqtw import __version__
from nsqtw.backends.files import Files, backend_error
from nsqtw.backends.finding import Finding
from nsqtw.backends.manifest import backends_with_messages, read_manifest
from nsqtw.daemon.data_path import data_path_identity, lock_data_path
from nsqtw.errors import BackendError, NsqtwError, OptionError
from nsqtw.options.files import read_secret
from nsqtw.plugins import backend_description
from nsqtw.printing import complain, write_line
from nsqtw.replication.state_file import read_state
from nsqtw.tools.backend_files import known_backends, load_backends
from nsqtw.tools.backup.contents import DEFAULT_BACKEND, Contents, StoredFile, checksum, write_contents
from nsqtw.tools.backup.copy import (
    ProgressLine,
    copy_data_path,
    data_path_bytes,
    only_one,
    partial_directory,
)
from nsqtw.tools.backup.hold import Hold
from nsqtw.tools.fsck.data_path import check_data_path, is_data_path
from nsqtw.tools.owner import Owner

DONE = 0
FAILED = 1
DAMAGED = 3


def run(
    directory: str, target: str, nsqd_http_address: str, secret_file: str, root_ca_file: str, must_link: bool
) -> int:
    """Make a backup of a data path at `target`, and say what is in it. Returns the exit code."""
    try:
        hold = None
        if nsqd_http_address:
            hold = Hold(nsqd_http_address, read_secret(secret_file, "--secret-file"), root_ca_file)
        contents, findings = make_backup(directory, target, hold, links=must_link)
    except (NsqtwError, OSError) as error:
        complain(f"nsqtw backup: {error}")
        return FAILED
    for finding in findings:
        write_line(str(finding))
    megabytes = contents.total_bytes / (1 << 20)
    write_line(f"{target}: {len(contents.files)} files, {megabytes:.1f} MB, backend {contents.backend}")
    return DAMAGED if findings else DONE


def make_backup(
    directory: str, target: str, hold: Hold | None, *, links: bool = False
) -> tuple[Contents, list[Finding]]:
    """
    Copy a data path to `target`, which must not be there, or be empty: under `hold` while its broker runs, else under
    the lock on the data path. Returns what is in the backup, and the damage that the data path has. NsqtwError, and
    there is no backup.
    """
    directory, target = os.path.abspath(directory), os.path.abspath(target)
    load_backends()
    try:
        owner = Owner.of(directory)
        with owner.rights():
            is_known = is_data_path(directory)
        if not is_known:
            raise OptionError(f"{directory} is no nsqtw data path: no broker has stored anything there")
        # In a directory of the broker's user, root makes the backup with the rights of this user, too.
        beside = Owner.of(os.path.dirname(target))
        maker = owner if beside.uid == owner.uid else Owner.of("/")
        with maker.rights():
            check_target(target)
            with only_one(target, maker):
                check_target(target)
                with partial_directory(target, maker, maker) as partial:
                    _copy(directory, partial, owner, hold, links=links)
                    return _finish(partial, target)
    except OSError as failure:
        raise backend_error(failure, f"backup of {directory}") from failure


def check_target(target: str) -> None:
    """OptionError when something is at the place of a backup. OSError."""
    if os.path.lexists(target) and not os.path.isdir(target):
        raise OptionError(f"{target} is there already, and no directory")
    if os.path.isdir(target) and os.listdir(target):
        raise OptionError(f"{target} is not empty: a backup has a directory of its own")


def _copy(directory: str, partial: str, owner: Owner, hold: Hold | None, *, links: bool) -> None:
    """Copy a data path while nothing of it is deleted. NsqtwError, OSError."""
    with _held(directory, hold) as extend:
        with owner.rights():
            size = data_path_bytes(directory)
        line = ProgressLine("backup", size)
        with closing(line):

            def progress(count: int) -> None:
                extend()
                line(count)

            copy_data_path(directory, partial, owner, progress, links=links)
        extend()


@contextmanager
def _held(directory: str, hold: Hold | None) -> Iterator[Callable[[], None]]:
    """While nothing of the data path is deleted. Yields what is to be called now and then."""
    if hold is not None:
        with hold:
            if hold.identity != data_path_identity(directory):
                other = hold.data_path
                difference = " of another machine or container" if other == directory else f", not {directory}"
                raise OptionError(f"the broker has the data path {other}{difference}")
            yield hold.extend
        return
    try:
        lock = lock_data_path(directory)
    except OptionError as error:
        raise OptionError(f"{error}; name its broker with --nsqd-http-address") from error
    try:
        state = read_state(directory)
        if state is not None and not state.checkpoint_lsn:
            raise OptionError(f"{directory} is the copy of a standby, without positions: back up that of the owner")
        yield lambda: None
    finally:
        os.close(lock)


def _finish(partial: str, target: str) -> tuple[Contents, list[Finding]]:
    """Make a copy a backup. NsqtwError, OSError."""
    for content in check_data_path(partial).backends.values():
        try:
            content.cut_torn_ends()
        except OSError as failure:
            raise backend_error(failure, "cut of a torn end") from failure
    findings = check_data_path(partial).findings()
    _remove_shared_memory(partial)
    contents = Contents(
        datetime.now(UTC).isoformat(timespec="seconds"), __version__, _backend_of(partial), _files_of(partial)
    )
    write_contents(partial, contents)
    if os.path.isdir(target):
        os.rmdir(target)
    os.rename(partial, target)
    Files().sync_directory(os.path.dirname(target))
    return contents, findings


def _files_of(directory: str) -> dict[str, StoredFile]:
    paths = sorted(os.path.join(parent, name) for parent, _, names in os.walk(directory) for name in names)
    line = ProgressLine("checksums", sum(map(os.path.getsize, paths)))
    with closing(line):
        return {os.path.relpath(path, directory): checksum(path, line) for path in paths}


def _backend_of(directory: str) -> str:
    """The backend whose messages were copied. BackendError when its files are not known."""
    manifest = read_manifest(directory)
    backend = manifest.backend if manifest is not None else "".join(backends_with_messages(directory)[:1])
    backend = backend_description(backend or DEFAULT_BACKEND)
    files = known_backends([backend])
    if backend not in files.known:
        why = f": {files.unknown[backend]}" if backend in files.unknown else ""
        raise BackendError(f"the messages are kept by the backend {backend!r}, of which nsqtw can make no backup{why}")
    return backend


def _remove_shared_memory(directory: str) -> None:
    """Remove what a look into a database leaves beside it."""
    for name in os.listdir(directory):
        if name.endswith(("-wal", "-shm")):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))
