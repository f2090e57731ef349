"""
SIGKILL at random moments, and a SIGTERM at last, under publishers and consumers that keep a journal.

What is checked is the promise of class `os`: everything that was answered with OK is delivered until somebody
finishes it, and nothing is delivered that was never sent. A message may be delivered more than once.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from threading import Thread

import pytest

from tests.crash.conftest import Start
from tests.process import NsqdProcess, wait_until
from tests.wire import Closed, Message

DEATHS = [*5 * [NsqdProcess.kill], NsqdProcess.stop]
CHANNELS = ("a", "b")
READY = 50
MOST_KEPT = 20
"""Messages a consumer leaves unanswered at a time; fewer than it is ready for, so that it always gets more."""


class Journal:
    """What is known outside the broker. Each entry is made by one thread only."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.delivered: dict[str, set[bytes]] = defaultdict(set)
        self.finished: dict[str, set[bytes]] = defaultdict(set)

    def await_acknowledged(self, count: int) -> None:
        """Wait until so many are, and more."""
        wait_until(lambda: len(self.acknowledged) > count, "publishes are answered")


def publish_until_death(nsqd: NsqdProcess, journal: Journal, seed: str) -> None:
    """One, many or a deferred one at a time; acknowledged is what was answered."""
    chance = random.Random(seed)
    with nsqd.client() as producer:
        for turn in range(1_000_000):
            bodies = [b"%s.%d.%d" % (seed.encode(), turn, number) for number in range(chance.choice((1, 1, 1, 1, 20)))]
            journal.sent.update(bodies)
            if len(bodies) > 1:
                producer.mpub("t", bodies)
            elif chance.random() < 0.2:
                producer.dpub("t", chance.randrange(200), bodies[0])
            else:
                producer.pub("t", bodies[0])
            journal.acknowledged.update(bodies)


def consume_until_death(nsqd: NsqdProcess, journal: Journal, channel: str, seed: str) -> None:
    """Finish most, requeue some at once or for later, keep some until they are too many."""
    chance = random.Random(seed)
    kept: list[Message] = []
    with nsqd.client() as consumer:
        consumer.sub("t", channel, ready=READY)
        while True:
            message = consumer.message()
            journal.delivered[channel].add(message.body)
            fate = chance.random()
            if fate < 0.1:
                consumer.req(message, chance.choice((0, 0, 50, 500)))
            elif fate < 0.2:
                kept.append(message)
            else:
                consumer.fin([message])
                journal.finished[channel].add(message.body)
            if len(kept) > MOST_KEPT:
                consumer.fin(kept)
                journal.finished[channel].update(message.body for message in kept)
                kept.clear()


def in_thread(work: Callable[..., None], *arguments: object) -> Thread:
    """Does `work` until the broker is gone."""

    def run() -> None:
        try:
            work(*arguments)
        except (Closed, OSError):
            return

    thread = Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("seed", "flags"), [(1, []), (2, ["--max-bytes-per-file=65536"])], ids=["default flags", "many small files"]
)
def test_what_was_acknowledged_is_delivered_until_it_is_finished(start: Start, seed: int, flags: list[str]) -> None:
    nsqd = start(*flags)
    chance = random.Random(seed)
    journal = Journal()
    nsqd.create("t", *CHANNELS)
    for number, die in enumerate(DEATHS):
        threads = [in_thread(publish_until_death, nsqd, journal, f"{seed}.{number}.{one}") for one in range(2)]
        threads += [
            in_thread(consume_until_death, nsqd, journal, channel, f"{seed}.{number}.{channel}") for channel in CHANNELS
        ]
        journal.await_acknowledged(len(journal.acknowledged) + chance.randrange(200, 1500))
        die(nsqd)
        for thread in threads:
            thread.join()
        nsqd.start()
    for channel in CHANNELS:
        left = {message.body for message in nsqd.drain("t", channel, sum(nsqd.counts("t", channel)))}
        assert not journal.acknowledged - journal.finished[channel] - left, "lost"
        assert not (journal.delivered[channel] | left) - journal.sent, "never sent"
    assert "are lost" not in nsqd.said()
