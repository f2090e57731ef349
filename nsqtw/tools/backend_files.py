"""The backends whose files `nsqtw fsck`, `backup` and `restore` know: those of all installed plugins that tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from attrs import field, frozen

from nsqtw.errors import NsqtwError, PluginError
from nsqtw.interfaces import IBackendFiles
from nsqtw.plugins import backend_description, backends, files_class

MEMORY = "dummy"
"""The backend that keeps nothing when it is closed."""


@frozen
class BackendFiles:
    """By NAME or NAME:ARGUMENT, sorted: the backends whose files are known, and why those of named ones are not."""

    known: dict[str, IBackendFiles] = field(factory=dict)
    unknown: dict[str, str] = field(factory=dict)


@cache
def load_backends() -> dict[str, Callable[[str], IBackendFiles] | str]:
    """
    Import the code of all backends; the text says why that of a backend cannot be had. A process that is about to take
    the rights of another user calls it before, because that user may not be able to read the code. DuplicatePlugin.
    """
    found: dict[str, Callable[[str], IBackendFiles] | str] = {}
    for name, backend in backends().items():
        try:
            found[name] = files_class(backend)
        except PluginError as error:
            found[name] = str(error)
    return found


def backend_files(named: Iterable[str] = ()) -> BackendFiles:
    """
    Return all installed backends whose files are known: those that are `named` with their argument, the others without
    one. DuplicatePlugin.
    """
    installed = load_backends()
    descriptions = {backend_description(one) for one in named if one}
    names = {one.partition(":")[0] for one in descriptions}
    result = BackendFiles()
    for description in sorted({*descriptions, *installed} - (names - descriptions)):
        name, _, argument = description.partition(":")
        made = installed.get(name, f"the backend {name!r} is not installed")
        try:
            if isinstance(made, str):
                raise PluginError(made)
            result.known[description] = made(argument)
        except NsqtwError as error:
            if name in names and name != MEMORY:
                result.unknown[description] = str(error)
    return result
