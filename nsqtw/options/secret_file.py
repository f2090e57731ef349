"""The file with the secret that an nsqd and an nsqlookupd share: one line of ASCII, space around it does not count."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from nsqtw.errors import OptionError
from nsqtw.options.files import read_file

MAX_SECRET_BYTES = 4096


def read_secret(path: str, flag: str) -> str:
    """
    The secret in the file that `flag` names; "" when it names none. OptionError when there is no such file, or what it
    holds cannot be a secret.
    """
    if not path:
        return ""
    try:
        secret = read_file(path).strip().decode("ascii")
    except OptionError as mistake:
        raise OptionError(f"{flag} cannot be used - {mistake}") from mistake
    except UnicodeDecodeError:
        secret = ""
    if not 0 < len(secret) <= MAX_SECRET_BYTES or not secret.isprintable():
        text = f"must hold a secret: 1 to {MAX_SECRET_BYTES} printable characters of ASCII on one line"
        raise OptionError(f"{flag} cannot be used - {path} {text}")
    return secret


def exposures(files: Mapping[str, str]) -> list[str]:
    """A warning for each file, by the option that names it, that every user of the machine can read."""
    lines = []
    for flag, path in files.items():
        try:
            mode = os.stat(path).st_mode if path else 0
        except OSError:
            continue
        if mode & stat.S_IROTH:
            lines.append(f"{flag}: every user of this machine can read {path}: chmod 600 {path}")
    return lines
