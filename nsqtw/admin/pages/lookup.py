"""Topics that nsqlookupds know and no node has."""

from __future__ import annotations

from nsqtw.admin.pages.page import LOOKUP, Content, page
from nsqtw.admin.pages.visit import Visit
from nsqtw.admin.viewer import Role
from nsqtw.errors import ClusterError


@page("lookup", "lookup.html", LOOKUP)
async def lookup(visit: Visit) -> Content:
    """Return the content of the page."""
    inactive: dict[str, tuple[str, ...]] = {}
    try:
        found = await visit.cluster.inactive_topics()
    except ClusterError as error:
        visit.warn(str(error))
    else:
        inactive = found.value
        for warning in found.warnings:
            visit.warn(warning)
    return {
        "title": "Lookup",
        "lookupds": visit.cluster.lookupds,
        "inactive": sorted(inactive.items()),
        "may_delete": visit.viewer.may(Role.ADMIN),
    }
