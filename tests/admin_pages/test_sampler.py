"""The sampler, with a clock of the test and nodes that answer as the test says."""

from __future__ import annotations

import math

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from nsqtw.admin import sampler
from nsqtw.admin.history import CLUSTER
from nsqtw.admin.sampler import KEPT_SECONDS, LIVE_SECONDS, QUIET_SECONDS, SETTLE_SECONDS, STEP_SECONDS, Sampler
from nsqtw.cluster.merge import merged_topic
from nsqtw.cluster.model import ChannelStats, ClusterStats, Node, NodeStats, Partial, TopicStats
from nsqtw.errors import NoServerAnswered

TOPIC, CHANNEL = ("topic", "orders"), ("channel", "orders", "billing")


def node(number: int, messages: int, depth: int = 0, received: int | None = None) -> NodeStats:
    """Return a node with one topic and one channel."""
    name = Node(broadcast_address="10.0.0.1", hostname="h", tcp_port=1, http_port=number, version="1.3.0")
    channel = ChannelStats(
        node=name.http_address,
        topic_name="orders",
        channel_name="billing",
        depth=depth,
        message_count=messages if received is None else received,
    )
    topic = TopicStats(node=name.http_address, topic_name="orders", message_count=messages, channels=(channel,))
    return NodeStats(node=name, topics=(topic,))


def stats(*nodes: NodeStats) -> ClusterStats:
    topics = [topic for found in nodes for topic in found.topics]
    return ClusterStats(nodes, {"orders": merged_topic("orders", topics)} if topics else {})


@attrs.define
class FakeCluster:
    """Answers with `answer`, or when `held` is fired."""

    answer: ClusterStats = attrs.field(factory=ClusterStats)
    error: NoServerAnswered | None = None
    held: Deferred[None] | None = None
    asked: int = 0

    async def stats(self) -> Partial[ClusterStats]:
        self.asked += 1
        if self.held is not None:
            await self.held
        if self.error is not None:
            raise self.error
        return Partial(self.answer)


@attrs.define
class Bench:
    """A sampler that runs, and its surroundings."""

    clock: Clock = attrs.field(factory=Clock)
    cluster: FakeCluster = attrs.field(factory=FakeCluster)
    sampler: Sampler = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sampler = Sampler(self.cluster, self.clock)

    def start(self) -> None:
        self.sampler.start()
        self.settle()

    def settle(self) -> None:
        """Run what is due now."""
        for _ in range(20):
            self.clock.advance(0)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def step(self, answer: ClusterStats) -> None:
        """Let the nodes answer something else, and a sample be made of it."""
        self.cluster.answer = answer
        self.sampler.record_view()
        self.pass_time(STEP_SECONDS)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_rates_are_those_of_all_nodes_together(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 100), node(2, 50))
    bench.start()
    bench.step(stats(node(1, 150), node(2, 75)))
    history = bench.sampler.history
    assert history.last(TOPIC, "in") == pytest.approx(15)
    assert history.last(CLUSTER, "in") == pytest.approx(15)
    assert history.last(("node", "10.0.0.1:1"), "in") == pytest.approx(10)


def test_what_leaves_a_channel_is_what_came_and_does_not_wait(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 100, depth=100))
    bench.start()
    bench.step(stats(node(1, 150, depth=100)))
    assert bench.sampler.history.last(CHANNEL, "out") == pytest.approx(10)
    assert bench.sampler.history.last(CHANNEL, "depth") == 100


def test_a_replay_is_no_negative_rate(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 100))
    bench.start()
    bench.step(stats(node(1, 100, depth=80)))
    assert bench.sampler.history.last(CHANNEL, "out") == 0


def test_a_node_that_restarts_begins_at_zero(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 1000))
    bench.start()
    bench.step(stats(node(1, 25)))
    assert bench.sampler.history.last(TOPIC, "in") == pytest.approx(5)


def test_a_node_that_is_gone_is_kept_for_an_hour_and_marked(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 100), node(2, 100))
    bench.start()
    bench.step(stats(node(1, 110)))
    assert [state.is_gone for state in bench.sampler.nodes.values()] == [False, True]
    assert math.isnan(bench.sampler.history.last(("node", "10.0.0.1:2"), "in"))
    bench.step(stats(node(1, 120), node(2, 110)))
    assert [state.is_gone for state in bench.sampler.nodes.values()] == [False, False]
    bench.step(stats(node(1, 130)))
    bench.pass_time(KEPT_SECONDS)
    assert list(bench.sampler.nodes) == ["10.0.0.1:1"]


def test_nodes_that_are_gone_have_a_bounded_number_of_topics_and_channels(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "MAX_PARTS", 4)  # of two nodes
    bench.cluster.answer = stats(node(1, 1))
    bench.start()
    for number in range(2, 6):
        bench.step(stats(node(number, 1)))
    assert list(bench.sampler.nodes) == ["10.0.0.1:3", "10.0.0.1:4", "10.0.0.1:5"]


def test_when_nobody_answers_the_last_figures_stay(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 100))
    bench.start()
    bench.cluster.error = NoServerAnswered("nsqlookupd", [])
    bench.pass_time(QUIET_SECONDS)
    assert bench.sampler.latest is not None and bench.sampler.latest.value == bench.cluster.answer
    assert "nsqlookupd" in bench.sampler.error
    assert [state.is_gone for state in bench.sampler.nodes.values()] == [False], "it was not asked"
    bench.cluster.error = NoServerAnswered("nsqd", [])
    bench.pass_time(QUIET_SECONDS)
    assert [state.is_gone for state in bench.sampler.nodes.values()] == [True]
    bench.cluster.error = None
    bench.pass_time(QUIET_SECONDS)
    assert bench.sampler.error == ""


def test_nodes_that_answer_one_after_the_other_are_no_rise(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 100, depth=100))
    bench.start()
    bench.step(stats(node(1, 150, depth=100)))
    bench.step(stats(node(1, 200, depth=100), node(2, 900, depth=900)))
    bench.step(stats(node(1, 250, depth=100), node(2, 950, depth=900)))
    history = bench.sampler.history
    assert history.recent(CLUSTER, "depth").values == history.recent(TOPIC, "depth").values == [1000, 1000]
    rates = [history.recent(subject, "in").values for subject in (CLUSTER, TOPIC, CHANNEL)]
    assert [[math.isnan(each[0]), each[1]] for each in rates] == [[True, pytest.approx(20)]] * 3


def test_a_node_that_comes_later_is_a_rise_and_has_no_rate_yet(bench: Bench) -> None:
    bench.cluster.answer = stats(node(1, 0, depth=100))
    bench.start()
    bench.pass_time(SETTLE_SECONDS)
    bench.step(stats(node(1, 50, depth=100), node(2, 900, depth=900)))
    history = bench.sampler.history
    assert history.recent(CLUSTER, "depth").values[-2:] == [100, 1000]
    assert math.isnan(history.last(CLUSTER, "in"))
    assert history.last(("node", "10.0.0.1:1"), "in") == pytest.approx(10)


# -- when it asks


def test_it_asks_rarely_while_nobody_looks(bench: Bench) -> None:
    bench.start()
    assert bench.cluster.asked == 1
    bench.pass_time(QUIET_SECONDS - 1)
    assert bench.cluster.asked == 1
    bench.pass_time(1)
    assert bench.cluster.asked == 2


def test_it_asks_at_once_and_often_when_somebody_looks(bench: Bench) -> None:
    bench.start()
    bench.pass_time(3)
    bench.sampler.record_view()
    bench.settle()
    assert bench.cluster.asked == 2
    bench.pass_time(LIVE_SECONDS)
    assert bench.cluster.asked == 3


def test_a_slow_round_makes_the_next_one_wait(bench: Bench) -> None:
    bench.cluster.held = Deferred()
    bench.start()
    bench.sampler.record_view()
    bench.clock.advance(3)
    held, bench.cluster.held = bench.cluster.held, None
    held.callback(None)
    bench.settle()
    bench.pass_time(11)
    assert bench.cluster.asked == 1
    bench.pass_time(1)
    assert bench.cluster.asked == 2


def test_listeners_are_called_after_each_round_until_they_leave(bench: Bench) -> None:
    calls: list[float] = []
    leave = bench.sampler.watch(lambda: calls.append(bench.clock.seconds()))
    bench.start()
    bench.pass_time(LIVE_SECONDS)
    assert calls == [0, LIVE_SECONDS]
    leave()
    bench.pass_time(LIVE_SECONDS)
    assert len(calls) == 2


def test_a_refresh_has_an_answer_that_was_asked_for_after_it(bench: Bench) -> None:
    bench.cluster.held = held = Deferred()
    bench.start()
    done: list[None] = []
    Deferred.fromCoroutine(bench.sampler.refresh()).addCallback(done.append)
    bench.cluster.held = None
    held.callback(None)
    assert bench.cluster.asked == 1 and done == []
    bench.settle()
    assert bench.cluster.asked == 2 and done == [None]


def test_a_stop_ends_everything(bench: Bench) -> None:
    bench.cluster.held = Deferred()
    bench.start()
    bench.sampler.stop()
    bench.settle()
    assert bench.clock.getDelayedCalls() == []
