"""Checks of this machine: the limit of open files, the disk and the file system of a data path."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from nsqtw.cli.doctor.finding import CheckSubject, Finding
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
