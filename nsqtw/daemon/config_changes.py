"""
Report, on SIGHUP, of the options that a restart would change.

SIGHUP reads certificates, grants and secrets again, and no options. An operator that has edited the config file is told
which of its keys need a restart, or that a start would fail.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from nsqtw.errors import OptionError
from nsqtw.options.command_line import Resolved
from nsqtw.options.fields import OptionTable

_log = Logger()


class ConfigChanges:
    """Compares the options of the start, `started`, with what `resolve` reads now from the same sources."""

    def __init__(self, table: OptionTable[Any], started: Any, resolve: Callable[[], Resolved[Any]]) -> None:
        self._table = table
        self._started = copy.copy(started)  # a running daemon changes its own
        self._resolve = resolve

    def report(self) -> None:
        """Log what a restart would change, if anything."""
        try:
            resolved = self._resolve()
            self._table.check(resolved.options)
        except OptionError as error:
            _log.error("SIGHUP: a restart would fail - {error}", error=str(error))
            return
        changed = [
            option.key
            for option in self._table
            if getattr(resolved.options, option.name) != getattr(self._started, option.name)
        ]
        if self._table.has_rules and resolved.options.topic_rules != self._started.topic_rules:
            changed.append("[topic]")
        if changed:
            _log.warn("SIGHUP: changed, and need a restart: {keys}", keys=", ".join(changed))
