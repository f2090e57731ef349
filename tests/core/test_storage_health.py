"""What /ping says, and how it finds out that all is well again when nobody publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsqtw.core.storage_health import PROBE_SECONDS
from nsqtw.errors import BackendError, BackendFull
from tests.core.harness import BrokerHarness


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.channel()
    return harness


@pytest.fixture
def probes(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Fails all commits of the backend while it ends in True; the empty ones are counted."""
    said: list[bool] = [True]
    real: Callable[..., Any] = harness.backend.commit

    def commit(writes: Any, durable: bool) -> Any:
        if not writes:
            said.append(said[-1])
        if not said[-1]:
            return real(writes, durable)
        if not writes:
            raise BackendFull("no space")
        return dict.fromkeys([queue for queue, _ in writes], BackendFull("no space"))

    monkeypatch.setattr(harness.backend, "commit", commit)
    return said


def test_it_heals_when_nobody_publishes(harness: BrokerHarness, probes: list[bool]) -> None:
    assert isinstance(_published(harness), BackendError)
    for _ in range(3):
        harness.wait(PROBE_SECONDS + 0.01)
        assert str(harness.broker.health) == "NOK - no space"
    assert len(probes) == 3
    probes.append(False)
    harness.wait(PROBE_SECONDS + 0.01)
    assert (str(harness.broker.health), harness.lines[-1]) == ("OK", ("info", "NSQ: messages are stored again"))
    harness.wait(100)  # class os syncs what it tried to store
    tried = len(probes)
    harness.wait(100)
    assert len(probes) == tried, "all is well: nothing is tried"


def test_a_good_publish_ends_it_at_once(harness: BrokerHarness, probes: list[bool]) -> None:
    _published(harness)
    probes.append(False)
    assert _published(harness) is None
    assert str(harness.broker.health) == "OK"


def test_it_fails_again_later(harness: BrokerHarness, probes: list[bool]) -> None:
    for _ in range(2):
        probes.append(True)
        _published(harness)
        assert not harness.broker.health.is_good
        probes.append(False)
        harness.turn()
        harness.wait(PROBE_SECONDS + 0.01)
        assert harness.broker.health.is_good
        harness.wait(100)


def test_positions_that_cannot_be_saved_are_tried_again_though_nothing_changes(harness: BrokerHarness) -> None:
    harness.put(b"x")
    harness.save(BackendFull("no space"))
    assert str(harness.broker.health) == "NOK - no space"
    assert harness.broker.checkpointer.are_wanted
    harness.save()
    assert harness.broker.health.is_good and not harness.broker.checkpointer.are_wanted


def _published(harness: BrokerHarness) -> Exception | None:
    answers = harness.put(b"x")
    harness.turn()
    return answers[0]
