"""Each check, with a history it must accept and with every kind of wrong one. A check that cannot fail is a defect."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.checks import (
    CHECKS,
    History,
    attempts,
    came_back,
    counters,
    denied,
    early,
    invented,
    lost,
    repeats,
    stranded,
    wrongs,
)
from tests.crash.history import (
    DRAINED,
    FSYNC,
    KILL,
    MEMORY,
    OS,
    POWER,
    START,
    STOP,
    Answered,
    Began,
    Channel,
    Connected,
    Counted,
    Damaged,
    Delivered,
    Died,
    Event,
    Failed,
    Finished,
    Found,
    Journal,
    Jumped,
    Left,
    Requeued,
    Sent,
    Stored,
)

BODY = b"1.1.0 ***"
ID = b"0123456789abcdef"
HIGHER = b"0123456789abcdf0"


class Story:
    """A history as it is told: one message, or a few, in the channel `c`."""

    def __init__(self, topic: str = OS) -> None:
        self.topic = topic
        self.channel = Channel(topic, "c")
        self.journal = Journal([self.channel])
        self.life = 1
        self.connection = 1
        self.record(Began(1))
        self.connect()

    def record(self, *events: Event) -> Story:
        self.journal.record(*events)
        return self

    def publish(self, body: bytes = BODY, delay_ms: int = 0, at: float = 0.0, *, good: bool | None = True) -> Story:
        """Answered with OK, refused, or (None) not answered."""
        self.record(Sent(self.topic, body, delay_ms, self.life, at))
        return self if good is None else self.record(Answered(body, good, self.life))

    def connect(self, *, prompt: bool = True) -> Story:
        self.connection += 1
        return self.record(Connected(self.channel, self.connection, prompt, self.life))

    def deliver(self, tries: int = 1, at: float = 0.0, body: bytes = BODY, id: bytes = ID) -> Story:
        return self.record(Delivered(self.channel, id, body, tries, self.connection, self.life, at))

    def finish(self, tries: int = 1, id: bytes = ID) -> Story:
        return self.record(Finished(self.channel, id, tries, self.connection, self.life))

    def fail(self, verb: str = "FIN") -> Story:
        return self.record(Failed(self.channel, ID, verb, self.connection, self.life))

    def requeue(self, delay_ms: int, tries: int = 1, at: float = 0.0) -> Story:
        return self.record(Requeued(self.channel, ID, tries, delay_ms, self.connection, self.life, at))

    def leave(self, *, settled: bool = True) -> Story:
        return self.record(Left(self.channel, self.connection, settled, self.life))

    def store(self) -> Story:
        return self.record(Stored(self.life, len(self.journal.events)))

    def die(self, how: str = KILL) -> Story:
        """And start again, with a new connection."""
        self.record(Died(self.life, how))
        self.life += 1
        self.record(Began(self.life))
        return self.connect()

    def find(self, *ids: bytes) -> Story:
        """In the files, while the broker is down."""
        return self.record(Found(self.topic, frozenset(ids)))

    def jump(self, seconds: float) -> Story:
        return self.record(Jumped(seconds, len(self.journal.events)))

    def count(
        self, when: str, depth: int, *, in_flight: int = 0, held: int = 0, total: int = 0, topic: int = 0
    ) -> Story:
        return self.record(Counted(when, self.channel, depth, in_flight, 0, topic, total, total, self.life, held))


def told(topic: str = OS) -> Story:
    return Story(topic)


GOOD = {
    "delivered and finished": told().publish().deliver().finish(),
    "finished after a second delivery": (
        told().connect(prompt=False).publish().deliver().finish().fail().deliver(2).finish(2)
    ),
    "comes back after a kill with a FIN that was not stored": told()
    .publish()
    .deliver()
    .finish()
    .die()
    .deliver()
    .finish(),
    "an attempt that was not stored is not counted": told().publish().deliver().die().deliver().finish(),
    "in flight, stored, killed": told().publish().deliver().leave().store().die().deliver(2).finish(2),
    "never answered and never seen": told().publish(good=None).die(),
    "never answered and there": told().publish(good=None).die().deliver().finish(),
    "refused and gone": told().publish(good=False),
    "refused, and found by a restart": told().publish(good=False).die().deliver().finish(),
    "memory, killed": told(MEMORY).publish().die(),
    "os, and the power fails": told(OS).publish().die(POWER),
    "in the files, and destroyed there after the next start": told(FSYNC)
    .publish()
    .find(ID)
    .die()
    .record(Damaged(frozenset([BODY]), frozenset([ID]))),
    "destroyed on the disk": told(FSYNC).publish().die().record(Damaged(frozenset([BODY]))),
    "in time": told().publish(delay_ms=500, at=1.0).deliver(at=1.495).finish(),
    "in time over a restart": told().publish(delay_ms=500, at=1.0).die().deliver(at=1.5).finish(),
    "early by a clock that was put forward before a restart": (
        told().publish(delay_ms=500, at=1.0).jump(0.3).die().deliver(at=1.21).finish()
    ),
    "requeued, in time": told().publish().deliver().requeue(500, at=2.0).deliver(2, at=2.5).finish(2),
    "a REQ that was not stored, and a kill": (
        told().publish().deliver().requeue(500, at=2.0).die().deliver(at=2.1).finish()
    ),
    "refused, in the files, and delivered": told().publish(good=False).find(ID).die().deliver().finish(),
    "refused, in the files, and the channel has passed it": (
        told()
        .publish(good=False)
        .publish(b"2")
        .deliver(body=b"2", id=HIGHER)
        .finish(id=HIGHER)
        .find(ID, HIGHER)
        .die()
        .deliver(body=b"2", id=HIGHER)
        .finish(id=HIGHER)
    ),
    "a REQ that failed": (
        told().connect(prompt=False).publish().deliver().requeue(500, at=2.0).fail("REQ").deliver(2, at=2.1).finish(2)
    ),
    "counts": (
        told()
        .publish()
        .count(DRAINED, 0, total=1)
        .die()
        .count(START, 1)
        .deliver()
        .count(START, 0, in_flight=1, held=1)
        .finish()
        .leave()
        .count(DRAINED, 0)
    ),
    "counts with what a kill has cost class memory": (
        told(MEMORY).publish().die().count(START, 1).count(START, 0).count(DRAINED, 0)
    ),
    "counts with what may be finished": told().publish().deliver().finish().die().count(START, 0),
    "counts with what may be stored": told().publish(good=None).die().count(START, 1).deliver().finish(),
}

WRONG: dict[str, tuple[Callable[..., object], Story]] = {
    "not delivered": (lost, told().publish()),
    "delivered and not finished": (lost, told().publish().deliver()),
    "not delivered after its FIN failed": (lost, told().publish().deliver().finish().fail()),
    "os, killed": (lost, told(OS).publish().die()),
    "fsync, and the power fails": (lost, told(FSYNC).publish().die(POWER)),
    "memory, and a clean stop": (lost, told(MEMORY).publish().die(STOP)),
    "memory, killed later than the stop that stored it": (lost, told(MEMORY).publish().die(STOP).die()),
    "lost, and another one is damaged": (lost, told().publish().die().record(Damaged(frozenset([b"another"])))),
    "refused, in the files, and not delivered": (stranded, told().publish(good=False).find(ID).die()),
    "in the files above all that was delivered": (
        stranded,
        told().publish().deliver().finish().publish(b"2", good=False).find(ID, HIGHER).die(),
    ),
    "in the files, and delivered before the death only": (
        stranded,
        told().publish().find(ID).die().find(ID, HIGHER).die().deliver().finish(),
    ),
    "never sent": (invented, told().deliver(body=b"other")),
    "sent afterwards": (invented, told().deliver().publish()),
    "changed on the way": (invented, told().publish().deliver(body=BODY[:-1] + b"+")),
    "refused and delivered": (invented, told().publish(good=False).deliver()),
    "of another topic": (invented, told().publish().record(Delivered(Channel("other", "c"), ID, BODY, 1, 2, 1, 0.0))),
    "two ids": (invented, told().publish().deliver().deliver(2, id=b"f" * 16)),
    "one id for two": (invented, told().publish().publish(b"2").deliver().deliver(body=b"2")),
    "too early": (early, told().publish(delay_ms=500, at=1.0).deliver(at=1.48)),
    "too early though the clock was put forward": (
        early,
        told().publish(delay_ms=500, at=1.0).jump(3600.0).deliver(at=1.2),
    ),
    "too early after a restart": (early, told().publish(delay_ms=500, at=1.0).die().deliver(at=1.2)),
    "earlier than a clock explains": (
        early,
        told().publish(delay_ms=500, at=1.0).jump(0.1).jump(-5.0).die().deliver(at=1.2),
    ),
    "requeued, too early": (early, told().publish().deliver().requeue(500, at=2.0).deliver(2, at=2.3)),
    "requeued, stored, too early after a kill": (
        early,
        told().publish().deliver().requeue(500, at=2.0).leave().store().die().deliver(2, at=2.3),
    ),
    "requeued, too early after a clean stop": (
        early,
        told().publish().deliver().requeue(500, at=2.0).leave().die(STOP).deliver(2, at=2.3),
    ),
    "one number twice": (attempts, told().publish().deliver().deliver()),
    "a number left out": (attempts, told().publish().deliver().deliver(3).leave()),
    "first delivered with a 2": (attempts, told().publish().deliver(2).leave()),
    "backwards over a kill": (attempts, told().publish().deliver().leave().store().die().deliver(1)),
    "backwards over a stop": (attempts, told().publish().deliver().deliver(2).die(STOP).deliver(2)),
    "a FIN that failed": (denied, told().publish().deliver().finish().fail()),
    "a REQ that failed": (denied, told().publish().deliver().requeue(500).fail("REQ")),
    "again though finished": (came_back, told().publish().deliver().finish().deliver(2)),
    "again though stored as finished": (
        came_back,
        told().publish().deliver().finish().leave().store().die().deliver(2),
    ),
    "again after a clean stop": (came_back, told().publish().deliver().finish().leave().die(STOP).deliver(2)),
    "too few wait": (counters, told().publish().die().count(START, 0)),
    "too many wait": (counters, told().publish().die().count(START, 2)),
    "what was finished and stored waits": (
        counters,
        told().publish().deliver().finish().leave().store().die().count(START, 1),
    ),
    "in flight after a start": (counters, told().publish().die().count(START, 1, in_flight=1)),
    "held and not in flight": (counters, told().publish().die().count(START, 1).deliver().count(START, 1, held=1)),
    "held and still waiting": (
        counters,
        told().publish().die().count(START, 1).deliver().count(START, 1, in_flight=1, held=1),
    ),
    "not empty": (counters, told().publish().deliver().finish().count(DRAINED, 1, total=1)),
    "left in the topic": (counters, told().publish().deliver().finish().count(DRAINED, 0, total=1, topic=1)),
    "one message counted too many": (counters, told().publish().deliver().finish().count(DRAINED, 0, total=2)),
    "one message not counted": (counters, told().publish().deliver().finish().count(DRAINED, 0, total=0)),
    "a refused message counted": (counters, told().publish(good=False).count(DRAINED, 0, total=1)),
    "less delivered than waited": (counters, told().publish().die().count(START, 1).count(DRAINED, 0)),
    "more delivered than waited in class memory": (
        counters,
        told(MEMORY).publish().die().count(START, 1).deliver().deliver(body=b"2", id=b"f" * 16).count(DRAINED, 0),
    ),
    "more delivered than waited": (
        counters,
        told()
        .publish()
        .publish(b"2", good=None)
        .die()
        .count(START, 1)
        .deliver()
        .deliver(body=b"2", id=b"f" * 16)
        .count(DRAINED, 0),
    ),
}


@pytest.mark.parametrize("story", GOOD.values(), ids=GOOD)
def test_a_good_history_passes(story: Story) -> None:
    assert wrongs(story.journal) == []


@pytest.mark.parametrize(("check", "story"), WRONG.values(), ids=WRONG)
def test_a_wrong_history_is_found(check: Callable[[History], object], story: Story) -> None:
    found = list(check(History(story.journal)))  # type: ignore[call-overload]
    assert found
    assert set(found) <= set(wrongs(story.journal))


def test_every_check_is_shown_to_fail() -> None:
    assert {check for check, _ in WRONG.values()} == set(CHECKS)


def drained() -> Story:
    story = told().publish().deliver().finish().leave().store()
    story.journal.archive()
    return story.connect()


def test_what_was_drained_does_not_come_back() -> None:
    """Not ever, though its events are forgotten."""
    assert wrongs(drained().journal) == []
    assert wrongs(drained().die().deliver(2).journal) != []
    assert list(came_back(History(drained().deliver(2).journal))) != []


def test_an_id_is_not_given_again_after_all_was_drained() -> None:
    story = drained().publish(b"2").deliver(body=b"2").finish()
    assert [wrong.partition(":")[0] for wrong in wrongs(story.journal)] == ["invented"]


def test_what_was_refused_may_turn_up_after_all_was_drained() -> None:
    story = told().publish(good=False)
    story.journal.archive()
    assert wrongs(story.die().deliver().finish().journal) == []


def test_what_is_in_the_files_after_all_was_drained_is_delivered() -> None:
    """What was drained need not be, nor what is below it."""
    assert wrongs(drained().find(ID).die().journal) == []
    story = told().publish().publish(b"2").deliver().finish().deliver(body=b"2", id=HIGHER).finish(id=HIGHER)
    story.leave().store().journal.archive()
    assert wrongs(story.find(ID, HIGHER).die().journal) == []
    assert [*stranded(History(story.find(b"0123456789abcdf1").die().journal))]


def test_repeats_are_counted() -> None:
    assert repeats(told().publish().deliver().finish().journal) == 0
    assert repeats(told().publish().deliver().finish().die().deliver().finish().die().deliver().journal) == 2
