"""
What a web page makes somebody's browser send: a page on the internet can have the browser of an operator POST to a
broker that only the operator reaches. Browsers say so, in fields that no client of NSQ sends.

    Origin: https://elsewhere.example          not the host that is asked
    Sec-Fetch-Site: cross-site                 in so many words

A name of the page's owner may lead to this machine (DNS rebinding), and then both hosts are the same. So where only
this machine can connect, a page must also have a name of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsqtw.http.responses import Answer, failure
from nsqtw.net.listen import is_loopback
from nsqtw.options.addresses import split_host_port

_CROSS_ORIGIN = failure(403, "CROSS_ORIGIN")
_SAME = (b"same-origin", b"none")


def sent_by_a_page(fields: Mapping[bytes, bytes], *, is_local: bool) -> Answer | None:
    """The answer to a request that changes something and that a page of another site has made; None for others."""
    site = fields.get(b"Sec-Fetch-Site")
    if site is not None and site.lower() not in _SAME:
        return _CROSS_ORIGIN
    origin = fields.get(b"Origin")
    if origin is None:
        return None
    host = origin.lower().partition(b"://")[2]
    if not host or host != fields.get(b"Host", b"").lower():
        return _CROSS_ORIGIN
    return _CROSS_ORIGIN if is_local and not _is_of_this_machine(host.decode("latin-1")) else None


def _is_of_this_machine(host: str) -> bool:
    parts = split_host_port(host)
    return is_loopback(parts[0] if parts else host.strip("[]"))
