"""Pictures of the pages for the documentation: `make screenshots` writes them, otherwise they are made and dropped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from tests.browser.browser import Window, window
from tests.browser.cluster import NOTES, BrowserCluster

WHERE = os.environ.get("SCREENSHOTS", "")
MAX_BYTES = 150_000
_COLOURS = 256
_TRAFFIC_MS = 75_000

PICTURES = {
    "nsqadmin-overview": ("/", False, "light"),
    "nsqadmin-overview-dark": ("/", False, "dark"),
    "nsqadmin-channel": ("/topics/orders/billing", False, "light"),
    "nsqadmin-messages": (f"/topics/{NOTES}/desk?view=messages", False, "light"),
    "nsqadmin-replay": ("/actions/seek_channel?topic=orders&channel=billing&kind=earliest", False, "light"),
    "nsqadmin-policy": (
        "/actions/set_policy_channel?topic=orders&channel=billing&set.max_attempts=5&set.requeue_delay=2s",
        False,
        "light",
    ),
    "nsqadmin-phone": ("/", True, "light"),
}


@pytest.fixture(scope="module")
def busy(cluster: BrowserCluster, browser: Browser) -> Iterator[BrowserCluster]:
    """The cluster, with traffic; for pictures that are kept, for long enough to fill the charts."""
    with cluster.traffic(), window(browser, cluster.url) as shown:
        shown.go("/")
        if WHERE:
            shown.page.wait_for_timeout(_TRAFFIC_MS)
        expect(shown.page.locator("#figures dd").first).not_to_have_text("0 /s")
        yield cluster


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_made(name: str, busy: BrowserCluster, browser: Browser, tmp_path: Path) -> None:
    path, is_phone, scheme = PICTURES[name]
    with window(browser, busy.url, is_phone=is_phone, scheme=scheme) as shown:
        shown.go(path)
        taken = Path(WHERE or tmp_path) / f"{name}.png"
        taken.parent.mkdir(parents=True, exist_ok=True)
        _photograph(shown, taken)
    assert 1000 < taken.stat().st_size < MAX_BYTES


def _photograph(shown: Window, path: Path) -> None:
    """Write what the window shows, with few colours."""
    shown.page.screenshot(path=path, animations="disabled")
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(_COLOURS)
    few.save(path, optimize=True)
