"""
Installed plugins: storage backends, protocols and authorizers, found by Twisted.

A plugin is an object in some `twisted/plugins/*.py` that provides `twisted.plugin.IPlugin` and one of the factory
interfaces of `nsqtw.interfaces`. Every start of twistd imports those files, whatever it runs, so they contain
descriptors: a name, a line of help, and the dotted name of the class, which is imported when it is chosen. Our own
plugins use the same mechanism.

Two plugins of one name are refused, because choosing one would be a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs
from twisted.plugin import IPlugin, getPlugins
from zope.interface import implementer

from nsqtw.errors import DuplicatePlugin, PluginError, UnknownPlugin
from nsqtw.interfaces import (
    IAuthorizer,
    IAuthorizerFactory,
    IBackend,
    IBackendFiles,
    IBackendQueueFactory,
    IProtocol,
    IProtocolFactory,
    IReplicaStoreFactory,
    OperatorLog,
    Report,
)

if TYPE_CHECKING:
    from nsqtw.options.broker import Options
    from nsqtw.replication.store import IReplicaStore

MAGIC_BYTES = 4
BROKER_API = 2
"""The version of `nsqtw.interfaces.IBroker`."""
SERVED_APIS = (1, 2)
"""The versions that sessions may be written for."""
_V2_MAGIC = b"  V2"
_V2 = "nsqtw.protocols.v2.V2Factory"

_AUTHORIZER = "authorizer"
_BACKEND = "backend"
_PROTOCOL = "protocol"
_REPLICA_STORE = "replica store"


@implementer(IPlugin, IBackendQueueFactory)
@attrs.frozen(kw_only=True)
class BackendPlugin:
    """
    Describes a kind of storage. `dotted` names a class that, called without arguments, is the factory. `files` names
    one that, called with the argument, provides `IBackendFiles`; without it fsck and backup do not know the files.
    """

    name: str
    summary: str
    argument_format: str
    dotted: str
    files: str = ""

    def open(self, argument: str, directory: str, options: Options, report: Report) -> IBackend:
        """Like IBackendQueueFactory; also PluginError, when the code cannot be loaded."""
        factory: IBackendQueueFactory = _load(_BACKEND, self.name, self.dotted)
        return factory.open(argument, directory, options, report)


@implementer(IPlugin, IProtocolFactory)
@attrs.frozen(kw_only=True)
class ProtocolPlugin:
    """Describes a protocol. `dotted` names a class that makes the factory, called without arguments."""

    name: str
    summary: str
    magic: bytes
    dotted: str

    def session(self, broker: Any, remote_address: str, changed: Callable[[], None], now: float) -> IProtocol:
        """Like IProtocolFactory; also PluginError, when the code cannot be loaded."""
        return self._factory.session(broker, remote_address, changed, now)

    def load(self) -> None:
        """
        Import the code now and not with the first connection. PluginError, also for code that was written for the
        unguarded broker, or for a later one.
        """
        made_for = getattr(self._factory, "broker_api", None)
        if made_for not in SERVED_APIS and self.dotted != _V2:
            raise PluginError(
                f"{_PROTOCOL} {self.name!r} ({self.dotted}) is not made for this nsqtw: its factory needs "
                f"broker_api = {BROKER_API} and sessions that use IBroker, see docs/how-to/plugin-protocol.md"
            )

    @cached_property
    def _factory(self) -> IProtocolFactory:
        factory: IProtocolFactory = _load(_PROTOCOL, self.name, self.dotted)
        return factory


@implementer(IPlugin, IAuthorizerFactory)
@attrs.frozen(kw_only=True)
class AuthorizerPlugin:
    """Describes an authorizer. `dotted` names a class that, called without arguments, is the factory."""

    name: str
    summary: str
    argument_format: str
    dotted: str

    def open(self, argument: str, options: Options, log: OperatorLog) -> IAuthorizer:
        """Like IAuthorizerFactory; also PluginError, when the code cannot be loaded."""
        factory: IAuthorizerFactory = _load(_AUTHORIZER, self.name, self.dotted)
        return factory.open(argument, options, log)


@implementer(IPlugin, IReplicaStoreFactory)
@attrs.frozen(kw_only=True)
class ReplicaStorePlugin:
    """
    Describes a kind of replica store. `dotted` names a class that, called without arguments, is the factory
    (`IReplicaStoreFactory`).
    """

    name: str
    summary: str
    argument_format: str
    dotted: str

    def open(self, argument: str, timeout: float, log: OperatorLog) -> IReplicaStore:
        """Like IReplicaStoreFactory; also PluginError, when the code cannot be loaded."""
        factory: IReplicaStoreFactory = _load(_REPLICA_STORE, self.name, self.dotted)
        return factory.open(argument, timeout, log)


def authorizers(candidates: Iterable[Any] | None = None) -> dict[str, IAuthorizerFactory]:
    """The installed authorizers by name; `candidates` takes the place of what is installed. DuplicatePlugin."""
    return _by("name", _AUTHORIZER, IAuthorizerFactory, candidates)


def backends(candidates: Iterable[Any] | None = None) -> dict[str, IBackendQueueFactory]:
    """The installed backends by name; `candidates` takes the place of what is installed. DuplicatePlugin."""
    return _by("name", _BACKEND, IBackendQueueFactory, candidates)


def protocols(candidates: Iterable[Any] | None = None) -> dict[bytes, IProtocolFactory]:
    """The installed protocols by magic; `candidates` takes the place of what is installed. DuplicatePlugin."""
    return _by("magic", _PROTOCOL, IProtocolFactory, candidates)


def find_protocols(names: Iterable[str], candidates: Iterable[Any] | None = None) -> dict[bytes, IProtocolFactory]:
    """
    The protocols that `--protocol` names, by magic. `candidates` takes the place of what is installed. UnknownPlugin,
    DuplicatePlugin, or PluginError for one whose code cannot be had or whose magic has not four bytes.
    """
    installed = list(getPlugins(IProtocolFactory) if candidates is None else candidates)
    chosen: list[Any] = []
    for name in dict.fromkeys(names):
        named = [plugin for plugin in installed if plugin.name == name]
        if not named:
            raise UnknownPlugin(_PROTOCOL, name, {plugin.name for plugin in installed})
        if len(named) > 1:
            raise DuplicatePlugin(_PROTOCOL, name, map(_origin, named))
        chosen += named
    for plugin in chosen:
        if not isinstance(plugin.magic, bytes) or len(plugin.magic) != MAGIC_BYTES:
            raise PluginError(f"{_PROTOCOL} {plugin.name!r} has the magic {plugin.magic!r}: it must be four bytes")
        if plugin.magic == _V2_MAGIC and _origin(plugin) != _V2:
            raise PluginError(f"{_PROTOCOL} {plugin.name!r} has the magic {_V2_MAGIC!r}, which belongs to V2")
        if isinstance(plugin, ProtocolPlugin):
            plugin.load()
    return _by("magic", _PROTOCOL, IProtocolFactory, chosen)


def find_backend(description: str, candidates: Iterable[Any] | None = None) -> tuple[IBackendQueueFactory, str]:
    """
    The backend that `--backend=NAME` or `--backend=NAME:ARGUMENT` means, and the argument ("" without one).
    UnknownPlugin, which lists what is installed, or DuplicatePlugin.
    """
    return _found(_BACKEND, description, backends(candidates))


def files_class(backend: IBackendQueueFactory) -> Callable[[str], IBackendFiles]:
    """Return what makes the `IBackendFiles` of an installed backend. PluginError, also when there is none."""
    dotted = getattr(backend, "files", "")
    if not dotted:
        raise PluginError(
            f"the plugin of the backend {backend.name!r} has no IBackendFiles, see docs/how-to/plugin-backend.md"
        )
    made: Callable[[str], IBackendFiles] = _class(_BACKEND, backend.name, dotted)
    return made


def backend_description(description: str) -> str:
    """NAME or NAME:ARGUMENT for `--backend`, in the one form in which two can be compared."""
    name, _, argument = description.partition(":")
    return f"{name}:{argument}" if argument else name


def find_authorizer(description: str, candidates: Iterable[Any] | None = None) -> tuple[IAuthorizerFactory, str]:
    """Like `find_backend`, for `--auth`."""
    return _found(_AUTHORIZER, description, authorizers(candidates))


def find_replica_store(description: str, candidates: Iterable[Any] | None = None) -> tuple[IReplicaStoreFactory, str]:
    """Like `find_backend`, for `--replicate`."""
    return _found(_REPLICA_STORE, description, _by("name", _REPLICA_STORE, IReplicaStoreFactory, candidates))


def help_backend() -> str:
    return _help("Storage backends, for --backend=NAME or --backend=NAME:ARGUMENT", backends())


def help_auth() -> str:
    return _help("Authorizers, for --auth=NAME or --auth=NAME:ARGUMENT", authorizers())


def help_protocol() -> str:
    lines = ["Protocols, for --protocol=NAME,NAME, and the first four bytes that a client of each sends"]
    for magic, protocol in sorted(protocols().items()):
        lines.append(f"  {protocol.name}  {magic.decode('latin-1')!r}\n    \t{protocol.summary}")
    return "\n".join(lines) + "\n"


def _found(kind: str, description: str, plugins: dict[str, Any]) -> tuple[Any, str]:
    name, _, argument = description.partition(":")
    if name not in plugins:
        raise UnknownPlugin(kind, name, plugins)
    return plugins[name], argument


def _help(title: str, plugins: dict[str, Any]) -> str:
    lines = [title]
    for name, factory in sorted(plugins.items()):
        lines.append(f"  {name}\n    \t{factory.summary}")
        if factory.argument_format:
            lines.append(f"    \tARGUMENT: {factory.argument_format}")
    return "\n".join(lines) + "\n"


def _by(attribute: str, kind: str, interface: Any, candidates: Iterable[Any] | None) -> dict[Any, Any]:
    plugins: dict[Any, Any] = {}
    for plugin in getPlugins(interface) if candidates is None else candidates:
        key = getattr(plugin, attribute)
        if key in plugins:
            shown = key.decode("latin-1") if isinstance(key, bytes) else key
            raise DuplicatePlugin(kind, shown, (_origin(plugins[key]), _origin(plugin)))
        plugins[key] = plugin
    return plugins


def _origin(plugin: Any) -> str:
    """Return the dotted name of a plugin's class."""
    named: str | None = getattr(plugin, "dotted", None)
    return named or f"{type(plugin).__module__}.{type(plugin).__qualname__}"


def _load(kind: str, name: str, dotted: str) -> Any:
    return _class(kind, name, dotted)()


def _class(kind: str, name: str, dotted: str) -> Any:
    module, _, attribute = dotted.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except Exception as failure:  # any exception of a module that is imported
        why = str(failure) if isinstance(failure, ImportError | AttributeError) else repr(failure)
        raise PluginError(f"{kind} {name!r} cannot be loaded from {dotted}: {why}") from failure
