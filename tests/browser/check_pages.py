"""Every page, in a real browser: at the size of a desktop and of a phone, in light and in dark colours."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from nsqtw.admin.pages.formats import short
from tests.browser.browser import Window
from tests.browser.cluster import DOCUMENT, NOTES, TEXT, BrowserCluster
from tests.browser.conftest import OpenWindow

LIVE = {
    "overview": ("/", "Overview"),
    "topics": ("/topics", "Topics"),
    "channels": ("/topics?list=channels&sort=-depth", "Topics"),
    "topic": ("/topics/orders", "orders"),
    "channel": ("/topics/notes/desk", "desk"),
    "messages": ("/topics/notes/desk?view=messages", "desk"),
    "nodes": ("/nodes", "Nodes"),
    "node": ("/nodes/{node}", "{node}"),
    "consumers": ("/connections", "Connections"),
    "producers": ("/connections?list=producers", "Connections"),
    "lookup": ("/lookup", "Lookup"),
    "counter": ("/counter", "Counter"),
}
STILL = {
    "create": ("/actions/create", "Create a topic or channel"),
    "publish": ("/actions/publish?topic=orders", "Publish a message to orders"),
    "settings": ("/actions/settings?topic=orders", "Durability and retention of orders"),
    "delete": ("/actions/delete_topic?topic=orders", "Delete the topic orders"),
    "policy": (
        "/actions/set_policy_channel?topic=orders&channel=billing&set.max_attempts=5",
        "Policy of billing of orders",
    ),
    "replay": (
        "/actions/seek_channel?topic=orders&channel=billing&kind=earliest",
        "Replay messages of orders to billing",
    ),
}
LOOKS = [(is_phone, scheme) for is_phone in (False, True) for scheme in ("light", "dark")]
IDS = [f"{'phone' if is_phone else 'desktop'}-{scheme}" for is_phone, scheme in LOOKS]


@pytest.mark.parametrize(("is_phone", "scheme"), LOOKS, ids=IDS)
@pytest.mark.parametrize("name", [*LIVE, *STILL])
def test_a_page_is_whole_and_accessible(
    name: str, is_phone: bool, scheme: str, windows: dict[tuple[bool, str], Window], cluster: BrowserCluster
) -> None:
    path, heading = (text.format(node=cluster.names[0]) for text in {**LIVE, **STILL}[name])
    shown = windows[is_phone, scheme]
    shown.go(path)
    if name in LIVE:
        shown.await_live()
    assert shown.text("h1").startswith(heading)
    assert shown.overflow() <= 0
    assert shown.serious() == []
    shown.assert_no_trouble()


def test_a_page_that_is_not_there_says_so(shown: Window) -> None:
    shown.expected = ("404",)
    for path, text in (
        ("/topics/nothing", "There is no topic nothing."),
        ("/topics/orders/nobody", "There is no channel nobody."),
        ("/nodes/nowhere:1", "there is no node nowhere:1"),
        ("/actions/explode", "There is no action explode."),
    ):
        shown.go(path)
        assert text in shown.text("main")
    assert shown.serious() == []


def test_pages_can_be_read_without_scripts(open_window: OpenWindow, cluster: BrowserCluster) -> None:
    with open_window(java_script_enabled=False) as shown:
        for path, heading in LIVE.values():
            shown.page.goto(shown.base + path.format(node=cluster.names[0]))
            assert shown.text("h1").startswith(heading.format(node=cluster.names[0]))
        shown.page.goto(f"{shown.base}/topics?q=ord")
        assert shown.page.locator("tbody tr").count() == 1


def test_the_colours_can_be_switched_and_stay(shown: Window) -> None:
    shown.go("/")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = shown.page.evaluate(colour)
    shown.page.get_by_role("button", name="Switch to dark colours").click()
    assert shown.page.evaluate(colour) != light
    shown.go("/topics")
    assert shown.page.evaluate(colour) != light
    shown.page.get_by_role("button", name="Switch to light colours").click()
    assert shown.page.evaluate(colour) == light


def test_the_list_of_topics_is_filtered_while_one_types(shown: Window) -> None:
    shown.go("/topics")
    box = shown.page.get_by_role("searchbox")
    box.press_sequentially("mail")
    expect(shown.page.locator("#list tbody tr")).to_have_count(1)
    assert "mail.outbox" in shown.text("#list tbody")
    assert shown.page.url.endswith("/topics?q=mail")
    assert box.input_value() == "mail"
    box.fill("nothing like this")
    shown.page.wait_for_selector("text=No topic has")
    shown.page.reload()
    assert box.input_value() == "nothing like this"


def test_the_list_of_topics_is_sorted(shown: Window) -> None:
    shown.go("/topics")
    shown.page.get_by_role("link", name="Waiting").click()
    shown.await_script()
    cells = shown.page.locator('#list tbody td[data-label="Waiting"]').all_inner_texts()
    numbers = [int(cell.replace(",", "")) for cell in cells]
    assert numbers == sorted(numbers, reverse=True)
    assert shown.page.locator('th[aria-sort="descending"]').inner_text() == "Waiting"


def test_charts_are_drawn_and_tell_values(shown: Window) -> None:
    shown.go("/topics/orders")
    shown.page.wait_for_selector("#plot-rates canvas")
    assert shown.page.locator("#chart-levels .legend b").inner_text() != "–"


def test_scripts_and_server_write_numbers_alike(shown: Window) -> None:
    shown.go("/")
    script = next(url for url in shown.page.locator("script[src]").evaluate_all("all => all.map((each) => each.src)"))
    url = script.rpartition("/")[0] + "/charts.js"
    values = [
        0,
        1,
        0.5,
        9.99,
        9.996,
        31.48,
        99.96,
        480,
        999,
        999.6,
        1000,
        3343,
        14_100,
        999_499,
        2.5e6,
        3e9,
        4e12,
        -1500,
    ]
    written = shown.page.evaluate(
        "([url, all]) => import(url).then((charts) => all.map((n) => charts.short(n)))", [url, values]
    )
    assert written == [short(value) for value in values]


# -- messages


def test_messages_are_shown_in_the_form_they_have(shown: Window) -> None:
    shown.go(f"/topics/{NOTES}/desk?view=messages")
    bodies = shown.page.locator("pre.body").all_text_contents()
    assert bodies[0] == TEXT.decode()
    assert bodies[1].splitlines()[:3] == ["{", '  "id": 7,', '  "price": 1.50,']
    assert "<script>alert(1)</script>" in bodies[1]
    assert bodies[2].startswith("00000000  00 01 02 03")
    assert len(bodies[3]) < 9000
    assert "The first 8 KB of 97.7 KB" in shown.text("#messages")


def test_a_body_is_shown_in_the_form_that_is_asked_for(shown: Window) -> None:
    shown.go(f"/topics/{NOTES}/desk?view=messages")
    shown.page.get_by_label("Show bodies as").select_option("hex")
    shown.page.get_by_role("button", name="Show", exact=True).click()
    assert (shown.page.locator("pre.body").first.text_content() or "").startswith("00000000  70 6c 61 69 6e")
    shown.page.get_by_label("Show bodies as").select_option("text")
    shown.page.get_by_role("button", name="Show", exact=True).click()
    assert DOCUMENT.decode() in shown.page.locator("pre.body").all_text_contents()


def test_a_long_body_is_shown_on_demand(shown: Window) -> None:
    shown.go(f"/topics/{NOTES}/desk?view=messages")
    shown.page.get_by_role("link", name="Show up to").click()
    assert len(shown.page.locator("pre.body").last.text_content() or "") == 100_000


def test_deferred_messages_and_those_in_flight_are_shown(shown: Window) -> None:
    shown.go(f"/topics/{NOTES}/desk?view=messages")
    shown.page.get_by_label("State").select_option("deferred")
    shown.page.get_by_role("button", name="Show", exact=True).click()
    assert "due in" in shown.text("article")
    assert shown.text("pre.body") == "deferred"
    shown.page.get_by_label("State").select_option("in_flight")
    shown.page.get_by_role("button", name="Show", exact=True).click()
    assert "with holder" in shown.text("article")
    assert shown.text("pre.body") == "in flight"


# -- keyboard


def test_the_first_key_leads_past_the_navigation(shown: Window) -> None:
    shown.go("/topics")
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    shown.page.keyboard.press("Enter")
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.closest('main') !== null")


def test_every_control_can_be_reached_and_is_seen_with_the_keyboard(shown: Window) -> None:
    shown.go("/topics/orders")
    shown.await_live()
    wanted = shown.page.locator("a[href]:visible, button:visible, input:visible").count()
    reached = set()
    for _ in range(wanted + 40):
        shown.page.keyboard.press("Tab")
        found = shown.page.evaluate(
            """() => {
              const it = document.activeElement;
              if (it === document.body) return null;
              const style = getComputedStyle(it);
              return [it.outerHTML.slice(0, 200), style.outlineStyle !== "none" && style.outlineWidth !== "0px"];
            }"""
        )
        if found is None:
            break
        name, is_outlined = found
        assert is_outlined, name
        reached.add(name)
    assert len(reached) >= wanted


def test_focus_and_scrolling_survive_new_figures(shown: Window, cluster: BrowserCluster) -> None:
    shown.go("/topics")
    shown.await_live()
    link = shown.page.get_by_role("link", name="payments")
    link.focus()
    row = shown.page.locator("tr", has=link)
    before = row.inner_text()
    cluster.publish("payments", b"one more")
    expect(row).not_to_have_text(before, use_inner_text=True)
    assert shown.page.evaluate("document.activeElement.textContent") == "payments"


def test_latencies_are_shown_when_there_are_some(shown: Window) -> None:
    shown.go("/topics/payments")
    assert "p50" not in shown.text("main")
