"""
Dead letters and redrive against a model, through random histories with crashes: every message that a consumer has not
finished is in exactly one place, its channel or the channel of dead letters. Two topics have one dead-letter topic: no
letter returns to the other one.

A crash may bring back what was finished after the last save; it may not lose anything, and not make two of one.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqtw.core.channel import Channel
from nsqtw.core.policy.redrive import Finishing, Redrive
from nsqtw.core.segment import BODY_AT, Segment, id_of
from nsqtw.errors import BackendError
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Reader
from tests.core.policy.harness import FailingCommits, settle

TIMEOUT = 61.0
SOURCES = ("t", "u")
LETTERS = "t.dead"
PLACES = (*SOURCES, LETTERS)
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
        if cursor.priorities is None or cursor.priorities.waits(segment, index)
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
        self.published: dict[bytes, str] = {}
        """The topic of each message."""
        self.finished: set[bytes] = set()
        """In `c` or among the dead letters, ever."""
        self.finished_and_saved: set[bytes] = set()
        self.seen_by_other: set[bytes] = set()
        self.readers: list[Reader] = []
        self.redrive: Redrive | None = None
        self.to_finish = b""
        """The letter that `redrive` finishes, if it is one that finishes one."""

    @initialize(
        durability=st.sampled_from(["os", "fsync"]),
        page_rows=st.sampled_from([1, 2, 1024]),
        max_attempts=st.integers(1, 3),
        requeues=st.booleans(),
        letters=st.sampled_from([{}, {"ordered_by": "header:key"}, {"priority": True}]),
    )
    def choose(
        self, durability: str, page_rows: int, max_attempts: int, requeues: bool, letters: dict[str, object]
    ) -> None:
        self.core = BrokerHarness(page_rows, durability=durability, requeue_on_disconnect=requeues)
        self.max_attempts = max_attempts
        self.letters, self.bounds = letters, dict.fromkeys(PLACES, 0)
        self.core.channel("other")
        self.core.channel("c", LETTERS)
        self._follow()
        self.core.save()

    def _follow(self) -> None:
        for topic in SOURCES:
            given = {"max_attempts": self.max_attempts, "dead_letter_topic": LETTERS, "max_depth": self.bounds[topic]}
            self.core.channel("c", topic).policies.set(given)
        self.core.channel("c", LETTERS).policies.set({**self.letters, "max_depth": self.bounds[LETTERS]})

    @rule(place=st.sampled_from(PLACES), bound=st.sampled_from([0, 1, 3]))
    def bound(self, place: str, bound: int) -> None:
        self.bounds[place] = bound
        self._follow()

    @rule(topic=st.sampled_from(SOURCES), count=st.integers(1, 4), key=st.sampled_from("ab"))
    def publish(self, topic: str, count: int, key: str) -> None:
        self.bounds[topic] = 0
        self._follow()
        bodies = [b"%d" % (len(self.published) + number) for number in range(count)]
        headers = encode_headers({"key": key, "priority": "high" if key == "a" else "low"})
        assert self.core.put(*bodies, topic=topic, headers=[headers] * count) == []
        self._land_all()
        self.published |= dict.fromkeys(bodies, topic)

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

    @rule(topic=st.sampled_from(SOURCES), count=st.integers(1, 4), key=st.sampled_from("ab"), steps=st.integers(0, 8))
    def fail(self, topic: str, count: int, key: str, steps: int) -> None:
        """Messages fail as often as they may, and some steps follow."""
        self.publish(topic, count, key)
        reader = self.core.reader(topic=topic, ready=count)
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

    @rule(name=st.sampled_from(SOURCES), limit=st.integers(0, 3), steps=st.integers(0, 8))
    def begin_redrive(self, name: str, limit: int, steps: int) -> None:
        dead = self.core.topic(LETTERS)
        if self.redrive is None or self.redrive.state != "running":
            topic = self.core.topic(name)
            self.redrive = Redrive(topic, topic.channels["c"], dead, dead.channels["c"], 0, limit, self.core.now)
            settle(self.core, steps)

    @rule(name=st.sampled_from((*SOURCES, "")), number=st.integers(0, 12), steps=st.integers(0, 8))
    def begin_with_one(self, name: str, number: int, steps: int) -> None:
        """One letter is put back to a topic, or finished; it may be one of the other topic, or not be there."""
        dead, now = self.core.topic(LETTERS), self.core.now
        if self.redrive is not None and self.redrive.state == "running":
            return
        letters, only = dead.channels["c"], id_of(self.core.broker.node_id, number)
        if name:
            topic = self.core.topic(name)
            self.redrive = Redrive(topic, topic.channels["c"], dead, letters, 0, 0, now, only, lambda: None)
        else:
            record = dead.log.find(number) if number < dead.released else None
            self.to_finish = b"" if record is None else body_at(*record)
            self.redrive = Finishing(dead, letters, only, now, lambda: None)
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
        held = {topic: {*self.core.channel("c", topic).held} for topic in SOURCES}
        self.crash()
        for topic in SOURCES:
            channel = self.core.channel("c", topic)
            assert channel.cursor is not None
            rows = channel.cursor.pending_rows(self.core.now, deferred=False, limit=TOO_MANY)
            assert {row.sequence for row in rows} & held[topic] <= {*channel.held}

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
                found = unfinished(topic.channels["c"], self.core.now)
                assert name == LETTERS or {self.published[body] for body in found} <= {name}
                copies.update(found)
        return copies

    @invariant()
    def each_message_is_in_one_place(self) -> None:
        if isinstance(self.redrive, Finishing) and self.redrive.redriven:
            self.finished.add(self.to_finish)
        copies = self._copies()
        assert not [body for body, count in copies.items() if count > 1]
        assert copies.keys() == self.published.keys() - self.finished

    def teardown(self) -> None:
        """All of it arrives: nothing stays on its way."""
        self._land_all()
        for reader in self.readers:
            reader.leave()
        if "c" not in self.core.topic().channels:
            return  # nothing was begun
        self.bounds = dict.fromkeys(PLACES, 0)
        self._follow()
        for _ in range(3):
            self.core.wait(TIMEOUT)
            settle(self.core, 24)
        self.each_message_is_in_one_place()
        for place in PLACES:
            assert (self.core.channel("c", place).held, self.core.channel("c", place).held_count) == ([], 0)
        assert self.redrive is None or self.redrive.state != "running"


Histories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDeadLetterHistories = Histories.TestCase
