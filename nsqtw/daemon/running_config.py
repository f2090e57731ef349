"""
The options of a running daemon, and the changes that a reload would make.

A reload resolves the command line, the environment and the config file as a start does, and compares the result with
what the last start or reload found there. So an option that was changed over HTTP keeps that value until its source
changes. Whether a running daemon takes a new value is a part of the option's declaration (`options.fields.option`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import attrs

from nsqtw.options.channels import channel_rules_text
from nsqtw.options.command_line import Resolved
from nsqtw.options.fields import OptionTable
from nsqtw.options.topics import rules_text

_RULES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "topic_rules": ("[topic]", rules_text),
    "channel_rules": ("[channel]", channel_rules_text),
}
"""The rules about topics and channels: their key in a report, and how they are shown."""


@attrs.frozen
class Change:
    """An option whose source has another value: its config key, and both values as a config file has them."""

    name: str
    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return self.key if self.name in _RULES else f"{self.key} ({self.old!r} to {self.new!r})"


@attrs.frozen
class Plan:
    """
    What a reload does: `options` are those of the running daemon with the `changes`. `restart` are changes that need a
    restart, `unchanged` the keys of the other options that a reload takes.
    """

    options: object
    changes: list[Change]
    restart: list[Change]
    unchanged: list[str]
    warnings: list[str]


class RunningConfig:
    """
    The `options` of a daemon, which a reload changes, and their sources, which `resolve` reads. Without `resolve` the
    sources never change.
    """

    def __init__(
        self, table: OptionTable[Any], options: object, resolve: Callable[[], Resolved[Any]] | None = None
    ) -> None:
        self._table = table
        self._options = options
        self._resolved = copy.copy(options)
        self._resolve = resolve or (lambda: Resolved(self._resolved, {}, []))

    def configured(self, name: str) -> Any:
        """Return the value that the sources have given an option, whatever was set over HTTP since."""
        return getattr(self._resolved, name)

    def plan(self) -> Plan:
        """Read the sources. OptionError, one line, when a start would fail on them."""
        resolved = self._resolve()
        self._table.check(resolved.options)
        plan = Plan(copy.copy(self._options), [], [], [], resolved.warnings)
        for option in self._table:
            old, new = getattr(self._resolved, option.name), getattr(resolved.options, option.name)
            if old != new:
                change = Change(option.name, option.key, option.kind.plain(old), option.kind.plain(new))
                self._add(plan, change, new, is_taken=option.is_taken(old, new))
            elif option.is_reloadable:
                plan.unchanged.append(option.key)
        for name, (key, text) in _RULES.items() if self._table.has_rules else ():
            old, new = getattr(self._resolved, name), getattr(resolved.options, name)
            if old != new:
                self._add(plan, Change(name, key, text(old), text(new)), new, is_taken=True)
            else:
                plan.unchanged.append(key)
        return plan

    def apply(self, plan: Plan) -> None:
        """Give the running daemon the changes of a plan."""
        for change in plan.changes:
            value = getattr(plan.options, change.name)
            setattr(self._options, change.name, value)
            setattr(self._resolved, change.name, value)

    def leave_out(self, plan: Plan, names: frozenset[str]) -> None:
        """Take the changes of these options out of a plan."""
        for change in [change for change in plan.changes if change.name in names]:
            plan.changes.remove(change)
            setattr(plan.options, change.name, getattr(self._options, change.name))

    def _add(self, plan: Plan, change: Change, value: Any, *, is_taken: bool) -> None:
        if is_taken:
            plan.changes.append(change)
            setattr(plan.options, change.name, value)
        else:
            plan.restart.append(change)
