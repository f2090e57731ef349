"""
Histories of one topic with two channels and its dead-letter topic, made of policies, administration and faults.

What happens is drawn from the elements of a history, from the common events, and from nothing else: all choices follow
from a seed, and each step has a seed of its own, so that a history can be repeated, and reduced by leaving out steps.

The model knows of each message, by its body, what was answered to its publisher and how it ended. It does not know in
which order messages come. What it checks are the promises that hold under every policy:

* no verb makes an unfinished message disappear, unless it says so: a move forwards, `empty`, a deletion, a bound,
* after a start each message is where it was saved (`places.after_a_start`), or has moved to another topic since; no
  finished one is back,
* a message whose last delivery a start has interrupted becomes no dead letter before it has failed,
* at most one message of a key is in flight in a channel with an order, and none that was not published is delivered,
* each message is in one place, and moves only where the table of `core.place` says,
* no number is negative, and a message that was finished does not come again, unless a kill or a seek is to blame,
* what counts as ready can be delivered, and a key that messages wait for has a head,
* in the end every message was finished, dropped by a bound, expired, cancelled, or is a dead letter that comes; depth,
  deferred and in flight are 0 then.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nsqtw.core import checkpointer, cursor, for_others, unread
from nsqtw.core.channel import Channel
from nsqtw.core.place import Event, Place
from nsqtw.core.policy import bounds, dead_letters, gathered, order, priority_depths, redrive
from nsqtw.core.policy import priority as priorities
from nsqtw.core.policy.letter import EXPIRED, REDRIVE_ID
from nsqtw.core.policy.redrive import RUNNING, Redrive
from nsqtw.core.policy.undelivered import MAX_INTERRUPTIONS
from nsqtw.core.segment import SEQUENCE_MASK, sequence_of
from nsqtw.errors import BackendError, LargerThanBound, Overflow
from nsqtw.message_headers import DEAD_CHANNEL, DEAD_ID, DEAD_REASON, decode_headers, encode_headers
from nsqtw.options.topics import TopicRule
from tests.core.harness import Message, Reader, messages
from tests.core.model.elements import CHANNEL_POLICIES, FAULTS, VERBS
from tests.core.model.harness import InMemory, OnFiles
from tests.core.model.places import after_a_start, census, check_moves
from tests.core.policy.harness import FailingCommits
from tests.core.policy.invariants import check_position

CHANNELS = ("a", "b")
TOPICS = ("t", "t.dead")
LETTER_POLICIES: list[dict[str, Any]] = [
    {},
    {"max_attempts": 1},
    {"ordered_by": "header:key", "max_attempts": 1},
    {"priority": True},
    {"max_depth": 1},
    {"max_depth": 2},
    {"requeue_delay": 8.0, "max_requeue_delay": 20.0, "max_attempts": 2},
]
KEYS = ["x", "y", ""]
PRIORITIES = ["high", "low", ""]
TTLS = ["", "", "", "", "20000"]
COMMON = [
    *["publish"] * 6,
    *["answer"] * 12,
    *["wait"] * 4,
    *["settle"] * 3,
    *["save", "subscribe", "leave"] * 2,
]
STEPS = 30
"""Of a history,"""
SHARE = 0.3
"""of which so many are verbs and faults."""
SMALL_LIMITS: list[tuple[Any, str, Any]] = [
    (bounds, "_MAX_STEPS", 1),
    (bounds, "_MAX_READS", 1),
    (bounds, "_ROWS", 2),
    (bounds, "_SCAN_STEPS", 1),
    (bounds, "_LOOKS", 1),
    (checkpointer, "SAVED_AT_ONCE", 1),
    (cursor, "_MAX_PASSED_AT_ONCE", 2),
    (dead_letters, "MAX_BATCH", 2),
    (dead_letters, "MAX_HELD", 3),
    (for_others, "_LOOKS", 1),
    (gathered, "_MAX_READS", 1),
    (order, "_MAX_GATHERED", 2),
    (order, "_MAX_TAKEN", 4),
    (order, "_MAX_SHORT", 2),
    (priorities, "LOOK_BYTES", 1),
    (priority_depths, "LOOKS", 1),
    (redrive, "BATCH", 2),
    (unread, "_PART_MESSAGES", 2),
]
"""What a turn does at most, so small that everything takes several of them."""
ANSWERS = ["finish", "finish all", "requeue", "requeue", "requeue all", "defer"]
FOR_EVER = 1e9
MOVING_VERBS = {
    **dict.fromkeys(["empty_channel", "recreate_channel"], (Event.EMPTY,)),
    **dict.fromkeys(["seek_earliest", "seek_time"], (Event.SEEK,)),
    **dict.fromkeys(["seek_latest", "seek_message"], (Event.SEEK, Event.EMPTY)),
}
"""The verbs of bulk events."""
Step = tuple[str, int]
"""An event, and the seed of what is chosen in it."""


def steps_of(elements: Sequence[str], random: Random) -> list[Step]:
    """Draw the steps of a history with these elements."""
    special = [element for element in elements if element in VERBS or element in FAULTS]
    steps = []
    for _ in range(STEPS):
        events = special if special and random.random() < SHARE else COMMON
        steps.append((random.choice(events), random.getrandbits(32)))
    return steps


class History:
    """A history of these elements. `seed` decides on everything that is not a step."""

    def __init__(self, elements: Sequence[str], seed: int) -> None:
        self.elements = elements
        self.random = Random(seed)
        self.number = 0
        self.published: dict[bytes, str] = {}
        """Bodies, and the only channel that gets each."""
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
        self.gone: Counter[str] = Counter()
        """Messages that are dropped or expired, by channel, in processes and channels before these ones."""
        self.moved: set[tuple[str, str, int]] = set()
        """Messages that are stored in another topic, by topic, channel and sequence."""
        self.looked_to = dict.fromkeys(TOPICS, 0)
        self.interrupted: dict[tuple[str, int], int] = {}
        """How many starts have interrupted deliveries of a message without a failure since, by channel and sequence."""
        self.full_disk: list[FailingCommits] = []
        self.patch = pytest.MonkeyPatch()
        self.directory = ""
        self.may_drop: set[str] = set()
        """Channels that the verb of this step may empty."""

    def run(self, steps: Sequence[Step]) -> None:
        """Go through all steps, and see how it ends. AssertionError, or any other error of the broker."""
        try:
            self._begin()
            for event, seed in steps:
                self.random = Random(seed)
                with self._disappearances(event):
                    getattr(self, event)()
                self.step()
            self._drain()
        finally:
            self.patch.undo()
            if self.directory:
                self.core.close()  # type: ignore[attr-defined]
                shutil.rmtree(self.directory)

    def _begin(self) -> None:
        choice = self.random.choice
        if choice([True, True, False]):
            for module, name, limit in SMALL_LIMITS:
                self.patch.setattr(module, name, limit)
        has = self.elements.__contains__
        options = {
            "page_rows": choice([1, 2, 1024]),
            "mem_queue_size": choice([1, 3, 1000]),
            "requeue_on_disconnect": has("requeue_on_disconnect"),
            "durability": choice(["os", "fsync"]),
            "topic_rules": (TopicRule("*", policy={"dedupe_window": 60.0} if has("dedupe_window") else {}),),
            "retention_time": FOR_EVER if has("retention") else 0.0,
        }
        if has("migrate") or has("restore") or self.random.random() < 0.05:
            self.directory = tempfile.mkdtemp(prefix="nsqtw-model-")
            self.core: InMemory | OnFiles = OnFiles(Path(self.directory), choice(["disk", "sqlite"]), **options)
        else:
            self.core = InMemory(**options)
        if has("message_ttl"):
            self.core.topic().policies.set({"message_ttl": 25.0})
        for name in CHANNELS:
            self.core.channel(name).policies.set(self._settings())
            self.core.channel(name, topic="t.dead")
        if has("refuse_letters"):
            self.refuse_letters()
        for name in CHANNELS:
            self.add_reader("t", name, 3)
        self.core.save()

    def _settings(self) -> dict[str, Any]:
        """Choose policies of a channel, mostly all."""
        policies = [element for element in self.elements if element in CHANNEL_POLICIES]
        if self.random.random() < 0.3:
            policies = [one for one in policies if self.random.choice([True, False])]
        settings: dict[str, Any] = {}
        for element in policies:
            settings |= self.random.choice(CHANNEL_POLICIES[element])
        return settings

    # -- publishers

    def publish(self) -> None:
        choice = self.random.choice
        contents = [(choice(KEYS), choice(PRIORITIES), choice(TTLS)) for _ in range(choice([1, 2, 8]))]
        delay, only = choice([0, 0, 0, 10_000]), choice(["", "", "", *CHANNELS])
        bodies, headers = [], []
        for key, priority, ttl in contents:
            body = b"%d" % self.number
            self.number += 1
            self.published[body] = only
            given = {"key": key, "priority": priority, "ttl": ttl, "id": body.decode()}
            bodies.append(body)
            headers.append(encode_headers({name: value for name, value in given.items() if value}))
        self._put(bodies, headers, delay, only)
        if choice([True, False]) and self.core.topic().deduplication is not None and self.lost.isdisjoint(bodies):
            total = self.core.topic().message_count
            answers: list[Exception | None] = []
            self.core.topic().put(bodies, delay, answers.append, headers, only)
            self.core.turn()
            assert self.core.topic().message_count == total

    def _put(self, bodies: list[bytes], headers: list[bytes], delay: int, only: str) -> None:
        answers: list[Exception | None] = []
        ids: list[int] = []
        self.core.topic().put(bodies, delay, answers.append, headers, only, assigned=ids.extend)
        self.step()
        if answers == [None]:
            self.sequences += [(number & SEQUENCE_MASK, body) for number, body in zip(ids, bodies, strict=True)]
        else:
            refusals = (Overflow, LargerThanBound, *[BackendError for _ in self.full_disk])
            assert isinstance(answers[0], refusals), answers
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
            topic, channel, reader, inbox = self.readers.pop(self.random.choice(sorted(self.readers)))
            for message_id in inbox:
                self._failed(topic, channel, message_id)
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
                self._failed(topic, channel, message_id)
                assert reader.requeue(message_id, 6.0 if action == "defer" else 0.0) is None

    def _finish(self, topic: str, channel: str, reader: Reader, message: Message) -> None:
        assert reader.finish(message.id) == []
        if topic == "t" or self.headers[message.id].get(DEAD_CHANNEL) == channel:
            self.ended.add((channel, message.body))

    def _failed(self, topic: str, channel: str, message_id: bytes) -> None:
        """The last delivery of a message has failed, or it will time out."""
        if topic == "t":
            self.interrupted.pop((channel, sequence_of(message_id)), None)

    # -- policies

    def switch_policies(self) -> None:
        name = self.random.choice(CHANNELS)
        self.core.channel(name).policies.set(self.random.choice([{}, self._settings()]))
        self.interrupted = {key: count for key, count in self.interrupted.items() if key[0] != name}

    def change_letters(self) -> None:
        channel = self.core.channel(self.random.choice(CHANNELS), topic="t.dead")
        channel.policies.set(self.random.choice(LETTER_POLICIES))

    # -- administration

    def pause_channel(self) -> None:
        channel = self.core.channel(self.random.choice(CHANNELS))
        channel.unpause() if channel.paused else channel.pause()

    def pause_topic(self) -> None:
        topic = self.core.topic()
        topic.unpause(self.core.now) if topic.paused else topic.pause()

    def empty_channel(self) -> None:
        name = self._saved_channel()
        if name and not self.core.topic().depth:  # what a paused topic keeps comes later
            self.core.channel(name).empty()
            self._drop(name)
            self.core.save()

    def empty_topic(self) -> None:
        topic = self.core.topic()
        if self.full_disk or not topic.depth:
            return
        for sequence, body in self.sequences:
            if sequence >= topic.released:
                self.dropped.update((name, body) for name in CHANNELS)
        topic.empty()
        self.core.save()

    def recreate_channel(self) -> None:
        name = self._saved_channel()
        if not name or self.core.topic().depth:
            return
        self._count_gone(name)
        self.core.topic().delete_channel(name)
        self.readers = {number: entry for number, entry in self.readers.items() if entry[:2] != ("t", name)}
        self._drop(name)
        self.core.save()
        self.core.channel(name).policies.set(self._settings())
        self.add_reader("t", name, 3)
        self.core.save()

    def retain(self) -> None:
        """What is finished from now on is kept."""
        self.core.topic().reader.retention_policy.give((FOR_EVER, None), self.core.now)

    def seek_earliest(self) -> None:
        name = self._saved_channel()
        if name:
            topic = self.core.topic()
            self._seek(name, min(topic.reader.kept_from, topic.released), may_skip=False)

    def seek_latest(self) -> None:
        name = self._saved_channel()
        if name and not self.core.topic().depth:
            self.core.channel(name).seek(self.core.topic().released, skips_all=True)
            self._drop(name)
            self.core.save()

    def seek_time(self) -> None:
        """To a time before all messages."""
        name = self._saved_channel()
        if name:
            topic = self.core.topic()
            self._seek(name, min(topic.reader.position_at(0), topic.released), may_skip=False)

    def seek_message(self) -> None:
        name = self._saved_channel()
        topic = self.core.topic()
        kept = [sequence for sequence, _ in self.sequences if topic.reader.kept_from <= sequence < topic.released]
        if name and kept:
            self._seek(name, self.random.choice(kept))

    def _saved_channel(self) -> str:
        """Save, and choose a channel; "" when nothing can be saved."""
        if self.full_disk:
            return ""
        self.core.save()
        return self.random.choice(CHANNELS)

    def _drop(self, name: str) -> None:
        """A channel has dropped all that it had."""
        self.dropped.update((name, body) for body in self.published)
        self.may_drop.add(name)

    def _seek(self, name: str, place: int, *, may_skip: bool = True) -> None:
        """What is behind the place comes again. What is before it is skipped only if the channel was not there yet."""
        channel = self.core.channel(name)
        assert channel.cursor is not None
        start = max(channel.cursor.next, self.core.topic().reader.kept_from)
        is_forwards = may_skip and any(start <= sequence < place for sequence, _ in self.sequences)
        foretold = channel.preview_seek(place)
        moved = channel.seek(place)
        assert moved == foretold
        assert is_forwards or not moved.skipped
        again = {body for sequence, body in self.sequences if sequence >= place}
        kept = {
            segment.sequence_at(index)
            for segment in channel.topic.reader.segments(place, channel.topic.released)
            for index in range(segment.count)
        }
        repeated = {(name, body) for sequence, body in self.sequences if sequence in kept}
        self.ended -= repeated  # what a migration has left out because it was finished does not come again
        if is_forwards:
            self.dropped.update((channel.name, body) for body in self.published if body not in again)
            self.may_drop.add(name)
        self.may_repeat = True
        self.core.save()

    def cancel(self) -> None:
        if not self.sequences or self.full_disk:
            return
        self.core.save()
        sequence, body = self.random.choice(self.sequences[-8:])
        cancelled = self.core.topic().cancel(sequence, self.core.now, self.random.choice(["", *CHANNELS]))
        if cancelled is not None:
            names = cancelled.channels if cancelled.is_released else CHANNELS
            self.dropped.update((name, body) for name in names)
            self.moved.update(("t", name, sequence) for name in names)

    def redrive(self) -> None:
        letters, name = self.core.topic("t.dead"), self.random.choice(CHANNELS)
        if not any(one.state == RUNNING for one in self.redrives):
            target = self.core.channel(name)
            begun = Redrive(self.core.topic(), target, letters, letters.channels[name], 0, 0, self.core.now)
            self.redrives.append(begun)

    # -- time and saving

    def wait(self) -> None:
        self.core.wait(self.random.choice([0.01, 1.0, 7.0, 7.0, 35.0]))
        self.core.wait(0.2)

    def time_out(self) -> None:
        self.core.wait(65.0)

    def save(self) -> None:
        self.core.save(BackendError("no space") if self.full_disk else None)

    def settle(self) -> None:
        """Save what is waited for."""
        for _ in range(4):
            self.step()
            if self.core.broker.checkpointer.are_waited_for:
                self.save()

    # -- faults

    def save_fails(self) -> None:
        self.core.save(BackendError("no space"))

    def save_lasts(self) -> None:
        if self.full_disk:
            return
        save = self.core.begin_save()
        self.step()
        self.core.positions.save(save.checkpoint)
        self.core.wait(7.0)
        self.core.end_save(save)

    def fill_disk(self) -> None:
        """It has room again, or none from now on."""
        if self.full_disk:
            self._make_room()
            self.core.wait(1.1)
            return
        for name in self.random.choice([TOPICS, TOPICS[:1], TOPICS[1:]]):
            failing = FailingCommits(self.core, name)
            failing.__enter__()
            self.full_disk.append(failing)

    def _make_room(self) -> None:
        while self.full_disk:
            self.full_disk.pop().__exit__()

    def refuse_letters(self) -> None:
        """The dead-letter topic has no room."""
        for name in CHANNELS:
            self.core.channel(name, topic="t.dead").policies.set({"max_depth": 1})

    def kill(self) -> None:
        self._start_again(self.core.crash)

    def kill_after_save(self) -> None:
        self._make_room()
        self.core.save()
        self._start_again(self.core.crash)

    def stop(self) -> None:
        self._start_again(self.core.stop_and_start)

    def migrate(self) -> None:
        assert isinstance(self.core, OnFiles)
        self._start_again(self.core.migrate)

    def restore(self) -> None:
        assert isinstance(self.core, OnFiles)
        self._start_again(self.core.restore_backup)

    def _start_again(self, how: Callable[[], None]) -> None:
        """End the process and start another one: each message is where it was saved."""
        self._make_room()
        for name in CHANNELS:
            self._count_gone(name)
        how()
        self.readers.clear()
        self.redrives.clear()
        self.may_repeat = True
        self._look_at_moves()
        for topic_name, saved in self.core.saved_topics.items():
            topic = self.core.broker.topics[topic_name]
            assert topic.channels.keys() >= saved.channels.keys()
            for name, before in saved.channels.items():
                self._check_start(topic.channels[name], saved.end, before)
        for name in CHANNELS:
            if self.random.choice([True, True, False]):
                self.add_reader("t", name, 3)

    def _check_start(self, channel: Channel, end: int, before: dict[int, Place]) -> None:
        topic, after = channel.topic, census(channel, self.core.now)
        missing = 0
        has_letters = bool(channel.policy.max_attempts)
        for sequence, place in before.items():
            if sequence not in after:
                missing += (topic.name, channel.name, sequence) not in self.moved
            else:
                found = after[sequence]
                assert found in after_a_start(place, has_letters=has_letters), (channel.name, sequence, place, found)
        assert missing <= channel.dropped_count + channel.expired_count, (topic.name, channel.name, before, after)
        assert all(sequence in before or sequence >= end for sequence in after), (channel.name, before, after)
        if topic.name == "t" and channel.policy.max_attempts:
            for sequence, place in before.items():
                if place is Place.IN_FLIGHT:
                    key = (channel.name, sequence)
                    self.interrupted[key] = self.interrupted.get(key, 0) + 1

    def _count_gone(self, name: str) -> None:
        channel = self.core.channel(name)
        self.gone[name] += channel.dropped_count + channel.expired_count

    # -- the model's side

    @contextmanager
    def _disappearances(self, event: str) -> Iterator[None]:
        """See that a verb drops nothing but what it says."""
        self.may_drop = set()
        if event not in VERBS:
            yield
            return
        self.core.turn()
        before = {channel: census(channel, self.core.now) for channel in self._channels()}
        dropped = {channel: channel.dropped_count + channel.expired_count for channel in before}
        released = {channel: channel.topic.released for channel in before}
        yield
        self._look_at_moves()
        for channel, places in before.items():
            check_moves(places, census(channel, self.core.now), released[channel], MOVING_VERBS.get(event, ()))
            topic = channel.topic.name
            if topic != "t" or channel.name not in self.may_drop:
                gone = [
                    sequence
                    for sequence in places.keys() - census(channel, self.core.now).keys()
                    if (topic, channel.name, sequence) not in self.moved
                ]
                count = channel.dropped_count + channel.expired_count - dropped[channel]
                assert len(gone) <= count, (topic, channel.name, gone)

    def _look_at_moves(self) -> None:
        """Find the messages that have moved to another topic."""
        for name in TOPICS:
            queue = self.core.topic(name).log.queue
            for segment in queue.read(self.looked_to[name], 1 << 30):
                for index in range(segment.count) if segment.headers is not None else ():
                    if segment.sequence_at(index) >= self.looked_to[name]:
                        self._look_at_move(decode_headers(segment.headers_of(index)), segment.channel)
            self.looked_to[name] = max(self.looked_to[name], queue.end)

    def _look_at_move(self, headers: dict[str, str], only: str) -> None:
        if DEAD_ID in headers:
            channel, sequence = headers[DEAD_CHANNEL], sequence_of(headers[DEAD_ID].encode())
            self.moved.add(("t", channel, sequence))
            if headers[DEAD_REASON] != EXPIRED:
                interruptions = self.interrupted.get((channel, sequence), MAX_INTERRUPTIONS)
                assert interruptions >= MAX_INTERRUPTIONS, ("it has not failed", channel, sequence, headers)
        elif REDRIVE_ID in headers:
            self.moved.add(("t.dead", only, sequence_of(headers[REDRIVE_ID].encode())))

    def step(self) -> None:
        """Look at what is delivered, and at all numbers."""
        before = {channel: set(channel.sequences_in_flight()) for channel in self._channels()}
        self.core.turn()
        self._look_at_moves()
        for channel in self._channels():
            assert min(channel.depth, channel.deferred_count, channel.in_flight_count, channel.topic.depth) >= 0
            check_position(channel)
            if channel.ordered is not None:
                self._check_order(channel, before.get(channel, set()))
        assert not any(level == "critical" or "counted as ready" in text for level, text in self.core.lines)
        for topic, channel_name, reader, inbox in self.readers.values():
            here = {message_id for message_id, _ in reader.consumer.in_flight.items()}
            for message_id in inbox.keys() - here:
                del inbox[message_id]
                self._failed(topic, channel_name, message_id)
            for message in reader.read():
                assert message.body in self.published
                if topic == "t" and not self.may_repeat:
                    assert (channel_name, message.body) not in self.ended
                inbox[message.id] = message

    def _channels(self) -> list[Channel]:
        return [channel for topic in TOPICS for channel in self.core.topic(topic).channels.values()]

    def _check_order(self, channel: Channel, before: Collection[int]) -> None:
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

    def _drain(self) -> None:
        self._make_room()
        for channel in self._channels():
            channel.unpause()
            if channel.topic.name == "t.dead":
                channel.policies.set({})
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
            self.core.wait(1.1 if quiet < 5 else 7.0)
            if self.core.broker.checkpointer.are_waited_for:
                self.core.save()
            quiet = 0 if inboxes else quiet + 1
            if quiet > 20:
                break
        self._check_drained()
        self._check_idle()

    def _check_drained(self) -> None:
        for name in CHANNELS:
            self._count_gone(name)
        for channel in self._channels():
            left = (channel.depth, channel.in_flight_count, channel.deferred_count, channel.held)
            assert left == (0, 0, 0, []), (left, channel.topic.name, channel.name, channel.policy)
            assert channel.cursor is not None
            assert not channel.cursor._pending.count
        for name in CHANNELS:
            missing = [
                body
                for body, only in self.published.items()
                if only in ("", name) and body not in self.lost and not {(name, body)} & (self.ended | self.dropped)
            ]
            assert len(missing) <= self.gone[name], (name, missing)

    def _check_idle(self) -> None:
        """A broker that has nothing to do wakes rarely."""
        self.core.save()
        end, count = self.core.now + 60.0, 0
        while (due := self.core.broker.tick(self.core.now)) is not None and due < end:
            self.core.now, count = max(self.core.now, due), count + 1
            assert count < 300, "timers"
