"""The HTTP side of the pages: it finds the viewer, runs the view, renders the template and answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from klein import Klein
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IRequest

from nsqtw.admin.pages import live, topics  # noqa: F401 - a module of pages adds them to PAGES
from nsqtw.admin.pages.assets import CACHE_CONTROL, Assets
from nsqtw.admin.pages.links import Links
from nsqtw.admin.pages.page import PAGES, Page
from nsqtw.admin.pages.render import Renderer
from nsqtw.admin.pages.security import protect
from nsqtw.admin.pages.visit import Visit
from nsqtw.admin.sampler import Sampler

HTML = "text/html; charset=utf-8"


class Site(Protocol):
    """What the pages need of nsqadmin."""

    cluster: Any
    reactor: Any
    base_path: str


def mount(app: Klein, site: Site) -> Pages:
    """Add the pages and their static files to the routes of `app`. The caller starts and stops the result."""
    pages = Pages(site)
    app.route("/static/<digest>/<path:path>", methods=["GET"])(pages.static)
    for page in PAGES:
        app.route(f"/{page.path}", methods=["GET"], endpoint=f"page {page.path}")(_handler(pages, page))
    return pages


def _handler(pages: Pages, page: Page) -> Callable[..., Awaitable[bytes]]:
    async def show(request: IRequest, **path: str) -> bytes:
        return await pages.show(page, request, path)

    return show


class Pages:
    """The pages of one nsqadmin."""

    def __init__(self, site: Site) -> None:
        self.sampler = Sampler(site.cluster, site.reactor)
        self._site = site
        self._assets = Assets()
        self._links = Links.below(site.base_path)
        self._renderer = Renderer(self._assets, self._links, "")

    def start(self) -> None:
        """Begin to sample the cluster."""
        self.sampler.start()

    def stop(self) -> None:
        """Sample no more."""
        self.sampler.stop()

    def static(self, request: IRequest, digest: str, path: str) -> bytes:
        """GET /static/<hash>/<path>"""
        protect(request)
        asset = self._assets.find(digest, path)
        if asset is None:
            request.setResponseCode(404)
            request.setHeader("Content-Type", "text/plain")
            return b"NOT_FOUND"
        request.setHeader("Content-Type", asset.content_type)
        request.setHeader("Cache-Control", CACHE_CONTROL)
        return asset.content

    async def show(self, page: Page, request: IRequest, path: Mapping[str, str]) -> bytes:
        """Answer a request for a page, or for its changes."""
        protect(request)
        self.sampler.look()
        render = partial(self._render, page, request, path)
        if live.is_wanted(request):
            await live.LivePage(request, self._site.reactor, render).run(self.sampler.watch)
            return b""
        request.setHeader("Content-Type", HTML)
        request.setHeader("Cache-Control", "no-store")
        return (await render()).encode()

    async def _render(self, page: Page, request: IRequest, path: Mapping[str, str]) -> str:
        query = _query(request)
        visit = Visit(
            cluster=self._site.cluster,
            sampler=self.sampler,
            links=self._links,
            viewer=None,
            query=query,
            path=path,
            offset=time.time() - self.sampler.now,
        )
        content = await page.view(visit)
        return self._renderer.html(
            page.template,
            {
                "section": page.section,
                "viewer": {"name": "", "role": ""},
                "can_log_out": False,
                "live_url": request.uri.decode("ascii", "replace"),
                "warning_list": visit.warnings,
                "notice": None,
                "may_create": True,
                "csrf_field": lambda: "",
                **content,
            },
        )


def _query(request: IRequest) -> dict[str, str]:
    return {
        name.decode("utf-8", "replace"): values[0].decode("utf-8", "replace") for name, values in request.args.items()
    }
