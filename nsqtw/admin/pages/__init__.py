"""
The pages of nsqadmin, rendered by the server.

They are complete without scripts; with them, figures and charts change by themselves (`live`). A page is a declaration in
`page.PAGES`, an action one in `actions.ACTIONS`.
"""

from __future__ import annotations

from nsqtw.admin.pages.mount import Pages, mount

__all__ = ["Pages", "mount"]
