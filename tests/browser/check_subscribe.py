"""The programs for browsers of docs/how-to/consume-over-http.md, in a page of the broker's origin and of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.process import NOTHING, Counts, NsqdProcess
from tests.wire import HOST

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/consume-over-http.md").read_text("utf-8")
EVENTS, WEBSOCKET = re.findall(r"^```js\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOW = "const seen = []; window.seen = seen; const show = (body) => seen.push(body);\n"


@pytest.fixture
def nsqd(tmp_path: Path) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path, "--http-subscribe")
    process.start()
    process.create("orders", "billing")
    process.publish("orders", [b"one", b"two", b"three"])
    yield process
    process.assert_no_traceback()
    process.close()


@pytest.mark.parametrize("program", [EVENTS, WEBSOCKET], ids=["events", "websocket"])
def test_a_page_consumes(browser: Browser, nsqd: NsqdProcess, program: str) -> None:
    page = browser.new_page()
    page.goto(f"http://{HOST}:{nsqd.http_port}/ping")
    page.evaluate(f"() => {{ {SHOW}{program} }}")
    page.wait_for_function("window.seen.length === 3")
    assert sorted(page.evaluate("window.seen")) == ["one", "three", "two"]
    nsqd.await_counts("orders", "billing", NOTHING)
    page.close()


def test_a_page_of_another_site_consumes_nothing(browser: Browser, nsqd: NsqdProcess) -> None:
    page = browser.new_page()
    page.goto(f"http://localhost:{nsqd.http_port}/ping")  # another name is another site
    url = f"{HOST}:{nsqd.http_port}/v2/subscribe"
    about = "topic=orders&channel=billing"
    script = """([url, about]) => Promise.all([
      new Promise((done) => { new WebSocket(`ws://${url}/websocket?${about}`).onclose = () => done("closed"); }),
      new Promise((done) => { new EventSource(`http://${url}/events?${about}`).onerror = () => done("closed"); }),
      fetch(`http://${url}/poll?${about}`, { method: "POST", mode: "no-cors" }).then((answer) => answer.type),
    ])"""
    assert page.evaluate(script, [url, about]) == ["closed", "closed", "opaque"]
    assert nsqd.counts("orders", "billing") == Counts(3, 0, 0)
    page.close()
