"""
Option values as they may be shown: an address can hold a user and a password, an authorizer's argument anything.

    http://user:password@host/auth?key=1   ->   http://***@host/auth?***
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

MASK = "***"
_PLAIN_ARGUMENTS = ("static", "allow_all")
_ADDRESSES = "http"


def without_password(address: str) -> str:
    """An address or URL without user, password and query. Whatever stands before the last @ may be a password."""
    scheme, slashes, rest = address.partition("://") if "://" in address else ("", "", address)
    _, at, rest = rest.rpartition("@")
    rest, question, _ = rest.partition("?")
    return f"{scheme}{slashes}{MASK if at else ''}{at}{rest}{question}{MASK if question else ''}"


def without_argument(auth: str) -> str:
    """The value of --auth: a path is shown, of addresses what is no password, of all else the name."""
    name, colon, argument = auth.partition(":")
    if not argument or name in _PLAIN_ARGUMENTS:
        return auth
    if name == _ADDRESSES:
        return f"{name}:{','.join(map(without_password, argument.split(',')))}"
    return f"{name}{colon}{MASK}"


def without_secret(text: str, secret: str) -> str:
    """Replaces a secret in a text, as it is or in JSON; "" for none."""
    for form in (secret, json.dumps(secret)[1:-1]):
        text = text.replace(form, MASK) if form else text
    return text


_SHOWN = {"auth": without_argument, "auth-http-address": without_password}


def shown_words(words: Iterable[str]) -> Iterator[str]:
    """The words of a command line, values of flags that may hold a password as above."""
    pending = ""
    for word in words:
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-") if flag.startswith("-") else ""
        if pending:
            yield _SHOWN[pending](word)
            pending = ""
        elif name in _SHOWN:
            yield f"{flag}{equals}{_SHOWN[name](value)}"
            pending = "" if equals else name
        else:
            yield word
