"""What the pages say of topics and channels that are not the same on all nodes, or not as most are."""

from __future__ import annotations

from nsqtw.admin.pages.action_forms import pauses
from nsqtw.admin.pages.topic import has_own_retention, usual_retention
from nsqtw.cluster.merge import merged_channel
from nsqtw.cluster.model import ChannelStats, Retention, TopicStats
from tests.admin.conftest import Nodes
from tests.admin.process import AdminProcess
from tests.process import wait_until


def topic(time: float, size: int = 0) -> TopicStats:
    retention = Retention(time=time, bytes=size, earliest=0) if time or size else None
    return TopicStats(node="a:1", topic_name="t", retention=retention)


def channel(node: str, *, is_paused: bool) -> ChannelStats:
    return ChannelStats(node=node, topic_name="t", channel_name="c", is_paused=is_paused)


def test_the_retention_that_most_topics_have_is_not_their_own() -> None:
    usual = usual_retention([topic(3600), topic(3600), topic(86_400), topic(0)])
    assert usual == (3600, 0)
    assert [has_own_retention(each, usual) for each in (topic(3600), topic(86_400), topic(0))] == [False, True, False]
    assert usual_retention([topic(3600), topic(0)]) == usual_retention([]) == (0, 0)


def test_a_channel_that_is_paused_on_one_node_can_be_paused_and_unpaused() -> None:
    both = [channel("a:1", is_paused=True), channel("b:1", is_paused=False)]
    assert pauses(merged_channel(both)) == {True, False}
    assert pauses(both[0]) == {True}
    assert pauses(merged_channel([both[1], both[1]])) == {False}


def test_a_page_says_on_how_many_nodes_a_channel_is_paused(admin: AdminProcess, nodes: Nodes) -> None:
    nodes.prepare("half", "c")
    nodes.nsqds[0].order("/channel/pause?topic=half&channel=c")
    for path in ("/topics/half/c", "/topics/half", "/topics?list=channels"):
        wait_until(lambda path=path: "paused on 1 of 2" in admin.get(path).body.decode(), path)
    page = admin.get("/topics/half/c").body.decode()
    assert "/actions/pause_channel?" in page and "/actions/unpause_channel?" in page
