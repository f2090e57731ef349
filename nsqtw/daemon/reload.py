"""
Reload of a running daemon, on SIGHUP and over HTTP: options, and the files that they name.

    read the sources of the options ─▶ check ─▶ read the files they name ─▶ change options, use files
                                         │                 └──▶ a mistake: these files, and options that name them, stay
                                         └──▶ a mistake: one line, and nothing is changed

Files are independent: a certificate that cannot be used does not keep a secret in that is withdrawn. A report says what
has changed, what needs a restart, which files were read again or cannot be used, and what stayed as it was. Secrets do
not appear in it: values are shown as --print-config shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
from twisted.logger import Logger

from nsqtw.daemon.running_config import Change, Plan, RunningConfig
from nsqtw.errors import OptionError

CERTIFICATE_OPTIONS = frozenset(("tls_cert", "tls_key", "tls_root_ca_file", "tls_min_version"))
"""The options about the certificate of a daemon."""

_log = Logger()


@attrs.frozen
class FileReader:
    """
    Files of one kind that options name. `read` reads them, with the options as they are to be, and returns the function
    that makes the daemon use them, or None if there are none; OptionError. `name` is their name in a report, `options`
    are the options about them.
    """

    name: str
    read: Callable[[Any], Callable[[], None] | None]
    options: frozenset[str] = frozenset()


@attrs.frozen
class Report:
    """The result of a reload."""

    changed: list[Change]
    restart: list[Change]
    files: list[str]
    failed: dict[str, str]
    unchanged: list[str]

    def document(self) -> dict[str, Any]:
        """Return it as a JSON document."""
        return {
            "changed": [_shown(change) for change in self.changed],
            "restart": [_shown(change) for change in self.restart],
            "files": self.files,
            "failed": self.failed,
            "unchanged": self.unchanged,
        }


class Reload:
    """
    The reload of a daemon, whose options are those of `config`.

    `file_readers` returns the readers of the files in use. `follow` is called with the names of the options that have
    new values.
    """

    def __init__(
        self,
        config: RunningConfig,
        file_readers: Callable[[], Iterable[FileReader]] = tuple,
        follow: Callable[[frozenset[str]], None] = lambda changed: None,
    ) -> None:
        self._config = config
        self._file_readers = file_readers
        self._follow = follow

    def run(self) -> Report:
        """
        Read everything again. OptionError, one line that is logged too, for a mistake in an option; nothing is changed
        then.
        """
        try:
            plan = self._config.plan()
        except OptionError as error:
            _log.error("RELOAD: nothing is changed - {error}", error=str(error))
            raise
        uses: dict[str, Callable[[], None]] = {}
        failed: dict[str, str] = {}
        for reader in self._file_readers():
            try:
                use = reader.read(plan.options)
            except OptionError as error:
                failed[reader.name] = str(error)
                self._config.leave_out(plan, reader.options)
            else:
                uses |= {} if use is None else {reader.name: use}
        self._config.apply(plan)
        for use in uses.values():
            use()
        self._follow(frozenset(change.name for change in plan.changes))
        report = Report(plan.changes, plan.restart, list(uses), failed, plan.unchanged)
        _log_report(report, plan)
        return report

    def on_sighup(self) -> None:
        """Read everything again; the log says what came of it."""
        try:
            self.run()
        except OptionError:
            return


def _log_report(report: Report, plan: Plan) -> None:
    for warning in plan.warnings:
        _log.warn("{warning}", warning=warning)
    for files, error in report.failed.items():
        _log.error("RELOAD: the {files} stay as they were - {error}", files=files, error=error)
    if report.files:
        _log.info("RELOAD: read again: {files}", files=", ".join(report.files))
    if report.changed:
        _log.info("RELOAD: changed: {changes}", changes=", ".join(map(str, report.changed)))
    if report.restart:
        _log.warn("RELOAD: needs a restart: {changes}", changes=", ".join(map(str, report.restart)))
    if not (report.files or report.failed or report.changed or report.restart):
        _log.info("RELOAD: there is nothing to reload")


def _shown(change: Change) -> dict[str, Any]:
    return {"option": change.key, "old": change.old, "new": change.new}
