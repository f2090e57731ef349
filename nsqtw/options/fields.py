"""
Definition of an option, and the table of all options of a program.

A program's options are an attrs class whose fields are made by `option`. Everything else that is to be known of them,
flags, variables, config keys and checks, is read from it by `OptionTable`. Every daemon has an option `nsq_compat`;
NSQ's tools have flags only.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import attrs

from nsqtw.errors import OptionError
from nsqtw.options.types import Kind

OURS_STEP = 19
EVERY_STEP = range(OURS_STEP + 1)
VARIABLE_PREFIXES = {
    "nsqd": "NSQTW_",
    "nsqlookupd": "NSQTW_NSQLOOKUPD_",
    "nsqadmin": "NSQTW_NSQADMIN_",
    "nsqtw": "NSQTW_CONTEXT",
    "nsqtw health": "NSQTW_HEALTH_",
}
"""
The prefixes of each program's environment variables; the flag follows, in upper case with `_`. A name belongs to the
longest prefix that it starts with.
"""

_NO_PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

O = TypeVar("O")  # noqa: E741


@attrs.frozen
class Limit:
    """
    A check of an option's value.

    `text` ends the sentence "--flag must be ...". `step` is the order of the checks: those of nsqd have numbers in
    the order in which nsqd makes them; ours, of values with which nsqd fails later, come last. `complaint` is the error
    where the flag and the text do not suffice. Without the option `only_with` the value is not used. `not_below` names
    an option whose value is the minimum. nsqd has no such limit if `is_ours`: --nsq-compat disables it.
    """

    text: str
    allows: Callable[[Any], bool]
    step: int = OURS_STEP
    complaint: Callable[[Any], str] | None = None
    only_with: str = ""
    not_below: str = ""
    is_ours: bool = False

    def holds(self, options: Any, value: Any) -> bool:
        """Return whether `value` will do beside the other options."""
        if (self.is_ours and options.nsq_compat) or (self.only_with and not getattr(options, self.only_with)):
            return True
        fits = self.allows(value) and (not self.not_below or value >= getattr(options, self.not_below))
        return bool(fits)

    def refusal(self, option: Option, value: Any) -> str:
        """Why `value` will not do."""
        sentence = f"--{option.flag} must be {self.text}"
        if self.complaint is None:
            return f"{sentence}, not {option.kind.show(value) or repr(value)}"
        return f"{self.complaint(value)}; {sentence}"


ABOVE_ZERO = Limit("greater than 0", lambda value: value > 0)
NOT_NEGATIVE = Limit("0 or more", lambda value: value >= 0)
OURS_ABOVE_ZERO = attrs.evolve(ABOVE_ZERO, is_ours=True)
OURS_NOT_NEGATIVE = attrs.evolve(NOT_NEGATIVE, is_ours=True)


Reloading = Callable[[Any, Any], bool]
"""Returns whether a running daemon takes a new value in place of an old one."""


def live(old: Any, new: Any) -> bool:
    """A running daemon takes any new value."""
    return True


def while_set(old: Any, new: Any) -> bool:
    """A running daemon takes another value; to set it at all, or to unset it, needs a restart."""
    return bool(old) and bool(new)


@attrs.frozen
class Option:
    """
    One line of the table. `name` is the attribute of the options' class, `default` as a user would write it; it is
    empty where the default is derived from the machine. `field` is NSQ's name for it in an error text, empty where
    that follows from the key. `reload` is None for an option that only a start takes.
    """

    name: str
    flag: str
    variable: str
    key: str
    field: str
    kind: Kind
    help: str
    limit: Limit | None
    default: str
    is_derived: bool
    reload: Reloading | None

    @property
    def is_reloadable(self) -> bool:
        """Whether a running daemon may take a new value."""
        return self.reload is not None

    def is_taken(self, old: Any, new: Any) -> bool:
        """Return whether a running daemon takes a new value in place of an old one."""
        return self.reload is not None and self.reload(old, new)


def option(
    kind: Kind,
    default: Any,
    text: str,
    *,
    key: str | None = None,
    field: str = "",
    limit: Limit | None = None,
    reload: Reloading | None = None,
) -> Any:
    """
    A field of a class of options. `text` is the help; `key` the config key where it is not the field's name; `reload`
    says whether a running daemon takes a new value: `live`, `while_set`, or None for never.
    """
    shown = "" if isinstance(default, attrs.Factory) else kind.show(default)  # type: ignore[arg-type]
    return attrs.field(
        default=default,
        metadata={
            "kind": kind,
            "key": key,
            "field": field,
            "help": text,
            "limit": limit,
            "default": shown,
            "reload": reload,
        },
    )


def same(options: type[Any], name: str) -> Any:
    """A field that is the same as in another class of options."""
    field = getattr(attrs.fields(options), name)
    return attrs.field(default=field.default, metadata=field.metadata)


class OptionTable(Generic[O]):
    """
    The options of `program`, in the order they are declared in the attrs class `options`. `has_rules`: the config file
    may have tables about topics and channels. `presets`: options that, when they are set, give others another default.
    """

    def __init__(
        self,
        program: str,
        options: type[O],
        *,
        has_rules: bool = False,
        presets: Mapping[str, Mapping[str, Any]] = _NO_PRESETS,
    ) -> None:
        self.program = program
        self.options = options
        self.prefix = VARIABLE_PREFIXES.get(program, "")
        self.has_rules = has_rules
        self.presets = presets
        self._all = tuple(_read(field, self.prefix) for field in attrs.fields(options) if field.metadata)  # type: ignore[arg-type]
        self.by_flag = {option.flag: option for option in self._all}
        self.by_key = {option.key: option for option in self._all}
        limited = [(option.limit, option) for option in self._all if option.limit is not None]
        self._checks = sorted(limited, key=lambda check: check[0].step)

    def __iter__(self) -> Iterator[Option]:
        return iter(self._all)

    def check(self, options: O, steps: Container[int] = EVERY_STEP) -> None:
        """Raise OptionError, one line, for all options the program cannot run with, of the checks of `steps`."""
        wrong = [
            limit.refusal(option, value)
            for limit, option in self._checks
            if limit.step in steps and not limit.holds(options, value := getattr(options, option.name))
        ]
        if wrong:
            raise OptionError("; ".join(wrong))


def _read(field: Any, prefix: str) -> Option:
    return Option(
        name=field.name,
        flag=field.name.replace("_", "-"),
        variable=prefix + field.name.upper(),
        key=field.metadata["key"] or field.name,
        field=field.metadata["field"],
        kind=field.metadata["kind"],
        help=field.metadata["help"],
        limit=field.metadata["limit"],
        default=field.metadata["default"],
        reload=field.metadata["reload"],
        is_derived=isinstance(field.default, attrs.Factory),  # type: ignore[arg-type]
    )
