"""
Policies of several kinds at once, through random histories with crashes.

The model knows of each message, by its body, what was answered to its publisher and how it ended. It does not know in
which order messages come. What it checks are the promises that hold under every policy:

* nothing unfinished disappears by administration, unless the verb says so: `empty`, a move forwards, a bound,
* at most one message of a key is in flight in a channel with an order, and none that was not published is delivered,
* no number is negative, and a message that was finished does not come again, unless a crash or a seek is to blame,
* what counts as ready can be delivered, and a key that messages wait for has a head,
* in the end every message was finished, dropped by a bound, expired, cancelled, or is a dead letter that comes; depth,
  deferred and in flight are 0 then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nsqtw.core import cursor, for_others
from nsqtw.core.channel import Channel
from nsqtw.core.policy import bounds, dead_letters, order
from nsqtw.core.policy import priority as priorities
from nsqtw.core.policy.redrive import RUNNING, Redrive
from nsqtw.core.segment import SEQUENCE_MASK
from nsqtw.errors import BackendError, Overflow
from nsqtw.message_headers import decode_headers, encode_headers
from nsqtw.options.topics import TopicRule
from tests.core.harness import BrokerHarness, Message, Reader, messages
from tests.core.policy.harness import FailingCommits
from tests.core.policy.invariants import check_position

CHANNELS = ("a", "b")
TOPICS = ("t", "t.dead")
POLICIES: list[dict[str, Any]] = [
    {},
    {"max_attempts": 1},
    {"max_attempts": 2, "expired": "dead_letter"},
    {"ordered_by": "header:key"},
    {"ordered_by": "header:key", "order_window": 1, "max_attempts": 1},
    {
        "ordered_by": "header:key",
        "max_attempts": 2,
        "expired": "dead_letter",
        "requeue_delay": 3.0,
        "max_requeue_delay": 20.0,
    },
    {"ordered_by": "header:key", "max_depth": 4, "overflow": "drop_oldest"},
    {"ordered_by": "header:key", "max_bytes": 400, "overflow": "drop_oldest", "max_attempts": 2},
    {"ordered_by": "header:key", "max_age": 40.0, "overflow": "drop_oldest"},
    {"priority": True},
    {"priority": True, "max_attempts": 1, "max_depth": 8},
    {"priority": True, "max_attempts": 2, "max_depth": 4, "overflow": "drop_oldest"},
    {"priority": True, "max_age": 40.0, "overflow": "drop_oldest"},
    {"priority": True, "max_bytes": 400, "max_depth": 8, "overflow": "drop_oldest"},
    {"priority": True, "max_age": 20.0, "max_bytes": 600, "max_attempts": 2},
    {"priority": True, "requeue_delay": 5.0, "max_requeue_delay": 20.0, "max_rate": 20.0},
    {"max_depth": 3},
    {"max_bytes": 300, "max_attempts": 1},
    {"max_depth": 3, "overflow": "drop_oldest", "max_attempts": 2},
    {"max_age": 30.0, "overflow": "drop_oldest", "requeue_delay": 8.0, "max_requeue_delay": 20.0},
    {"requeue_delay": 8.0, "max_requeue_delay": 20.0, "max_attempts": 2},
    {"max_rate": 5.0, "ordered_by": "header:key"},
]
LETTER_POLICIES: list[dict[str, Any]] = [
    {},
    {"max_attempts": 1},
    {"ordered_by": "header:key", "max_attempts": 1},
    {"priority": True},
    {"max_depth": 2},
    {"requeue_delay": 8.0, "max_requeue_delay": 20.0, "max_attempts": 2},
]
KEYS = ["x", "y", ""]
PRIORITIES = ["high", "low", ""]
TTLS = ["", "", "", "", "20000"]
EVENTS = [
    *["publish"] * 6,
    *["answer"] * 12,
    *["wait"] * 4,
    *["settle"] * 3,
    *["save", "subscribe", "leave", "crash", "fail"] * 2,
    *["set_policy", "redrive"] * 2,
    *["set_policy_of_letters", "set_ttl", "pause", "move", "move", "retain", "cancel"],
]
MOVES = ["empty", "end", "oldest", "oldest", "long ago", "message", "message"]
SMALL_LIMITS = [
    (bounds, "_MAX_STEPS", 1),
    (bounds, "_MAX_READS", 1),
    (bounds, "_ROWS", 2),
    (cursor, "_MAX_PASSED_AT_ONCE", 2),
    (dead_letters, "MAX_BATCH", 2),
    (for_others, "_LOOKS", 1),
    (order, "_MAX_GATHERED", 2),
    (order, "_MAX_TAKEN", 4),
    (priorities, "LOOK_BYTES", 1),
]
"""What a turn does at most, so small that everything takes several of them."""
ANSWERS = ["finish", "finish all", "requeue", "requeue", "requeue all", "defer"]
FOR_EVER = 1e9


class Together(RuleBasedStateMachine):
    """One topic with two channels, its dead-letter topic, and a redrive."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.published: dict[bytes, dict[str, str]] = {}
        self.headers: dict[bytes, dict[str, str]] = {}
        """Those of what was delivered, by id."""
        self.sequences: list[tuple[int, bytes]] = []
        self.lost: set[bytes] = set()
        """What was refused."""
        self.dropped: set[tuple[str, bytes]] = set()
        """What a channel need not deliver: it was emptied, moved, or the message was cancelled."""
        self.ended: set[tuple[str, bytes]] = set()
        """Bodies that are finished in a channel, or whose letters are."""
        self.may_repeat = False
        self.readers: dict[int, tuple[str, str, Reader, dict[bytes, Message]]] = {}
        self.redrives: list[Redrive] = []
        self.patch = pytest.MonkeyPatch()
        self.gone: Counter[str] = Counter()
        """Messages that are dropped or expired, by channel, in processes before this one."""

    @initialize(
        page_rows=st.sampled_from([1, 2, 1024]),
        mem_queue_size=st.sampled_from([1, 3, 1000]),
        requeue_on_disconnect=st.booleans(),
        durability=st.sampled_from(["os", "fsync"]),
        window=st.sampled_from([0.0, 60.0]),
        policies=st.tuples(st.sampled_from(POLICIES), st.sampled_from(POLICIES)),
        retains=st.booleans(),
        has_small_limits=st.booleans(),
    )
    def start(
        self,
        page_rows: int,
        mem_queue_size: int,
        requeue_on_disconnect: bool,
        durability: str,
        window: float,
        policies: tuple[dict[str, Any], dict[str, Any]],
        retains: bool,
        has_small_limits: bool,
    ) -> None:
        for module, name, limit in SMALL_LIMITS if has_small_limits else ():
            self.patch.setattr(module, name, limit)
        rule = TopicRule("*", policy={"dedupe_window": window}) if window else TopicRule("*")
        self.core = BrokerHarness(
            page_rows,
            mem_queue_size=mem_queue_size,
            requeue_on_disconnect=requeue_on_disconnect,
            durability=durability,
            topic_rules=(rule,),
            retention_time=FOR_EVER if retains else 0.0,
        )
        for name, policy in zip(CHANNELS, policies, strict=True):
            self.core.channel(name).set_policy(policy)
            self.core.channel(name, topic="t.dead")
        for name in CHANNELS:
            self.add_reader("t", name, 3)
        self.save()

    @rule(event=st.sampled_from(EVENTS), random=st.randoms(use_true_random=False))
    def go_on(self, event: str, random: Random) -> None:
        """Events are drawn from a list, because rules that need nothing would be drawn too often."""
        self.random = random
        getattr(self, event)()

    # -- publishers

    def publish(self) -> None:
        choice = self.random.choice
        contents = [(choice(KEYS), choice(PRIORITIES), choice(TTLS)) for _ in range(choice([1, 2, 8]))]
        delay = choice([0, 0, 0, 10_000])
        bodies, headers = [], []
        for key, priority, ttl in contents:
            body = b"%d" % self.number
            self.number += 1
            given = {"key": key, "priority": priority, "ttl": ttl, "id": body.decode()}
            self.published[body] = {name: value for name, value in given.items() if value}
            bodies.append(body)
            headers.append(encode_headers(self.published[body]))
        self._put(bodies, headers, delay)
        if choice([True, False]) and self.core.topic().deduplication is not None and self.lost.isdisjoint(bodies):
            total = self.core.topic().message_count
            answers: list[Exception | None] = []
            self.core.topic().put(bodies, delay, answers.append, headers)
            self.core.turn()
            assert self.core.topic().message_count == total

    def _put(self, bodies: list[bytes], headers: list[bytes], delay: int) -> None:
        answers: list[Exception | None] = []
        ids: list[int] = []
        self.core.topic().put(bodies, delay, answers.append, headers, assigned=ids.extend)
        self.step()
        if answers == [None]:
            self.sequences += [(number & SEQUENCE_MASK, body) for number, body in zip(ids, bodies, strict=True)]
        else:
            assert isinstance(answers[0], Overflow)
            self.lost.update(bodies)

    # -- consumers

    def add_reader(self, topic: str, channel: str, ready: int) -> None:
        reader = self.core.reader(channel, topic, ready=ready)

        def deliver(frames: bytes, headers: Sequence[bytes]) -> None:
            reader.frames.append(frames)
            for message, encoded in zip(messages(frames), headers, strict=True):
                self.headers[message.id] = decode_headers(encoded)

        reader.consumer.deliver_with_headers = deliver
        self.readers[max(self.readers, default=0) + 1] = (topic, channel, reader, {})

    def subscribe(self) -> None:
        choice = self.random.choice
        if len(self.readers) < 6:
            self.add_reader(choice(TOPICS), choice(CHANNELS), choice([0, 1, 3, 8]))

    def leave(self) -> None:
        if self.readers:
            _, _, reader, _ = self.readers.pop(self.random.choice(sorted(self.readers)))
            reader.leave()

    def answer(self) -> None:
        busy = [entry for entry in self.readers.values() if entry[3]]
        if not busy:
            return
        topic, channel, reader, inbox = self.random.choice(busy)
        action = self.random.choice(ANSWERS)
        ids = sorted(inbox) if action.endswith("all") else [self.random.choice(sorted(inbox))]
        for message_id in ids:
            if action.startswith("finish"):
                self._finish(topic, channel, reader, inbox.pop(message_id))
            else:
                del inbox[message_id]
                assert reader.requeue(message_id, 6.0 if action == "defer" else 0.0) is None

    def _finish(self, topic: str, channel: str, reader: Reader, message: Message) -> None:
        assert reader.finish(message.id) == []
        if topic == "t" or self.headers[message.id].get("nsq-dead-channel") == channel:
            self.ended.add((channel, message.body))

    # -- policies and administration

    def set_policy(self) -> None:
        self.core.channel(self.random.choice(CHANNELS)).set_policy(self.random.choice(POLICIES))

    def set_policy_of_letters(self) -> None:
        channel = self.core.channel(self.random.choice(CHANNELS), topic="t.dead")
        channel.set_policy(self.random.choice(LETTER_POLICIES))

    def set_ttl(self) -> None:
        self.core.topic().set_policy(self.random.choice([{}, {}, {"message_ttl": 25.0}]))

    def pause(self) -> None:
        channel, topic = self.core.channel(self.random.choice(CHANNELS)), self.core.topic()
        what = self.random.choice(["nothing", "nothing", "channel", "topic"])
        channel.pause() if what == "channel" else channel.unpause()
        topic.pause() if what == "topic" else topic.unpause(self.core.now)

    def retain(self) -> None:
        """What is finished from now on is kept."""
        self.core.topic().reader.retention_policy.give((FOR_EVER, None), self.core.now)

    def move(self) -> None:
        """Seek or empty."""
        name, where = self.random.choice(CHANNELS), self.random.choice(MOVES)
        self.core.save()
        channel, topic = self.core.channel(name), self.core.topic()
        kept_from = topic.reader.kept_from
        kept = [sequence for sequence, _ in self.sequences if kept_from <= sequence < topic.released]
        if where in ("empty", "end"):
            if not topic.depth:  # what a paused topic keeps comes later
                channel.empty() if where == "empty" else channel.seek(topic.released, skips_all=True)
                self.dropped.update((name, body) for body in self.published)
        elif where == "message" and kept:
            self._seek(channel, self.random.choice(kept))
        elif where == "long ago":
            self._seek(channel, min(topic.reader.position_at(0), topic.released), may_skip=False)
        else:
            self._seek(channel, min(kept_from, topic.released), may_skip=False)
        self.core.save()

    def _seek(self, channel: Channel, place: int, *, may_skip: bool = True) -> None:
        """What is behind the place comes again. What is before it is skipped only if the channel was not there yet."""
        assert channel.cursor is not None
        is_forwards = may_skip and place > channel.cursor.next
        foretold = channel.preview_seek(place)
        moved = channel.seek(place)
        assert moved == foretold
        assert is_forwards or not moved.skipped
        again = {body for sequence, body in self.sequences if sequence >= place}
        self.ended = {entry for entry in self.ended if entry[0] != channel.name or entry[1] not in again}
        if is_forwards:
            self.dropped.update((channel.name, body) for body in self.published if body not in again)
        self.may_repeat = True

    def cancel(self) -> None:
        if not self.sequences:
            return
        self.core.save()
        sequence, body = self.random.choice(self.sequences[-8:])
        cancelled = self.core.topic().cancel(sequence, self.core.now, self.random.choice(["", *CHANNELS]))
        if cancelled is not None:
            self.dropped.update((name, body) for name in (cancelled.channels if cancelled.is_released else CHANNELS))

    def redrive(self) -> None:
        letters, name = self.core.topic("t.dead"), self.random.choice(CHANNELS)
        if not any(one.state == RUNNING for one in self.redrives):
            target = self.core.channel(name)
            redrive = Redrive(self.core.topic(), target, letters, letters.channels[name], 0, 0, self.core.now)
            self.redrives.append(redrive)

    # -- time, saving and dying

    def wait(self) -> None:
        self.core.wait(self.random.choice([0.01, 1.0, 7.0, 7.0, 35.0]))
        self.core.wait(0.2)

    def save(self) -> None:
        self.core.save()

    def fail(self) -> None:
        how = self.random.choice(["save fails", "save takes long", *TOPICS])
        if how == "save fails":
            self.core.save(BackendError("no space"))
        elif how == "save takes long":
            save = self.core.begin_save()
            self.step()
            self.core.positions.save(save.checkpoint)
            self.core.wait(7.0)
            self.core.broker.checkpointer.end(save, None)
        else:
            with FailingCommits(self.core, how):
                self.settle()
                self.core.wait(1.1)

    def settle(self) -> None:
        """Save what is waited for."""
        for _ in range(4):
            self.step()
            if self.core.broker.checkpointer.are_waited_for:
                self.core.save()

    def crash(self) -> None:
        self._count_gone()
        self.core.crash()
        self.readers.clear()
        self.redrives.clear()
        self.may_repeat = True
        for name in CHANNELS:
            if self.random.choice([True, True, False]):
                self.add_reader("t", name, 3)

    def _count_gone(self) -> None:
        for name, channel in self.core.topic().channels.items():
            self.gone[name] += channel.dropped_count + channel.expired_count

    # -- the model's side

    @invariant()
    def step(self) -> None:
        """Look at what is delivered, and at all numbers."""
        if not self.readers and not self.published:
            return  # before the start
        before = {channel: set(channel.sequences_in_flight()) for channel in self._channels()}
        self.core.turn()
        for channel in self._channels():
            assert min(channel.depth, channel.deferred_count, channel.in_flight_count, channel.topic.depth) >= 0
            check_position(channel)
            if channel.ordered is not None:
                self._check_order(channel, before[channel])
        assert not any(level == "critical" or "counted as ready" in text for level, text in self.core.lines)
        for topic, channel_name, reader, inbox in self.readers.values():
            here = {message_id for message_id, _ in reader.consumer.in_flight.items()}
            for message_id in inbox.keys() - here:
                del inbox[message_id]
            for message in reader.read():
                assert message.body in self.published
                if topic == "t" and not self.may_repeat:
                    assert (channel_name, message.body) not in self.ended
                inbox[message.id] = message

    def _channels(self) -> list[Channel]:
        return [channel for topic in TOPICS for channel in self.core.topic(topic).channels.values()]

    def _check_order(self, channel: Channel, before: set[int]) -> None:
        """Of the key of a message that was delivered now no other one is in flight."""
        in_flight = list(channel.sequences_in_flight())
        keys = {sequence: self._key(channel, sequence) for sequence in in_flight}
        counts = Counter(keys.values())
        for sequence in in_flight:
            assert sequence in before or keys[sequence] is None or counts[keys[sequence]] == 1

    def _key(self, channel: Channel, sequence: int) -> str | None:
        record = channel.topic.log.find(sequence)
        assert record is not None
        return decode_headers(record[0].headers_of(record[1])).get("key")

    def teardown(self) -> None:
        try:
            self._drain()
        finally:
            self.patch.undo()

    def _drain(self) -> None:
        if not self.readers and not self.published:
            return
        for channel in self._channels():
            channel.unpause()
        self.core.topic().unpause(self.core.now)
        for topic in TOPICS:
            for name in CHANNELS:
                self.add_reader(topic, name, 3)
        quiet = 0
        for _ in range(10 * self.number + 100):
            self.step()
            inboxes = [entry for entry in self.readers.values() if entry[3]]
            for topic, channel_name, reader, inbox in inboxes:
                for message in list(inbox.values()):
                    self._finish(topic, channel_name, reader, message)
                inbox.clear()
            self.core.wait(1.1)
            if self.core.broker.checkpointer.are_waited_for:
                self.core.save()
            quiet = 0 if inboxes else quiet + 1
            if quiet > 100:
                break
        self._count_gone()
        for channel in self._channels():
            left = (channel.depth, channel.in_flight_count, channel.deferred_count, channel.leaving)
            assert left == (0, 0, 0, []), (left, channel.topic.name, channel.name, channel.policy)
            assert not channel.cursor._pending.count
        for name in CHANNELS:
            missing = [
                body
                for body in self.published
                if body not in self.lost and not {(name, body)} & (self.ended | self.dropped)
            ]
            assert len(missing) <= self.gone[name], (name, missing)
        self._check_idle()

    def _check_idle(self) -> None:
        """A broker that has nothing to do wakes rarely."""
        self.core.save()
        end, count = self.core.now + 60.0, 0
        while (due := self.core.broker.tick(self.core.now)) is not None and due < end:
            self.core.now, count = max(self.core.now, due), count + 1
            assert count < 300, "timers"


Together.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTogether = Together.TestCase
