"""The HTTP side of the pages: it finds the viewer, runs the view, renders the template and answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode

from klein import Klein
from twisted.logger import Logger

from nsqtw import __version__
from nsqtw.admin.access import Access
from nsqtw.admin.actions import Performer
from nsqtw.admin.login import Login
from nsqtw.admin.pages import action_pages, live
from nsqtw.admin.pages.action_pages import Answer
from nsqtw.admin.pages.assets import CACHE_CONTROL, Assets
from nsqtw.admin.pages.links import Links
from nsqtw.admin.pages.notices import Notices
from nsqtw.admin.pages.page import PAGES, Content, Page
from nsqtw.admin.pages.render import Renderer
from nsqtw.admin.pages.visit import NotThere, Visit
from nsqtw.admin.sampler import Sampler
from nsqtw.admin.server import WebRequest
from nsqtw.admin.viewer import Role, Viewer
from nsqtw.cluster.cluster import Cluster
from nsqtw.errors import AccessDenied, ClusterError, UnknownObject

HTML = "text/html; charset=utf-8"
_MAX_FIELDS = 100

_log = Logger()


class Site(Protocol):
    """What the pages need of nsqadmin. `base_path` is "" or starts with a slash and ends without one."""

    reactor: Any
    base_path: str
    cluster: Cluster
    access: Access
    performer: Performer
    login: Login
    on_stop: list[Any]


def mount(app: Klein, site: Site) -> Pages:
    """Add the pages, their actions and their static files to the routes of `app`, and begin to sample the cluster."""
    pages = Pages(site)
    base = site.base_path
    app.route(f"{base}/static/<digest>/<path:path>", methods=["GET"])(pages.static)
    for page in PAGES:
        app.route(f"{base}/{page.path}", methods=["GET"], endpoint=f"page {page.path}")(_handler(pages, page))
    app.route(f"{base}/actions/<name>", methods=["GET"])(pages.show_form)
    app.route(f"{base}/actions/<name>", methods=["POST"])(pages.perform)
    site.login.page = pages.login_page
    site.on_stop.append(pages.sampler.stop)
    pages.sampler.start()
    return pages


def _handler(pages: Pages, page: Page) -> Callable[..., Awaitable[bytes]]:
    async def show(request: WebRequest, **path: str) -> bytes:
        return await pages.show(page, request, path)

    return show


class Pages:
    """The pages of one nsqadmin."""

    def __init__(self, site: Site) -> None:
        self.sampler = Sampler(site.cluster, site.reactor)
        self._site = site
        self._assets = Assets()
        self._links = Links.below(site.base_path)
        self._renderer = Renderer(self._assets, self._links, __version__)
        self._notices = Notices()

    # -- requests

    def static(self, request: WebRequest, digest: str, path: str) -> bytes:
        """GET /static/<hash>/<path>"""
        asset = self._assets.find(digest, path)
        if asset is None:
            request.setResponseCode(404)
            request.setHeader("Content-Type", "text/plain; charset=utf-8")
            return b"NOT_FOUND"
        request.setHeader("Content-Type", asset.content_type)
        request.setHeader("Cache-Control", CACHE_CONTROL)
        return asset.content

    async def show(self, page: Page, request: WebRequest, path: Mapping[str, str]) -> bytes:
        """Answer a request for a page, or for its changes."""
        self.sampler.look()
        if live.is_wanted(request):
            render = partial(self._render_event, page, request, path)
            await live.LivePage(request, self._site.reactor, render).run(self.sampler.watch)
            return b""
        visit = self._visit(request, self._site.access.viewer(request), path)
        return self._written(request, visit, await self._answer(visit, partial(_content, page)), has_events=True)

    async def show_form(self, request: WebRequest, name: str) -> bytes:
        """GET /actions/<name>: the form of an action."""
        visit = self._visit(request, self._site.access.viewer(request), {})

        async def view(visit: Visit) -> Answer:
            return await action_pages.show(visit, action_pages.form_named(name), visit.query)

        return self._written(request, visit, await self._answer(visit, view))

    async def perform(self, request: WebRequest, name: str) -> bytes:
        """POST /actions/<name>: perform an action, and go on to the page that shows what came of it."""
        viewer = self._site.access.viewer(request)
        visit = self._visit(request, viewer, {})
        fields = {**visit.query, **_form(request)}

        async def view(visit: Visit) -> Answer:
            form = action_pages.form_named(name)
            self._site.access.check_csrf(request, viewer, fields.get("csrf", ""))
            return await action_pages.perform(visit, form, fields, request, self._site.performer)

        answer = await self._answer(visit, view)
        if not answer.location:
            return self._written(request, visit, answer)
        await self.sampler.refresh()
        token = self._notices.add(answer.text, answer.details, self.sampler.now)
        mark = "&" if "?" in answer.location else "?"
        request.setResponseCode(303)
        request.setHeader("Location", f"{answer.location}{mark}notice={token}")
        return b""

    def login_page(self, request: WebRequest, error: str, target: str) -> bytes:
        """Return the login page."""
        content = {"title": "Log in", "error": error, "next": target, "section": ""}
        return self._renderer.html("login.html", {**_PUBLIC, **content}).encode()

    # -- inside

    def _visit(self, request: WebRequest, viewer: Viewer, path: Mapping[str, str], *, is_event: bool = False) -> Visit:
        return Visit(
            cluster=self._site.cluster,
            sampler=self.sampler,
            links=self._links,
            viewer=viewer,
            query=_query(request),
            path=path,
            offset=time.time() - self.sampler.now,
            is_event=is_event,
        )

    async def _answer(self, visit: Visit, view: Callable[[Visit], Awaitable[Answer]]) -> Answer:
        """Return what a view answers, or a page that says why it cannot."""
        try:
            return await view(visit)
        except (NotThere, UnknownObject) as error:
            return _failure("Not found", str(error), 404)
        except AccessDenied as error:
            return _failure("Not allowed", f"{error}.".capitalize(), 403)
        except ClusterError as error:
            _log.error("{error}", error=str(error))
            return _failure("No answer", str(error), 502)

    async def _render_event(self, page: Page, request: WebRequest, path: Mapping[str, str]) -> str | None:
        viewer = await self._site.access.authenticate(request)
        if viewer is None:
            return None
        visit = self._visit(request, viewer, path, is_event=True)
        answer = await self._answer(visit, partial(_content, page))
        return self._html(request, visit, answer, has_events=True)

    def _written(self, request: WebRequest, visit: Visit, answer: Answer, *, has_events: bool = False) -> bytes:
        request.setResponseCode(answer.status)
        request.setHeader("Content-Type", HTML)
        request.setHeader("Cache-Control", "no-store")
        return self._html(request, visit, answer, has_events=has_events).encode()

    def _html(self, request: WebRequest, visit: Visit, answer: Answer, *, has_events: bool) -> str:
        token = self._site.access.csrf_token(visit.viewer)
        shared = {
            "section": "",
            "viewer": visit.viewer,
            "role": visit.viewer.role.name.lower(),
            "can_log_out": self._site.access.has_login,
            "csrf_token": token,
            "live_url": self._live_url(visit, request) if has_events else "",
            "warning_list": visit.warnings,
            "notice": self._notices.find(visit.query.get("notice", ""), self.sampler.now),
            "may_create": visit.viewer.may(Role.ADMIN),
        }
        return self._renderer.html(answer.template, {**shared, **answer.content})

    def _live_url(self, visit: Visit, request: WebRequest) -> str:
        path = request.uri.partition(b"?")[0].decode("ascii", "replace")
        kept = {name: value for name, value in visit.query.items() if name not in ("notice", "whole")}
        return f"{path}?{urlencode(kept)}" if kept else path


_PUBLIC: Content = {
    "viewer": None,
    "can_log_out": False,
    "live_url": "",
    "warning_list": [],
    "notice": None,
    "user": "",
}
"""What the base template needs for a page without a viewer."""


async def _content(page: Page, visit: Visit) -> Answer:
    content = await page.view(visit)
    return Answer(content.get("template", page.template), {"section": page.section, **content})


def _failure(title: str, text: str, status: int) -> Answer:
    return Answer("error.html", {"title": title, "text": text}, status)


def _query(request: WebRequest) -> dict[str, str]:
    """Return the first value of each field of the query."""
    text = request.uri.partition(b"?")[2].decode("ascii", "replace")
    return _first(parse_qsl(text, keep_blank_values=True, errors="replace"))


def _form(request: WebRequest) -> dict[str, str]:
    """Return the first value of each field of the body."""
    request.content.seek(0)
    text = request.content.read().decode("utf-8", "replace")
    return _first(parse_qsl(text, keep_blank_values=True, errors="replace")[:_MAX_FIELDS])


def _first(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return dict(reversed(pairs))
