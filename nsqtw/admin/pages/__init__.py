"""
The pages of nsqadmin, rendered by the server.

They are complete without scripts; with them, figures and charts change by themselves (`live`). A page is one
declaration, a view with `@page` (`page`); an action is a row of `action_forms.FORMS`.
"""

from __future__ import annotations

# A module of pages adds its views to the table of pages.
from nsqtw.admin.pages import channel, counter, lookup, nodes, overview, topic, topics  # noqa: F401
from nsqtw.admin.pages.mount import Pages, mount

__all__ = ["Pages", "mount"]
