"""Connections of the client library for the verbs that publish and read: options, addresses of nsqds, problems."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from nsqtw.cli.contexts import ClusterAccess
from nsqtw.cli.failures import REFUSALS, explained, readable
from nsqtw.cli.session import Session
from nsqtw.client.http import HttpQuery
from nsqtw.client.lookup import ACCEPT, answer_of, base_url, producers_of, refusal
from nsqtw.client.nsqd_api import CONNECT_SECONDS, REQUEST_SECONDS
from nsqtw.client.options import ClientOptions
from nsqtw.client.tls import tls_context
from nsqtw.client.twisted import TwistedLoop
from nsqtw.errors import (
    ClientLibraryError,
    ConnectFailed,
    LookupFailed,
    NotConnected,
    NotFound,
    NsqtwError,
    PermissionRefused,
    Refused,
)
from nsqtw.options.addresses import is_port, join_host_port
from nsqtw.rights import authorization

_NO_ENDPOINT = b'"NOT_FOUND"'
"""In an answer 404 of another program than the one that was asked for."""
_NO_TOPIC = "TOPIC_NOT_FOUND"
"""An nsqlookupd's answer about a topic that no nsqd has yet."""


def client_options(access: ClusterAccess, **named: Any) -> ClientOptions:
    """Return the options of a consumer or producer. OptionError."""
    return ClientOptions(
        auth_secret=access.secret(),
        tls_v1=uses_tls(access),
        tls_root_ca_file=access.tls_ca_file,
        tls_cert=access.tls_cert_file,
        tls_key=access.tls_key_file,
        tls_insecure_skip_verify=access.tls_insecure,
        **named,
    )


def uses_tls(access: ClusterAccess) -> bool:
    """Return whether connections to the nsqds of a cluster use TLS: it has TLS files, or addresses with https."""
    return bool(
        access.tls_ca_file
        or access.tls_cert_file
        or access.tls_insecure
        or any(address.startswith("https://") for address in access.nsqd_http_addresses)
    )


async def nsqd_addresses(access: ClusterAccess, topic: str) -> list[str]:
    """
    Return the TCP addresses of the nsqds to publish to: those of the context, those that the nsqds name, or those that
    an nsqlookupd names, with the topic if there are any. ConnectFailed when nobody answers, NotFound when there is no
    nsqd, PermissionRefused.
    """
    if access.nsqd_tcp_addresses:
        return list(access.nsqd_tcp_addresses)
    queries = _Queries(access)
    if access.nsqd_http_addresses:
        return await queries.first("nsqd", access.nsqd_http_addresses, _own_address, "/info")
    for path in (f"/lookup?{urlencode({'topic': topic})}", "/nodes"):
        found = await queries.first("nsqlookupd", access.lookupd_http_addresses, _usable_producers, path)
        if found:
            return found
    raise NotFound(f"no nsqd is registered at nsqlookupd {', '.join(access.lookupd_http_addresses)}")


async def registered_nsqds(access: ClusterAccess, topic: str) -> list[str]:
    """
    Return the TCP addresses of the nsqds that an nsqlookupd names for a topic, none for one that no nsqd has.
    ConnectFailed when no nsqlookupd answers, PermissionRefused.
    """
    path = f"/lookup?{urlencode({'topic': topic})}"
    return await _Queries(access).first("nsqlookupd", access.lookupd_http_addresses, _producers, path)


class _Queries:
    """Questions to the nodes of a cluster, over HTTP."""

    def __init__(self, access: ClusterAccess) -> None:
        self._loop = TwistedLoop()
        self._headers = {"Accept": ACCEPT}
        if secret := access.secret():
            self._headers["Authorization"] = authorization(secret)
        self._context: ssl.SSLContext | None = tls_context(client_options(access)) if uses_tls(access) else None

    async def first(
        self, program: str, addresses: Sequence[str], read: Callable[[str, dict[str, Any]], list[str]], path: str
    ) -> list[str]:
        """Return what `read` makes of all answers. ConnectFailed when no server gives one, PermissionRefused."""
        found: list[str] = []
        failures: list[str] = []
        for address in addresses:
            url = base_url(address)
            query = HttpQuery(self._loop, url + path, headers=self._headers, context=self._context)
            try:
                answer = await query.run(CONNECT_SECONDS, REQUEST_SECONDS)
                if answer.status in REFUSALS:
                    raise PermissionRefused(_refused(program, address, answer.status, answer.body))
                if answer.status == 404 and _NO_ENDPOINT not in answer.body:  # a topic without nsqds
                    continue
                document = answer_of(answer.status, answer.headers.get("x-nsq-content-type", ""), answer.body)
                found += read(url, document)
            except LookupFailed as error:
                failures.append(_failure_text(address, error))
        if failures and len(failures) == len(addresses):
            raise ConnectFailed(addresses[0], f"cannot connect to {program}: {'; '.join(failures)}{_hint(program)}")
        return list(dict.fromkeys(found))


def _own_address(url: str, document: dict[str, Any]) -> list[str]:
    """Return the TCP address of the nsqd at `url`, on the host that its HTTP address has."""
    port = document.get("tcp_port")
    if not isinstance(port, int) or not is_port(port):
        raise LookupFailed(f"{url}: the answer has no tcp_port; is it an nsqd?")
    return [join_host_port(urlsplit(url).hostname or "", port)]


def _producers(url: str, document: dict[str, Any]) -> list[str]:
    return producers_of(document).addresses


def _usable_producers(url: str, document: dict[str, Any]) -> list[str]:
    """Return the addresses of the nsqds; LookupFailed when there are nsqds and none has an address."""
    found = producers_of(document)
    if found.refused and not found.addresses:
        raise LookupFailed(found.refused[0])
    return found.addresses


def _failure_text(address: str, error: LookupFailed) -> str:
    text = readable(str(error))
    return text if address in text else f"{address}: {text}"


def _refused(program: str, address: str, status: int, body: bytes) -> str:
    return f"{program} {address}: {readable(refusal(status, body))}"


def _hint(program: str) -> str:
    name = "nsqd" if program == "nsqd" else "lookupd"
    return f" ('nsqtw up' starts a cluster here; --{name}-http-address or a context names another)"


class Problems:
    """
    The problems that a consumer reports. Nothing is written before `show`, because the start of a consumer raises the
    problems that prevent it. `stop` stops the consumer when a node refuses the credentials.
    """

    def __init__(self, session: Session, stop: Callable[[], object]) -> None:
        self._session = session
        self._stop = stop
        self._early: list[str] | None = []
        self._last: dict[str, str] = {}
        """The last line about each server. It is not repeated with each attempt."""
        self.refusal: PermissionRefused | None = None
        """The refusal that ends the command."""

    def add(self, server: str, error: ClientLibraryError) -> None:
        """Show a problem that a consumer passes to its parameter on_problem."""
        shown = explained(error)
        if isinstance(shown, PermissionRefused):
            self.refusal = self.refusal or PermissionRefused(f"{server}: {shown}")
            self._session.reactor.callLater(0, self._stop)
            return
        line = _line(server, error, shown)
        if not line or self._last.get(server) == line:
            return
        self._last[server] = line
        if self._early is not None:
            self._early.append(line)
        else:
            self._session.warn(line)

    def show(self) -> None:
        """Write the problems so far, and from now on each one when it comes."""
        lines, self._early = self._early or [], None
        for line in lines:
            self._session.warn(line)


def _line(server: str, error: ClientLibraryError, shown: NsqtwError) -> str:
    """Return the line about a problem that does not end the command; empty for none."""
    if isinstance(error, LookupFailed):
        if _NO_TOPIC in str(error):
            return ""
        text, host = readable(str(error)), server.partition("://")[2].partition("/")[0]
        return f"{text if text.startswith(host) else f'{host}: {text}'}; trying again"
    if isinstance(error, NotConnected):
        return f"{server}: connection lost; trying again"
    if isinstance(error, Refused):
        return f"{server}: {shown}"
    text = readable(str(error))
    return f"{text if text.startswith(server) else f'{server}: {text}'}; trying again"
