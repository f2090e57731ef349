"""Pages that change by themselves: new figures, a node or an nsqadmin that dies and comes back."""

from __future__ import annotations

from playwright.sync_api import Route, expect

from tests.browser.browser import Window
from tests.browser.cluster import BrowserCluster


def test_figures_and_lines_move_by_themselves(shown: Window, cluster: BrowserCluster) -> None:
    shown.go("/")
    shown.await_live()
    line = shown.page.locator("#figures div", has_text="Waiting").locator("polyline")
    published = shown.page.locator("#figures div", has_text="Published").locator("dd").first
    points = line.get_attribute("points")
    with cluster.traffic():
        expect(published).not_to_have_text("0 /s")
        expect(line).not_to_have_attribute("points", points or "")
        shown.page.wait_for_selector("#plot-rates canvas")


def test_the_counter_counts(shown: Window, cluster: BrowserCluster) -> None:
    shown.go("/counter")
    shown.await_live()
    before = shown.text("#count")
    with cluster.traffic():
        expect(shown.page.locator("#count")).not_to_have_text(before)


def test_a_new_topic_appears(shown: Window, cluster: BrowserCluster) -> None:
    shown.go("/topics?q=newcomer")
    shown.await_live()
    assert "No topic has" in shown.text("#list")
    cluster.create("newcomer", "first")
    expect(shown.page.locator("#list tbody tr")).to_have_count(1)


def test_a_deleted_topic_is_said_to_be_gone(shown: Window, cluster: BrowserCluster) -> None:
    cluster.create("leaver", "first")
    shown.go("/topics/leaver")
    shown.await_live()
    for nsqd in cluster.nsqds:
        nsqd.order("/topic/delete?topic=leaver")
    expect(shown.page.locator("main")).to_contain_text("There is no topic leaver.")


def test_a_node_that_dies_is_marked_and_comes_back(shown: Window, cluster: BrowserCluster) -> None:
    name = cluster.names[1]
    shown.go("/")
    shown.await_live()
    row = shown.page.locator("#nodes tbody tr", has_text=name)
    expect(row).to_contain_text("up")
    with cluster.second_is_dead():
        expect(row).to_contain_text("gone for")
        expect(shown.page.locator("#figures")).to_contain_text("1 of 2")
        assert shown.page.locator("#pulse").get_attribute("data-state") == "live"
        assert shown.serious() == []
    expect(row).to_contain_text("up")
    expect(shown.page.locator("#figures")).not_to_contain_text("1 of 2")


def test_the_page_of_a_node_that_dies_stays(shown: Window, cluster: BrowserCluster) -> None:
    shown.go(f"/nodes/{cluster.names[1]}")
    shown.await_live()
    with cluster.second_is_dead():
        expect(shown.page.locator("h1")).to_contain_text("does not answer")
        assert "orders" in shown.text("#topics")
    expect(shown.page.locator("h1")).not_to_contain_text("does not answer")


def test_a_page_says_that_it_lost_its_connection(shown: Window, cluster: BrowserCluster) -> None:
    shown.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
    shown.go("/topics")
    shown.await_live()
    cluster.admin.stop()
    try:
        expect(shown.page.locator("#pulse")).to_have_text("Connection lost, trying again")
    finally:
        cluster.admin.start()
    expect(shown.page.locator("#pulse")).to_have_text("Live")


def test_a_page_that_may_not_be_live_is_loaded_again_and_again(shown: Window, cluster: BrowserCluster) -> None:
    shown.expected = ("503",)
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=503, headers={"Retry-After": "10"})

    def is_live(url: str) -> bool:
        return "q=straggler" in url and len(refused) < 2

    shown.page.route(is_live, lambda route: refuse(route) if _wants_events(route) else route.continue_())
    shown.go("/topics?q=straggler")
    cluster.create("straggler", "first")
    pulse = shown.page.locator("#pulse")
    expect(pulse).to_have_text("Not live, loaded every 10 seconds")
    expect(shown.page.locator("#list tbody tr")).to_have_count(1)
    expect(pulse).to_have_text("Live")
    assert len(refused) == 2


def _wants_events(route: Route) -> bool:
    return "text/event-stream" in (route.request.header_value("accept") or "")


def test_a_hidden_page_asks_for_nothing(shown: Window) -> None:
    shown.go("/topics")
    shown.await_live()
    shown.page.evaluate(
        """() => {
          window.opened = 0;
          const Original = EventSource;
          window.EventSource = class extends Original {
            constructor(url) { super(url); window.opened += 1; }
          };
          Object.defineProperty(document, "hidden", { configurable: true, get: () => window.isAway });
          window.isAway = true;
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    assert shown.page.evaluate("window.opened") == 0
    shown.page.evaluate("() => { window.isAway = false; document.dispatchEvent(new Event('visibilitychange')); }")
    assert shown.page.evaluate("window.opened") == 1
