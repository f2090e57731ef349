"""
A request to an nsqlookupd for the channels of a topic: `GET /channels?topic=`.

With TLS towards nsqlookupd it is HTTPS, and with a secret that is shown as `Authorization: Bearer`: nsqlookupds of ours
take both, and the originals have neither.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from twisted.logger import Logger
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from nsqtw.discovery.addresses import LookupdAddress
from nsqtw.discovery.tls import endpoint_to
from nsqtw.gocompat.json import read_object
from nsqtw.http.client import HttpClient, read_body
from nsqtw.names import is_ephemeral, is_valid_name
from nsqtw.options.broker import Options
from nsqtw.rights import authorization
from nsqtw.runtime.reactor import Reactor

MAX_ANSWER_BYTES = 1024 * 1024
_ACCEPT = "application/vnd.nsq; version=1.0"

_log = Logger()


class ChannelQuery:
    """Asks. The options say how, and how long it may take to connect."""

    def __init__(self, reactor: Reactor, options: Options) -> None:
        self._reactor = reactor
        self._options = options
        self._pool = HTTPConnectionPool(reactor, persistent=False)  # type: ignore[no-untyped-call]

    async def ask(self, http_address: str, topic: str, name: str, secret: str) -> list[str]:
        """
        The durable channels of a topic that the nsqlookupd at `http_address` knows; its certificate must be for `name`.
        Cancelling it ends the connection. ValueError for an answer that will not do; any error of the connection.
        """
        scheme = "https" if self._options.lookupd_tls else "http"
        url = f"{scheme}://{http_address}/channels?topic={quote(topic, safe='')}"
        _log.info("CI: querying nsqlookupd {url}", url=url)
        headers = {"Accept": _ACCEPT}
        if secret:
            headers["Authorization"] = authorization(secret)
        agent = Agent.usingEndpointFactory(  # type: ignore[no-untyped-call]
            self._reactor, _Endpoints(self._reactor, self._options, name), self._pool
        )
        response = await HttpClient(agent).request("GET", url, headers)
        body = await read_body(response, MAX_ANSWER_BYTES, ValueError)
        if response.code != 200:
            raise ValueError(f"got response {response.code}")
        return durable_channels(body)


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """
    The endpoints of an agent. The certificate is checked for the name in the options, whatever the lookup returned.
    """

    def __init__(self, reactor: Reactor, options: Options, name: str) -> None:
        self._reactor = reactor
        self._options = options
        self._name = name

    def endpointForURI(self, uri: Any) -> Any:
        """IAgentEndpointFactory API."""
        lookupd = LookupdAddress(uri.host.decode("ascii").strip("[]"), uri.port, self._name)
        return endpoint_to(self._reactor, self._options, lookupd, self._options.http_client_connect_timeout)


def durable_channels(body: bytes) -> list[str]:
    """Return the channels in a response. ValueError when it is invalid."""
    try:
        channels = read_object(body, {"channels": []})["channels"]
    except (ValueError, RecursionError):
        raise ValueError("the answer does not say which channels") from None
    return [name for name in channels if isinstance(name, str) and is_valid_name(name) and not is_ephemeral(name)]
