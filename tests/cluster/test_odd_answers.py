"""Whatever one server answers costs the figures of that server alone."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqtw.cluster import queries
from nsqtw.cluster.merge import setting_values
from nsqtw.cluster.model import Partial
from nsqtw.cluster.rates import RateMeter
from tests.cluster.odd_answers import (
    ODD,
    SOUND,
    SOUND_DEPTH,
    AnsweredCluster,
    answers_of,
    documents,
    lookupd_documents,
    odd_documents,
    outcome,
)


def test_the_largest_node_is_left_out_when_all_have_too_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {"topics": [{"topic_name": f"t{number}"} for number in range(10)]}
    cluster = AnsweredCluster(answers_of({"/stats": json.dumps(many).encode()}))
    assert len(outcome(cluster.stats()).value.nodes) == 2
    monkeypatch.setattr(queries, "MAX_PARTS_TOGETHER", 13)  # the other one has 4
    found = outcome(cluster.stats())
    assert [node.node.http_address for node in found.value.nodes] == [SOUND]
    assert found.warnings == (f"{ODD}: left out, because all nodes together have more than 13 topics and channels",)


CALLS: dict[str, tuple[str, Callable[[AnsweredCluster], Awaitable[Any]]]] = {
    "topics": ("/stats", lambda cluster: cluster.topics()),
    "nodes": ("/info", lambda cluster: cluster.nodes()),
    "stats": ("/stats", lambda cluster: cluster.stats()),
    "stats after info": ("/info", lambda cluster: cluster.stats()),
    "topic": ("/stats", lambda cluster: cluster.topic("t")),
    "channel": ("/stats", lambda cluster: cluster.channel("t", "c")),
    "counter": ("/stats", lambda cluster: cluster.counter()),
    "messages of a channel": ("/v2/channel/messages", lambda cluster: cluster.messages("t", "c")),
    "messages of a topic": ("/v2/topic/messages", lambda cluster: cluster.messages("t")),
    "seek": ("/v2/channel/seek", lambda cluster: cluster.seek("t", "c", "latest")),
    "dry run": ("/v2/openapi.json", lambda cluster: cluster.seek("t", "c", "latest", is_dry_run=True)),
    "redrive": ("/v2/channel/redrive", lambda cluster: cluster.redrive_progress("t", "c")),
    "cancel": ("/v2/topic/cancel", lambda cluster: cluster.cancel("t", "0" * 16)),
    "policy of a topic": ("/v2/topic/policy", lambda cluster: cluster.policy("t")),
    "policy of a channel": ("/v2/channel/policy", lambda cluster: cluster.policy("t", "c")),
}
"""Queries of all nodes: the path of which one node answers oddly, and the call."""


@pytest.mark.parametrize("call", CALLS)
def test_sound_answers_have_no_warning(call: str) -> None:
    found = outcome(CALLS[call][1](AnsweredCluster(answers_of())))
    assert found.warnings == ()


@pytest.mark.parametrize("call", CALLS)
@settings(max_examples=40)
@given(data=st.data())
def test_an_odd_answer_of_one_node_is_read_or_a_warning(call: str, data: Any) -> None:
    path, ask = CALLS[call]
    body = data.draw(odd_documents(documents("10.0.0.2:4151", 1)[path]))
    found = outcome(ask(AnsweredCluster(answers_of({path: body}))))
    assert isinstance(found, Partial)
    assert found.value
    if call == "stats":
        sound = next(node for node in found.value.nodes if node.node.http_address == SOUND)
        assert sound.topics[0].channels[0].depth == SOUND_DEPTH
        assert found.value.topics["t"].total_depth >= SOUND_DEPTH
        assert len(found.value.nodes) + len(found.warnings) == 2
        meter = RateMeter()
        for now in (1.0, 2.0):
            for node in found.value.nodes:
                list(meter.rates(node, now))
    if call.startswith("policy"):
        setting_values(found.value)


@pytest.mark.parametrize(
    "method", ["topics", "nodes", "stats", "inactive_topics", "counter", "topic", "channel", "publish"]
)
@settings(max_examples=40)
@given(data=st.data())
def test_an_odd_answer_of_an_nsqlookupd(method: str, data: Any) -> None:
    path = data.draw(st.sampled_from(list(lookupd_documents())))
    body = data.draw(odd_documents(lookupd_documents()[path]))
    cluster = AnsweredCluster(answers_of(lookupd={path: body}), through_lookupd=True)
    arguments: dict[str, tuple[Any, ...]] = {"topic": ("t",), "channel": ("t", "c"), "publish": ("t", b"x")}
    outcome(getattr(cluster, method)(*arguments.get(method, ())))


@settings(max_examples=40)
@given(data=st.data())
def test_odd_answers_of_a_node_that_drains_reloads_or_releases(data: Any) -> None:
    sound = AnsweredCluster(answers_of())
    (node, _) = outcome(sound.nodes()).value
    for path, method in (
        *(("/v2/drain", "drain_state"), ("/v2/drain", "drain"), ("/v2/reload", "reload")),
        ("/v2/replica/release", "release"),
    ):
        answers = answers_of()
        answers[SOUND, path] = data.draw(odd_documents(documents(SOUND, 1)[path]))
        outcome(getattr(AnsweredCluster(answers), method)(node))
