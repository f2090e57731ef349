"""
The servers that may have a secret.

Any program that can register at an nsqlookupd names an address of its choice, and for a name of its own it gets a
certificate of a public authority: neither proves that it belongs to the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import attrs

from nsqtw.client.lookup import base_url
from nsqtw.options.addresses import is_loopback

WITHHELD = (
    "the secret was not sent, because only an nsqlookupd names this server; use HTTPS with certificates of an own "
    "authority and name its file, or allow it with --secrets-to-named-nodes"
)


NOT_NAMED = (
    "the secret was not sent, because PUT /config has set this address: name it in --lookupd-http-address, and reload"
)


def _base_urls(addresses: Iterable[str]) -> frozenset[str]:
    return frozenset(map(base_url, addresses))


@attrs.frozen(kw_only=True)
class Trust:
    """
    The rule. `addresses` are those that the user gave, host:port or a URL. `has_own_authority`: certificates are
    verified by an authority of the user. `is_for_all`: the user allows every server to have the secret. `is_strict`:
    only `addresses` have it, as for nsqlookupds, which no other server names.
    """

    addresses: frozenset[str] = attrs.field(default=(), converter=_base_urls)
    has_own_authority: bool = False
    is_for_all: bool = False
    is_strict: bool = False

    def covers(self, address: str, *, is_https: bool) -> bool:
        """Return whether the server at an address, asked over HTTPS or plain HTTP, may have the secret."""
        url = base_url(address)
        return url in self.addresses or (
            not self.is_strict
            and (self.is_for_all or (is_https and self.has_own_authority) or is_loopback(urlsplit(url).hostname or ""))
        )
