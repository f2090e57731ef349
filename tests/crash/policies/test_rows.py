"""Histories of each row: a good one, and wrong ones that it must find."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.crash.history import Channel
from tests.crash.policies.clients import OVER_BOUND, REFUSED, STORED
from tests.crash.policies.notes import (
    Answered,
    Cancelled,
    Cancelling,
    Delivered,
    Draining,
    Event,
    Finished,
    Published,
    Requeued,
    Wall,
)
from tests.crash.policies.table import ROWS

A, B = b"a", b"b"


def published(topic: str, body: bytes, at: float = 0.0, delay_ms: int = 0, **headers: str) -> Published:
    return Published(topic, body, headers, delay_ms, 1, Wall(at, 0.0))


def stored(topic: str, body: bytes, at: float = 0.0, delay_ms: int = 0, **headers: str) -> list[Event]:
    """A publish that was answered at once."""
    return [published(topic, body, at, delay_ms, **headers), Answered(body, STORED, 1, Wall(at, 0.0))]


def delivered(
    topic: str, body: bytes, at: float = 9.0, *, channel: str = "work", message_id: bytes = b"", **headers: str
) -> Delivered:
    when = Wall(at, 0.0)
    return Delivered(Channel(topic, channel), message_id or body, 1, headers, body, 1, 1, when, when)


def finished(topic: str, body: bytes, channel: str = "work") -> Finished:
    return Finished(Channel(topic, channel), body, body, 1, 1)


def consumed(topic: str, body: bytes, at: float = 9.0, channel: str = "work", **headers: str) -> list[Event]:
    return [delivered(topic, body, at, channel=channel, message_id=b"", **headers), finished(topic, body, channel)]


def wrongs(topic: str, events: Sequence[Event], excused: Sequence[bytes] = ()) -> list[str]:
    """What is wrong, without what it is wrong with."""
    row = ROWS[topic](None, "seed", "os")  # type: ignore[arg-type]  # a history needs no broker
    for event in events:
        row.notes.note(event)
    row.notes.excused.update(excused)
    return [wrong.split(":")[0] for wrong in row.wrongs()]


BOTH = ("one", "two")


@pytest.mark.parametrize(
    ("topic", "events", "wrong"),
    [
        ("headers", [*stored("headers", A, n="1"), *consumed("headers", A, channel="one", n="1")], ["lost"]),
        ("headers", [published("headers", A), Answered(A, REFUSED, 1, Wall(0, 0))], []),
        ("headers", [published("headers", A, n="1"), delivered("headers", A, channel="one", n="2")], ["headers"]),
        ("headers", [published("headers", A, n="1"), delivered("headers", A, channel="one")], ["headers"]),
        ("headers", [delivered("headers", A, channel="one")], ["invented"]),
        ("rejecting", [published("rejecting", A), Answered(A, OVER_BOUND, 1, Wall(0, 0))], []),
        (
            "rejecting",
            [published("rejecting", A), Answered(A, OVER_BOUND, 1, Wall(0, 0)), delivered("rejecting", A)],
            ["invented"],
        ),
        ("expiring", [*stored("expiring", A, ttl="20"), *consumed("expiring", A, 0.01, ttl="20")], []),
        ("expiring", stored("expiring", A, ttl="20"), []),
        ("expiring", stored("expiring", A), ["lost"]),
        ("expiring", [*stored("expiring", A, ttl="20"), *consumed("expiring", A, 0.05, ttl="20")], ["expired"]),
        ("once", [*stored("once", A, id="a"), *stored("once", A, id="a"), *consumed("once", A, id="a")], []),
        (
            "once",
            [
                *stored("once", A, id="a"),
                *consumed("once", A, id="a"),
                delivered("once", A, message_id=b"other", id="a"),
            ],
            ["deduplication"],
        ),
        ("urgent", stored("urgent", A, priority="low"), ["lost"]),
    ],
)
def test_a_history(topic: str, events: list[Event], wrong: list[str]) -> None:
    assert wrongs(topic, events) == wrong


def test_damage_excuses() -> None:
    assert wrongs("urgent", stored("urgent", A), excused=[A]) == []


def test_dead_letters() -> None:
    """In its channel or among the letters, once; in the other channel once."""
    letters = "letters.dead"
    begin = [*stored("letters", A), *consumed("letters", A, channel="other"), Draining(1)]
    assert wrongs("letters", [*begin, *consumed("letters", A)]) == []
    assert wrongs("letters", [*begin, *consumed(letters, A)]) == []
    assert wrongs("letters", begin) == ["lost"]
    twice = [*begin, *consumed("letters", A), delivered(letters, A, message_id=b"letter")]
    assert wrongs("letters", twice) == ["dead letters"]
    elsewhere = delivered("letters", A, channel="other", message_id=b"redriven")
    assert wrongs("letters", [*begin, *consumed("letters", A), elsewhere]) == ["dead letters"]


def test_what_is_dropped() -> None:
    """Nothing while few messages wait, and the oldest ones otherwise."""
    bodies = [b"%02d" % number for number in range(25)]
    begin = [event for body in bodies for event in stored("dropping", body)]
    rest = [event for body in bodies[5:] for event in consumed("dropping", body)]
    assert wrongs("dropping", [*begin, Draining(1), *rest]) == []
    assert wrongs("dropping", [*begin, Draining(1), *rest[2:]]) == ["lost"]
    gap = [event for body in (bodies[3], *bodies[5:]) for event in consumed("dropping", body)]
    assert wrongs("dropping", [*begin, Draining(1), *gap]) == ["bounds"]


def test_order() -> None:
    begin = [*stored("ordered", A, key="k"), *stored("ordered", B, key="k")]
    first, second = delivered("ordered", A, key="k"), delivered("ordered", B, key="k")
    end_first, end_second = finished("ordered", A), finished("ordered", B)
    requeued = Requeued(Channel("ordered", "work"), A, A, 1, 1)
    assert wrongs("ordered", [*begin, first, end_first, second, end_second]) == []
    assert wrongs("ordered", [*begin, first, requeued, first, end_first, second, end_second]) == []
    assert wrongs("ordered", [*begin, first, second, end_first, end_second]) == ["order", "order"]
    assert wrongs("ordered", [*begin, first, requeued, second, end_second, first, end_first]) == ["order"]


def test_schedule() -> None:
    begin = stored("scheduled", A, at=1.0, delay_ms=500)
    asked, done = Cancelling(A, 1), Cancelled(A, frozenset([Channel("scheduled", "two")]), 1)
    both = [event for channel in BOTH for event in consumed("scheduled", A, 1.5, channel)]
    assert wrongs("scheduled", [*begin, *both]) == []
    assert wrongs("scheduled", begin) == ["lost", "lost"]
    assert wrongs("scheduled", [*begin, asked]) == []
    assert wrongs("scheduled", [*begin, asked, done, *both]) == ["schedule"]
    early = [event for channel in BOTH for event in consumed("scheduled", A, 1.3, channel)]
    assert wrongs("scheduled", [*begin, *early]) == ["schedule", "schedule"]
