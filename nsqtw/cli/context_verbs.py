"""Verbs about contexts: `nsqtw context list`, `show`, `add`, `use`, `remove`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsqtw.cli.contexts import KEYS, ClusterAccess
from nsqtw.cli.output import Column, Document, Table
from nsqtw.cli.session import Session
from nsqtw.errors import OptionError

_COLUMNS = (
    Column("current", "IN USE", lambda value: "*" if value else ""),
    Column("name", "NAME"),
    Column("nsqd_http_addresses", "NSQD"),
    Column("lookupd_http_addresses", "NSQLOOKUPD"),
)
_PATHS = ("secret_file", "tls_ca_file", "tls_cert_file", "tls_key_file")


def list_contexts(session: Session) -> Table:
    """`nsqtw context list`."""
    rows = [
        {
            "name": name,
            "current": name == session.context_name,
            "nsqd_http_addresses": list(access.nsqd_http_addresses),
            "lookupd_http_addresses": list(access.lookupd_http_addresses),
        }
        for name, access in session.contexts.by_name.items()
    ]
    return Table(_COLUMNS, rows, f"no contexts in {session.contexts.path}; 'nsqtw context add' makes one")


def show(session: Session, name: str | None) -> Document:
    """`nsqtw context show`."""
    name = name or session.context_name
    access = session.contexts.named(name) if name else session.access()
    data: dict[str, Any] = {"name": name, **access.plain()}
    lines = [f"{key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in data.items() if value]
    return Document(data, lines if name else ["no context is in use", *lines])


def add(session: Session, name: str, replace: bool, **values: Any) -> None:
    """`nsqtw context add`."""
    contexts = session.contexts
    if not name.strip() or not name.isprintable():
        raise OptionError("the name of a context has printable characters")
    if name in contexts.by_name and not replace:
        raise OptionError(f"there is a context {name!r} already: --replace replaces it")
    if values["secret_file"] and values["secret_variable"]:
        raise OptionError("a secret is in a file or in a variable, not in both")
    if bool(values["tls_cert_file"]) != bool(values["tls_key_file"]):
        raise OptionError("a client certificate needs --tls-cert-file and --tls-key-file")
    for key in _PATHS:
        if values[key]:
            values[key] = str(Path(values[key]).expanduser().absolute())
            if not Path(values[key]).exists():
                session.warn(f"{values[key]} does not exist")
    access = ClusterAccess(**{key: values[key] for key in KEYS})
    if not (access.nsqd_http_addresses or access.lookupd_http_addresses or access.nsqd_tcp_addresses):
        raise OptionError("a context needs --nsqd-http-address or --lookupd-http-address")
    session.check_addresses(access)
    contexts.by_name[name] = access
    contexts.current = contexts.current or name
    contexts.save()
    session.say(f"context {name!r} is in {contexts.path}" + (", and in use" if contexts.current == name else ""))


def use(session: Session, name: str) -> None:
    """`nsqtw context use`."""
    session.contexts.named(name)
    session.contexts.current = name
    session.contexts.save()
    session.say(f"context {name!r} is in use")


def remove(session: Session, name: str) -> None:
    """`nsqtw context remove`."""
    contexts = session.contexts
    contexts.named(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    contexts.save()
    session.say(f"context {name!r} is removed")
