"""
The backends whose files `nsqtw fsck`, `backup` and `restore` know: those of all installed plugins with `IBackendFiles`.

All of them are asked about every data path, so a fault in the code of one must not end a command about the files of
another: it counts as a backend whose files are not known. Only the files of backends that a manifest names have to be
known, and of all backends where there is no manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import TypeVar

from attrs import field, frozen
from twisted.plugin import getPlugins

from nsqtw.errors import NsqtwError, PluginError
from nsqtw.interfaces import IBackendFiles, IBackendQueueFactory
from nsqtw.plugins import backend_description, files_class, find_backend

DUMMY = "dummy"
"""The backend that keeps nothing when it is closed."""
T = TypeVar("T")


@frozen
class KnownBackends:
    """By NAME or NAME:ARGUMENT, sorted: the backends whose files are known, and why those of named ones are not."""

    known: dict[str, IBackendFiles] = field(factory=dict)
    unknown: dict[str, str] = field(factory=dict)

    def ask(self, question: Callable[[IBackendFiles], T], required: Collection[str] = ()) -> dict[str, T]:
        """
        Return the answers of all known backends. NsqtwError or OSError when one of nsqtw, or one that is `required`,
        fails; another one that fails is not known any more.
        """
        answers: dict[str, T] = {}
        for description, files in [*self.known.items()]:
            try:
                answers[description] = question(files)
            except Exception as failure:  # of the code of a third party
                if description not in required and not type(files).__module__.startswith("nsqtw."):
                    del self.known[description]
                elif isinstance(failure, NsqtwError | OSError):
                    raise
                else:
                    raise PluginError(f"the backend {description!r} failed - {_reason(failure)}") from failure
        return answers


@cache
def load_backends() -> dict[str, Callable[[str], IBackendFiles] | str]:
    """
    Import the code of all backends; a text instead is the reason why it cannot be used. A process that is about to take
    the rights of another user calls it before, because that user may not be able to read the code.
    """
    found: dict[str, Callable[[str], IBackendFiles] | str] = {}
    installed = [*getPlugins(IBackendQueueFactory)]
    for name in sorted({plugin.name for plugin in installed}):
        try:
            backend, _ = find_backend(name, [plugin for plugin in installed if plugin.name == name])
            found[name] = files_class(backend)
        except PluginError as error:
            found[name] = str(error)
    return found


def known_backends(named: Iterable[str] = ()) -> KnownBackends:
    """Return all installed backends whose files are known: without an argument, and those that are `named` with it."""
    installed = load_backends()
    named = {backend_description(one) for one in named if one}
    # A backend may have its messages in one place with any argument.
    others = {*installed} - {one.partition(":")[0] for one in named}
    result = KnownBackends()
    for description in sorted({*named, *others}):
        name, _, argument = description.partition(":")
        made = installed.get(name, f"the backend {name!r} is not installed")
        try:
            if isinstance(made, str):
                raise PluginError(made)
            result.known[description] = made(argument)
        except Exception as failure:  # of the code of a third party
            if description in named and name != DUMMY:
                result.unknown[description] = _reason(failure)
    return result


def _reason(failure: Exception) -> str:
    return str(failure) if isinstance(failure, NsqtwError | OSError) else repr(failure)
