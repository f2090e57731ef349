"""Clusters of real processes, and windows of a real browser on their nsqadmin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from nsqtw.auth.secret_hash import Recipe
from tests.admin.process import AdminProcess
from tests.browser.browser import ANSWER_MS, Window, launch, window
from tests.browser.cluster import BrowserCluster
from tests.wire import HOST

StartAdmin = Callable[..., AdminProcess]
OpenWindow = Callable[..., AbstractContextManager[Window]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    expect.set_options(timeout=ANSWER_MS)
    with sync_playwright() as playwright:
        started = launch(playwright)
        yield started
        started.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserCluster]:
    """An nsqlookupd, two nsqds with topics, and an nsqadmin where everybody may do everything."""
    with BrowserCluster.started(tmp_path_factory.mktemp("cluster")) as started:
        started.fill()
        yield started


@pytest.fixture
def open_window(browser: Browser, cluster: BrowserCluster) -> OpenWindow:
    """Open a window on the nsqadmin of `cluster`."""
    return partial(window, browser, cluster.url)


@pytest.fixture(scope="session")
def windows(browser: Browser, cluster: BrowserCluster) -> Iterator[dict[tuple[bool, str], Window]]:
    """A window for each size and colour scheme, for pages that are only looked at."""
    with ExitStack() as stack:
        yield {
            (is_phone, scheme): stack.enter_context(window(browser, cluster.url, is_phone=is_phone, scheme=scheme))
            for is_phone in (False, True)
            for scheme in ("light", "dark")
        }


@pytest.fixture
def shown(open_window: OpenWindow) -> Iterator[Window]:
    """A window of a desktop."""
    with open_window() as opened:
        yield opened


@pytest.fixture(scope="session")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of grants: ada may do everything, betty look at messages. The secret of ada is "ada's secret"."""
    rights = {"ada": ("admin", "publish", "subscribe"), "betty": ("subscribe",)}
    path = tmp_path_factory.mktemp("users") / "users.toml"
    recipe = Recipe.fresh()
    lines = []
    for name, permissions in rights.items():
        line = recipe.line(f"{name}'s secret".encode())
        lines.append(f'[[client]]\nidentity = "{name}"\nsecret = "{line}"\n')
        lines.append(f'[[client.grant]]\ntopic = ".*"\npermissions = {json.dumps(permissions)}\n')
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


@pytest.fixture
def start_admin(cluster: BrowserCluster, tmp_path: Path) -> Iterator[StartAdmin]:
    """Start another nsqadmin on the cluster, with more flags; its URL is returned."""
    started: list[AdminProcess] = []

    def start(*flags: str) -> AdminProcess:
        address = f"--lookupd-http-address={HOST}:{cluster.lookupd.http_port}"
        process = AdminProcess(tmp_path / f"admin{len(started)}", address, *flags)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.close()
    for process in started:
        process.assert_no_traceback()
