"""The parts of an nsqadmin that its pages use."""

from __future__ import annotations

import attrs

from nsqtw.admin.access import Access
from nsqtw.admin.actions import Performer
from nsqtw.cluster.cluster import Cluster
from nsqtw.runtime.reactor import Reactor


@attrs.frozen(kw_only=True)
class SiteContext:
    """The parts. `base_path` is "" or starts with a slash and ends without one."""

    reactor: Reactor
    base_path: str
    cluster: Cluster
    access: Access
    performer: Performer
