"""Every action of the pages, and what it asks for before."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.browser import Window
from tests.browser.cluster import BrowserCluster
from tests.process import wait_until


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: BrowserCluster) -> str:
    """A topic of the test's own, with the channel `work`, and three messages on the first node."""
    name = re.sub("[^a-z]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    cluster.create(name, "work")
    cluster.publish(name, b"one", b"two", b"three")
    return name


def press(shown: Window, name: str) -> None:
    """Press a button, or a link that looks like one."""
    shown.page.locator(".button", has_text=re.compile(f"^{name}$")).click()
    shown.await_script()


def type_name(shown: Window, name: str) -> None:
    """Type the name that is asked for."""
    shown.page.get_by_label("To confirm").fill(name)


def notice(shown: Window) -> str:
    """What the page says that was done."""
    return shown.text("main > .notice")


def test_a_topic_with_a_channel_is_created(shown: Window, cluster: BrowserCluster) -> None:
    shown.go("/topics")
    press(shown, "Create a topic")
    shown.page.get_by_label("Topic").fill("brand-new")
    press(shown, "Create")
    assert notice(shown) == "brand-new is created."
    assert "brand-new" in cluster.lookupd.ask("/topics")["topics"]
    assert "brand-new" in shown.text("#inactive")
    press(shown, "Create a topic or channel")
    shown.page.get_by_label("Topic").fill("brand-new")
    shown.page.get_by_label("Channel").fill("first")
    press(shown, "Create")
    assert "first" in shown.text("#inactive")
    assert cluster.lookupd.ask("/channels?topic=brand-new")["channels"] == ["first"]


def test_a_name_that_cannot_be_is_refused(shown: Window) -> None:
    shown.expected = ("400",)
    shown.go("/actions/create")
    shown.page.get_by_label("Topic").fill("no spaces")
    press(shown, "Create")
    assert "A name has up to 64 letters" in shown.text("#error")
    assert shown.page.get_by_label("Topic").input_value() == "no spaces"


def test_a_message_is_published(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}")
    press(shown, "Publish")
    shown.page.get_by_label("Message").fill('{"a":\n1}')
    shown.page.get_by_label("Node").select_option(cluster.names[1])
    press(shown, "Publish")
    assert notice(shown) == f"The message is published to {topic}."
    [message] = [message.body for message in cluster.nsqds[1].drain(topic, "work", 1)]
    assert message == b'{"a":\n1}'


@pytest.mark.parametrize("channel", ["", "work"])
def test_it_is_paused_and_resumed(channel: str, shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}/{channel}".rstrip("/"))
    press(shown, "Pause")
    assert notice(shown).endswith("is paused.")
    assert shown.text("h1 .badges") == "paused"
    found = cluster.nsqds[0].stats(topic)[0]
    assert (found["channels"][0] if channel else found)["paused"] is True
    press(shown, "Unpause")
    assert notice(shown).endswith("delivers again.")
    found = cluster.nsqds[0].stats(topic)[0]
    assert (found["channels"][0] if channel else found)["paused"] is False


def test_a_channel_is_emptied_when_its_name_is_typed(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}/work")
    press(shown, "Empty")
    assert "3 messages of this channel will be dropped" in shown.text("main")
    button = shown.page.get_by_role("button", name="Drop the messages")
    expect(button).to_be_disabled()
    type_name(shown, "wor")
    expect(button).to_be_disabled()
    type_name(shown, "work")
    button.click()
    assert notice(shown) == f"The channel work of {topic} is empty."
    assert cluster.depth(topic, "work") == 0


def test_a_topic_is_emptied(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    cluster.nsqds[0].order(f"/topic/pause?topic={topic}")
    cluster.publish(topic, b"four")
    shown.go(f"/topics/{topic}")
    press(shown, "Empty")
    assert "1 message that no channel has yet will be dropped" in shown.text("main")
    type_name(shown, topic)
    press(shown, "Drop the messages")
    assert cluster.nsqds[0].stats(topic)[0]["depth"] == 0


def test_a_channel_is_deleted(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}/work")
    press(shown, "Delete")
    assert "3 messages of this channel will be lost" in shown.text("main")
    type_name(shown, "work")
    press(shown, "Delete")
    assert notice(shown) == f"The channel work of {topic} is deleted."
    assert "No channels" in shown.text("#channels")
    assert cluster.nsqds[0].stats(topic)[0]["channels"] == []


def test_a_topic_is_deleted(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}")
    press(shown, "Delete")
    assert "3 messages on 2 nodes will be lost" in shown.text("main")
    type_name(shown, topic)
    press(shown, "Delete")
    assert notice(shown) == f"The topic {topic} is deleted."
    assert cluster.nsqds[0].stats(topic) == []


def test_the_server_compares_the_name_too(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.expected = ("400",)
    shown.go(f"/actions/delete_topic?topic={topic}")
    type_name(shown, topic)
    shown.page.get_by_label("To confirm").evaluate("(input) => { input.value = 'another' }")
    press(shown, "Delete")
    assert shown.text("#error") == "The name that was typed is not that of the topic."
    assert cluster.nsqds[0].stats(topic) != []


def test_a_form_of_another_site_is_refused(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.expected = ("403",)
    shown.go(f"/topics/{topic}")
    # In one step: a live page may get its forms anew between two.
    with shown.page.expect_navigation():
        shown.page.locator("form:has-text('Pause') input[name=csrf]").evaluate(
            "(input) => { input.value = 'guessed'; input.form.querySelector('button').click() }"
        )
    assert "The page is out of date: load it again." in shown.text("main")
    assert cluster.nsqds[0].stats(topic)[0]["paused"] is False


def test_a_topic_is_removed_from_a_node(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}")
    shown.page.get_by_role("link", name=f"Remove the topic from {cluster.names[1]}").click()
    assert "It comes back with the next message" in shown.text("main")
    type_name(shown, topic)
    press(shown, "Remove")
    assert notice(shown) == f"The topic {topic} is removed from {cluster.names[1]}."
    assert cluster.nsqds[1].stats(topic) == []
    assert cluster.nsqds[0].stats(topic) != []


def test_topics_without_a_node_are_deleted_on_the_page_of_nsqlookupd(shown: Window, cluster: BrowserCluster) -> None:
    assert cluster.lookupd.http("POST", "/channel/create?topic=orphan&channel=lonely").status == 200
    shown.go("/lookup")
    row = shown.page.locator("tr", has_text="orphan")
    assert "lonely" in row.inner_text()
    row.get_by_role("link", name="Delete orphan").click()
    assert "No node has the topic" in shown.text("main")
    type_name(shown, "orphan")
    press(shown, "Delete")
    wait_until(lambda: "orphan" not in cluster.lookupd.ask("/topics")["topics"], "orphan is gone")


def test_durability_and_retention_are_set(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.expected = ("400",)
    shown.go(f"/topics/{topic}")
    press(shown, "Settings")
    expect(shown.page.get_by_label("os –")).to_be_checked()
    shown.page.get_by_label("fsync –").check()
    press(shown, "Set the durability")
    assert shown.text("h1 .badges") == "fsync"
    press(shown, "Change")
    shown.page.get_by_label("Keep for").fill("a while")
    press(shown, "Set the retention")
    assert "whole number" in shown.text("#error")
    shown.page.get_by_label("Keep for").fill("2")
    shown.page.get_by_label("Unit").select_option("days")
    shown.page.get_by_label("At most").fill("500")
    press(shown, "Set the retention")
    assert "for 2 d, up to 500 MB on each node" in shown.text("#keeping")
    [found] = cluster.nsqds[1].stats(topic)
    assert (found["durability"], found["retention"]["time_ms"]) == ("fsync", 2 * 86_400_000)
    press(shown, "Change")
    press(shown, "Use the nodes' defaults")
    assert "not at all" in shown.text("#keeping")


# -- replay


def test_a_channel_is_replayed_from_the_oldest_message(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    for nsqd in cluster.nsqds:
        nsqd.order(f"/v2/topic/retention?topic={topic}&time=1h&bytes=0")
    cluster.nsqds[0].drain(topic, "work", 3)
    shown.go(f"/topics/{topic}/work")
    press(shown, "Replay")
    shown.page.get_by_label("At the oldest message that is kept").check()
    press(shown, "Show what would happen")
    assert shown.text("#preview-title") == "3 messages are delivered again"
    assert cluster.depth(topic, "work") == 0
    type_name(shown, "work")
    press(shown, "Move the channel")
    assert notice(shown) == f"The channel work of {topic} is moved."
    assert cluster.depth(topic, "work") == 3


def test_a_channel_is_moved_to_its_end(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/actions/seek_channel?topic={topic}&channel=work")
    shown.page.get_by_label("At the end").check()
    press(shown, "Show what would happen")
    assert shown.text("#preview-title") == "0 messages are delivered again, 3 messages are skipped"
    type_name(shown, "work")
    press(shown, "Move the channel")
    assert cluster.depth(topic, "work") == 0


def test_a_channel_is_replayed_from_a_message(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}/work?view=messages")
    shown.page.get_by_role("link", name="Replay from here").nth(1).click()
    expect(shown.page.get_by_label("At a message")).to_be_checked()
    assert shown.text("#preview-title") == "0 messages are delivered again, 1 message is skipped"
    type_name(shown, "work")
    press(shown, "Move the channel")
    assert cluster.depth(topic, "work") == 2


def test_a_position_that_is_none_is_refused(shown: Window, topic: str) -> None:
    shown.go(f"/actions/seek_channel?topic={topic}&channel=work&kind=message&message=xyz")
    assert shown.text("#error") == "The id of a message has 16 hexadecimal digits."
    shown.go(f"/actions/seek_channel?topic={topic}&channel=work&kind=message&message={'0' * 16}")
    assert "MESSAGE_NOT_FOUND" in shown.text("#error")


# -- failures


def test_a_node_that_does_not_do_it_is_named(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}")
    with cluster.second_is_dead(topic):
        press(shown, "Pause")
        said = notice(shown)
    assert f"The topic {topic} is paused." in said or "does not" in said
    assert cluster.nsqds[0].stats(topic)[0]["paused"] is True


def test_an_action_works_with_the_keyboard_alone(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    shown.go(f"/topics/{topic}/work")
    shown.page.get_by_role("link", name="Delete").focus()
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_url("**/actions/delete_channel**")
    shown.await_script()
    for _ in range(20):
        shown.page.keyboard.press("Tab")
        if shown.page.evaluate("document.activeElement.id") == "typed":
            break
    shown.page.keyboard.type("work")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_url("**/topics/**")
    assert cluster.nsqds[0].stats(topic)[0]["channels"] == []


def test_a_deferred_message_is_cancelled(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    assert cluster.nsqds[0].http("POST", f"/pub?topic={topic}&defer=3600000", b"later").status == 200
    wait_until(lambda: cluster.nsqds[0].counts(topic, "work").deferred == 1, "the message is deferred")
    shown.go(f"/topics/{topic}/work?view=messages&state=deferred")
    shown.page.locator("article.message .button", has_text="Cancel").click()
    shown.await_script()
    type_name(shown, "work")
    press(shown, "Cancel the message")
    assert notice(shown) == "The message is cancelled."
    assert cluster.nsqds[0].counts(topic, "work").deferred == 0
