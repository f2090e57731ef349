"""Policies on the pages: set, unset, refused by the nodes, and made by some of them only."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from nsqtw.options.settings import ChannelPolicy, TopicPolicy, settings_of
from tests.browser.browser import Window
from tests.browser.check_actions import notice, press, topic
from tests.browser.cluster import BrowserCluster

__all__ = ["topic"]


def given(cluster: BrowserCluster, topic: str, channel: str = "") -> list[dict[str, object]]:
    """Return what was set on each node."""
    kind, names = ("channel", f"topic={topic}&channel={channel}") if channel else ("topic", f"topic={topic}")
    return [json.loads(nsqd.http("GET", f"/v2/{kind}/policy?{names}").body)["set"] for nsqd in cluster.nsqds]


def change(shown: Window, **settings: str) -> None:
    """Enter new values, and ask what would happen."""
    for name, value in settings.items():
        field = shown.page.locator(f"#set-{name}")
        if field.evaluate("(field) => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    press(shown, "Show what would happen")


def test_settings_of_a_channel_are_set_and_unset(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}/work")
    assert "behaves as in NSQ" in shown.text("#policy")
    shown.page.get_by_role("link", name="Change the policy").click()
    assert shown.page.locator("#settings tbody code").all_inner_texts() == list(settings_of(ChannelPolicy))
    change(shown, max_attempts="5", requeue_delay="1500ms", priority="true")
    assert shown.text("#preview-title") == "The change can be made"
    for name in cluster.names:
        assert f"{name}: accepts the change" in shown.text("#answers")
    assert given(cluster, topic, "work") == [{}, {}]
    press(shown, "Set on all nodes")
    assert notice(shown) == f"The policy of work of {topic} is changed."
    assert given(cluster, topic, "work") == [{"max_attempts": 5, "requeue_delay": "1.5s", "priority": True}] * 2
    expect(shown.page.locator("#policy")).to_contain_text("max_attempts")
    shown.page.get_by_role("link", name="Change the policy").click()
    row = shown.page.locator("#settings tr", has=shown.page.locator("#set-max_attempts"))
    assert "5 set" in row.inner_text()
    shown.page.get_by_label("Unset max_attempts").check()
    change(shown)
    assert "max_attempts is unset" in shown.text("#preview")
    press(shown, "Set on all nodes")
    assert given(cluster, topic, "work") == [{"requeue_delay": "1.5s", "priority": True}] * 2


def test_a_setting_of_a_topic_is_set(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}")
    shown.page.get_by_role("link", name="Change the policy").click()
    assert shown.page.locator("#settings tbody code").all_inner_texts() == list(settings_of(TopicPolicy))
    change(shown, message_ttl="36h")
    press(shown, "Set on all nodes")
    assert notice(shown) == f"The policy of {topic} is changed."
    assert given(cluster, topic) == [{"message_ttl": "36h0m0s"}] * 2


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"max_attempts": "70000"}, "max_attempts must be 0 to 65535"),
        ({"max_age": "soon"}, "max_age must be a number with a unit"),
        ({"priority": "true", "ordered_by": "header:key"}, "priority and ordered_by cannot be used together"),
    ],
)
def test_what_the_nodes_refuse_is_said_in_their_words(
    settings: dict[str, str], refusal: str, shown: Window, cluster: BrowserCluster, topic: str
) -> None:
    shown.go(f"/actions/set_policy_channel?topic={topic}&channel=work")
    change(shown, **settings)
    assert shown.text("#preview-title") == "The change cannot be made"
    for name in cluster.names:
        assert f"{name}: {refusal}" in shown.text("#answers")
    assert shown.page.get_by_role("button", name="Set on all nodes").count() == 0
    for name, value in settings.items():
        assert shown.page.locator(f"#set-{name}").input_value() == value


def test_the_node_that_died_before_the_change_is_named(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/actions/set_policy_channel?topic={topic}&channel=work")
    change(shown, max_attempts="7")
    with cluster.second_is_dead(topic):
        press(shown, "Set on all nodes")
        said = notice(shown)
    assert f"The policy of work of {topic} is changed." in said
    assert cluster.names[1] in said
    assert given(cluster, topic, "work") == [{"max_attempts": 7}, {}]
    shown.go(f"/actions/set_policy_channel?topic={topic}&channel=work")
    row = shown.page.locator("#settings tr", has=shown.page.locator("#set-max_attempts"))
    assert f"7 set, {cluster.names[0]}" in row.inner_text()
    assert f"0 default, {cluster.names[1]}" in row.inner_text()
