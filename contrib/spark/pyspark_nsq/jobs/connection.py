"""The options of a job for its connection to NSQ, and the options of ``format("nsq")`` that they set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

import click

from pyspark_nsq.errors import OptionError
from pyspark_nsq.jobs.parameters import passing
from pyspark_nsq.options.kinds import HttpAddresses

F = TypeVar("F", bound=Callable[..., Any])

_DECLARED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "--nsqd-http-address",
        "nsqdHttpAddresses",
        {"multiple": True, "metavar": "HOST:PORT", "help": "An nsqd; may be given several times."},
    ),
    (
        "--lookupd-http-address",
        "lookupdHttpAddresses",
        {
            "multiple": True,
            "metavar": "HOST:PORT",
            "help": "An nsqlookupd that knows the nsqds; may be given several times.",
        },
    ),
    ("--auth-secret-file", "authSecretFile", {"metavar": "FILE", "help": "A file with the secret of AUTH."}),
    (
        "--tls-ca-file",
        "tls.caFile",
        {"metavar": "FILE", "help": "PEM file of the authorities that sign certificates of nsqd."},
    ),
    ("--tls-cert-file", "tls.certFile", {"metavar": "FILE", "help": "PEM file of the client's certificate."}),
    ("--tls-key-file", "tls.keyFile", {"metavar": "FILE", "help": "PEM file of the certificate's key."}),
)
"""Each option with the option of ``format("nsq")`` that it sets."""
_PLACES = ("nsqdHttpAddresses", "lookupdHttpAddresses")


@dataclass(frozen=True)
class Connection:
    """The options of ``format("nsq")`` for addresses, secrets and TLS."""

    options: dict[str, str]


def connection_options(function: F) -> F:
    """Give a command the options of a connection; its function gets a `Connection` as `connection`."""
    return _with_connection(function, is_required=True)


def optional_connection_options(function: F) -> F:
    """Give a command the options of a connection, all of them optional; without them `connection` is empty."""
    return _with_connection(function, is_required=False)


def _with_connection(function: F, *, is_required: bool) -> F:
    build = partial(_connection, is_required)
    wrapped = passing(_naming_flags(function), "connection", build, tuple(_parameter(flag) for flag, _, _ in _DECLARED))
    for flag, _, settings in reversed(_DECLARED):
        wrapped = click.option(flag, **settings)(wrapped)
    return wrapped


def _naming_flags(function: F) -> F:
    """Return a function whose OptionErrors name the options of the job, not those of ``format("nsq")``."""

    @wraps(function)
    def wrapped(**given: Any) -> Any:
        try:
            return function(**given)
        except OptionError as error:
            text = str(error)
            for flag, theirs, _ in _DECLARED:
                text = text.replace(f'"{theirs}"', f'"{flag}"')
            raise OptionError(text) from error

    return wrapped  # type: ignore[return-value]


def _connection(is_required: bool, **given: Any) -> Connection:
    values = {theirs: given[_parameter(flag)] for flag, theirs, _ in _DECLARED}
    texts = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in values.items()}
    places = [(flag, texts[theirs]) for flag, theirs, _ in _DECLARED if theirs in _PLACES and texts[theirs]]
    if len(places) > 1 or (is_required and not places):
        raise click.UsageError("give either --nsqd-http-address or --lookupd-http-address")
    for flag, text in places:
        HttpAddresses().read(flag, text)
    return Connection({name: text for name, text in texts.items() if text})


def _parameter(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
