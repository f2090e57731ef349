"""Who sees what: roles behind a proxy's header, the login, and what is served to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.process import AdminProcess
from tests.browser.browser import Window, window
from tests.browser.cluster import NOTES, TEXT
from tests.browser.conftest import StartAdmin
from tests.wire import HOST

As = Callable[[str], AbstractContextManager[Window]]
ROLES = ("--admin-user=ada", "--publish-user=paul", "--body-user=betty", "--read-user=rita")
BUTTONS = {
    "ada": ["Publish", "Settings", "Pause", "Empty", "Delete"],
    "paul": ["Publish"],
    "betty": [],
    "rita": [],
}


def url_of(admin: AdminProcess) -> str:
    return f"http://{HOST}:{admin.http_port}"


@pytest.fixture
def seen_as(browser: Browser, start_admin: StartAdmin) -> As:
    """Open a window of a user that a proxy names."""
    admin = start_admin(*ROLES)

    @contextmanager
    def open_as(user: str) -> Iterator[Window]:
        with window(browser, url_of(admin), extra_http_headers={"X-Forwarded-User": user}) as opened:
            yield opened

    return open_as


def test_a_viewer_sees_the_buttons_of_the_role(seen_as: As) -> None:
    for user, buttons in BUTTONS.items():
        with seen_as(user) as shown:
            shown.go("/topics/orders")
            assert user in shown.text(".user")
            assert shown.page.locator(".actions .button").all_inner_texts() == buttons
            assert shown.page.get_by_role("link", name="Remove").count() == (2 if user == "ada" else 0)
            shown.go("/topics/orders/billing")
            assert shown.page.locator(".actions .button").count() == (4 if user == "ada" else 0)
            shown.go("/topics")
            assert shown.page.locator(".actions .button").count() == (1 if user == "ada" else 0)


def test_the_server_refuses_what_has_no_button(seen_as: As) -> None:
    with seen_as("rita") as shown:
        shown.expected = ("403",)
        for path in (
            *("/actions/create", "/actions/publish?topic=orders", "/actions/settings?topic=orders"),
            *("/actions/delete_topic?topic=orders", "/actions/seek_channel?topic=orders&channel=billing"),
        ):
            shown.go(path)
            assert "You may not do this." in shown.text("main")
        # With the token of her own page.
        shown.go("/topics/orders")
        status = shown.page.evaluate(
            """async () => {
              const page = new DOMParser().parseFromString(await (await fetch("/topics/orders")).text(), "text/html");
              const csrf = page.querySelector("input[name=csrf]")?.value ?? "";
              const answer = await fetch("/actions/pause_topic?topic=orders", {
                method: "POST", body: new URLSearchParams({ csrf }),
              });
              return answer.status;
            }"""
        )
        assert status == 403


def test_bodies_are_for_those_who_may_see_them(seen_as: As) -> None:
    for user in ("rita", "paul"):
        with seen_as(user) as shown:
            shown.go(f"/topics/{NOTES}/desk?view=messages")
            assert shown.page.locator("article").count() == 4
            assert shown.page.locator("pre").count() == 0
            assert "not what is in them" in shown.text("#messages")
    for user in ("ada", "betty"):
        with seen_as(user) as shown:
            shown.go(f"/topics/{NOTES}/desk?view=messages")
            assert shown.page.locator("pre").first.inner_text() == TEXT.decode()


def test_a_stranger_gets_nothing(seen_as: As) -> None:
    with seen_as("mallory") as shown:
        shown.expected = ("403",)
        for path in ("/", "/topics/orders", "/actions/create"):
            answer = shown.page.goto(shown.base + path)
            assert answer is not None and answer.status == 403
            assert "orders" not in answer.text()


# -- login


@pytest.fixture
def login(browser: Browser, start_admin: StartAdmin, users_file: Path) -> Iterator[Window]:
    """A window on an nsqadmin with a login."""
    admin = start_admin(f"--auth=static:{users_file}")
    with window(browser, url_of(admin)) as opened:
        yield opened


def log_in(shown: Window, name: str, secret: str) -> None:
    shown.page.get_by_label("User").fill(name)
    shown.page.get_by_label("Secret").fill(secret)
    shown.page.get_by_role("button", name="Log in").click()
    shown.await_script()


def test_a_user_logs_in_and_out(login: Window) -> None:
    login.go("/topics/orders")
    assert login.text("h1") == "Log in"
    assert login.serious() == []
    log_in(login, "ada", "ada's secret")
    assert login.text("h1").startswith("orders")
    login.await_live()
    assert "ada (role: admin)" in login.text(".user")
    login.page.get_by_role("button", name="Log out").click()
    expect(login.page.locator("h1")).to_have_text("Log in")
    login.go("/topics")
    assert login.text("h1") == "Log in"


def test_a_wrong_secret_is_refused(login: Window) -> None:
    login.expected = ("401",)
    login.go("/")
    log_in(login, "ada", "guess")
    assert "wrong" in login.text("#error").lower()
    assert login.serious() == []


def test_a_live_page_leads_to_the_login_when_the_session_ends(login: Window) -> None:
    login.go("/topics")
    log_in(login, "betty", "betty's secret")
    login.await_live()
    login.page.context.clear_cookies()
    login.page.reload()
    log_in(login, "betty", "betty's secret")
    login.await_live()
    other = login.page.context.new_page()
    other.goto(login.base + "/topics")
    other.get_by_role("button", name="Log out").click()
    expect(login.page.locator("h1")).to_have_text("Log in")


def test_it_works_below_a_base_path(browser: Browser, start_admin: StartAdmin) -> None:
    admin = start_admin("--base-path=/tools/nsq")
    with window(browser, f"{url_of(admin)}/tools/nsq") as shown:
        shown.go("/topics/orders")
        shown.await_live()
        shown.page.get_by_role("link", name="billing").click()
        shown.await_live()
        assert shown.page.url.endswith("/tools/nsq/topics/orders/billing")
        shown.page.get_by_role("link", name="nsqadmin").click()
        assert shown.text("h1") == "Overview"
