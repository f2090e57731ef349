"""Checks of the user's files: the config file, the secret, and the TLS files of a context."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from nsqtw.cli.contexts import ClusterAccess, Contexts
from nsqtw.cli.doctor.finding import CheckSubject, Finding
from nsqtw.cli.stdlib_http import tls_context_of
from nsqtw.errors import OptionError
from nsqtw.net.certificates import expiry_of

SOON = timedelta(days=30)
"""The rest of a certificate's time that is a warning."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


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
