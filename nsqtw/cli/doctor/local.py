"""
Checks of this machine and of the user's files: the limit of open files, the disk and the file system of a data path,
the config file, the secret, and the TLS files of a context. What a check found is a `Finding`.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

import attrs

from nsqtw.cli.contexts import ClusterAccess, Contexts
from nsqtw.cli.stdlib_http import tls_context_of
from nsqtw.errors import OptionError
from nsqtw.foreign_text import one_line
from nsqtw.net.certificates import expiry_of
from nsqtw.options.texts import readable_size

FEW_FILES = 1024
ENOUGH_FILES = 16384
"""Open files that a broker with thousands of connections needs."""
_MIN_FREE_BYTES = 1 << 30
_FULL_BYTES = 100 << 20
_MIN_FREE_SHARE = 0.1
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs"}
_VOLATILE = {"tmpfs", "ramfs"}
_MOUNTS = Path("/proc/self/mounts")
SOON = timedelta(days=30)
"""The rest of a certificate's time that is a warning."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Level(Enum):
    """How bad a finding is. An error ends `nsqtw doctor` with exit code 1."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen
class Finding:
    """What a check found: `what` it looked at, the `text`, and for a problem what to do. Servers name both."""

    level: Level
    check: str
    what: str = attrs.field(converter=one_line)
    text: str = attrs.field(converter=one_line)
    remedy: str = ""


@attrs.frozen
class CheckSubject:
    """Findings of one check about one thing."""

    check: str
    what: str

    def ok(self, text: str) -> Finding:
        """Return a finding without a problem."""
        return Finding(Level.OK, self.check, self.what, text)

    def warning(self, text: str, remedy: str) -> Finding:
        """Return a problem that may matter later."""
        return Finding(Level.WARNING, self.check, self.what, text, remedy)

    def error(self, text: str, remedy: str) -> Finding:
        """Return a problem that matters now."""
        return Finding(Level.ERROR, self.check, self.what, text, remedy)


def check_limits(soft: int, hard: int) -> Finding:
    """Check the limit of open files. RLIM_INFINITY is no limit."""
    subject = CheckSubject("limits", "open files")
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= ENOUGH_FILES:
        return subject.ok("no limit" if soft == unlimited else f"{soft}")
    is_raisable = hard == unlimited or hard >= ENOUGH_FILES
    where = f"ulimit -n {ENOUGH_FILES}" if is_raisable else "the hard limit in /etc/security/limits.conf"
    remedy = f"raise it before nsqd starts: {where}, or LimitNOFILE={ENOUGH_FILES} in the unit of systemd"
    text = f"{soft}: each connection and each log file takes one"
    return subject.error(text, remedy) if soft < FEW_FILES else subject.warning(text, remedy)


def check_data_path(path: str) -> Iterator[Finding]:
    """Check the disk and the file system of a data path."""
    subject = CheckSubject("disk", path)
    if not os.path.isdir(path):
        yield subject.error("there is no such directory", "give the directory that nsqd has as --data-path")
        return
    if not os.access(path, os.W_OK | os.X_OK):
        yield subject.error("this user cannot write there", f"run as the user of nsqd, or: chmod u+rwx {path}")
    yield check_space(path, *shutil.disk_usage(path))
    yield check_file_system(path, _MOUNTS.read_text("utf-8", "replace") if _MOUNTS.exists() else "")


def check_space(path: str, total: int, used: int, free: int) -> Finding:
    """Check the free space of a disk. Sizes are bytes."""
    subject = CheckSubject("disk", path)
    text = f"{readable_size(free)} of {readable_size(total)} are free"
    remedy = "remove other files, lower the retention of topics, or move the data path to a larger disk"
    if free < _FULL_BYTES:
        return subject.error(f"{text}: nsqd refuses publishes when there is none", remedy)
    if free < _MIN_FREE_BYTES or free < total * _MIN_FREE_SHARE:
        return subject.warning(text, remedy)
    return subject.ok(text)


def check_file_system(path: str, mounts: str) -> Finding:
    """Check the kind of file system. `mounts` is the text of /proc/self/mounts."""
    subject = CheckSubject("file system", path)
    kind, options = mount_of(os.path.realpath(path), mounts)
    if "ro" in options:
        return subject.error(f"{kind} is mounted read-only", "mount it with rw, or choose another data path")
    if kind in _VOLATILE:
        return subject.error(f"{kind} is memory: messages are lost with the power", "choose a directory on a disk")
    if kind in _NETWORK:
        return subject.warning(
            f"{kind} is a network file system: its fsync and locks may not hold", "choose a directory on a local disk"
        )
    if kind == "overlay":
        return subject.warning(
            "overlay: in a container, messages are lost with it", "mount a volume of the host as data path"
        )
    return subject.ok(kind or "unknown")


def mount_of(path: str, mounts: str) -> tuple[str, frozenset[str]]:
    """Return the kind and the options of the mount that a path is on; "" when it is unknown."""
    best, found = "", ("", frozenset[str]())
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        point = fields[1].replace("\\040", " ")
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best):
            best, found = point, (fields[2], frozenset(fields[3].split(",")))
    return found


def open_file_limits() -> tuple[int, int]:
    """Return the soft and the hard limit of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def check_config(contexts: Contexts, name: str) -> Finding:
    """Check the config file, which was read without a mistake. `name` is the context in use, "" for none."""
    subject = CheckSubject("config file", str(contexts.path))
    if not contexts.path.exists():
        return subject.ok("there is none; 'nsqtw context add' makes it")
    if contexts.path.stat().st_mode & _OTHERS:
        return subject.warning("other users can read or change it", f"chmod 600 {contexts.path}")
    count = len(contexts.by_name)
    return subject.ok(f"{count} context{'' if count == 1 else 's'}, in use: {name or 'none'}")


def check_secret(access: ClusterAccess) -> Iterator[Finding]:
    if not access.secret_file and not access.secret_variable:
        return
    subject = CheckSubject("secret", access.secret_file or f"${access.secret_variable}")
    try:
        access.secret()
    except OptionError as error:
        yield subject.error(str(error), "make the file, or set the variable, or change the context")
        return
    if access.secret_file and os.stat(os.path.expanduser(access.secret_file)).st_mode & _OTHERS:
        yield subject.warning("other users can read it", f"chmod 600 {access.secret_file}")
    else:
        yield subject.ok("can be read")


def check_tls_files(access: ClusterAccess, now: datetime) -> Iterator[Finding]:
    """Check the TLS files of a context. `now` has a time zone."""
    paths = [path for path in (access.tls_ca_file, access.tls_cert_file, access.tls_key_file) if path]
    missing = [path for path in paths if not os.access(path, os.R_OK)]
    for path in missing:
        yield CheckSubject("TLS files", path).error(
            "it cannot be read", "correct the path in the context, or its rights"
        )
    if access.tls_insecure:
        yield CheckSubject("TLS files", "tls_insecure").warning(
            "any certificate is accepted: somebody in between can read everything",
            "set tls_ca_file to the authority of the nodes instead",
        )
    if missing or not paths:
        return
    try:
        tls_context_of(access)
    except OptionError as error:
        yield CheckSubject("TLS files", ", ".join(paths)).error(str(error), "correct the files, PEM is expected")
        return
    for path in filter(None, (access.tls_ca_file, access.tls_cert_file)):
        expiry = expiry_of(path)
        if expiry is None:
            subject = CheckSubject("certificate", path)
            yield subject.warning("its time cannot be read", "replace it with certificates in plain PEM")
        else:
            yield check_certificate(path, expiry, now)
    if access.tls_key_file and Path(access.tls_key_file).stat().st_mode & stat.S_IRWXO:
        yield CheckSubject("TLS files", access.tls_key_file).warning(
            "every user can read the key", f"chmod 600 {access.tls_key_file}"
        )


def check_certificate(what: str, expiry: datetime, now: datetime) -> Finding:
    """Check the end of a certificate's time."""
    subject = CheckSubject("certificate", what)
    day = expiry.date().isoformat()
    if expiry <= now:
        return subject.error(f"it expired on {day}", "renew it, then 'nsqtw reload'")
    if expiry - now < SOON:
        return subject.warning(f"it expires on {day}", "renew it, then 'nsqtw reload'")
    return subject.ok(f"valid until {day}")
