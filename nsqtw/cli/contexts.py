"""
Contexts: named clusters in the user's config file, $XDG_CONFIG_HOME/nsqtw/config.toml or the file $NSQTW_CONTEXTS.

    current = "prod"

    [contexts.prod]
    nsqd_http_addresses = ["10.0.0.1:4151"]
    secret_file = "/home/me/.secrets/nsq"

The variable is not NSQTW_CONFIG, which names the config file of nsqd. A file that `nsqtw context` writes keeps its
comments and its order, and only its owner can read it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from nsqtw.errors import NotFound, OptionError
from nsqtw.options.types import did_you_mean

FILE_VARIABLE = "NSQTW_CONTEXTS"
NAME_VARIABLE = "NSQTW_CONTEXT"
LOCAL_NSQD = "127.0.0.1:4151"
"""The nsqd of a command without addresses: the default port on this machine."""

_CURRENT, _CONTEXTS = "current", "contexts"
_MODE = 0o600
_ADDRESS, _PATH = "HOST:PORT", "PATH"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _key(help: str, metavar: str, is_valid: Callable[[object], bool], form: str, default: Any) -> Any:
    metadata = {"help": help, "metavar": metavar, "is_valid": is_valid, "form": form}
    return attrs.field(default=default, metadata=metadata)


def _text(help: str, metavar: str) -> Any:
    return _key(help, metavar, _is_text, "a text", "")


def _texts(help: str, metavar: str) -> Any:
    return _key(help, metavar, _is_texts, "a list of texts", ())


def _switch(help: str) -> Any:
    return _key(help, "", lambda value: isinstance(value, bool), "true or false", False)


@attrs.frozen(kw_only=True)
class ClusterAccess:
    """
    Addresses and credentials of a cluster. The fields are the keys of a context in the file, and the options of `nsqtw
    context add`.
    """

    nsqd_http_addresses: tuple[str, ...] = _texts("HTTP address of an nsqd", _ADDRESS)
    lookupd_http_addresses: tuple[str, ...] = _texts("HTTP address of an nsqlookupd, which names the nsqds", _ADDRESS)
    nsqd_tcp_addresses: tuple[str, ...] = _texts(
        "TCP address of an nsqd, where nodes name one that cannot be reached from here", _ADDRESS
    )
    nsqadmin_http_address: str = _text("HTTP address of nsqadmin", _ADDRESS)
    secret_file: str = _text("File with the secret for nodes with --auth", _PATH)
    secret_variable: str = _text("Environment variable with the secret", "NAME")
    tls_ca_file: str = _text("Certificates of the authorities that signed those of the nodes", _PATH)
    tls_cert_file: str = _text("Client certificate", _PATH)
    tls_key_file: str = _text("Key of the client certificate", _PATH)
    tls_insecure: bool = _switch("Accept any certificate")
    secrets_to_named_nodes: bool = _switch(
        "Send the secret also to nsqds that only an nsqlookupd names, in plain HTTP or with any valid certificate"
    )

    @property
    def http_addresses(self) -> tuple[str, ...]:
        """The HTTP addresses of all servers."""
        admin = (self.nsqadmin_http_address,) if self.nsqadmin_http_address else ()
        return (*self.nsqd_http_addresses, *self.lookupd_http_addresses, *admin)

    def secret(self) -> str:
        """Return the secret, empty for none. OptionError when its file or variable has none."""
        if self.secret_file:
            from nsqtw.options.files import read_secret  # slow to import

            return read_secret(os.path.expanduser(self.secret_file), "secret_file")
        if self.secret_variable:
            secret = os.environ.get(self.secret_variable, "")
            if not secret:
                raise OptionError(f"the secret is expected in ${self.secret_variable}, which is not set")
            return secret
        return ""

    def plain(self) -> dict[str, Any]:
        """Return the keys that are set, as they stand in the file."""
        values = attrs.asdict(self, filter=lambda field, value: value != field.default)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


KEYS = attrs.fields_dict(ClusterAccess)


@attrs.define
class Contexts:
    """The contents of the file at `path`. `current` is the context of commands that name none, "" for none."""

    path: Path
    current: str = ""
    by_name: dict[str, ClusterAccess] = attrs.Factory(dict)

    def named(self, name: str) -> ClusterAccess:
        """Return a context. NotFound."""
        found = self.by_name.get(name)
        if found is None:
            hint = did_you_mean(name, self.by_name) or "; 'nsqtw context list' shows them"
            raise NotFound(f"no context {name!r} in {self.path}{hint}")
        return found

    def save(self) -> None:
        """Write the file, readable by its owner only, with the comments that it has. OptionError."""
        import tomlkit  # slow to import, and only commands that write the file need it

        try:
            document = tomlkit.parse(self.path.read_text("utf-8")) if self.path.exists() else tomlkit.document()
            if self.current:
                document[_CURRENT] = self.current
            else:
                document.pop(_CURRENT, None)
            tables = document.setdefault(_CONTEXTS, tomlkit.table(is_super_table=True))
            for name in [name for name in tables if name not in self.by_name]:
                del tables[name]
            for name, access in self.by_name.items():
                if name not in tables or tables[name].unwrap() != access.plain():
                    tables[name] = access.plain()
            self._replace(document.as_string())
        except OSError as error:
            raise OptionError(f"{self.path} cannot be written: {error.strerror}") from error

    def _replace(self, text: str) -> None:
        """Replace the file in one step."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = self.path.resolve()
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()


def contexts_path(environment: Mapping[str, str]) -> Path:
    if environment.get(FILE_VARIABLE):
        return Path(environment[FILE_VARIABLE])
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME") or "~", ".config")
    return Path(home).expanduser() / "nsqtw/config.toml"


def read_contexts(environment: Mapping[str, str]) -> Contexts:
    """Read the file; without one there are no contexts. OptionError, one line that names the file and the key."""
    path = contexts_path(environment)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Contexts(path)
    except OSError as error:
        raise OptionError(f"config file {path}: {error.strerror}") from error
    except ValueError as error:  # of TOML and of UTF-8
        raise OptionError(f"config file {path}: {error}") from error
    for key in found.keys() - {_CURRENT, _CONTEXTS}:
        raise OptionError(f"config file {path}: unknown key {key!r}{did_you_mean(key, (_CURRENT, _CONTEXTS))}")
    current, tables = found.get(_CURRENT, ""), found.get(_CONTEXTS, {})
    if not isinstance(current, str):
        raise OptionError(f"config file {path}: {_CURRENT} must be the name of a context")
    if not isinstance(tables, dict):
        raise OptionError(f"config file {path}: {_CONTEXTS} must be tables, such as [{_CONTEXTS}.prod]")
    contexts = Contexts(path, current, {name: _access(path, name, table) for name, table in tables.items()})
    if current and current not in contexts.by_name:
        raise OptionError(f"config file {path}: {_CURRENT} = {current!r}, and there is no [{_CONTEXTS}.{current}]")
    return contexts


def _access(path: Path, name: str, table: object) -> ClusterAccess:
    where = f"config file {path}: [{_CONTEXTS}.{name}]"
    if not isinstance(table, dict):
        raise OptionError(f"{where} must be a table")
    for key, value in table.items():
        field = KEYS.get(key)
        if field is None:
            raise OptionError(f"{where} unknown key {key!r}{did_you_mean(key, KEYS)}")
        if not field.metadata["is_valid"](value):
            raise OptionError(f"{where} {key} must be {field.metadata['form']}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return ClusterAccess(**values)
