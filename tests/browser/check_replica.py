"""Two brokers with a replica store in a browser: their pages, and the hand-over from the owner to its standby."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from nsqtw.cli.main import run_nsqtw
from tests.admin.process import AdminProcess
from tests.browser.browser import Window, window
from tests.process import NsqdProcess, wait_until
from tests.replication.servers import PostgresPair
from tests.wire import HOST

TAKEOVER_SECONDS = 60.0
REPLACED = 3
"""The exit code of a broker that has handed over."""


class Replica(NsqdProcess):
    """An nsqd with a replica store; HTTP is all that a standby listens on."""

    def _listens(self, said: str) -> bool:
        assert self.runs, f"it ended: {said[-2000:]}"
        return f"HTTP: listening on {HOST}:" in said

    @property
    def is_owner(self) -> bool:
        """Whether it serves. One that takes over ends the connections of a standby."""
        with suppress(OSError):
            return self.http("GET", "/readyz").status == 200
        return False

    @property
    def standbys(self) -> list[str]:
        """The addresses of its standbys."""
        return [standby["address"] for standby in json.loads(self.http("GET", "/v2/replica").body)["standbys"]]


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Replica, Replica]]:
    """An owner and its standby."""
    pair = PostgresPair()
    file = tmp_path / "replica.toml"
    flags = (f"--broadcast-address={HOST}", f"--replicate=postgres:{file}")
    owner, standby = (Replica(tmp_path / name, *flags) for name in ("a", "b"))
    try:
        pair.start()
        file.write_text(f'dsn = "{pair.dsn}"\ndata_set = "orders"\n')
        file.chmod(0o600)
        assert run_nsqtw(["replicate", "init", f"postgres:{file}", "--data-path", str(owner.data_path)]) == 0
        owner.start()
        wait_until(lambda: owner.is_owner, "the first broker is the owner", TAKEOVER_SECONDS)
        standby.start()
        wait_until(lambda: owner.standbys, "the owner knows its standby", TAKEOVER_SECONDS)
        yield owner, standby
    finally:
        for broker in (owner, standby):
            broker.close()
        pair.close()


@pytest.fixture
def pages(replicas: tuple[Replica, Replica], browser: Browser, tmp_path: Path) -> Iterator[Window]:
    """A window on an nsqadmin of both."""
    flags = [f"--nsqd-http-address={HOST}:{replica.http_port}" for replica in replicas]
    admin = AdminProcess(tmp_path / "admin", *flags)
    admin.start()
    try:
        with window(browser, f"http://{HOST}:{admin.http_port}") as opened:
            yield opened
    finally:
        admin.close()


def test_an_owner_hands_over_to_its_standby(pages: Window, replicas: tuple[Replica, Replica]) -> None:
    owner, standby = (f"{HOST}:{replica.http_port}" for replica in replicas)
    for path in ("/", "/nodes", f"/nodes/{standby}", f"/nodes/{owner}"):
        pages.go(path)
        assert (pages.serious(), pages.overflow()) == ([], 0), path
    expect(pages.page.locator("#replica")).to_contain_text("orders")
    pages.page.get_by_role("link", name="Hand over to a standby").click()
    assert pages.serious() == []
    pages.page.get_by_label("To confirm").fill(owner)
    pages.page.get_by_role("button", name="Stop the broker").click()
    expect(pages.page.locator(".notice").first).to_contain_text(f"{owner} stops, and a standby takes over.")
    assert replicas[0].await_end() == REPLACED
    wait_until(lambda: replicas[1].is_owner, "the standby has taken over", TAKEOVER_SECONDS)
    pages.go("/")
    expect(pages.page.locator("#nodes")).to_contain_text("was owner")
    expect(pages.page.locator("#unprotected")).to_contain_text(f"{standby}: owner of orders")
