"""What every test runs under."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from twisted.logger import LogEvent, LogLevel, globalLogPublisher

from tests.certificates import Certificates

pytest.register_assert_rewrite(
    "nsqtw.testing.contracts",
    "nsqtw.testing.positions_contract",
    "nsqtw.testing.replica_contract",
    "nsqtw.testing.authorizers",
)

# How long examples take says how busy the machine is, not whether the code is right.
settings.register_profile("nsqtw", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test` takes the same examples each time (--hypothesis-profile=same), so that a red run is about the change; runs
# by hand go on exploring.
settings.register_profile("same", settings.get_profile("nsqtw"), derandomize=True)
# `make test-fast` takes fewer, and no histories.
settings.register_profile("fast", settings.get_profile("same"), max_examples=10)
settings.load_profile("nsqtw")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest: dict[object, float] = {}
    for item in items:
        if item.name == "runTest":  # of a state machine of hypothesis
            item.add_marker("histories")
        for mark in item.iter_markers("timeout"):
            longest[item.path] = max(mark.args[0], longest.get(item.path, 0))
    # The files that take longest begin, so that none of them runs by itself at the end.
    items.sort(key=lambda item: -longest.get(item.path, 0))


@pytest.fixture(autouse=True)
def logged_failures() -> Iterator[list[LogEvent]]:
    """
    The failures logged so far: exceptions nobody handled, and anything critical. A test that leaves some
    fails; one that expects them looks at them and clears the list.
    """
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_failure") is not None or event.get("log_level") is LogLevel.critical:
            events.append(event)

    globalLogPublisher.addObserver(observe)
    try:
        yield events
    finally:
        globalLogPublisher.removeObserver(observe)
    assert not events, [str(event.get("log_failure", event.get("log_format"))) for event in events]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of all kinds, made once."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    name: str = request.node.name
    return re.sub(r"[^a-zA-Z0-9]", "-", name)[-60:].strip("-")
