"""The cluster and the nsqadmin of the tests of nsqadmin."""

from __future__ import annotations

from tests.admin.conftest import admin, nodes, start, topic

__all__ = ["admin", "nodes", "start", "topic"]
