"""A cluster whose nsqlookupds do not answer any more: it goes on with the nodes that they named."""

from __future__ import annotations

import json

import pytest

from nsqtw.cluster.model import LookupdState
from nsqtw.errors import NoServerAnswered
from tests.cluster.odd_answers import LOOKUPD, ODD, SOUND, AnsweredCluster, answers_of, lookupd_documents, outcome

OTHER_LOOKUPD = "10.0.0.4:4161"
LOST = f"GET {LOOKUPD}"


def lose(cluster: AnsweredCluster, address: str = LOOKUPD) -> None:
    """Let an nsqlookupd answer no more."""
    cluster.answers = {place: body for place, body in cluster.answers.items() if place[0] != address}


def with_lookupd() -> AnsweredCluster:
    """Return a cluster that an nsqlookupd has named once."""
    cluster = AnsweredCluster(answers_of(), through_lookupd=True)
    assert not outcome(cluster.nodes()).warnings
    return cluster


def test_figures_and_changes_go_on_and_each_says_what_is_down() -> None:
    cluster = with_lookupd()
    lose(cluster)
    for asked in (
        cluster.nodes(),
        cluster.stats(),
        cluster.topics(),
        cluster.topic("t"),
        cluster.channel("t", "c"),
        cluster.counter(),
        cluster.node(SOUND),
        cluster.messages("t", "c"),
        cluster.policy("t", "c"),
        cluster.pause("t", "c"),
    ):
        found = outcome(asked)
        assert found.value
        (warning,) = found.warnings
        assert warning.startswith(LOST)
        assert warning.endswith("no answer; going on with the nodes that it named last")
    assert sorted(outcome(cluster.pause("t", "c")).value) == [SOUND, ODD]
    assert [node.node.http_address for node in outcome(cluster.stats()).value.nodes] == [SOUND, ODD]
    assert outcome(cluster.topics()).value == ("t", "t.dead")


def test_a_topic_that_was_created_since_is_found_on_its_node() -> None:
    cluster = with_lookupd()
    lose(cluster)
    stats = {"topics": [{"topic_name": "new", "channels": []}]}
    cluster.answers[ODD, "/stats"] = json.dumps(stats).encode()
    assert [node.http_address for node in outcome(cluster.topic_nodes("new")).value] == [ODD]
    gone = outcome(cluster.topic_nodes("nowhere"))
    assert isinstance(gone, NoServerAnswered) and gone.program == "nsqlookupd"


def test_a_tombstone_holds() -> None:
    producers = lookupd_documents()["/nodes"]["producers"]
    producers[0]["tombstones"] = [True]
    body = json.dumps({"producers": producers}).encode()
    cluster = AnsweredCluster(answers_of(lookupd={"/nodes": body}), through_lookupd=True)
    outcome(cluster.nodes())
    lose(cluster)
    assert [node.http_address for node in outcome(cluster.topic_nodes("t")).value] == [ODD]


def test_a_node_that_only_the_lost_one_of_two_nsqlookupds_named() -> None:
    cluster = with_lookupd()
    cluster.lookupds = [LOOKUPD, OTHER_LOOKUPD]
    named = {"producers": lookupd_documents()["/nodes"]["producers"][:1], "topics": ["t"]}
    for path in ("/nodes", "/lookup", "/topics"):
        cluster.answers[OTHER_LOOKUPD, path] = json.dumps(named).encode()
    lose(cluster)
    assert len(outcome(cluster.nodes()).value) == 2
    assert [node.http_address for node in outcome(cluster.topic_nodes("t")).value] == [SOUND, ODD]
    cluster.lookupds = [OTHER_LOOKUPD]
    assert [node.http_address for node in outcome(cluster.nodes()).value] == [SOUND]


def test_without_an_earlier_answer_nothing_is_known() -> None:
    cluster = AnsweredCluster(answers_of(), through_lookupd=True)
    lose(cluster)
    for asked in (cluster.nodes(), cluster.stats(), cluster.topics(), cluster.topic_nodes("t")):
        assert isinstance(outcome(asked), NoServerAnswered)


def test_topics_without_a_node_are_those_that_an_nsqlookupd_says() -> None:
    cluster = with_lookupd()
    assert list(outcome(cluster.inactive_topics()).value) == ["inactive"]
    lose(cluster)
    assert isinstance(outcome(cluster.inactive_topics()), NoServerAnswered)


def test_an_nsqlookupd_that_is_back_is_believed() -> None:
    cluster = with_lookupd()
    before = dict(cluster.answers)
    lose(cluster)
    assert outcome(cluster.nodes()).warnings
    cluster.answers = {**before, (LOOKUPD, "/nodes"): b'{"producers": []}'}
    found = outcome(cluster.nodes())
    assert (found.value, found.warnings) == ((), ())


def test_the_state_of_each_nsqlookupd_is_that_of_its_last_answer() -> None:
    cluster = AnsweredCluster(answers_of(), through_lookupd=True)
    assert cluster.lookupd_states == ()
    outcome(cluster.nodes())
    assert cluster.lookupd_states == (LookupdState(address=LOOKUPD, error="", node_count=2),)
    lose(cluster)
    outcome(cluster.stats())
    (state,) = cluster.lookupd_states
    assert state.error.startswith(LOST) and state.node_count == 2
    cluster.lookupds = [OTHER_LOOKUPD]
    assert cluster.lookupd_states == ()


@pytest.mark.parametrize(
    "wrong", [{"broadcast_address": "a b"}, {"broadcast_address": "\x1b[1m"}, {"http_port": 70000}, {"tcp_port": 0}]
)
def test_a_node_that_is_registered_with_no_address_is_left_out(wrong: dict[str, object]) -> None:
    producers = lookupd_documents()["/nodes"]["producers"]
    producers[1] |= wrong
    body = json.dumps({"producers": producers}).encode()
    cluster = AnsweredCluster(answers_of(lookupd={"/nodes": body, "/lookup": body}), through_lookupd=True)
    for asked in (cluster.nodes(), cluster.topic_nodes("t")):
        found = outcome(asked)
        assert [node.http_address for node in found.value] == [SOUND]
        (warning,) = found.warnings
        assert warning.startswith("left out an nsqd with broadcast_address ")
        assert warning.isprintable()


def test_a_given_node_that_calls_itself_what_is_no_address_is_left_out() -> None:
    cluster = AnsweredCluster(answers_of())
    info = {**json.loads(cluster.answers[ODD, "/info"]), "broadcast_address": "a b"}
    cluster.answers[ODD, "/info"] = json.dumps(info).encode()
    found = outcome(cluster.nodes())
    assert [node.http_address for node in found.value] == [SOUND]
    assert "left out an nsqd with broadcast_address 'a b'" in found.warnings[0]
