"""
A file of grants: secrets, and the permissions of their clients. TOML.

    [[client]]
    identity = "mail"
    secret = "scrypt:16384:8:1:..."          # or `secrets`, a list of them, while one is replaced by another
    identity_url = "https://..."             # optional
    ttl = "1h"                               # optional; look again after that time

    [[client.grant]]
    topic = "^orders$"                       # patterns as RE2 knows them; found anywhere in the name
    channels = [".*"]                        # [".*"] unless given
    permissions = ["subscribe"]              # publish, subscribe, admin

The whole file is checked when it is read; any mistake, also an unknown key, makes it invalid.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import attrs

from nsqtw.auth.grants import Grant, Grants
from nsqtw.auth.secret_hash import Recipe, read_line
from nsqtw.errors import AuthError
from nsqtw.options.texts import parse_duration
from nsqtw.options.types import did_you_mean

_CLIENT_KEYS = ("identity", "identity_url", "secret", "secrets", "ttl", "grant")
_GRANT_KEYS = ("topic", "channels", "permissions")
_MAX_BYTES = 16 * 1024 * 1024


@attrs.frozen(cache_hash=True)
class Line:
    """A secret as the file knows it."""

    recipe: Recipe
    hash: bytes = attrs.field(repr=False)


Table = dict[Line, Grants]
"""The grants of each secret."""


def read_grants(path: str) -> Table:
    """
    Read the file at `path`. AuthError: one line that names the file and the position of the mistake, and no secret.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise AuthError(f"more than {_MAX_BYTES} bytes")
        document = tomllib.loads(text.decode("utf-8-sig"))
        return _table(document)
    except OSError as failure:
        raise AuthError(f"{path}: {(failure.strerror or str(failure)).lower()}") from failure
    except UnicodeDecodeError:
        raise AuthError(f"{path}: is no UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as failure:
        raise AuthError(f"{path}: {failure}") from None
    except AuthError as error:
        raise AuthError(f"{path}: {error}") from None


def _table(document: Mapping[str, Any]) -> Table:
    _check_keys("the file", document, ("client",))
    table: Table = {}
    for number, client in enumerate(_tables(document, "client", "the file"), 1):
        where = f"client {number}"
        if isinstance(client.get("identity"), str):
            where += f" ({client['identity']!r})"
        try:
            grants = _grants(client)
            for line in _lines(client):
                if line in table:
                    raise AuthError("has the secret of another client, or one of its own twice")
                table[line] = grants
        except AuthError as error:
            raise AuthError(f"{where}: {error}") from None
    return table


def _grants(client: Mapping[str, Any]) -> Grants:
    _check_keys("a client", client, _CLIENT_KEYS)
    ttl = None
    if "ttl" in client:
        try:
            ttl = parse_duration(_text(client, "ttl"))
        except ValueError:
            ttl = 0.0
        if ttl <= 0:
            raise AuthError("ttl is no time such as '10m'")
    return Grants(
        [_grant(number, table) for number, table in enumerate(_tables(client, "grant", "the client"), 1)],
        identity=_text(client, "identity"),
        identity_url=_text(client, "identity_url"),
        ttl=ttl,
    )


def _grant(number: int, table: Mapping[str, Any]) -> Grant:
    try:
        _check_keys("a grant", table, _GRANT_KEYS)
        if "topic" not in table or "permissions" not in table:
            raise AuthError("topic and permissions must be there")
        grant = Grant(_text(table, "topic"), _texts(table, "channels", [".*"]), _texts(table, "permissions", []))
        Grants([grant])
    except AuthError as error:
        raise AuthError(f"grant {number}: {error}") from None
    return grant


def _lines(client: Mapping[str, Any]) -> list[Line]:
    texts = _texts(client, "secrets", [])
    if "secret" in client:
        texts = [_text(client, "secret"), *texts]
    if not texts:
        raise AuthError("there is no secret; `nsqtw hash-secret` makes the line")
    try:
        return [Line(*read_line(text)) for text in texts]
    except AuthError as error:
        raise AuthError(f"secret {error}") from None


def _check_keys(what: str, table: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            raise AuthError(f"{what} has no key {key!r}{did_you_mean(key, allowed)}")


def _tables(table: Mapping[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise AuthError(f"{key} of {what} must be tables, [[{key}]]")
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise AuthError(f"{key} must be a text")
    return value


def _texts(table: Mapping[str, Any], key: str, otherwise: list[str]) -> list[str]:
    value = table.get(key, otherwise)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise AuthError(f"{key} must be a list of texts")
    return value
