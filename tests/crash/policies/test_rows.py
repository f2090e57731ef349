"""Histories of each row: a good one, and wrong ones that it must find."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nsqtw.options.settings import ChannelPolicy, TopicPolicy, settings_of
from tests.crash.history import Channel
from tests.crash.policies.aside import Deferred
from tests.crash.policies.clients import OVER_BOUND, REFUSED, STORED
from tests.crash.policies.held import Held, Stay
from tests.crash.policies.last_delivery import MOST, LastDelivery
from tests.crash.policies.live import DEPTH, WINDOW, Knowledge
from tests.crash.policies.long_delay import LongDelay
from tests.crash.policies.notes import (
    Abandoned,
    Answered,
    Cancelled,
    Cancelling,
    Delivered,
    Draining,
    Event,
    Finished,
    Published,
    Requeued,
    Saved,
    Wall,
)
from tests.crash.policies.order_window import OrderWindow
from tests.crash.policies.shares import Shares
from tests.crash.policies.table import ROWS

A, B = b"a", b"b"


def published(topic: str, body: bytes, at: float = 0.0, delay_ms: int = 0, **headers: str) -> Published:
    return Published(topic, body, headers, delay_ms, 1, Wall(at, 0.0))


def stored(topic: str, body: bytes, at: float = 0.0, delay_ms: int = 0, **headers: str) -> list[Event]:
    """A publish that was answered at once."""
    return [published(topic, body, at, delay_ms, **headers), Answered(body, STORED, 1, Wall(at, 0.0))]


def delivered(
    topic: str,
    body: bytes,
    at: float = 9.0,
    *,
    channel: str = "work",
    message_id: bytes = b"",
    attempts: int = 1,
    life: int = 1,
    **headers: str,
) -> Delivered:
    when = Wall(at, 0.0)
    return Delivered(Channel(topic, channel), message_id or body, attempts, headers, body, 1, life, when, when)


def requeued(topic: str, body: bytes, at: float, attempts: int = 1) -> Requeued:
    return Requeued(Channel(topic, "work"), body, body, 1, 1, attempts, Wall(at, 0.0))


def finished(topic: str, body: bytes, channel: str = "work") -> Finished:
    return Finished(Channel(topic, channel), body, body, 1, 1)


def consumed(topic: str, body: bytes, at: float = 9.0, channel: str = "work", **headers: str) -> list[Event]:
    return [delivered(topic, body, at, channel=channel)._replace(headers=headers), finished(topic, body, channel)]


def wrongs(
    topic: str, events: Sequence[Event], excused: Sequence[bytes] = (), damaged: Sequence[bytes] = ()
) -> list[str]:
    """What is wrong, without what it is wrong with."""
    row = ROWS[topic](None, "seed", "os")  # type: ignore[arg-type]  # a history needs no broker
    for event in events:
        row.notes.note(event)
    row.notes.excused.update((*excused, *damaged))
    row.notes.damaged.update(damaged)
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
        (
            "once-to-one",
            [
                *stored("once-to-one", b"1.one", id="a"),
                *stored("once-to-one", b"1.two", id="a"),
                *consumed("once-to-one", b"1.one", channel="one", id="a"),
            ],
            ["lost"],
        ),
        (
            "once-to-one",
            [
                *stored("once-to-one", b"1.one", id="a"),
                *consumed("once-to-one", b"1.one", channel="one", id="a"),
                delivered("once-to-one", b"1.one", channel="one", message_id=b"other", id="a"),
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


def test_damage_takes_all_headers_of_a_message_or_none() -> None:
    """And with them its own time to live."""
    sent = stored("headers", A, n="1")
    found = [event for channel in BOTH for event in consumed("headers", A, channel=channel)]
    assert wrongs("headers", [*sent, *found], excused=[A]) == ["headers", "headers"]
    assert wrongs("headers", [*sent, *found], damaged=[A]) == []
    other = [event for channel in BOTH for event in consumed("headers", A, channel=channel, n="2")]
    assert wrongs("headers", [*sent, *other], damaged=[A]) == ["headers", "headers"]
    letter = delivered("stale.letters", A)
    lasting = [*stored("stale", A, ttl="86400000000"), Draining(1)]
    assert "dead letters" in wrongs("stale", [*lasting, letter], excused=[A])
    assert wrongs("stale", [*lasting, letter], damaged=[A]) == []


def test_dead_letters() -> None:
    """In its channel or among the letters, once; in the other channel once."""
    letters = "letters.dead"
    begin = [*stored("letters", A), *consumed("letters", A, channel="other"), Draining(1)]
    assert wrongs("letters", [*begin, *consumed("letters", A)]) == []
    assert wrongs("letters", [*begin, *consumed(letters, A)]) == []
    assert wrongs("letters", begin) == ["lost"]
    often = delivered("letters", A, attempts=3)
    assert wrongs("letters", [*begin, often, finished("letters", A)]) == ["dead letters"]
    twice = [*begin, *consumed("letters", A), delivered(letters, A, message_id=b"letter")]
    assert wrongs("letters", twice) == ["dead letters"]
    elsewhere = delivered("letters", A, channel="other", message_id=b"redriven")
    assert wrongs("letters", [*begin, *consumed("letters", A), elsewhere]) == ["dead letters"]


def test_last_deliveries() -> None:
    """A death may interrupt one of each life. One that has failed for the last time does not come back."""
    begin = [*stored("letters", A), *consumed("letters", A, channel="other"), Draining(1)]
    end = [finished("letters", A)]
    last = delivered("letters", A, attempts=2)
    again = delivered("letters", A, attempts=3, life=2)
    assert wrongs("letters", [*begin, last, again, *end]) == []
    assert wrongs("letters", [*begin, last, again._replace(life=1), *end]) == ["dead letters"]
    assert wrongs("letters", [*begin, again, again, *end]) == ["dead letters"]
    assert wrongs("letters", [*begin, last, again._replace(attempts=4), *end]) == ["dead letters"]
    failed = requeued("letters", A, 9.0, attempts=2)
    assert wrongs("letters", [*begin, last, failed, again, *end]) == []
    assert wrongs("letters", [*begin, last, failed, Saved(1), again, *end]) == ["dead letters"]


def test_interrupted_deliveries() -> None:
    row = LastDelivery(None, "seed", "os")  # type: ignore[arg-type]  # a history needs no broker
    assert [*row.changed([A, B], {A: 2, B: 2})] == []
    assert len([*row.changed([A, B], {A: 1})]) == 2
    assert [*row.kept(1, 2), *row.kept(MOST, None)] == []
    assert len([*row.kept(1, None), *row.kept(1, 3), *row.kept(MOST, MOST + 1)]) == 3


def test_held_messages() -> None:
    row = Held(None, "seed", "os")  # type: ignore[arg-type]  # a history needs no broker
    assert [*row.changed(Stay(3, 5, 0)), *row.changed(Stay(3, 5, 1), 1), *row.not_left([A, B], [b"fill", A, B])] == []
    wrong = [Stay(0, 5, 0), Stay(3, 4, 0), Stay(3, 5, 1)]
    assert [len([*row.changed(stay)]) for stay in wrong] == [1, 1, 1]
    assert len([*row.changed(Stay(2, 4, 2), 1), *row.not_left([A, B], [A, A])]) == 3


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
    failed = requeued("ordered", A, 9.0)
    assert wrongs("ordered", [*begin, first, end_first, second, end_second]) == []
    assert wrongs("ordered", [*begin, first, failed, first, end_first, second, end_second]) == []
    assert wrongs("ordered", [*begin, first, second, end_first, end_second]) == ["order", "order"]
    assert wrongs("ordered", [*begin, first, failed, second, end_second, first, end_first]) == ["order"]


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


def test_every_setting_has_a_row() -> None:
    """Where a setting is missing, nobody has looked what a crash does to it."""
    tested = {WINDOW.name, DEPTH.name, "max_attempts", "dead_letter_topic"}
    for row in ROWS.values():
        tested |= row.topic_policy.keys() | row.channel_policy.keys()
    assert tested == settings_of(TopicPolicy).keys() | settings_of(ChannelPolicy).keys()


def test_messages_for_one_channel() -> None:
    for_one, for_all = b"1.one", b"2."
    begin = [*stored("directed", for_one), *stored("directed", for_all)]
    both = [event for channel in BOTH for event in consumed("directed", for_all, channel=channel)]
    assert wrongs("directed", [*begin, *both, *consumed("directed", for_one, channel="one")]) == []
    assert wrongs("directed", [*begin, *both]) == ["lost"]
    elsewhere = delivered("directed", for_one, channel="two")
    assert wrongs("directed", [*begin, *both, *consumed("directed", for_one, channel="one"), elsewhere]) == ["directed"]
    twice = [delivered("directed", for_one, channel="one"), *consumed("directed", for_one, channel="one")]
    assert wrongs("directed", [*begin, *both, *twice]) == ["directed"]


def test_expired_dead_letters() -> None:
    """What lasts is in its channel; the rest there or among the letters, with the header that says which renamed."""
    letters = "stale.letters"
    begin = [*stored("stale", A), *stored("stale", B, ttl="0"), Draining(1)]
    lasting = [event for channel in ("work", "other") for event in consumed("stale", B, channel=channel, ttl="0")]
    assert wrongs("stale", [*begin, *lasting, *consumed("stale", A)]) == []
    assert wrongs("stale", [*begin, *lasting, *consumed(letters, A)]) == []
    assert wrongs("stale", [*begin, *lasting]) == ["lost"]
    assert wrongs("stale", [*begin, *consumed("stale", A)]) == ["lost", "lost"]
    both = [*consumed("stale", A), delivered(letters, A, message_id=b"letter")]
    assert wrongs("stale", [*begin, *lasting, *both]) == ["dead letters"]
    expired = delivered(letters, B)._replace(headers={"nsq-dead-header-ttl": "0"})
    assert "dead letters" in wrongs("stale", [*begin, *lasting, *consumed("stale", A), expired])


def test_age() -> None:
    begin = [*stored("aging", A, at=1.0), *stored("aging", B, at=1.0)]
    assert wrongs("aging", [*begin, *consumed("aging", A, 1.1), *consumed("aging", B, 1.2)]) == []
    assert wrongs("aging", begin) == []
    assert wrongs("aging", [*begin, *consumed("aging", B, 1.16)]) == []
    assert wrongs("aging", [*begin, *consumed("aging", B, 1.1)]) == ["age"], "the first one was dropped too early"
    assert wrongs("aging", [*begin, *consumed("aging", A, 1.3), *consumed("aging", B, 1.1)]) == ["age"]
    again = delivered("aging", A, 1.3, attempts=2)
    assert wrongs("aging", [*begin, *consumed("aging", B, 1.16), again]) == []


def test_age_by_priority() -> None:
    row = "urgent-aging"
    begin = [*stored(row, A, at=1.0, priority="low"), *stored(row, B, at=1.0, priority="high")]
    behind = [*stored(row, b"c", at=1.0, priority="low"), *consumed(row, b"c", 1.1, priority="low")]
    assert wrongs(row, [*begin, *consumed(row, B, 1.1, priority="high")]) == [], "the first one can be dropped later"
    assert wrongs(row, [*begin, *behind]) == ["age"], "the first one was dropped too early"
    assert wrongs(row, [*begin, *consumed(row, A, 1.3, priority="low")]) == ["age"]


def test_rate() -> None:
    bodies = [b"%02d" % number for number in range(40)]
    begin = [event for body in bodies for event in stored("paced", body)]
    at_once = [event for body in bodies[:31] for event in consumed("paced", body)]
    assert wrongs("paced", [*begin, *at_once, *[e for body in bodies[31:] for e in consumed("paced", body, 9.4)]]) == []
    assert wrongs("paced", [*begin, *at_once, *[e for body in bodies[31:] for e in consumed("paced", body, 9.2)]]) == [
        "rate"
    ]


def test_delay() -> None:
    begin = [*stored("delayed", A), delivered("delayed", A, 1.0), requeued("delayed", A, 1.0)]
    end = finished("delayed", A)
    again = delivered("delayed", A, 1.48, attempts=2)
    assert wrongs("delayed", [*begin, again, end]) == []
    assert wrongs("delayed", [*begin, delivered("delayed", A, 1.4, attempts=2), end]) == ["delay"]
    second: list[Event] = [again, requeued("delayed", A, 2.0, attempts=2)]
    assert wrongs("delayed", [*begin, *second, delivered("delayed", A, 2.8, attempts=3), end]) == ["delay"]
    early = delivered("delayed", A, 1.4, attempts=2, life=2)
    assert wrongs("delayed", [*begin, early, end]) == [], "a crash may have forgotten that it was requeued"
    assert wrongs("delayed", [*begin, Saved(1), early, end]) == ["delay"]


def test_delay_without_an_answer() -> None:
    """By a timeout, or the end of a connection, which is noted when the message may be elsewhere already."""
    abandoned = Abandoned(Channel("delayed", "work"), A, 1, 1, Wall(1.0, 0.0))
    begin, end = [*stored("delayed", A), delivered("delayed", A, 1.0)], finished("delayed", A)
    again, early = delivered("delayed", A, 1.48, attempts=2), delivered("delayed", A, 1.4, attempts=2)
    assert wrongs("delayed", [*begin, abandoned, again, end]) == []
    assert wrongs("delayed", [*begin, abandoned, early, end]) == ["delay"]
    assert wrongs("delayed", [*begin, early, abandoned, end]) == ["delay"]
    later = early._replace(life=2)
    assert wrongs("delayed", [*begin, abandoned, Saved(1), later, end]) == [], "the broker may not have seen it"


def test_long_delays() -> None:
    """The broker says when they are due, in hours: it is told apart from seconds that a slow machine takes."""
    row = LongDelay(None, "seed", "os")  # type: ignore[arg-type]  # a history needs no broker

    def wrong_after(**shares: tuple[int, float]) -> list[str]:
        """After so many deliveries, and so much of the delay that is not varied."""
        hours = {1: 1, 2: 2, 3: 3, 5: 3}
        deferred = {
            name.encode(): Deferred(attempts, 100 + share * 3600 * hours[attempts])
            for name, (attempts, share) in shares.items()
        }
        return [*row.wrong_delays(deferred, 99.0, 101.0)]

    assert wrong_after(a=(1, 0.8), b=(2, 1.2), c=(3, 1.0), d=(5, 1.1)) == []
    assert wrong_after(a=(1, 0.7), b=(2, 1.2)) == ["delay: b'a'  after 1 deliveries, and waits for 2519 s"]
    assert len(wrong_after(a=(1, 0.9), b=(5, 1.3))) == 1
    assert len(wrong_after(a=(1, 1.0), b=(2, 0.5))) == 1, "it has not grown"
    assert len(wrong_after(a=(1, 1.0), b=(5, 16 / 3))) == 1, "it has grown beyond the longest"
    assert wrong_after(a=(1, 0.9), b=(2, 0.9), c=(5, 0.9)) == ["delay: all of them have the same variation"]
    before = {A: Deferred(1, 500.0)}
    assert [*row.changed(before, {A: Deferred(1, 500.001)})] == []
    assert [*row.changed({}, {A: Deferred(1, 500.0)})] == []
    for after in ({}, {A: Deferred(1, 499.9)}, {A: Deferred(1, 500.1)}, {A: Deferred(2, 500.0)}):
        assert len([*row.changed(before, after)]) == 1
    row.notes.excused.add(A)
    assert [*row.changed(before, {})] == []


def test_a_full_window() -> None:
    row = OrderWindow(None, "seed", "os")  # type: ignore[arg-type]
    bodies = [b"%d" % number for number in range(10)]
    *busy, free = bodies
    assert [*row.read_too_far(bodies, busy[:1], 5)] == []
    assert [*row.read_too_far(bodies, [*busy[:4], free, *busy[4:]], 5)] == []
    assert len([*row.read_too_far(bodies, [busy[0], free], 5)]) == 1
    assert len([*row.read_too_far(bodies, [*busy[:3], free, *busy[3:]], 5)]) == 1
    assert len([*row.read_too_far(bodies, [busy[1], busy[0], *busy[2:], free], 5)]) == 1
    assert len([*row.read_too_far(bodies, busy[:1], 6)]) == 1


def test_shares_of_classes() -> None:
    row = Shares(None, "seed", "os")  # type: ignore[arg-type]
    rounds = [*["high"] * 12, *["normal"] * 3, "low"]
    assert [*row.starving([*rounds, *rounds, *["high"] * 40])] == []
    assert len([*row.starving([*["high"] * 31, "low"])]) == 1
    assert len([*row.starving([*rounds, *["normal"] * 31, "low", "high"])]) == 1
    assert [*row.miscounted({A: "high", B: "low"}, [1, 0, 1])] == []
    assert len([*row.miscounted({A: "high", B: "low"}, [1, 0, 0])]) == 1


def test_policies_that_are_set() -> None:
    knowledge = Knowledge()
    assert [*knowledge.found(DEPTH, 10)], "nobody set it"
    knowledge = Knowledge()
    for value in (10, 20):
        knowledge.asked(DEPTH, value)
        knowledge.answered(DEPTH, value)
    knowledge.asked(DEPTH, 30)
    assert not [*knowledge.found(DEPTH, 30)], "it was not answered"
    assert [*knowledge.found(DEPTH, 20)], "and is in force since it was found"
    knowledge.asked(WINDOW, "1h0m0s")
    assert not [*knowledge.found(WINDOW, None)]
