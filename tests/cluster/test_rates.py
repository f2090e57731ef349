"""Rates of topics and channels, with a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from nsqtw.cluster.model import ChannelStats, Node, NodeStats, TopicStats
from nsqtw.cluster.rates import RateMeter, Rates, Subject

TOPIC, CHANNEL = ("topic", "t"), ("channel", "t", "c")
UNFINISHED = ("dropped_count", "dead_letter_count", "expired_count")


def node(port: int = 1, topic: int = 0, **counts: Any) -> NodeStats:
    """Return a node with one topic, and with a channel when it has counts."""
    place = Node(broadcast_address="10.0.0.1", hostname="h", tcp_port=1, http_port=port, version="1.3.0")
    name = place.http_address
    channels = (ChannelStats(node=name, topic_name="t", channel_name="c", **counts),) if counts else ()
    return NodeStats(
        node=place, topics=(TopicStats(node=name, topic_name="t", message_count=topic, channels=channels),)
    )


def rates(*samples: tuple[float, NodeStats]) -> dict[Subject, Rates | None]:
    """Return the rates of the last sample."""
    meter = RateMeter()
    found: dict[Subject, Rates | None] = {}
    for now, sample in samples:
        found = dict(meter.rates(sample, now))
    return found


def test_the_first_sample_of_a_node_has_no_rate() -> None:
    assert rates((0.0, node(message_count=5))) == {TOPIC: None, CHANNEL: None}
    assert rates((0.0, node(1, message_count=5)), (1.0, node(2, message_count=9))) == {TOPIC: None, CHANNEL: None}


def test_two_samples_of_the_same_time_have_no_rate() -> None:
    assert rates((5.0, node(message_count=1)), (5.0, node(message_count=2)))[CHANNEL] is None


def test_rates_are_changes_a_second() -> None:
    before = node(topic=10, message_count=10, requeue_count=1, timeout_count=2)
    found = rates((0.0, before), (2.0, node(topic=30, message_count=30, requeue_count=5, timeout_count=8)))
    assert found[CHANNEL] == Rates(incoming=10.0, outgoing=10.0, requeued=2.0, timed_out=3.0)
    assert found[TOPIC] == Rates(incoming=10.0, outgoing=10.0)


@pytest.mark.parametrize("level", ["depth", "in_flight_count", "deferred_count", *UNFINISHED])
def test_messages_that_wait_or_left_unfinished_did_not_go_out(level: str) -> None:
    found = rates((0.0, node(message_count=10)), (1.0, node(message_count=20, **{level: 4})))
    assert found[CHANNEL] == Rates(incoming=10.0, outgoing=6.0)


def test_an_expired_message_that_became_a_dead_letter_counts_once() -> None:
    policy = {"expired": "dead_letter"}
    before = node(message_count=10, policy=policy)
    found = rates((0.0, before), (1.0, node(message_count=20, expired_count=4, dead_letter_count=4, policy=policy)))
    assert found[CHANNEL] == Rates(incoming=10.0, outgoing=6.0)


def test_messages_that_waited_go_out() -> None:
    found = rates((0.0, node(message_count=10, depth=8)), (1.0, node(message_count=10, depth=3)))
    assert found[CHANNEL] == Rates(outgoing=5.0)


def test_a_node_that_has_restarted_counts_from_0() -> None:
    found = rates((0.0, node(message_count=1000, depth=3)), (1.0, node(message_count=20, depth=3)))
    assert found[CHANNEL] == Rates(incoming=20.0, outgoing=20.0)


def test_a_new_channel_counts_from_0() -> None:
    found = rates((0.0, node()), (2.0, node(message_count=20)))
    assert found[CHANNEL] == Rates(incoming=10.0, outgoing=10.0)


def test_a_forgotten_node_begins_again() -> None:
    meter = RateMeter()
    list(meter.rates(node(message_count=1), 0.0))
    meter.forget("10.0.0.1:1")
    assert dict(meter.rates(node(message_count=5), 1.0))[CHANNEL] is None


def test_rates_of_nodes_are_added() -> None:
    assert Rates(1.0, 2.0, 3.0, 4.0) + Rates(1.0, 1.0, 1.0, 1.0) == Rates(2.0, 3.0, 4.0, 5.0)
