"""Dead letters, in a real browser: found, looked at, put back, edited and deleted one by one, and put back together."""

from __future__ import annotations

import json
from itertools import count

import pytest
from playwright.sync_api import expect

from tests.browser.browser import PHONE, Window
from tests.browser.cluster import BrowserCluster, order
from tests.process import wait_until

COUNT = 20
_NUMBERS = count()
_PATH = "/topics/{}.dead/work?view=messages&limit=25"


@pytest.fixture
def topic(cluster: BrowserCluster) -> str:
    """A topic with COUNT dead letters of its channel `work`, on the first node."""
    name = f"failing-{next(_NUMBERS)}"
    cluster.create(name, "work", "other")
    nsqd = cluster.nsqds[0]
    policy = json.dumps({"max_attempts": 3}).encode()
    for each in cluster.nsqds:
        assert each.http("PUT", f"/v2/channel/policy?topic={name}&channel=work", policy).status == 200
    with nsqd.client() as producer:
        producer.mpub(name, [order(number) for number in range(COUNT)])
    with nsqd.client() as consumer:
        consumer.identify(client_id="failing")
        consumer.sub(name, "work", ready=1)
        for _ in range(3 * COUNT):
            (message,) = consumer.take(1)
            consumer.req(message, 0)
    wait_until(lambda: _depth(cluster, f"{name}.dead", "work") == COUNT, "the messages have died")
    wait_until(lambda: cluster.lookupd.producers(f"{name}.dead"), "the dead-letter topic is registered")
    return name


def _open(shown: Window, topic: str) -> None:
    """Open the dead letters of a topic, when nsqadmin knows that they are some."""
    shown.go(_PATH.format(topic))
    expect(shown.page.get_by_text("Dead letters of")).to_be_visible()
    shown.page.reload()


def _depth(cluster: BrowserCluster, topic: str, channel: str) -> int:
    """What waits on the first node; 0 without the topic."""
    return sum(cluster.nsqds[0].counts(topic, channel).depth for _ in cluster.nsqds[0].stats(topic))


def test_a_page_of_dead_letters_is_compact_and_says_what_happened(
    shown: Window, cluster: BrowserCluster, topic: str
) -> None:
    _open(shown, topic)
    letters = shown.page.locator("article.message")
    assert letters.count() == COUNT
    assert shown.page.evaluate("document.documentElement.scrollHeight") < 3000
    text = letters.first.inner_text()
    assert f"requeued after 3 deliveries in {topic} / work" in text
    assert "died 20" in text and "first published 20" in text and "0 deliveries" not in text
    assert "nsq-dead-" not in text
    assert shown.serious() == []
    letters.first.locator("summary").click()
    assert letters.first.locator("pre.body").inner_text().startswith('{\n  "id": 0,')
    shown.page.set_viewport_size(PHONE)
    assert shown.overflow() <= 0
    shown.page.get_by_role("link", name=f"{topic} / work").first.click()
    expect(shown.page.locator("h1")).to_have_text("work")
    shown.page.get_by_role("link", name=f"{COUNT} messages").click()
    expect(letters).to_have_count(10)


def test_dead_letters_are_searched_and_shown_page_by_page(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    _open(shown, topic)
    shown.page.get_by_label("Text in a body").fill("ANNA")
    shown.page.get_by_role("button", name="Show", exact=True).click()
    letters = shown.page.locator("article.message")
    expect(letters).to_have_count(len([number for number in range(COUNT) if number % 3 == 0]))
    shown.page.get_by_label("Text in a body").fill("nsq-dead-reason: timed out")
    shown.page.get_by_role("button", name="Show", exact=True).click()
    expect(shown.page.get_by_text("None of the messages")).to_be_visible()
    shown.go(_PATH.format(topic).replace("25", "10"))
    first = letters.first.get_attribute("id")
    shown.page.get_by_role("link", name="Next page").click()
    expect(letters).to_have_count(COUNT - 10)
    assert letters.first.get_attribute("id") != first
    expect(shown.page.get_by_role("link", name="Next page")).to_have_count(0)
    shown.page.get_by_role("link", name="First page").click()
    expect(letters).to_have_count(10)


def test_one_dead_letter_is_put_back_edited_and_deleted(shown: Window, cluster: BrowserCluster, topic: str) -> None:
    _open(shown, topic)
    letters = shown.page.locator("article.message")
    letters.nth(3).get_by_role("button", name="Put back").click()
    expect(shown.page.locator(".notice")).to_contain_text(
        f"The dead letter is put back to the channel work of {topic}."
    )
    expect(letters).to_have_count(COUNT - 1)

    letters.nth(3).get_by_role("link", name="Edit").click()
    body = shown.page.get_by_label("Message")
    expect(body).to_have_value(order(4).decode())
    body.fill('{"id": 4, "mended": true}')
    shown.page.get_by_role("button", name="Publish, and finish").click()
    expect(shown.page.locator(".notice")).to_contain_text(f"The message is published to the channel work of {topic}.")
    expect(letters).to_have_count(COUNT - 2)

    letters.nth(3).get_by_role("link", name="Delete").click()
    shown.page.get_by_label("To confirm").fill("work")
    shown.page.get_by_role("button", name="Delete the message").click()
    expect(shown.page.locator(".notice")).to_contain_text("The message is finished.")
    expect(letters).to_have_count(COUNT - 3)

    with cluster.nsqds[0].client() as consumer:
        consumer.sub(topic, "work", ready=10)
        assert [message.body for message in consumer.take(2)] == [order(3), b'{"id": 4, "mended": true}']
    assert _depth(cluster, topic, "other") == COUNT

    shown.page.get_by_role("link", name="Redrive").click()
    shown.page.get_by_role("button", name="Put the messages back").click()
    wait_until(lambda: _depth(cluster, f"{topic}.dead", "work") == 0, "the others are put back")
