"""
Every place in which a message can be keeps its meaning over a restart, a migration to another backend, and a restore.

A place is a generator: it puts messages there, yields while the broker is stopped or killed and started again, and then
checks what the next process has of them. `kill` is a second after the last change, and kills that process, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsqtw.core.channel import Channel
from nsqtw.core.policy.redrive import Redrive
from nsqtw.message_headers import encode_headers
from tests.core.harness import Reader
from tests.core.policy.harness import FailingCommits, bodies, fail, put, retry, settle
from tests.core.stored_harness import StoredHarness

Situation = Callable[[StoredHarness], Iterator[None]]
PLACES: dict[str, Situation] = {}
PAGE_ROWS = 2
"""So few that a handful of deferred messages is partly in positions.db only."""


def place(function: Situation) -> Situation:
    PLACES[function.__name__] = function
    return function


def read(core: StoredHarness, topic: str = "t", channel: str = "c") -> list[tuple[bytes, int]]:
    """What a new consumer gets, with the attempts. It goes again, and its messages stay in flight."""
    reader = core.reader(channel, topic)
    settle(core)
    found = [(message.body, message.attempts) for message in reader.read()]
    reader.leave()
    return found


def in_flight(core: StoredHarness, *messages: bytes) -> Reader:
    core.channel()
    put(core, *messages)
    reader = core.reader()
    assert reader.bodies() == [*messages]
    return reader


def counts(channel: Channel) -> tuple[int, int, int]:
    return channel.depth, channel.deferred_count, channel.held_count


def requeue(reader: Reader, number: int, delay: float = 0.0) -> None:
    """Requeue one of what a reader has in flight."""
    reader.requeue([message_id for message_id, _ in reader.consumer.in_flight.items()][number], delay)


def fill_dead_letter_topic(core: StoredHarness) -> None:
    core.channel("c", "t.dead").policies.set({"max_depth": 1})
    put(core, b"fill", topic="t.dead")


def make_room(core: StoredHarness) -> None:
    core.channel("c", "t.dead").policies.set({})
    retry(core)
    retry(core)


# -- in the log


@place
def unread(core: StoredHarness) -> Iterator[None]:
    core.channel()
    put(core, b"1", b"2")
    yield
    assert counts(core.channel()) == (2, 0, 0)
    assert read(core) == [(b"1", 1), (b"2", 1)]


@place
def published_to_a_topic_without_a_channel(core: StoredHarness) -> Iterator[None]:
    put(core, b"1")
    yield
    assert core.topic().depth == 1
    assert read(core) == [(b"1", 1)]


@place
def in_a_paused_topic(core: StoredHarness) -> Iterator[None]:
    core.channel(), core.channel("d")
    core.topic().pause()
    put(core, b"1")
    core.put(b"later", delay_ms=60_000)
    core.put(b"for d", channel="d")
    core.turn()
    before = core.topic().depth
    yield
    assert (core.topic().depth, read(core), read(core, channel="d")) == (before, [], [])
    core.topic().unpause(core.now)
    assert (read(core), read(core, channel="d")) == ([(b"1", 1)], [(b"1", 1), (b"for d", 1)])
    core.wait(61.0)
    assert (b"later", 1) in read(core)


@place
def in_a_paused_channel(core: StoredHarness) -> Iterator[None]:
    core.channel().pause()
    put(core, b"1")
    yield
    assert (counts(core.channel()), read(core)) == ((1, 0, 0), [])
    core.channel().unpause()
    assert read(core) == [(b"1", 1)]


@place
def behind_the_position_of_its_class(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"priority": True})
    for body, priority in ((b"l", "low"), (b"n", "normal"), (b"h", "high"), (b"l2", "low")):
        put(core, body, priority=priority)
    reader = core.reader(ready=2)
    got = reader.read()
    reader.finish(*[message.id for message in got])
    reader.leave()
    before = core.channel().class_depths
    rest = {b"l", b"n", b"h", b"l2"} - {message.body for message in got}
    assert len(rest) == 2
    yield
    settle(core)
    assert core.channel().class_depths == before
    assert {*read(core)} == {(body, 1) for body in rest}


@place
def directed_to_another_channel(core: StoredHarness) -> Iterator[None]:
    core.channel("c"), core.channel("d")
    core.put(b"for d", channel="d")
    core.turn()
    yield
    assert (core.channel().depth, core.channel("d").depth) == (0, 1)
    assert (read(core), read(core, channel="d")) == ([], [(b"for d", 1)])


@place
def taken_again_after_a_seek(core: StoredHarness) -> Iterator[None]:
    reader = in_flight(core, b"1", b"2")
    reader.finish(*[message_id for message_id, _ in reader.consumer.in_flight.items()])
    reader.leave()
    core.put(b"later", delay_ms=60_000)
    core.turn()
    core.channel().seek(core.topic().reader.kept_from)
    yield
    assert read(core) == [(b"1", 1), (b"2", 1)]
    core.wait(61.0)
    assert (b"later", 1) in read(core)


@place
def finished(core: StoredHarness) -> Iterator[None]:
    reader = in_flight(core, b"1", b"2", b"3")
    reader.finish(*[message_id for message_id, _ in reader.consumer.in_flight.items()][1:])
    reader.leave()
    yield
    assert read(core) == [(b"1", 2)]


# -- in flight


@place
def in_flight_at_a_consumer(core: StoredHarness) -> Iterator[None]:
    in_flight(core, b"1", b"2")
    put(core, b"3", b"4", topic="t")
    core.channel().consumers[0].ready_count = 0
    yield
    assert core.channel().depth == 4
    assert [(body, attempts) for body, attempts in read(core) if attempts == 2][:2] == [(b"1", 2), (b"2", 2)]


@place
def in_flight_at_a_departed_consumer(core: StoredHarness) -> Iterator[None]:
    in_flight(core, b"1").leave()
    assert core.channel().former_consumers
    yield
    assert read(core) == [(b"1", 2)]


@place
def in_flight_again(core: StoredHarness) -> Iterator[None]:
    reader = in_flight(core, b"1")
    requeue(reader, 0)
    assert reader.bodies() == [b"1"]
    yield
    assert read(core) == [(b"1", 3)]


@place
def in_flight_on_its_last_delivery(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 2})
    reader = in_flight(core, b"1")
    requeue(reader, 0)
    assert reader.bodies() == [b"1"]
    put(core, b"2")
    assert reader.bodies() == [b"2"]
    core.channel().policies.set({"max_attempts": 1})
    yield
    assert {*read(core)} == {(b"1", 3), (b"2", 2)}
    core.wait(61.0)
    settle(core)
    assert (read(core), sorted(bodies(core, "t.dead"))) == ([], [b"1", b"2"])


@place
def gathered_in_flight_and_set_aside_for_its_key(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"ordered_by": "header:key"})
    headers = [encode_headers({"key": key}) for key in "aaba"]
    core.put(b"a1", b"a2", b"b1", b"a3", headers=headers)
    reader = core.reader()
    assert reader.bodies() == [b"a1", b"b1"]
    yield
    reader = core.reader()
    settle(core)
    first = reader.read()
    assert sorted((message.body, message.attempts) for message in first) == [(b"a1", 2), (b"b1", 2)]
    reader.finish(*[message.id for message in first])
    (second,) = reader.read()
    assert (second.body, second.attempts) == (b"a2", 1)
    reader.finish(second.id)
    assert reader.bodies() == [b"a3"]


@place
def at_the_head_of_its_key(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"ordered_by": "header:key"})
    core.put(b"a1", b"a2", headers=[encode_headers({"key": "a"})] * 2)
    reader = core.reader()
    assert reader.bodies() == [b"a1"]
    requeue(reader, 0, 30.0)
    assert reader.bodies() == []
    yield
    assert (read(core), core.channel().depth) == ([], 1)
    core.wait(31.0)
    assert read(core) == [(b"a1", 2)]


# -- pending


@place
def requeued(core: StoredHarness) -> Iterator[None]:
    reader = in_flight(core, b"1", b"2")
    requeue(reader, 1)
    requeue(reader, 0)
    reader.leave()
    yield
    assert counts(core.channel()) == (2, 0, 0)
    assert {*read(core)} == {(b"1", 2), (b"2", 2)}


@place
def deferred_by_its_publisher(core: StoredHarness) -> Iterator[None]:
    core.channel()
    for number in range(4 * PAGE_ROWS):
        core.put(b"%d" % number, delay_ms=1000 * (number + 1))
    core.put(*[b"run"] * 5 * PAGE_ROWS, delay_ms=60_000)
    core.turn()
    yield
    assert counts(core.channel()) == (0, 9 * PAGE_ROWS, 0)
    assert read(core) == []
    core.wait(3.5)
    assert read(core) == [(b"0", 1), (b"1", 1), (b"2", 1)]
    core.wait(30.0)
    assert len(read(core)) == 4 * PAGE_ROWS - 3
    core.wait(27.5)
    assert read(core)[-5 * PAGE_ROWS :] == [(b"run", 1)] * 5 * PAGE_ROWS


@place
def deferred_by_its_consumer(core: StoredHarness) -> Iterator[None]:
    names = [b"%d" % number for number in range(4 * PAGE_ROWS)]
    reader = in_flight(core, *names)
    for number in range(4 * PAGE_ROWS):
        requeue(reader, 0, 10.0 * (number + 1))
    reader.leave()
    yield
    assert counts(core.channel()) == (0, 4 * PAGE_ROWS, 0)
    assert read(core) == []
    core.wait(21.0)
    assert read(core) == [(b"0", 2), (b"1", 2)]
    core.wait(10.0 * 4 * PAGE_ROWS)
    assert {*names[2:]} <= {body for body, _ in read(core)}


@place
def deferred_by_the_policy(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"requeue_delay": 30.0})
    reader = in_flight(core, b"1")
    requeue(reader, 0)
    reader.leave()
    yield
    assert (counts(core.channel()), read(core)) == ((0, 1, 0), [])
    core.wait(37.0)
    assert read(core) == [(b"1", 2)]


@place
def deferred_and_due(core: StoredHarness) -> Iterator[None]:
    core.channel()
    core.put(*[b"m"] * 5 * PAGE_ROWS, delay_ms=1000)
    core.turn()
    core.wait(2.0)
    assert counts(core.channel()) == (5 * PAGE_ROWS, 0, 0)
    yield
    assert counts(core.channel()) == (5 * PAGE_ROWS, 0, 0)
    assert read(core) == [(b"m", 1)] * 5 * PAGE_ROWS


# -- on the way to another topic


@place
def held(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 1, "max_depth": 1, "overflow": "drop_oldest"})
    fill_dead_letter_topic(core)
    reader = in_flight(core, b"1")
    requeue(reader, 0)
    reader.leave()
    settle(core)
    put(core, b"2")
    yield
    channel = core.channel()
    assert (counts(channel), channel.waiting_count, channel.dropped_count) == ((2, 0, 1), 1, 0)
    assert read(core) == [(b"2", 1)]
    make_room(core)
    assert bodies(core, "t.dead") == [b"fill", b"1"]


@place
def held_since_it_expired(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"expired": "dead_letter"})
    fill_dead_letter_topic(core)
    put(core, b"1", ttl="1000")
    core.wait(2.0)
    assert read(core) == []
    settle(core)
    yield
    assert (counts(core.channel()), core.channel().expired_count) == ((1, 0, 1), 0)
    make_room(core)
    assert bodies(core, "t.dead") == [b"fill", b"1"]


@place
def in_a_batch_that_is_saved(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 1})
    reader = in_flight(core, b"1", b"2")
    fail_all(reader)
    reader.leave()
    core.turn()
    assert core.broker.checkpointer.are_waited_for
    yield
    settle(core)
    assert (bodies(core, "t.dead"), read(core)) == ([b"1", b"2"], [])


@place
def in_a_batch_that_cannot_be_stored(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 1})
    core.channel("c", "t.dead")
    reader = in_flight(core, b"1", b"2")
    with FailingCommits(core, "t.dead"):
        fail_all(reader)
        reader.leave()
        settle(core)
    yield
    settle(core)
    assert (bodies(core, "t.dead"), read(core)) == ([b"1", b"2"], [])


@place
def left_for_the_dead_letter_topic(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 1})
    reader = in_flight(core, b"1")
    fail_all(reader)
    reader.leave()
    settle(core)
    yield
    settle(core)
    assert (bodies(core, "t.dead"), read(core), read(core, "t.dead")) == ([b"1"], [], [(b"1", 1)])


def fail_all(reader: Reader) -> None:
    for message_id in [message_id for message_id, _ in reader.consumer.in_flight.items()]:
        reader.requeue(message_id)


@place
def withheld_by_a_redrive(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 1})
    put(core, b"letter")
    fail(core.reader())
    settle(core)
    put(core, b"stranger", topic="t.dead")
    topic, dead = core.topic(), core.topic("t.dead")
    topic.channels["c"].policies.set({"max_attempts": 1, "max_depth": 1})
    core.channel().consumers[0].ready_count = 0
    put(core, b"fill")
    Redrive(topic, topic.channels["c"], dead, dead.channels["c"], 0, 0, core.now)
    settle(core)
    core.wait(0.1)
    settle(core)
    assert core.channel("c", "t.dead").withheld
    yield
    assert counts(core.channel("c", "t.dead")) == (2, 0, 0)
    letters = dict(read(core, "t.dead"))
    assert letters[b"stranger"] == 1
    assert letters[b"letter"] == 2  # it was in flight to the redrive
    assert read(core) == [(b"fill", 1)]


# -- gone


@place
def dropped_by_emptying(core: StoredHarness) -> Iterator[None]:
    core.channel()
    core.topic().pause()
    put(core, b"1")
    core.topic().empty()
    put(core, b"2")
    core.topic().unpause(core.now)
    in_channel = core.channel("d")
    in_channel.empty()
    put(core, b"3")
    yield
    assert (read(core), read(core, channel="d")) == ([(b"2", 1), (b"3", 1)], [(b"3", 1)])


@place
def dropped_by_a_bound(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_depth": 2, "overflow": "drop_oldest"})
    for number in range(5):
        put(core, b"%d" % number)
    settle(core)
    yield
    settle(core)
    assert read(core) == [(b"3", 1), (b"4", 1)]


@place
def expired(core: StoredHarness) -> Iterator[None]:
    core.channel()
    put(core, b"1", ttl="1000")
    put(core, b"2", ttl="100000")
    core.wait(2.0)
    yield
    assert read(core) == [(b"2", 1)]


@place
def cancelled(core: StoredHarness) -> Iterator[None]:
    core.channel()
    core.put(b"1", b"2", delay_ms=1000)
    core.turn()
    core.topic().cancel(core.topic().released - 2, core.now)
    yield
    core.wait(2.0)
    assert read(core) == [(b"2", 1)]


@place
def cancelled_before_its_release(core: StoredHarness) -> Iterator[None]:
    core.channel()
    core.topic().pause()
    core.put(b"1", b"2", b"3", delay_ms=1000)
    core.turn()
    assert core.topic().cancel(core.topic().log.end - 2, core.now) is not None
    yield
    assert core.topic().depth == 2
    core.topic().unpause(core.now)
    core.wait(2.0)
    assert read(core) == [(b"1", 1), (b"3", 1)]


@place
def held_and_dropped(core: StoredHarness) -> Iterator[None]:
    core.channel().policies.set({"max_attempts": 1})
    fill_dead_letter_topic(core)
    fail_all(in_flight(core, b"1"))
    settle(core)
    core.channel().empty()
    yield
    assert counts(core.channel()) == (0, 0, 0)
    make_room(core)
    assert (bodies(core, "t.dead"), read(core)) == ([b"fill"], [])


@place
def in_an_ephemeral_channel(core: StoredHarness) -> Iterator[None]:
    core.channel("e#ephemeral"), core.channel()
    put(core, b"1")
    yield
    assert (read(core, channel="e#ephemeral"), read(core)) == ([], [(b"1", 1)])


HISTORIES = pytest.mark.histories
"""Of the 256 cases `make test-fast` has 64."""


@pytest.mark.parametrize(
    "restart", ["stop", "kill", *(pytest.param(one, marks=HISTORIES) for one in ("migrate", "restore"))]
)
@pytest.mark.parametrize("backend", ["disk", pytest.param("sqlite", marks=HISTORIES)])
@pytest.mark.parametrize("name", [*PLACES])
def test_a_place_keeps_its_meaning(tmp_path: Path, name: str, backend: str, restart: str) -> None:
    core = StoredHarness(tmp_path, backend, PAGE_ROWS, retention_time=3600.0)
    try:
        history = PLACES[name](core)
        next(history)
        if restart == "kill":
            core.save()
            core.crash()
            core.crash()
        else:
            {"stop": core.stop_and_start, "migrate": core.migrate, "restore": core.restore_backup}[restart]()
        assert next(history, "end") == "end"
    finally:
        core.close()
