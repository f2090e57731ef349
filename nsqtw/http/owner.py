"""The server that HTTP connections belong to: its routes, rights, limits and caches."""

from __future__ import annotations

from typing import Any

from nsqtw.http.bearer_auth import RequestAuthorizer
from nsqtw.http.browsers import AllowedHosts
from nsqtw.http.head_cache import KnownHeads
from nsqtw.http.routes import OneAnswer, Routes
from nsqtw.net.limits import Limits
from nsqtw.net.line_budget import LineBudget
from nsqtw.runtime.read_size import keep_reads_on_the_heap
from nsqtw.runtime.turns import Turns


class ConnectionOwner:
    """The state that all connections of a server share."""

    def __init__(
        self,
        routes: Routes | OneAnswer,
        pump: Turns,
        limits: Limits,
        bearer_auth: RequestAuthorizer | None,
        hosts: AllowedHosts | None,
    ) -> None:
        self.routes = routes
        self.pump = pump
        self.limits = limits
        self.bearer_auth = bearer_auth
        self.hosts = hosts
        """The names by which clients may ask; None for any."""
        self.heads = KnownHeads()
        self.refusals = LineBudget(pump.now)
        """Limits the log lines of refused requests on routes that log no requests, like publishes."""
        self.connections: set[Any] = set()
        keep_reads_on_the_heap()

    def forget_heads(self) -> None:
        """Options have changed that heads were accepted by."""
        self.heads = KnownHeads()
