"""
The servers that the keywords of libpq name, one after the other: libpq itself would wait for the first one as long as
it takes, and it looks up names without any limit.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from threading import Thread

_MAX_ADDRESSES = 4
"""Of one name."""


def servers(parameters: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the keywords for each of the hosts. Without a host libpq knows which server is meant."""
    hosts = parameters.get("host", "").split(",")
    addresses = parameters.get("hostaddr", "").split(",")
    ports = parameters.get("port", "").split(",")
    count = max(len(hosts), len(addresses))
    if count == 1:
        return [dict(parameters)]
    found = []
    for index in range(count):
        one = {key: value for key, value in parameters.items() if key not in ("host", "hostaddr", "port")}
        for key, values in (("host", hosts), ("hostaddr", addresses), ("port", ports)):
            value = values[0] if len(values) == 1 else values[index] if index < len(values) else ""
            if value:
                one[key] = value
        found.append(one)
    return found


def resolved(parameters: Mapping[str, str], seconds: float) -> list[dict[str, str]]:
    """
    Return the keywords for each address of a server, with the address in them. OSError, also when the name is not
    found in time.
    """
    host = parameters.get("host", "")
    if not host or host.startswith(("/", "@")) or parameters.get("hostaddr"):
        return [dict(parameters)]
    answers: SimpleQueue[list[str] | OSError] = SimpleQueue()
    # The resolver of the C library cannot be interrupted: its thread is left behind.
    Thread(target=_look_up, args=(host, answers), name="nsqtw-resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=max(seconds, 0))
    except Empty:
        raise TimeoutError("its name was not found in time") from None
    if isinstance(answer, OSError):
        raise answer
    return [{**parameters, "hostaddr": address} for address in answer[:_MAX_ADDRESSES]]


def _look_up(host: str, answers: SimpleQueue[list[str] | OSError]) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        answers.put(error)
    except ValueError:
        answers.put(OSError("it is no name of a host"))
    else:
        answers.put([*dict.fromkeys(str(address[0]) for *_, address in found)])
