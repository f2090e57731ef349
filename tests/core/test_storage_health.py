"""What /ping says, and how it finds out that all is well again when nobody publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsqtw.core.storage_health import PROBE_SECONDS
from nsqtw.errors import BackendError, BackendFull
from tests.core.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.channel()
    return world


@pytest.fixture
def probes(world: World, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Fails all commits of the backend while it ends in True; the empty ones are counted."""
    said: list[bool] = [True]
    real: Callable[..., Any] = world.backend.commit

    def commit(writes: Any, durable: bool) -> Any:
        if not writes:
            said.append(said[-1])
        if not said[-1]:
            return real(writes, durable)
        if not writes:
            raise BackendFull("no space")
        return dict.fromkeys([queue for queue, _ in writes], BackendFull("no space"))

    monkeypatch.setattr(world.backend, "commit", commit)
    return said


def test_it_heals_when_nobody_publishes(world: World, probes: list[bool]) -> None:
    assert isinstance(_published(world), BackendError)
    for _ in range(3):
        world.wait(PROBE_SECONDS + 0.01)
        assert str(world.broker.health) == "NOK - no space"
    assert len(probes) == 3
    probes.append(False)
    world.wait(PROBE_SECONDS + 0.01)
    assert (str(world.broker.health), world.lines[-1]) == ("OK", ("info", "NSQ: messages are stored again"))
    world.wait(100)  # class os syncs what it tried to store
    tried = len(probes)
    world.wait(100)
    assert len(probes) == tried, "all is well: nothing is tried"


def test_a_good_publish_ends_it_at_once(world: World, probes: list[bool]) -> None:
    _published(world)
    probes.append(False)
    assert _published(world) is None
    assert str(world.broker.health) == "OK"


def test_it_fails_again_later(world: World, probes: list[bool]) -> None:
    for _ in range(2):
        probes.append(True)
        _published(world)
        assert not world.broker.health.is_good
        probes.append(False)
        world.turn()
        world.wait(PROBE_SECONDS + 0.01)
        assert world.broker.health.is_good
        world.wait(100)


def test_positions_that_cannot_be_saved_are_tried_again_though_nothing_changes(world: World) -> None:
    world.put(b"x")
    world.save(BackendFull("no space"))
    assert str(world.broker.health) == "NOK - no space"
    assert world.broker.checkpointer.are_wanted
    world.save()
    assert world.broker.health.is_good and not world.broker.checkpointer.are_wanted


def _published(world: World) -> Exception | None:
    answers = world.put(b"x")
    world.turn()
    return answers[0]
