"""A redrive in nsqadmin, by a user whose grants are for some topics only. nsqadmin's own secret allows everything."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.components import Componentized
from twisted.web.test.requesthelper import DummyRequest

from nsqtw.admin.access import Access
from nsqtw.admin.actions import ACTIONS, Performer
from nsqtw.admin.audit import Audit, Target
from nsqtw.admin.pages.letters import kept_headers, moment, own_headers
from nsqtw.admin.viewer import viewer_with
from nsqtw.auth.grants import Grant, Grants
from nsqtw.cluster.model import ChannelStats, Partial
from nsqtw.errors import AccessDenied, ClusterError
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

    async def redrive(self, topic: str, channel: str, arguments: dict[str, Any], *, node: str = "") -> Partial[bool]:
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


@pytest.mark.parametrize("action", ["redrive_channel", "stop_redrive_channel", "redrive_message"])
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


# -- one dead letter


class OneLetter:
    """A cluster that records what is done to one dead letter."""

    def __init__(self, failure: ClusterError | None = None) -> None:
        self.done: list[tuple[str, ...]] = []
        self._failure = failure

    async def publish_with_headers(
        self, topic: str, messages: list[tuple[bytes, dict[str, str]]], *, node: str, parameters: dict[str, str]
    ) -> str:
        self.done.append(("publish", topic, parameters["channel"], node, messages[0][0].decode()))
        return node

    async def finish(self, topic: str, channel: str, message_id: str, *, node: str) -> Partial[tuple[str, ...]]:
        self.done.append(("finish", topic, channel, node, message_id))
        if self._failure is not None:
            raise self._failure
        return Partial((message_id,))


def replace(cluster: OneLetter) -> Partial[str]:
    """Edit a dead letter."""
    target = Target(topic="orders", channel="c", node="a:1", message="0123456789abcdef")
    arguments = {"body": b"mended", "headers": {}, "letter_topic": "orders.dead"}
    done: list[Partial[str]] = []
    action = ACTIONS["replace_message"].perform(cluster, target, arguments)  # type: ignore[arg-type]
    Deferred.fromCoroutine(action).addCallback(done.append)  # type: ignore[arg-type]
    return done[0]


def test_an_edited_letter_is_published_before_it_is_finished() -> None:
    cluster = OneLetter()
    assert replace(cluster) == Partial("a:1")
    assert cluster.done == [
        ("publish", "orders", "c", "a:1", "mended"),
        ("finish", "orders.dead", "c", "a:1", "0123456789abcdef"),
    ]


def test_a_letter_that_is_published_and_not_finished_is_told() -> None:
    result = replace(OneLetter(ClusterError("a:1: timed out")))
    assert (result.value, result.warnings) == ("a:1", ("The dead letter is still there: a:1: timed out",))


def test_what_the_headers_of_a_letter_say_is_readable() -> None:
    headers = {
        "color": "red",
        "nsq-dead-attempts": "3",
        "nsq-dead-header-ttl": "90000",
        "nsq-dead-header-id": "x",
        "nsq-dead-id": "0123456789abcdef",
        "nsq-first-timestamp": "1767225600000000000",
        "nsq-redrives": "1",
    }
    assert own_headers(headers) == {
        "color": "red",
        "ttl": "90000",
        "id": "x",
        "nsq-first-timestamp": "2026-01-01 00:00:00 UTC",
        "nsq-redrives": "1",
    }
    assert kept_headers(headers) == {"color": "red", "ttl": "90000"}
    assert own_headers({"nsq-dead-reason": "published by somebody"}) == {"nsq-dead-reason": "published by somebody"}
    assert [moment(text) for text in ("", "x", "9" * 30)] == [("", "")] * 3
