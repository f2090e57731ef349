"""The cluster and the nsqadmin of the tests of nsqadmin."""

from __future__ import annotations

from tests.admin.conftest import admin, nodes, start

__all__ = ["admin", "nodes", "start"]
