"""
GET and PUT /config/:opt: the options of the running nsqadmin by their config keys.

They are for the addresses of --allow-config-from-cidr; where there are users, a change needs the role admin, and with
--auth so does a look. The original never asks for a user here: behind a proxy on the same machine, whose address is one
of those allowed, any of its users could change the addresses. A change has effect at once and is not stored.
"""

from __future__ import annotations

import json

from nsqtw.admin.access import Access, is_in
from nsqtw.admin.audit import DONE, Audit, Target, refused
from nsqtw.admin.routing import route
from nsqtw.admin.server import WebRequest
from nsqtw.admin.viewer import Role
from nsqtw.cluster.cluster import Cluster
from nsqtw.errors import AccessDenied, ApiError, OptionError
from nsqtw.options.admin import NSQADMIN, AdminOptions, check_cluster_address, network_of

MAX_BODY_BYTES = 1024 * 1024
_LOOKUPDS, _LEVEL = "nsqlookupd_http_addresses", "log_level"
_INVALID_OPTION = "INVALID_OPTION"
_INVALID_VALUE = "INVALID_VALUE"


class Config:
    """The routes below /config."""

    def __init__(self, options: AdminOptions, cluster: Cluster, access: Access, audit: Audit) -> None:
        self._options = options
        self._cluster = cluster
        self._access = access
        self._audit = audit

    @route("GET", "/config/<opt>")
    async def show(self, request: WebRequest, opt: str) -> object:
        """Return an option in its effective value."""
        self._check(request)
        return self._shown(opt)

    @route("PUT", "/config/<opt>")
    async def change(self, request: WebRequest, opt: str) -> object:
        """Change the addresses of nsqlookupds, or the log level."""
        viewer = self._access.viewer(request)
        try:
            self._access.check(viewer, Role.ADMIN)
            self._check(request)
            self._access.check_origin(request)
        except AccessDenied as error:
            self._audit.record(request, viewer.name, f"set_{opt}", Target(), refused(error))
            raise
        body: bytes = request.content.read(MAX_BODY_BYTES + 1)
        if not 0 < len(body) <= MAX_BODY_BYTES:
            raise ApiError(413, _INVALID_VALUE)
        if opt == _LOOKUPDS:
            self._options.lookupd_http_address = addresses = _addresses(body)
            self._cluster.ask_lookupds(addresses)
        elif opt == _LEVEL:
            try:
                self._options.log_level = NSQADMIN.by_key[_LEVEL].kind.parse(body.decode())
            except ValueError as error:
                raise ApiError(400, _INVALID_VALUE) from error
        else:
            raise ApiError(400, _INVALID_OPTION)
        shown = self._shown(opt)
        self._audit.record(request, viewer.name, f"set_{opt}", Target(), f"{DONE}, {shown}")
        return shown

    def _check(self, request: WebRequest) -> None:
        """Raise AccessDenied or ApiError for a client that may not use /config."""
        if self._access.has_login:
            self._access.check(self._access.viewer(request), Role.ADMIN)
        network = network_of("allow-config-from-cidr", self._options.allow_config_from_cidr)
        if network is None:
            return
        address = self._access.client_ip(request)
        if not address:
            raise ApiError(400, "INVALID_REMOTE_ADDR")
        if not is_in(network, address):
            raise ApiError(403, "FORBIDDEN")

    def _shown(self, key: str) -> object:
        option = NSQADMIN.by_key.get(key)
        if option is None:
            raise ApiError(400, _INVALID_OPTION)
        return option.kind.config(getattr(self._options, option.name))


def _addresses(body: bytes) -> tuple[str, ...]:
    """Return the addresses in a body. ApiError."""
    try:
        addresses = json.loads(body)
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            raise ValueError("no list of texts")
        for address in addresses:
            check_cluster_address(address)
    except (ValueError, RecursionError, OptionError) as error:
        raise ApiError(400, _INVALID_VALUE) from error
    return tuple(addresses)
