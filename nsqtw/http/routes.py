"""
Routes: the handler of a method and a path, and the answer when there is none.

The rules for paths that are almost right are those of the router nsqd uses: an exact path
with another method is 405, one that only differs by slashes, dots or letter case is a redirect, the rest is 404. Other
than there a path with an escaped slash is such a redirect, too: a proxy that passes some paths and no others sees the
path that is served.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from attrs import frozen

from nsqtw.http.query import is_escaped
from nsqtw.http.responses import EMPTY, INVALID_REQUEST, NOT_FOUND, Answer, allowed, moved, not_allowed
from nsqtw.rights import ADMIN

if TYPE_CHECKING:
    from nsqtw.http.request import HttpRequest

BODY_IGNORED = -1
_SAFE_IN_PATH = "/$&+,:;=@"

Handler = Callable[["HttpRequest"], "Answer | None"]
"""Serves a request whose body is there. Returns None when the request is going to be answered later. Refused."""

HandlerOfHead = Callable[[Mapping[bytes, bytes], bytes], "Handler | None"]
"""Returns the handler for a request with these header fields and this query; None: that of its route."""


@frozen
class Route:
    """
    One method and path; a path may end with `/:opt` or the like, which stands for any last part. Of the body, `limit`
    bytes are kept, for BODY_IGNORED none; a request that announces more is answered `too_big` before its body is read.
    `broken` answers a body that ends before its end, or whose chunks are none; with None the handler is called with
    what there is of it.
    """

    method: bytes
    path: bytes
    handler: Handler
    limit: int = BODY_IGNORED
    too_big: Answer | None = None
    broken: Answer | None = INVALID_REQUEST
    logged: bool = True
    """Whether each request is logged. Refused ones always are, within bounds."""
    needs: str = ADMIN
    """The permission that a credential needs, with an authorizer: FREE or ANY_RIGHT, or its name."""
    about: tuple[str, ...] = ()
    """The query parameters that name the topic and the channel of that permission; none for the whole broker."""
    repeats: bool = False
    """Whether clients repeat the same head here, so that it is worth caching (head_cache)."""
    is_change: bool = False
    """Whether even a GET changes something here, or costs much, so that no page of another site may send it."""
    handler_of_head: HandlerOfHead | None = None
    """Chooses another handler by the head of a request, once for a head that is cached."""


@frozen
class DeadEnd:
    """A method and path that lead to no handler: what is answered, and whether that is logged."""

    answer: Answer
    logged: bool


class Routes:
    """The routes of a server."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = {(route.method, route.path): route for route in routes}
        self._open: dict[bytes, bytes] = {}
        """The paths that end with any last part, by what stands before it."""
        self._methods: dict[bytes, list[bytes]] = {}
        for method, path in self._routes:
            self._methods.setdefault(path, [b"OPTIONS"]).append(method)
            if b"/:" in path:
                self._open[_start(path)] = path

    def find(self, method: bytes, target: bytes) -> Route | DeadEnd | None:
        """Return the route of `target`, a path and perhaps a query. None when it is invalid."""
        path, _, query = target.partition(b"?")
        return self._routes.get((method, path)) or self._search(method, path, query)

    def _search(self, method: bytes, path: bytes, query: bytes) -> Route | DeadEnd | None:
        if path == b"*":
            return self._whole_server(method)
        path = _without_host(path)
        if not (path.startswith(b"/") and is_escaped(path)):
            return None
        is_plain = not has_escaped_slash(path)
        path = unquote_to_bytes(path)
        route = self._routes.get((method, self._known(path)))
        if route is not None and is_plain:
            return route
        respelled = self._respelled(method, path)
        if respelled is not None:
            location = quote(respelled, safe=_SAFE_IN_PATH).encode() + (b"?" + query if query else b"")
            return DeadEnd(moved(location, is_get=method == b"GET"), logged=False)
        methods = self._methods.get(self._known(path))
        if methods is None:
            return DeadEnd(NOT_FOUND, logged=True)
        listed = b", ".join(sorted(methods))
        if method == b"OPTIONS":
            return DeadEnd(allowed(listed), logged=False)
        return DeadEnd(not_allowed(listed), logged=True)

    def _whole_server(self, method: bytes) -> DeadEnd:
        """The target `*`, which is no path: it allows OPTIONS only."""
        if method == b"OPTIONS":
            return DeadEnd(EMPTY, logged=False)
        methods = {b"OPTIONS", *(method for method, _ in self._routes)}
        return DeadEnd(not_allowed(b", ".join(sorted(methods))), logged=True)

    def _known(self, path: bytes) -> bytes:
        """`path` as it stands in the table if it does: /config/:opt for /config/id."""
        start = _start(path)
        return path if start == path else self._open.get(start, path)

    def _respelled(self, method: bytes, path: bytes) -> bytes | None:
        """The path of this method that was probably meant."""
        cleaned = posixpath.normpath(b"/" + path.lstrip(b"/"))
        start = _start(cleaned)
        for meant in (start.lower() + cleaned[len(start) :], cleaned.lower(), cleaned.lower() + b"/"):
            if (method, self._known(meant)) in self._routes:
                return meant
        return None


class OneAnswer:
    """Routes that all lead to the same response."""

    def __init__(self, routes: Routes, answer: Answer) -> None:
        self._routes = routes
        self._end = DeadEnd(answer, logged=False)

    def find(self, method: bytes, target: bytes) -> DeadEnd | None:
        """Like Routes.find."""
        return None if self._routes.find(method, target) is None else self._end


def has_escaped_slash(path: bytes) -> bool:
    """Return whether a path that is not decoded yet has a `/` that would separate nothing in it."""
    return b"%2f" in path.lower()


def _start(path: bytes) -> bytes:
    """Return a path without its last segment."""
    return path[: path.rfind(b"/") + 1]


def _without_host(target: bytes) -> bytes:
    """The path of a target that names a host too, as requests through a proxy do."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or not scheme.isalpha():
        return target
    return b"/" + rest.partition(b"/")[2]
