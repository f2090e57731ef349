"""Ten thousand topics with a channel each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.process import AdminProcess
from tests.browser.browser import ANSWER_MS, Window, window
from tests.process import NsqdProcess
from tests.wire import HOST

COUNT = 10_000


@pytest.fixture(scope="module")
def many(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A window on an nsqadmin of one nsqd, which finds its topics in nsqd.dat."""
    directory = tmp_path_factory.mktemp("many")
    nsqd = NsqdProcess(directory / "nsqd", f"--broadcast-address={HOST}")
    channel = {"name": "worker", "paused": False}
    topics = [{"name": f"topic-{number:05}", "paused": False, "channels": [channel]} for number in range(COUNT)]
    (nsqd.data_path / "nsqd.dat").write_text(json.dumps({"version": "1.3.0", "topics": topics}))
    admin = AdminProcess(directory / "admin", f"--nsqd-http-address={HOST}:{nsqd.http_port}")
    try:
        nsqd.start()
        admin.start()
        nsqd.publish("topic-04711", [b"x"] * 3)
        with window(browser, f"http://{HOST}:{admin.http_port}") as opened:
            yield opened
    finally:
        nsqd.close()
        admin.close()
    admin.assert_no_traceback()


@pytest.mark.parametrize("name", ["topics", "channels"])
def test_the_list_is_paged_filtered_and_sorted(name: str, many: Window) -> None:
    many.go(f"/topics?list={name}")
    expect(many.page.locator(".subtitle")).to_have_text("10,000 topics, 10,000 channels")
    many.await_live()
    assert many.page.locator("#list tbody tr").count() == 50
    assert "1–50 of 10,000" in many.text(".pager")
    many.page.get_by_role("link", name="Next").click()
    many.await_script()
    assert "topic-00050" in many.text("#list tbody")
    many.page.get_by_role("link", name="Waiting").click()
    many.await_script()
    expect(many.page.locator("#list tbody tr").first).to_contain_text("topic-04711")
    many.page.get_by_role("searchbox").fill("0999")
    expect(many.page.locator("#list tbody tr")).to_have_count(11)


def test_every_page_answers_soon(many: Window) -> None:
    for path in ("/", "/topics", "/topics?list=channels&sort=-out", "/topics/topic-04711", "/nodes", "/counter"):
        started = time.monotonic()
        many.go(path)
        many.await_live()
        assert time.monotonic() - started < 20, path
    assert many.serious() == []


def test_figures_move_among_many(many: Window) -> None:
    many.go("/topics?q=topic-04711")
    many.await_live()
    expect(many.page.locator("#list tbody td").first).not_to_have_text("–", timeout=3 * ANSWER_MS)
