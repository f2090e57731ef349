"""Entry points of an nsqadmin: the console script `nsqadmin`, and `twistd nsqadmin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqtw.daemon.program import Program, TwistdWords
from nsqtw.options.admin import NSQADMIN_READER, AdminCommandLine, AdminOptions

if TYPE_CHECKING:
    from nsqtw.daemon.process import MakeDaemon


def _answer(line: AdminCommandLine) -> str | None:
    if not line.help_auth:
        return None
    from nsqtw.plugins import help_auth

    return help_auth()


def _load() -> MakeDaemon[AdminOptions]:
    from nsqtw.admin.service import AdminService

    return AdminService


def _needs_tls(options: object) -> bool:
    # Any nsqd may answer that it takes HTTPS only.
    return True


NSQADMIN_PROGRAM = Program(NSQADMIN_READER, "nsqadmin", _load, _needs_tls, _answer)


class Options(TwistdWords):
    """The words behind `twistd nsqadmin`."""

    program = NSQADMIN_PROGRAM


makeService = NSQADMIN_PROGRAM.service
main_nsqadmin = NSQADMIN_PROGRAM.main
