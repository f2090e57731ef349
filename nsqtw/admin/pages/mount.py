"""Answers to requests for pages: each finds the viewer, runs the view of the page and renders its template."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl, urlencode

from klein import Klein
from twisted.logger import Logger

from nsqtw import __version__
from nsqtw.admin.context import SiteContext

# A module of pages adds its views to the table of pages.
from nsqtw.admin.pages import action_pages, channel, cluster_pages, connections, live, nodes, topic  # noqa: F401
from nsqtw.admin.pages.action_pages import Answer
from nsqtw.admin.pages.assets import CACHE_CONTROL, Assets
from nsqtw.admin.pages.links import Links
from nsqtw.admin.pages.live_pages import RETRY_SECONDS, LivePages
from nsqtw.admin.pages.notices import Notices
from nsqtw.admin.pages.page import PAGES, Content, Page
from nsqtw.admin.pages.page_request import PageRequest
from nsqtw.admin.pages.render import Renderer
from nsqtw.admin.routing import plain
from nsqtw.admin.sampler import Sampler
from nsqtw.admin.server import WebRequest
from nsqtw.admin.viewer import Role, Viewer
from nsqtw.errors import AccessDenied, ClusterError, PageNotFound, UnknownObject

HTML = "text/html; charset=utf-8"
_MAX_FIELDS = 100

_log = Logger()


def mount(app: Klein, context: SiteContext) -> Pages:
    """Add the pages, their actions and their static files to the routes of `app`."""
    pages = Pages(context)
    base = context.base_path
    app.route(f"{base}/static/<digest>/<path:path>", methods=["GET"])(pages.static)
    for page in PAGES:
        app.route(f"{base}/{page.path}", methods=["GET"], endpoint=f"page {page.path}")(_handler(pages, page))
    app.route(f"{base}/actions/<name>", methods=["GET"])(pages.show_form)
    app.route(f"{base}/actions/<name>", methods=["POST"])(pages.perform)
    return pages


def _handler(pages: Pages, page: Page) -> Callable[..., Awaitable[bytes]]:
    async def show(request: WebRequest, **path: str) -> bytes:
        return await pages.show(page, request, path)

    return show


class Pages:
    """The pages of one nsqadmin. The cluster is sampled between `start` and `stop`."""

    def __init__(self, context: SiteContext) -> None:
        self._sampler = Sampler(context.cluster, context.reactor)
        self._context = context
        self._assets = Assets()
        self._links = Links.below(context.base_path)
        self._renderer = Renderer(self._assets, self._links, __version__)
        self._notices = Notices()
        self._live_pages = LivePages(context.reactor, self._sampler.watch)

    def start(self) -> None:
        """Begin to sample the cluster."""
        self._sampler.start()

    def stop(self) -> None:
        """Sample the cluster no more."""
        self._sampler.stop()

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
        self._sampler.record_view()
        if live.is_wanted(request):
            return await self._show_live(page, request, path)
        page_request = self._page_request(request, self._context.access.viewer(request), path)
        return self._written(
            request, page_request, await self._answer(page_request, partial(_content, page)), has_events=True
        )

    async def show_form(self, request: WebRequest, name: str) -> bytes:
        """GET /actions/<name>: the form of an action."""
        page_request = self._page_request(request, self._context.access.viewer(request), {})

        async def view(page_request: PageRequest) -> Answer:
            return await action_pages.show(page_request, action_pages.form_named(name), page_request.query)

        return self._written(request, page_request, await self._answer(page_request, view))

    async def perform(self, request: WebRequest, name: str) -> bytes:
        """POST /actions/<name>: perform an action, and go on to the page that shows what came of it."""
        viewer = self._context.access.viewer(request)
        page_request = self._page_request(request, viewer, {})
        fields = {**page_request.query, **_form(request)}

        async def view(page_request: PageRequest) -> Answer:
            form = action_pages.form_named(name)
            self._context.access.check_csrf(request, viewer, fields.get("csrf", ""))
            return await action_pages.perform(page_request, form, fields, request, self._context.performer)

        answer = await self._answer(page_request, view)
        if not answer.location:
            return self._written(request, page_request, answer)
        await self._sampler.refresh()
        token = self._notices.add(answer.text, answer.details, self._sampler.now)
        mark = "&" if "?" in answer.location else "?"
        request.setResponseCode(303)
        request.setHeader("Location", f"{answer.location}{mark}notice={token}")
        return b""

    def login_page(self, request: WebRequest, error: str, target: str) -> bytes:
        content = {"title": "Log in", "error": error, "next": target, "section": ""}
        return self._renderer.html("login.html", {**_PUBLIC, **content}).encode()

    # -- inside

    def _page_request(
        self, request: WebRequest, viewer: Viewer, path: Mapping[str, str], *, is_event: bool = False
    ) -> PageRequest:
        return PageRequest(
            cluster=self._context.cluster,
            sampler=self._sampler,
            links=self._links,
            viewer=viewer,
            query=_query(request),
            path=path,
            offset=time.time() - self._sampler.now,
            is_event=is_event,
        )

    async def _answer(self, page_request: PageRequest, view: Callable[[PageRequest], Awaitable[Answer]]) -> Answer:
        """Return the answer of a view, or a page with its error."""
        try:
            return await view(page_request)
        except (PageNotFound, UnknownObject) as error:
            return _failure("Not found", str(error), 404)
        except AccessDenied as error:
            return _failure("Not allowed", f"{error}.".capitalize(), 403)
        except ClusterError as error:
            _log.error("{error}", error=str(error))
            return _failure("No answer", str(error), 502)

    async def _show_live(self, page: Page, request: WebRequest, path: Mapping[str, str]) -> bytes:
        """Send a page as events, or refuse to when there are too many: the browser then loads it now and then."""
        access = self._context.access
        owner = access.viewer(request).name or access.client_ip(request)
        if not self._live_pages.has_room(owner):
            request.setHeader("Retry-After", str(RETRY_SECONDS))
            return plain(request, "TOO_MANY_LIVE_PAGES", 503)
        render = partial(self._render_event, page, request, path)
        await live.LivePage(request, self._context.reactor, render).run(self._live_pages.watch_for(owner))
        return b""

    async def _render_event(self, page: Page, request: WebRequest, path: Mapping[str, str]) -> str | None:
        viewer = await self._context.access.authenticate(request)
        if viewer is None:
            return None

        async def make() -> str:
            page_request = self._page_request(request, viewer, path, is_event=True)
            answer = await self._answer(page_request, partial(_content, page))
            return self._html(request, page_request, answer, has_events=True)

        return await self._live_pages.shared((request.uri, viewer), make)

    def _written(
        self, request: WebRequest, page_request: PageRequest, answer: Answer, *, has_events: bool = False
    ) -> bytes:
        request.setResponseCode(answer.status)
        request.setHeader("Content-Type", HTML)
        request.setHeader("Cache-Control", "no-store")
        return self._html(request, page_request, answer, has_events=has_events).encode()

    def _html(self, request: WebRequest, page_request: PageRequest, answer: Answer, *, has_events: bool) -> str:
        token = self._context.access.csrf_token(page_request.viewer)
        shared = {
            "section": "",
            "viewer": page_request.viewer,
            "role": page_request.viewer.role.name.lower(),
            "can_log_out": self._context.access.has_login,
            "csrf_token": token,
            "live_url": self._live_url(page_request, request) if has_events else "",
            "warning_list": page_request.warnings,
            "notice": self._notices.find(page_request.query.get("notice", ""), self._sampler.now),
            "may_create": page_request.viewer.may(Role.ADMIN),
        }
        return self._renderer.html(answer.template, {**shared, **answer.content})

    def _live_url(self, page_request: PageRequest, request: WebRequest) -> str:
        path = request.uri.partition(b"?")[0].decode("ascii", "replace")
        kept = {name: value for name, value in page_request.query.items() if name not in ("notice", "whole")}
        return f"{path}?{urlencode(kept)}" if kept else path


_PUBLIC: Content = {
    "viewer": None,
    "can_log_out": False,
    "live_url": "",
    "warning_list": [],
    "notice": None,
}
"""What the base template needs for a page without a viewer."""


async def _content(page: Page, page_request: PageRequest) -> Answer:
    content = await page.view(page_request)
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
