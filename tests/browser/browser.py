"""
A headless Chromium, and pages in it that remember what went wrong: console errors, exceptions of scripts, violations of
the Content-Security-Policy, answers that are no success.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from playwright.sync_api import Browser, BrowserContext, Page, Playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
ANSWER_MS = 30_000
AXE = Path(__file__).parent / "vendor/axe-core/axe.min.js"
_RUN_AXE = """async () => {
  const found = await axe.run(document, {
    resultTypes: ["violations"],
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  });
  return found.violations.map(({ id, impact, nodes }) => [impact, id, ...nodes.map((node) => node.html)].join(" "));
}"""
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def missing() -> str:
    """Return a line about the browser when it is missing; "" when it is there."""
    if shutil.which(CHROMIUM) is None:
        return f"make test-browser needs {CHROMIUM}. On Debian and Ubuntu: apt-get install chromium"
    return ""


@attrs.define
class Window:
    """A page, and what went wrong in it."""

    page: Page
    base: str
    """The URL of the nsqadmin, without a slash at the end."""
    troubles: list[str] = attrs.field(factory=list)
    expected: tuple[str, ...] = ()
    """Parts of troubles that a test causes on purpose."""

    def go(self, path: str) -> None:
        """Open a path, and wait until the page is live, if it is a live page."""
        self.page.goto(self.base + path)
        self.await_script()

    def await_script(self) -> None:
        """Wait until the scripts have run."""
        self.page.wait_for_selector("#theme:not([hidden])")

    def await_live(self) -> None:
        """Wait until events come."""
        self.page.wait_for_selector('#pulse[data-state="live"]')

    def text(self, selector: str) -> str:
        """Return the text of the one element."""
        return self.page.locator(selector).inner_text()

    def serious(self) -> list[str]:
        """Return what axe-core finds, but for minor and moderate findings."""
        self.page.evaluate(AXE.read_text("utf-8"))
        found: list[str] = self.page.evaluate(_RUN_AXE)
        return [line for line in found if line.startswith(("serious", "critical"))]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        wider: int = self.page.evaluate(_OVERFLOW)
        return wider

    def assert_no_trouble(self) -> None:
        """Nothing went wrong but what was expected."""
        unexpected = [text for text in self.troubles if not any(part in text for part in self.expected)]
        assert unexpected == []


def launch(playwright: Playwright) -> Browser:
    """Start the browser, with a profile of its own."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))


@contextmanager
def window(
    browser: Browser, base: str, *, is_phone: bool = False, scheme: str = "light", **more: Any
) -> Iterator[Window]:
    """Open a page of its own, without cookies; nothing may go wrong in it."""
    context = browser.new_context(
        viewport=PHONE if is_phone else DESKTOP,
        color_scheme=scheme,
        has_touch=is_phone,
        locale="en-GB",
        timezone_id="UTC",
        **more,
    )
    try:
        opened = open_page(context, base)
        yield opened
        opened.assert_no_trouble()
    finally:
        context.close()


def open_page(context: BrowserContext, base: str) -> Window:
    """Open another page in the same context."""
    page = context.new_page()
    page.set_default_timeout(ANSWER_MS)
    opened = Window(page, base)
    page.on("pageerror", lambda error: opened.troubles.append(f"exception: {error}"))
    page.on("console", lambda message: _heard(opened, message.type, message.text))
    page.on("response", lambda answer: _answered(opened, answer.status, answer.url))
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', (event) =>"
        " console.error('CSP', event.violatedDirective, event.blockedURI, event.sourceFile))"
    )
    return opened


def _heard(opened: Window, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        opened.troubles.append(f"console {kind}: {text}")


def _answered(opened: Window, status: int, url: str) -> None:
    if status >= 400:
        opened.troubles.append(f"status {status}: {url}")
