"""Holds on the files of a broker: nothing is trimmed while there is one."""

from __future__ import annotations

from nsqtw.core.file_hold import FileHold
from nsqtw.core.timers import TimerQueue
from tests.core.harness import BrokerHarness


class Holds:
    """Holds in time that the test owns."""

    def __init__(self) -> None:
        self.released = 0
        self.timers = TimerQueue(lambda: None)
        self.file_hold = FileHold(self.timers, self._release)

    def _release(self) -> None:
        self.released += 1


def test_a_hold_ends_when_it_is_told_to() -> None:
    holds = Holds()
    number = holds.file_hold.begin(0.0, 60.0)
    assert holds.file_hold.is_on
    assert holds.file_hold.end(number) and not holds.file_hold.end(number)
    assert (holds.file_hold.is_on, holds.released) == (False, 1)
    holds.timers.run(100.0)
    assert holds.released == 1


def test_a_hold_ends_by_itself() -> None:
    holds = Holds()
    number = holds.file_hold.begin(0.0, 60.0)
    holds.timers.run(30.0)
    assert holds.file_hold.extend(number, 30.0, 60.0)
    holds.timers.run(60.0)
    assert holds.file_hold.is_on
    holds.timers.run(90.0)
    assert (holds.file_hold.is_on, holds.released) == (False, 1)
    assert not holds.file_hold.extend(number, 90.0, 60.0), "it was too late"


def test_a_hold_after_another() -> None:
    holds = Holds()
    holds.file_hold.end(holds.file_hold.begin(0.0, 60.0))
    holds.file_hold.begin(10.0, 60.0)
    holds.timers.run(60.0)
    assert holds.file_hold.is_on
    holds.timers.run(70.0)
    assert (holds.file_hold.is_on, holds.released) == (False, 2)


def test_of_two_holds_the_last_one_counts() -> None:
    holds = Holds()
    first, second = holds.file_hold.begin(0.0, 10.0), holds.file_hold.begin(0.0, 20.0)
    assert first != second
    holds.timers.run(10.0)
    assert (holds.file_hold.is_on, holds.released) == (True, 0)
    holds.timers.run(20.0)
    assert (holds.file_hold.is_on, holds.released) == (False, 1)


def test_the_numbers_of_holds_follow_a_random_one() -> None:
    """A backup that goes on after a restart of the broker does not take the hold of another one for its own."""
    first = FileHold(TimerQueue(lambda: None), lambda: None, lambda below: 7)
    second = FileHold(TimerQueue(lambda: None), lambda: None, lambda below: 700)
    assert [first.begin(0.0, 60.0), first.begin(0.0, 60.0)] == [8, 9]
    assert second.begin(0.0, 60.0) == 701
    assert not second.extend(8, 0.0, 60.0)


def test_what_was_held_is_trimmed_afterwards() -> None:
    one = BrokerHarness()
    one.topic()
    one.channel()
    one.save()
    hold = one.broker.checkpointer.file_hold.begin(one.now, 60.0)
    one.put(b"a", b"b")
    reader = one.reader(ready=10)
    reader.finish(*(message.id for message in reader.read()))
    save = one.begin_save()
    assert save.trims == []
    one.broker.checkpointer.end(save, None)
    assert one.broker.checkpointer.begin(one.now).trims == [], "nothing has changed since"
    one.broker.checkpointer.file_hold.end(hold)
    trims = one.begin_save().trims
    assert [name for name, _, _ in trims] == [one.topic().name]


def test_a_checkpoint_during_a_hold_knows_no_message_that_is_not_stored() -> None:
    """Also in class memory: what is copied after positions.db has all that it knows."""
    one = BrokerHarness(durability="memory")
    channel = one.channel()
    one.save()
    one.put(b"a", b"b")
    assert one.reader(ready=1).bodies() == [b"a"]
    queue = one.topic().log.queue
    one.begin_save()
    assert queue.size == 0, "no hold: it is stored later"
    one.broker.checkpointer.file_hold.begin(one.now, 60.0)
    one.put(b"c")
    (state,) = one.begin_save().checkpoint.topics
    assert queue.end >= state.end
    assert channel.depth == 2


def test_a_topic_that_is_deleted_during_a_hold() -> None:
    one = BrokerHarness()
    one.topic()
    hold = one.broker.checkpointer.file_hold.begin(one.now, 60.0)
    one.save()
    one.broker.delete_topic(one.topic().name)
    one.save()
    one.broker.checkpointer.file_hold.end(hold)
    assert one.begin_save().trims == []
