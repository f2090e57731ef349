"""Policies in the JSON API of nsqadmin."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from nsqtw.options.settings import ChannelPolicy, TopicPolicy, settings_of
from tests.admin.conftest import USERS, Nodes, StartAdmin
from tests.admin.process import AdminProcess, Reply


def put(admin: AdminProcess, path: str, settings: object) -> Reply:
    return admin.ask("PUT", f"/api/policies/{path}", json.dumps(settings).encode())


def given(admin: AdminProcess, path: str) -> list[Any]:
    """Return what was set on each node."""
    return [node["set"] for node in admin.get(f"/api/policies/{path}").document["nodes"]]


def test_the_policy_of_a_channel_on_each_node(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    shown = admin.get(f"/api/policies/{topic}/c").document
    assert list(shown) == ["topic", "channel", "nodes", "message"]
    assert (shown["topic"], shown["channel"], shown["message"]) == (topic, "c", "")
    assert sorted(node["node"] for node in shown["nodes"]) == sorted(nodes.addresses)
    for node in shown["nodes"]:
        assert list(node) == ["node", "settings", "set", "unused"]
        assert list(node["settings"]) == list(settings_of(ChannelPolicy))
    assert list(admin.get(f"/api/policies/{topic}").document["nodes"][0]["settings"]) == list(settings_of(TopicPolicy))


def test_settings_are_set_and_unset_on_all_nodes(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    done = put(admin, f"{topic}/c", {"max_attempts": 5, "priority": True})
    assert (done.status, done.message) == (200, "")
    assert sorted(node["node"] for node in done.document["nodes"]) == sorted(nodes.addresses)
    assert put(admin, f"{topic}/c", {"priority": None}).status == 200
    assert given(admin, f"{topic}/c") == [{"max_attempts": 5}] * 2
    assert put(admin, topic, {"message_ttl": "1h"}).status == 200
    assert given(admin, topic) == [{"message_ttl": "1h0m0s"}] * 2
    admin.await_audit(f"set_policy_channel topic={topic} channel=c: done")


def test_a_dry_run_sets_nothing(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    good = put(admin, f"{topic}/c?dry_run=true", {"max_attempts": 5}).document
    assert [node["refusal"] for node in good["nodes"]] == ["", ""]
    bad = put(admin, f"{topic}/c?dry_run=true", {"max_attempts": 70000}).document
    assert [node["refusal"] for node in bad["nodes"]] == ["max_attempts must be 0 to 65535"] * 2
    assert given(admin, f"{topic}/c") == [{}, {}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"max_attempts": 70000}', "INVALID_POLICY: max_attempts must be 0 to 65535"),
        (b'{"max_atempts": 1}', "INVALID_POLICY: unknown setting 'max_atempts' (did you mean 'max_attempts'?)"),
        (b"[]", "INVALID_BODY"),
        (b"{}", "INVALID_BODY"),
        (b"", "INVALID_BODY"),
    ],
)
def test_a_wrong_change_is_refused(body: bytes, message: str, admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    reply = admin.ask("PUT", f"/api/policies/{topic}/c", body)
    assert reply.status == 400
    assert reply.message.startswith(message.partition(" (")[0])


def test_a_wrong_word_is_no_dry_run(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    reply = put(admin, f"{topic}/c?dry_run=yes", {"max_attempts": 5})
    assert (reply.status, reply.message) == (400, "INVALID_DRY_RUN")
    assert given(admin, f"{topic}/c") == [{}, {}]


def test_a_node_that_did_not_do_it_is_named(nodes: Nodes, start: StartAdmin, topic: str) -> None:
    nodes.prepare(topic)
    nodes.nsqds[0].create(topic, "c")
    reply = put(start(*nodes.nsqd_flags), f"{topic}/c", {"max_attempts": None})  # a value creates the channel
    assert reply.status == 200
    assert [node["node"] for node in reply.document["nodes"]] == nodes.addresses[:1]
    assert reply.message == f"WARNING: {nodes.addresses[1]}: The topic has no channel of this name."


def test_a_topic_or_channel_that_no_node_has(nodes: Nodes, start: StartAdmin, topic: str) -> None:
    nodes.prepare(topic)
    admin = start(*nodes.nsqd_flags)
    for path, message in (("nothing", "TOPIC_NOT_FOUND"), (f"{topic}/nobody", "CHANNEL_NOT_FOUND")):
        assert (admin.get(f"/api/policies/{path}").status, put(admin, path, {}).status) == (404, 400)
        reply = put(admin, path, {"max_attempts": None})
        assert (reply.status, reply.message) == (404, message)
    assert admin.get(f"/actions/set_policy_channel?topic={topic}&channel=nobody").status == 404
    assert admin.get("/actions/set_policy_topic?topic=nothing").status == 404


def test_only_an_admin_changes_and_none_sends_messages_to_a_topic_of_others(
    nodes: Nodes, start: StartAdmin, users_file: str
) -> None:
    nodes.prepare("orders", "c")
    admin = start(f"--auth=static:{users_file}")

    def change(user: str, settings: object, query: str = "") -> tuple[int, str]:
        secret = base64.b64encode(f"{user}:{USERS[user][0]}".encode()).decode()
        path = f"/api/policies/orders/c{query}"
        reply = admin.ask("PUT", path, json.dumps(settings).encode(), {"Authorization": f"Basic {secret}"})
        return reply.status, reply.message

    assert change("paul", {"max_attempts": 5}) == (403, "FORBIDDEN")
    assert change("olga", {"max_attempts": 5}) == (200, "")
    assert change("olga", {"dead_letter_topic": "others"}) == (403, "FORBIDDEN")
    assert change("olga", {"dead_letter_topic": "others"}, "?dry_run=true") == (403, "FORBIDDEN")
    assert change("alice", {"dead_letter_topic": "others"}) == (200, "")
    admin.await_audit("olga@127.0.0.1 set_policy_channel topic=orders channel=c: FORBIDDEN")


def test_a_page_of_another_site_changes_nothing(admin: AdminProcess, nodes: Nodes, topic: str) -> None:
    nodes.prepare(topic, "c")
    reply = admin.ask("PUT", f"/api/policies/{topic}/c", {"max_attempts": 5}, {"Origin": "https://elsewhere.example"})
    assert (reply.status, reply.message) == (403, "CROSS_ORIGIN")
    assert given(admin, f"{topic}/c") == [{}, {}]
