"""Rendering of templates. Everything in a page is escaped, and an unknown name in a template is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nsqtw.admin.pages import formats
from nsqtw.admin.pages.assets import Assets
from nsqtw.admin.pages.links import Links
from nsqtw.admin.pages.page import NAVIGATION

_FILTERS = (
    *(formats.area, formats.brief, formats.count, formats.duration, formats.percent, formats.plural, formats.polylines),
    *(formats.quantile, formats.rate, formats.short, formats.size),
)


class Renderer:
    """Makes HTML of templates. `links` makes its URLs."""

    def __init__(self, assets: Assets, links: Links, version: str) -> None:
        environment = Environment(
            loader=PackageLoader("nsqtw.admin.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters.update({function.__name__: function for function in _FILTERS})
        environment.globals.update(
            asset=lambda path: links.page(assets.url(path)), links=links, navigation=NAVIGATION, version=version
        )
        self._environment = environment

    def html(self, template: str, content: Mapping[str, Any]) -> str:
        """Return a page."""
        return self._environment.get_template(template).render(content)
