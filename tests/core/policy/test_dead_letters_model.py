"""
Dead letters and redrive against a model, through random histories with crashes: every message that a consumer has not
finished is in exactly one place, its channel or the channel of dead letters.

A crash may bring back what was finished after the last save; it may not lose anything, and not make two of one.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqtw.core.channel import Channel
from nsqtw.core.policy.redrive import Redrive
from nsqtw.core.segment import BODY_AT, Segment
from nsqtw.errors import BackendError
from tests.core.harness import BrokerHarness, Reader
from tests.core.policy.harness import FailingCommits, settle

TIMEOUT = 61.0
PLACES = ("t", "t.dead")
TOO_MANY = 10_000


def body_at(segment: Segment, index: int) -> bytes:
    return segment.slice(index, index + 1)[BODY_AT:]


def unfinished(channel: Channel, now: float) -> list[bytes]:
    """All messages that a channel has: unread, pending and in flight for the first time."""
    cursor, topic = channel.cursor, channel.topic
    assert cursor is not None
    found = [
        body_at(segment, index)
        for segment in topic.reader.segments(cursor.next, topic.released)
        if segment.is_for(channel.name)
        for index in range(segment.count)
    ]
    sequences = channel.first_deliveries()
    for deferred in (False, True):
        sequences += [row.sequence for row in cursor.pending_rows(now, deferred=deferred, limit=TOO_MANY)]
    for sequence in sequences:
        record = topic.log.find(sequence)
        assert record is not None, sequence
        found.append(body_at(*record))
    return found


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.core = BrokerHarness()
        self.published: list[bytes] = []
        self.finished: set[bytes] = set()
        """In `c` or among the dead letters, ever."""
        self.finished_and_saved: set[bytes] = set()
        self.seen_by_other: set[bytes] = set()
        self.readers: list[Reader] = []
        self.redrive: Redrive | None = None

    @initialize(
        durability=st.sampled_from(["os", "fsync"]),
        page_rows=st.sampled_from([1, 2, 1024]),
        max_attempts=st.integers(1, 3),
        requeues=st.booleans(),
    )
    def choose(self, durability: str, page_rows: int, max_attempts: int, requeues: bool) -> None:
        self.core = BrokerHarness(page_rows, durability=durability, requeue_on_disconnect=requeues)
        self.max_attempts = max_attempts
        self.core.channel("other")
        self._follow()
        self.core.save()

    def _follow(self) -> None:
        self.core.channel("c").set_policy({"max_attempts": self.max_attempts})

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        bodies = [b"%d" % (len(self.published) + number) for number in range(count)]
        assert self.core.put(*bodies)[0:] == []
        self._land_all()
        self.published += bodies

    def _land_all(self) -> None:
        self.core.lands_at_once = True
        if self.core.batch is not None:
            self.core.land()
        self.core.turn()

    # -- consumers

    @rule(topic=st.sampled_from(PLACES), ready=st.integers(1, 5))
    def subscribe(self, topic: str, ready: int) -> None:
        if topic in self.core.broker.topics and len(self.readers) < 2:
            self.readers.append(self.core.reader("c", topic, ready=ready))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), action=st.sampled_from(["finish", "requeue", "defer", "leave"]))
    def act(self, data: st.DataObject, action: str) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        if action == "leave":
            reader.leave()
            self.readers.remove(reader)
            return
        reader.read()
        held = {message_id: None for message_id, _ in reader.consumer.in_flight.items()}
        for message_id in list(held)[: data.draw(st.integers(1, 3))]:
            if action == "finish":
                record = reader.channel.topic.log.find(int(message_id, 16) & ((1 << 53) - 1))
                assert record is not None
                assert reader.finish(message_id) == []
                self.finished.add(body_at(*record))
            else:
                assert reader.requeue(message_id, 5.0 if action == "defer" else 0.0) is None

    @rule(count=st.integers(1, 4), steps=st.integers(0, 8))
    def fail(self, count: int, steps: int) -> None:
        """Messages fail as often as they may, and some steps follow."""
        self.publish(count)
        reader = self.core.reader(ready=count)
        for _ in range(self.max_attempts):
            for message in reader.read():
                reader.requeue(message.id)
        reader.leave()
        settle(self.core, steps)

    @rule()
    def read_as_other(self) -> None:
        """Another channel gets what was published, and nothing of what returns."""
        reader = self.core.reader("other")
        got = reader.read()
        reader.finish(*[message.id for message in got])
        reader.leave()
        bodies = {message.body for message in got}
        assert len(bodies) == len(got)
        assert not bodies & self.seen_by_other
        self.seen_by_other |= bodies

    @rule(seconds=st.sampled_from([0.1, 1.0, TIMEOUT]))
    def wait(self, seconds: float) -> None:
        self.core.wait(seconds)

    # -- what moves messages

    @rule(steps=st.integers(1, 8))
    def settle(self, steps: int) -> None:
        settle(self.core, steps)

    @rule(limit=st.integers(0, 3), steps=st.integers(0, 8))
    def begin_redrive(self, limit: int, steps: int) -> None:
        dead = self.core.broker.topics.get("t.dead")
        if dead is not None and "c" in dead.channels and (self.redrive is None or self.redrive.state != "running"):
            topic = self.core.topic()
            self.redrive = Redrive(topic, topic.channels["c"], dead, dead.channels["c"], 0, limit, self.core.now)
            settle(self.core, steps)

    @precondition(lambda self: self.redrive is not None)
    @rule()
    def stop_redrive(self) -> None:
        assert self.redrive is not None
        self.redrive.stop()

    @rule(topic=st.sampled_from(PLACES), steps=st.integers(1, 8))
    def settle_while_commits_fail(self, topic: str, steps: int) -> None:
        self._land_all()
        with FailingCommits(self.core, topic):
            settle(self.core, steps)
            self.core.wait(1.0)
            settle(self.core, steps)
            self._land_all()

    @rule(steps=st.integers(1, 8))
    def settle_while_commits_take_long(self, steps: int) -> None:
        self.core.lands_at_once = False
        settle(self.core, steps)

    @rule()
    def land(self) -> None:
        self._land_all()

    # -- saving and dying

    @rule()
    def save(self) -> None:
        self.core.save()
        self.finished_and_saved = set(self.finished)

    @rule()
    def save_fails(self) -> None:
        self.core.save(BackendError("no space"))

    @rule()
    def crash(self) -> None:
        self.readers, self.redrive, self.seen_by_other = [], None, set()
        self.core.batch = None
        self.core.lands_at_once = True
        self.core.crash()
        self._follow()
        # What was not saved as finished may be back, or not.
        self.finished -= {body for body in self.finished - self.finished_and_saved if body in self._copies()}

    @rule()
    def crash_when_saved(self) -> None:
        """Nobody was told that it is."""
        save = self.core.begin_save()
        self.core.positions.save(save.checkpoint)
        self.finished_and_saved = set(self.finished)
        self.crash()

    @precondition(lambda self: self.core.batch is not None)
    @rule()
    def crash_when_committed(self) -> None:
        """The commit is stored, and its end was not noticed."""
        assert self.core.batch is not None
        self.core.batch.commit(self.core.log)
        self.crash()

    # -- the model

    def _copies(self) -> Counter[bytes]:
        copies: Counter[bytes] = Counter()
        for name in PLACES:
            topic = self.core.broker.topics.get(name)
            if topic is not None and "c" in topic.channels:
                copies.update(unfinished(topic.channels["c"], self.core.now))
            elif topic is not None:
                copies.update(body_at(s, index) for s in topic.log.read(0, 1 << 30) for index in range(s.count))
        return copies

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        copies = self._copies()
        assert not [body for body, count in copies.items() if count > 1]
        assert copies.keys() == set(self.published) - self.finished

    def teardown(self) -> None:
        """All of it arrives: nothing stays on its way."""
        self._land_all()
        for reader in self.readers:
            reader.leave()
        for _ in range(3):
            self.core.wait(TIMEOUT)
            settle(self.core, 12)
        self.each_message_is_in_one_place()
        assert self.core.channel("c").leaving == []
        assert self.redrive is None or self.redrive.state != "running"


Histories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDeadLetterHistories = Histories.TestCase
