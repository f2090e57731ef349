"""The files that a running broker reads again on a reload: certificates, credentials for nsqlookupd, and grants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from twisted.logger import Logger

from nsqtw.auth.authorization import PluginAuthorizations, grants_reader
from nsqtw.daemon.reload import CERTIFICATE_OPTIONS, FileReader
from nsqtw.options.broker import Options

if TYPE_CHECKING:
    from nsqtw.net.tls_settings import TlsSettings

TOPIC_OPTIONS = frozenset(("durability", "retention_time", "retention_bytes", "topic_rules", "channel_rules"))
"""The options that say something of topics and channels which are there already."""
_LOOKUPD_OPTIONS = frozenset(
    ("lookupd_tls", "lookupd_tls_root_ca_file", "lookupd_tls_cert", "lookupd_tls_key", "lookupd_secret_file")
)

_log = Logger()


def file_readers(tls: TlsSettings | None, authorizations: PluginAuthorizations | None) -> list[FileReader]:
    """Return the readers of what is in use."""
    readers = [] if tls is None else [FileReader("certificates", tls.read, CERTIFICATE_OPTIONS)]
    readers.append(FileReader("nsqlookupd credentials", _read_lookupd_files, _LOOKUPD_OPTIONS))
    if authorizations is not None:
        readers.append(FileReader("grants", grants_reader(authorizations)))
    return readers


def _read_lookupd_files(options: Options) -> Callable[[], None] | None:
    """Check what each new connection to an nsqlookupd reads."""
    if not (options.lookupd_tls or options.lookupd_secret_file):
        return None
    from nsqtw.discovery.tls import check_lookupd

    warnings = check_lookupd(options)
    return partial(_warn, warnings)


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        _log.warn("{warning}", warning=warning)
