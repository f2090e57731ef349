"""Entry points of an nsqlookupd: the console script `nsqlookupd`, and `twistd nsqlookupd`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqtw.daemon.program import Program, TwistdWords
from nsqtw.options.lookupd import NSQLOOKUPD_READER, LookupdOptions

if TYPE_CHECKING:
    from nsqtw.daemon.process import MakeDaemon


def _load() -> MakeDaemon[LookupdOptions]:
    from nsqtw.lookupd.service import LookupdService

    return LookupdService


def _needs_tls(options: LookupdOptions) -> bool:
    return bool(options.tls_cert)


NSQLOOKUPD_PROGRAM = Program(NSQLOOKUPD_READER, "nsqlookupd", _load, _needs_tls)


class Options(TwistdWords):
    """The words behind `twistd nsqlookupd`."""

    program = NSQLOOKUPD_PROGRAM


makeService = NSQLOOKUPD_PROGRAM.service
main_nsqlookupd = NSQLOOKUPD_PROGRAM.main
