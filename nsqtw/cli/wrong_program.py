"""
Addresses of other programs or ports than were asked for: the error message when a command has failed because of it.
"""

from __future__ import annotations

from contextlib import suppress

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.stdlib_http import get
from nsqtw.cluster.fields import JsonObject
from nsqtw.errors import CommandError, ConnectFailed, ServerFailed

_SECONDS = 2.0


def wrong_program(access: ClusterAccess) -> CommandError | None:
    """Ask each given address what runs there. Return the error for the first one of the other program, if any."""
    for address in (*access.lookupd_http_addresses, *access.nsqd_http_addresses):
        if "nodes" in _document(access, address, "/api/nodes"):
            return CommandError(f"{address} is an nsqadmin; give the HTTP address of an nsqd or nsqlookupd")
    for address in access.lookupd_http_addresses:
        if "tcp_port" in _info(access, address):
            return CommandError(f"{address} is an nsqd, not an nsqlookupd; give it as --nsqd-http-address")
    for address in access.nsqd_http_addresses:
        info = _info(access, address)
        if "version" in info and "tcp_port" not in info:
            return CommandError(f"{address} is an nsqlookupd, not an nsqd; give it as --lookupd-http-address")
    return None


def _info(access: ClusterAccess, address: str) -> JsonObject:
    """Return the answer to /info, empty without one. An nsqlookupd's has only its version."""
    return _document(access, address, "/info")


def _document(access: ClusterAccess, address: str, path: str) -> JsonObject:
    with suppress(ConnectFailed, ServerFailed):
        return get(access, address, path, _SECONDS).document()
    return {}
