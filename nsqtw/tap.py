"""Entry points of a broker: the console script `nsqd`, and `twistd nsq`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqtw.daemon.program import Program, TwistdWords
from nsqtw.options.broker import Options as NsqdOptions
from nsqtw.options.command_line import NSQD_READER, NsqdCommandLine

if TYPE_CHECKING:
    from nsqtw.daemon.process import MakeDaemon


def _answer(line: NsqdCommandLine) -> str | None:
    if not (line.help_backend or line.help_protocol or line.help_auth):
        return None
    from nsqtw import plugins

    if line.help_auth:
        return plugins.help_auth()
    return plugins.help_backend() if line.help_backend else plugins.help_protocol()


def _load() -> MakeDaemon[NsqdOptions]:
    from nsqtw.nsqd.service import BrokerService

    return BrokerService


def _needs_tls(options: NsqdOptions) -> bool:
    return bool(options.tls_cert or options.authorizer)


NSQD_PROGRAM = Program(NSQD_READER, "nsq", _load, _needs_tls, _answer)


class Options(TwistdWords):
    """The words behind `twistd nsq`."""

    program = NSQD_PROGRAM


makeService = NSQD_PROGRAM.service
main_nsqd = NSQD_PROGRAM.main
