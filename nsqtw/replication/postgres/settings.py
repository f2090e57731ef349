"""
The file that `--replicate=postgres:PATH` names, in TOML.

    dsn = "host=db1,db2 dbname=nsqtw user=nsqtw"    a connection string or URI of libpq, or a table of its keywords
    password_file = "password"                      the password, on one line; relative to the directory of this file
    data_set = "nsqtw"                              several brokers share a database, each with a data set of its own

What libpq reads besides holds, too: PGHOST and the other variables, ~/.pgpass, service files. A text about the file
never has a value of it: any of them may have a password in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from tomllib import loads
from typing import Any

from attrs import field, frozen
from psycopg import Error
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from nsqtw.errors import OptionError
from nsqtw.names import is_ephemeral, is_valid_name
from nsqtw.options.files import read_file, read_secret
from nsqtw.options.types import did_you_mean

DEFAULT_DATA_SET = "nsqtw"
_DSN, _PASSWORD_FILE, _DATA_SET = _KEYS = ("dsn", "password_file", "data_set")
_EXAMPLE = 'dsn = "host=db.example dbname=nsqtw user=nsqtw"'


@frozen
class Settings:
    """What the file at `path` says."""

    path: str
    parameters: Mapping[str, str] = field(repr=False)
    """Keywords of libpq."""
    password_file: str
    """"" for none."""
    data_set: str
    flag: str

    def password(self) -> str:
        """Return the password to connect with; "" when libpq finds one, or none is needed. OptionError."""
        if self.password_file:
            # Read each time: a password is changed while a broker runs.
            return read_secret(self.password_file, f"{self.flag}: password_file")
        return self.parameters.get("password", "")


def read_settings(path: str, flag: str) -> Settings:
    """Read the file that `flag` names. OptionError, one line."""
    if not path:
        raise OptionError(f"{flag} needs the path of a file: {flag}:/etc/nsqtw/postgres.toml with {_EXAMPLE} in it")
    try:
        found = loads(read_file(path).decode("utf-8-sig"))
    except OptionError as failure:
        raise OptionError(f"{flag} cannot be used - {failure}") from failure
    except (ValueError, RecursionError):
        # The text of the error may show a piece of the file.
        raise OptionError(f"{flag} cannot be used - {path} is no TOML file; it needs {_EXAMPLE}") from None
    for key in found:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f", its keys are {', '.join(_KEYS)}"
            raise OptionError(f"{flag} cannot be used - {path}: unknown key {key!r}{hint}")
    if _DSN not in found:
        raise OptionError(f"{flag} cannot be used - {path}: there is no dsn; write {_EXAMPLE}")
    data_set = found.get(_DATA_SET, DEFAULT_DATA_SET)
    if not isinstance(data_set, str) or not is_valid_name(data_set) or is_ephemeral(data_set):
        raise OptionError(
            f"{flag} cannot be used - {path}: data_set must be a name of 1 to 64 letters, digits and .-_ in quotes"
        )
    password_file = found.get(_PASSWORD_FILE, "")
    if not isinstance(password_file, str):
        raise OptionError(f"{flag} cannot be used - {path}: password_file must be a path in quotes")
    if password_file:
        password_file = os.path.join(os.path.dirname(os.path.abspath(path)), password_file)
    settings = Settings(path, _parameters(path, flag, found[_DSN]), password_file, data_set, flag)
    settings.password()
    return settings


def _parameters(path: str, flag: str, dsn: Any) -> dict[str, str]:
    where = f"{flag} cannot be used - {path}: dsn"
    if isinstance(dsn, str):
        try:
            parameters = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
        except Error:
            # libpq shows a piece of the string, which may be of the password.
            raise OptionError(f"{where} is no connection string of PostgreSQL; write {_EXAMPLE}") from None
    elif isinstance(dsn, dict):
        parameters = {key: str(value) for key, value in dsn.items()}
        if not all(type(value) in (str, int) for value in dsn.values()):
            raise OptionError(f"{where} must have texts and integers")
    else:
        raise OptionError(f"{where} must be a text in quotes, or a table; write {_EXAMPLE}")
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for key in parameters:
        if key not in known:
            raise OptionError(f"{where}: unknown keyword {key!r}{did_you_mean(key, known)}")
    return parameters
