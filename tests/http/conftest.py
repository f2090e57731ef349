"""What tests of the HTTP edge may run under."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.broker_fixture import Browser, teach


@pytest.fixture(scope="module", params=["new", "known"])
def heads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test twice: with requests whose heads the broker reads for the first time, and with heads it knows."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "known":
            send = Browser.send

            def send_known(browser: Browser, data: bytes) -> None:
                teach(browser.web, data)
                send(browser, data)

            patch.setattr(Browser, "send", send_known)
        yield
