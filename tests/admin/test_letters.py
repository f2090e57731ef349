"""A redrive in nsqadmin, by a user whose grants are for some topics only. nsqadmin's own secret allows everything."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.components import Componentized
from twisted.web.test.requesthelper import DummyRequest

from nsqtw.admin.access import Access
from nsqtw.admin.actions import Performer
from nsqtw.admin.audit import Audit, Target
from nsqtw.admin.viewer import viewer_with
from nsqtw.auth.grants import Grant, Grants
from nsqtw.cluster.model import ChannelStats, Partial
from nsqtw.errors import AccessDenied
from nsqtw.options.admin import AdminOptions

CHANNEL = Target(topic="orders", channel="c")


class Cluster:
    """A channel on two nodes, one of which has a policy with a dead-letter topic."""

    def __init__(self) -> None:
        self.redriven: list[dict[str, Any]] = []

    async def channel(self, topic: str, channel: str) -> Partial[ChannelStats]:
        names: dict[str, Any] = {"topic_name": topic, "channel_name": channel}
        nodes = (
            ChannelStats(node="a:1", policy={}, **names),
            ChannelStats(node="b:1", policy={"dead_letter_topic": "shared"}, **names),
        )
        return Partial(ChannelStats(node="*", policy=None, nodes=nodes, **names))

    async def redrive(self, topic: str, channel: str, arguments: dict[str, Any]) -> Partial[bool]:
        self.redriven.append(arguments)
        return Partial(True)


class Request(Componentized, DummyRequest):
    """A request that has a user."""

    def __init__(self) -> None:
        Componentized.__init__(self)
        DummyRequest.__init__(self, [b""])


class Notifications:
    def send(self, *args: object) -> None:
        pass


def perform(cluster: Cluster, action: str, topics: str, channels: str) -> Deferred[Any]:
    access = Access(AdminOptions(), None)
    made = Request()
    viewer = viewer_with(Grants([Grant(topics, [channels], ["admin"])]))
    assert viewer is not None
    access.set_viewer(made, viewer)
    performer = Performer(cluster, access, Audit(access), Notifications())  # type: ignore[arg-type]
    return Deferred.fromCoroutine(performer.perform(made, action, CHANNEL))


@pytest.mark.parametrize("action", ["redrive_channel", "stop_redrive_channel"])
@pytest.mark.parametrize(
    ("topics", "channels", "is_done"),
    [
        ("^orders$", ".*", False),
        (r"^orders(\.dead)?$", ".*", False),
        ("^(orders|shared)$", ".*", False),
        (r"^(orders(\.dead)?|shared)$", ".*", True),
        (r"^(orders(\.dead)?|shared)$", "^c$", True),
        (".*", ".*", True),
    ],
)
def test_a_redrive_needs_admin_for_the_dead_letters_of_each_node(
    action: str, topics: str, channels: str, is_done: bool
) -> None:
    cluster = Cluster()
    outcome: list[Any] = []
    perform(cluster, action, topics, channels).addBoth(outcome.append)
    assert bool(cluster.redriven) is is_done
    assert is_done or isinstance(outcome[0].value, AccessDenied)
