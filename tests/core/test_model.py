"""
A topic and its channels against a simple model, through random histories with crashes.

The model knows for each channel every message that is not finished: ready, in flight with a reader, or deferred. After
each step the broker's counts must be the model's, every delivery must be of a ready message with the right number of
attempts and its headers, and at the end a drain must bring every message exactly as the model says. A crash takes the
model back to the last save, plus what was published since: nothing else may come back, and nothing of it may be
missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import NamedTuple

from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from zope.interface import alsoProvides

from nsqtw.core.checkpoint_job import CheckpointJob
from nsqtw.core.segment import SEQUENCE_MASK, Segment
from nsqtw.errors import BackendError
from nsqtw.interfaces import ICountedQueue
from nsqtw.message_headers import encode_headers
from tests.core.harness import BrokerHarness, Message, Reader, messages

READY, FLIGHT, DEFERRED = "ready", "in flight", "deferred"
REPLAYED = "replayed"
"""Published deferred and not due, in a channel that was moved: ready until the channel comes to it, then deferred."""
FOR_EVER = 1e9
DELAYS = (20.0, 30.0, 45.0, 200.0)
MEM_QUEUE_SIZE = 3
LONGER_THAN_ANY_TIMEOUT = 70.0
CHANNELS = ("one", "two", "three")


@define
class ModelMessage:
    state: str
    attempts: int = 0
    due: float = 0.0
    reader: int = -1


@define
class ModelChannel:
    paused: bool = False
    messages: dict[bytes, ModelMessage] = field(factory=dict)

    def count(self, state: str) -> int:
        return sum(message.state == state for message in self.messages.values())


@define
class ModelTopic:
    """The model: what waits for release, and each channel."""

    paused: bool = False
    waiting: dict[bytes, float] = field(factory=dict)
    """Body -> delay in seconds."""
    channels: dict[str, ModelChannel] = field(factory=dict)
    history: dict[bytes, float] = field(factory=dict)
    """What was released, in order: body -> when a replay may deliver it."""
    due: dict[bytes, float] = field(factory=dict)
    """The same of all that was published."""
    only: dict[bytes, str] = field(factory=dict)
    """The only channel that gets a message."""

    @property
    def is_awaiting_channels(self) -> bool:
        return self.paused or not self.channels

    def release(self, now: float) -> None:
        if self.is_awaiting_channels:
            return
        for body, delay in self.waiting.items():
            self.history[body] = self.due[body]
            for name, channel in self.channels.items():
                if self.only.get(body, name) == name:
                    channel.messages[body] = ModelMessage(DEFERRED, due=now + delay) if delay else ModelMessage(READY)
        self.waiting.clear()

    def replay(self, bodies: list[bytes], name: str, now: float) -> dict[bytes, ModelMessage]:
        """Those of these messages that a channel gets, as they are in it when it was moved before them."""
        due = {body: self.history[body] for body in bodies if self.only.get(body, name) == name}
        return {body: ModelMessage(REPLAYED if at > now else READY, due=at) for body, at in due.items()}


class Found(NamedTuple):
    """A refused message that a start finds in the log: above what is released, or which channels have not passed it."""

    body: bytes
    is_unreleased: bool
    unread_by: list[str]


class Histories(RuleBasedStateMachine):
    """Small steps take too little time for any timeout or delay; `long_wait` is longer than all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.core = BrokerHarness(mem_queue_size=MEM_QUEUE_SIZE)
        self.core.topic()
        self.model = ModelTopic()
        self.readers: dict[int, tuple[str, Reader, dict[bytes, Message]]] = {}
        self.serial = 0
        self.accepted = 0  # by this process
        self.only: dict[bytes, str] = {}
        """The only channel that gets a message, of all that were published."""
        self.headers: dict[bytes, bytes] = {}
        """The encoded headers that a message was published with, by its body."""
        self.got_headers: dict[tuple[Reader, bytes], bytes] = {}
        """The same of what was delivered to a reader since the last look."""
        self.since_save: list[tuple[bytes, float, float]] = []  # body, delay, wall time of publish
        self.sequences: dict[bytes, int] = {}
        """The place of each message in the log, by its body."""
        self.saved = deepcopy(self.model)
        self.refused: list[Segment] = []
        """What a sync failed for after it was written, since the last start."""
        self.core.save()

    @initialize(
        keep_deferred=st.booleans(),
        requeue_on_disconnect=st.booleans(),
        page_rows=st.sampled_from([1, 2, 3, 1024]),
        retains=st.booleans(),
        may_fail_to_sync=st.booleans(),
    )
    def choose_options(
        self, keep_deferred: bool, requeue_on_disconnect: bool, page_rows: int, retains: bool, may_fail_to_sync: bool
    ) -> None:
        if retains:
            self.retain()
        self.may_fail_to_sync = may_fail_to_sync and not retains
        self.core.page_rows = self.core.broker.page_rows = page_rows
        self.core.options.keep_deferred = keep_deferred
        self.core.options.requeue_on_disconnect = requeue_on_disconnect

    @precondition(lambda self: self.can_be_moved)
    @rule()
    def retain(self) -> None:
        """From now on what is finished is kept, with what is in the log yet."""
        self.core.options.retention_time = FOR_EVER
        self.core.topic().reader.retention_policy.give((None, None), self.core.now)

    @property
    def can_be_moved(self) -> bool:
        """Whether a channel that is moved back is told exactly how many messages come: not with refused ones."""
        return not self.may_fail_to_sync

    # -- publishing

    @rule(count=st.integers(1, 6), size=st.integers(0, 50), headed=st.booleans())
    def publish(self, count: int, size: int, headed: bool) -> None:
        self._publish(count, size, 0.0, headed)

    @rule(count=st.integers(1, 8), delay=st.sampled_from(DELAYS), headed=st.booleans())
    def publish_deferred(self, count: int, delay: float, headed: bool) -> None:
        self._publish(count, 0, delay, headed)

    @rule(count=st.integers(1, 3), delay=st.sampled_from([0.0, *DELAYS]), name=st.sampled_from(CHANNELS))
    def publish_to_one_channel(self, count: int, delay: float, name: str) -> None:
        if name in self.model.channels:
            self._publish(count, 0, delay, False, name)

    def _publish(self, count: int, size: int, delay: float, headed: bool, only: str = "") -> None:
        bodies = [b"%d:" % (self.serial + n) + b"x" * size for n in range(count)]
        self.serial += count
        headers = [encode_headers({"n": body.decode()}) if n % 3 else b"" for n, body in enumerate(bodies)]
        if headed:
            self.headers.update(zip(bodies, headers, strict=True))
        answers = self.core.put(*bodies, delay_ms=int(delay * 1000), headers=headers if headed else None, channel=only)
        self._step()
        assert answers == [None]
        if not self.core.options.keep_deferred and self.model.is_awaiting_channels and self._topic_memory_is_full():
            delay = 0.0
        self.accepted += count
        if only:
            self.only.update(dict.fromkeys(bodies, only))
            self.model.only = self.only
        for body in bodies:
            self.model.waiting[body] = delay
            self.model.due[body] = self.core.now + delay if delay else 0.0
            self.since_save.append((body, delay, self.core.now))
        ends = {message.body: int(message.id, 16) & SEQUENCE_MASK for message in _messages_of(self._newest())}
        self.sequences.update({body: ends[body] for body in bodies})
        self.model.release(self.core.now)
        self._deliveries()

    def _newest(self) -> list[Segment]:
        """What is in the log behind the messages that are known."""
        return self.core.backend.queue("t").read(max(self.sequences.values(), default=-1) + 1, 1 << 30)

    def _topic_memory_is_full(self) -> bool:
        return min(len(self.model.waiting), self.accepted) >= MEM_QUEUE_SIZE

    @rule(count=st.integers(1, 3))
    def publish_and_fail(self, count: int) -> None:
        commit = self.core.backend.commit
        self.core.backend.commit = lambda writes, durable: {queue: BackendError("full") for queue, _ in writes}
        answers = self.core.put(*[b"never"] * count)
        self._step()
        self.core.backend.commit = commit
        assert [str(answer) for answer in answers] == ["full"]

    @precondition(lambda self: self.may_fail_to_sync)
    @rule(count=st.integers(1, 3))
    def publish_and_fail_to_sync(self, count: int) -> None:
        """The messages are refused, and lie in the log where only a restart finds them."""
        commit = self.core.backend.commit

        def fail(writes: list, durable: bool) -> dict:
            self.refused += [segment for _, segments in writes for segment in segments]
            return {queue: BackendError("EIO") for queue, _ in writes}

        self.core.backend.commit = fail
        answers = self.core.put(*[b"refused %d" % (self.serial + n) for n in range(count)])
        self.serial += count
        self._step()
        self.core.backend.commit = commit
        assert [str(answer) for answer in answers] == ["EIO"]

    # -- channels and readers

    @rule(name=st.sampled_from(CHANNELS))
    def create_channel(self, name: str) -> None:
        self._channel(name)

    def _channel(self, name: str) -> None:
        if name in self.model.channels:
            return
        self.core.channel(name)
        self.model.channels[name] = ModelChannel()
        self.model.release(self.core.now)
        self._save()

    @precondition(lambda self: self.core.options.retention_time)
    @rule(name=st.sampled_from(CHANNELS))
    def create_channel_at_earliest(self, name: str) -> None:
        if name not in self.model.channels:
            self.core.topic().channel(name, self.core.now, "earliest")
            self.model.channels[name] = ModelChannel(messages=self._replayed(self.core.topic().reader.kept_from, name))
            self.model.release(self.core.now)
            self._save()

    @rule(name=st.sampled_from(CHANNELS))
    def seek_latest(self, name: str) -> None:
        if name in self.model.channels:
            self._seek(name, self.core.topic().released, skips=True)
            assert not self.model.channels[name].messages

    @precondition(lambda self: self.can_be_moved)
    @rule(name=st.sampled_from(CHANNELS), crashes=st.booleans())
    def seek_earliest(self, name: str, crashes: bool) -> None:
        """Whatever the log still has, what is unfinished stays, or comes again."""
        if name in self.model.channels:
            unfinished = {*self.model.channels[name].messages}
            self._seek(name, min(self.core.topic().reader.kept_from, self.core.topic().released), skips=False)
            assert self.model.channels[name].messages.keys() >= unfinished
            if crashes:
                self.crash()

    @precondition(lambda self: self.can_be_moved)
    @rule(name=st.sampled_from(CHANNELS), data=st.data())
    def seek(self, name: str, data: st.DataObject) -> None:
        """To a message that is kept: forwards what is before it is skipped."""
        kept_from = self.core.topic().reader.kept_from
        kept = [body for body in self.model.history if self.sequences[body] >= kept_from]
        if name in self.model.channels and kept:
            sequence = self.sequences[data.draw(st.sampled_from(kept))]
            self._seek(name, sequence, skips=self.core.channel(name).cursor.next < sequence)

    def _seek(self, name: str, sequence: int, *, skips: bool) -> None:
        """Move a channel to a place in what was released. Nothing is forgotten but what is said to be skipped."""
        self._save()
        channel, model = self.core.channel(name), self.model.channels[name]
        before = model.messages.keys()
        below = {body for body, place in self.sequences.items() if place < sequence}
        kept = {} if skips else {body: message for body, message in model.messages.items() if body in below}
        skips_all = sequence == self.core.topic().released and skips
        foretold = channel.preview_seek(sequence, skips_all=skips_all)
        moved = channel.seek(sequence, skips_all=skips_all)
        assert moved == foretold
        assert skips or not moved.skipped
        model.messages = kept | self._replayed(sequence, name)
        for of, _, inbox in self.readers.values():
            if of == name:
                for body in set(inbox) - set(kept):
                    del inbox[body]
        after = model.messages.keys()
        assert (moved.skipped, moved.replayed) == (len(before - after), len(after - before))
        assert channel.depth + channel.in_flight_count + channel.deferred_count == len(after)
        self._save()

    def _replayed(self, sequence: int, name: str) -> dict[bytes, ModelMessage]:
        """What a channel gets that is moved to a place."""
        if self.can_be_moved:
            self._check_log()
        bodies = [body for body in self.model.history if self.sequences[body] >= sequence]
        return self.model.replay(bodies, name, self.core.now)

    def _check_log(self) -> None:
        """All that can be read of the log is just what was released."""
        reader = self.core.topic().reader
        found = [m.body for part in reader.read(0, 1 << 40).parts for m in _messages_of([part])]
        is_log_only = reader.retention_policy.is_on and not self.model.channels and not self.model.paused
        published = [*self.model.history, *(self.model.waiting if is_log_only else ())]
        expected = [body for body in published if self.sequences[body] >= reader.kept_from]
        assert found == expected, (found, expected)

    @rule(name=st.sampled_from(CHANNELS), ready=st.integers(0, 8))
    def subscribe(self, name: str, ready: int) -> None:
        self._channel(name)
        reader = self.core.reader(name, ready=ready)
        reader.consumer.deliver_with_headers = partial(self._deliver_with_headers, reader)
        self.readers[max(self.readers, default=0) + 1] = (name, reader, {})
        self._deliveries()

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), ready=st.integers(0, 8))
    def rdy(self, data: st.DataObject, ready: int) -> None:
        _, (_, reader, _) = self._pick(data)
        reader.channel.set_ready(reader.consumer, ready)
        self._deliveries()

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number, (name, reader, inbox) = self._pick(data)
        reader.leave()
        del self.readers[number]
        if self.core.options.requeue_on_disconnect:
            for body in inbox:
                self.model.channels[name].messages[body].state = READY

    @rule(name=st.sampled_from(CHANNELS), paused=st.booleans())
    def pause_channel(self, name: str, paused: bool) -> None:
        if name in self.model.channels:
            channel = self.core.channel(name)
            channel.pause() if paused else channel.unpause()
            self.model.channels[name].paused = paused
            self._save()
            self._deliveries()

    @rule(name=st.sampled_from(CHANNELS))
    def empty_channel(self, name: str) -> None:
        if name in self.model.channels:
            self.core.channel(name).empty()
            self.model.channels[name].messages.clear()
            for of, _, inbox in self.readers.values():
                if of == name:
                    inbox.clear()

    @rule(name=st.sampled_from(CHANNELS))
    def delete_channel(self, name: str) -> None:
        if name in self.model.channels:
            self.core.topic().delete_channel(name)
            del self.model.channels[name]
            self.readers = {n: entry for n, entry in self.readers.items() if entry[0] != name}
            self._save()

    # -- topic

    @rule(paused=st.booleans())
    def pause_topic(self, paused: bool) -> None:
        topic = self.core.topic()
        if paused:
            topic.pause()
        else:
            topic.unpause(self.core.now)
        self.model.paused = paused
        self.model.release(self.core.now)
        self._save()
        self._deliveries()

    @rule()
    def empty_topic(self) -> None:
        self.core.topic().empty()
        self.model.waiting.clear()
        self._save()

    # -- what becomes of messages

    @precondition(lambda self: any(inbox for _, _, inbox in self.readers.values()))
    @rule(
        data=st.data(),
        action=st.sampled_from(["finish", "requeue", "defer", "touch"]),
        delay=st.sampled_from(DELAYS),
    )
    def act(self, data: st.DataObject, action: str, delay: float) -> None:
        name, reader, inbox = data.draw(st.sampled_from([entry for entry in self.readers.values() if entry[2]]))
        message = inbox[data.draw(st.sampled_from(sorted(inbox)))]
        messages = self.model.channels[name].messages
        if action == "finish":
            assert reader.finish(message.id) == []
            del messages[message.body]
        elif action == "touch":
            assert reader.touch(message.id) is None
            return
        else:
            assert reader.requeue(message.id, delay if action == "defer" else 0.0) is None
            state = DEFERRED if action == "defer" else READY
            messages[message.body] = ModelMessage(state, message.attempts, self.core.now + delay)
        del inbox[message.body]
        self._deliveries()

    @rule()
    def long_wait(self) -> None:
        self.core.wait(LONGER_THAN_ANY_TIMEOUT)
        self._look_again()
        for channel in self.model.channels.values():
            for message in channel.messages.values():
                if message.state == FLIGHT:
                    message.state = READY
        self._fall_due()
        for _, _, inbox in self.readers.values():
            inbox.clear()
        self._deliveries()

    @rule()
    def wait_while_saving(self) -> None:
        """A slow disk: messages fall due while the rows they are in may be saved or not."""
        save = self._begin_save()
        self._shorter_wait(25.0)
        self.core.broker.checkpointer.end(save, None)
        self.long_wait()

    @rule()
    def crash_when_saved(self) -> None:
        """Nobody was told that it is."""
        self._begin_save()
        self.crash()

    def _begin_save(self) -> CheckpointJob:
        self._deliveries()
        save = self.core.begin_save()
        self.core.positions.save(save.checkpoint)
        self.saved = deepcopy(self.model)
        self.since_save = []
        return save

    @rule(seconds=st.sampled_from([10.0, 30.0]))
    def wait_while_nothing_can_be_read(self, seconds: float) -> None:
        self.core.positions.read_failure = BackendError("EIO")
        self._shorter_wait(seconds)
        self.core.positions.read_failure = None
        self.long_wait()

    def _shorter_wait(self, seconds: float) -> None:
        """Shorter than any timeout."""
        self.core.wait(seconds)
        self._fall_due()
        self._deliveries()

    def _look_again(self) -> None:
        """A broker that had no room for what falls due looks ten times a second."""
        self.core.wait(0.2)

    def _fall_due(self) -> None:
        for channel in self.model.channels.values():
            for message in channel.messages.values():
                if message.state in (DEFERRED, REPLAYED) and message.due <= self.core.now:
                    message.state = READY

    # -- saving and dying

    @rule()
    def save(self) -> None:
        self._save()

    @rule()
    def save_fails(self) -> None:
        self.core.save(BackendError("full"))

    @rule()
    def crash(self) -> None:
        found = self._find_refused()
        self.core.crash()
        self._restored(self.since_save, found)

    def _find_refused(self) -> list[Found]:
        """The next start finds them in the log. Where that is, as the saved positions have it."""
        queue, refused = self.core.backend.queue("t"), self.refused
        _insert(queue, refused)
        alsoProvides(queue, ICountedQueue)
        queue.check = lambda start, expected: bool(refused)
        self.refused = []
        (saved,) = self.core.positions.saved.topics
        found = []
        for message in _messages_of(refused):
            sequence = self.sequences[message.body] = int(message.id, 16) & SEQUENCE_MASK
            is_dropped = any(first <= sequence < stop for first, stop in saved.dropped)
            unread_by = [cursor.name for cursor in saved.cursors if cursor.next <= sequence and not is_dropped]
            found.append(Found(message.body, sequence >= saved.released, unread_by))
        return found

    @rule()
    def crash_while_saving(self) -> None:
        self.core.begin_save()
        self.crash()

    @rule()
    def crash_while_nothing_can_be_read(self) -> None:
        """What was in flight is saved once more before other rows are read."""
        self.core.positions.read_failure = BackendError("EIO")
        self.crash()
        self.core.positions.read_failure = None
        self.long_wait()

    @rule(lost=st.integers(1, 3))
    def crash_with_a_lost_tail(self, lost: int) -> None:
        """The saved cut is ahead of the log, as after a power loss: what is lost is lost, and nothing else."""
        queue = self.core.backend.queue("t")
        kept = queue.read(0, 1 << 30)[:-lost]
        end = kept[-1].end if kept else 0
        on_deleted = {m.body for m in _messages_of(queue.read(0, 1 << 30)) if int(m.id, 16) & SEQUENCE_MASK >= end}
        on_deleted.update(body for body, sequence in self.sequences.items() if sequence >= end)  # trimmed before
        _cut_tail(queue, end)
        self.refused = []
        self.core.crash()
        self.saved.waiting = {b: d for b, d in self.saved.waiting.items() if b not in on_deleted}
        self.saved.history = {b: due for b, due in self.saved.history.items() if b not in on_deleted}
        for channel in self.saved.channels.values():
            channel.messages = {b: m for b, m in channel.messages.items() if b not in on_deleted}
        self._restored([entry for entry in self.since_save if entry[0] not in on_deleted])

    @rule()
    def stop_and_start(self) -> None:
        self.core.turn()
        self.core.broker.stop(self.core.now)
        self._save()
        self.crash()

    # -- the model's side

    def _step(self) -> None:
        self.core.wait(0.01)

    def _save(self) -> None:
        self._deliveries()
        self.core.save()
        self.saved = deepcopy(self.model)
        self.since_save = []

    def _restored(self, since: list[tuple[bytes, float, float]], found: Sequence[Found] = ()) -> None:
        """The process has started again: as saved, and what was published since is released again."""
        self.readers = {}
        self.accepted = 0
        self.model = deepcopy(self.saved)
        self.model.only = self.only
        now = self.core.now
        keeps = self.core.options.keep_deferred
        for message in self._unfinished():
            if message.state == FLIGHT or (message.state == DEFERRED and (message.due <= now or not keeps)):
                message.state = READY
        for refused in found:
            if refused.is_unreleased:
                self.model.waiting[refused.body] = self.model.due[refused.body] = 0.0
            for name in () if refused.is_unreleased else refused.unread_by:
                self.model.channels[name].messages[refused.body] = ModelMessage(READY)
        for body, delay, published in since:
            self.model.waiting[body] = delay
            self.model.due[body] = published + delay if delay else 0.0
            if not self.model.paused and self.model.channels and delay:
                self.model.waiting[body] = max(published + delay - now, 1e-9)
        if not keeps:
            self.model.waiting = dict.fromkeys(self.model.waiting, 0.0)
            self._step()  # the moment of publishing, read back, may be a rounding ahead of now
        self.model.release(now)
        for message in self._unfinished():
            if message.state == DEFERRED and message.due <= now + 1e-6:
                message.state = READY
        self._save()

    def _unfinished(self) -> list[ModelMessage]:
        return [message for channel in self.model.channels.values() for message in channel.messages.values()]

    def _deliveries(self) -> None:
        """Do a turn and tell the model who got what; every delivery must be one it allows."""
        self.core.turn()
        for number, (name, reader, inbox) in self.readers.items():
            channel = self.model.channels[name]
            for message in reader.read():
                known = channel.messages[message.body]
                assert self.got_headers.pop((reader, message.body), b"") == self.headers.get(message.body, b"")
                assert known.state == READY or (known.state == REPLAYED and self._may_be_due(known)), (message, known)
                assert message.attempts == known.attempts + 1
                assert not channel.paused
                channel.messages[message.body] = ModelMessage(FLIGHT, message.attempts, reader=number)
                inbox[message.body] = message

    def _deliver_with_headers(self, reader: Reader, frames: bytes, headers: Sequence[bytes]) -> None:
        got = [(reader, message.body) for message in messages(frames)]
        self.got_headers.update(zip(got, headers, strict=True))
        reader.frames.append(frames)

    def _may_be_due(self, message: ModelMessage) -> bool:
        return message.due <= self.core.now + 1e-3 or not self.core.options.keep_deferred

    def _pick(self, data: st.DataObject) -> tuple[int, tuple[str, Reader, dict[bytes, Message]]]:
        number = data.draw(st.sampled_from(sorted(self.readers)))
        return number, self.readers[number]

    @invariant()
    def counts_are_right(self) -> None:
        self._deliveries()
        topic = self.core.topic()
        assert topic.depth == len(self.model.waiting)
        assert set(topic.channels) == set(self.model.channels)
        for name, model in self.model.channels.items():
            channel = topic.channels[name]
            assert channel.paused == model.paused
            found = (channel.depth, channel.in_flight_count, channel.deferred_count)
            if model.count(REPLAYED):
                assert channel.in_flight_count == model.count(FLIGHT)
                assert sum(found) == len(model.messages)
            else:
                assert found == (model.count(READY), model.count(FLIGHT), model.count(DEFERRED)), name

    @invariant()
    def nobody_ready_waits_for_a_message_that_is_there(self) -> None:
        for name, reader, _ in self.readers.values():
            channel = self.core.topic().channels[name]
            if not channel.paused and reader.consumer.room > 0:
                assert channel.depth == 0

    def teardown(self) -> None:
        """Drain: everything the model still has comes, nothing else does."""
        self.pause_topic(False)
        for name in list(self.model.channels):
            self.pause_channel(name, False)
            self.subscribe(name, 2500)
        for _ in range(4):
            self.long_wait()
        for name, channel in self.model.channels.items():
            assert channel.count(FLIGHT) == len(channel.messages), name
            assert self.core.topic().channels[name].in_flight_count == len(channel.messages)


def _messages_of(segments: list) -> list[Message]:
    return [message for segment in segments for message in messages(segment.frames)]


def _insert(queue: object, segments: list[Segment]) -> None:
    """Put them where their sequences belong."""
    queue._segments[:] = sorted([*queue._segments, *segments], key=lambda segment: segment.first)
    queue.size += sum(len(segment.frames) for segment in segments)
    queue.end = max([queue.end, *(segment.end for segment in segments)])


def _cut_tail(queue: object, end: int) -> None:
    """Lose everything from `end` on, as a power loss does."""
    queue._segments[:] = [segment for segment in queue._segments if segment.first < end]
    queue.end = end


Histories.TestCase.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHistories = Histories.TestCase


def test_a_history_in_which_a_channel_is_moved_to_the_place_where_it_is() -> None:
    """As retention is off, that is where the oldest message is. Random histories rarely come there."""
    history = Histories()
    history.choose_options(
        keep_deferred=True, requeue_on_disconnect=False, page_rows=2, retains=False, may_fail_to_sync=False
    )
    history.subscribe("one", 5)
    history.publish(4, 0, headed=False)
    history.publish_deferred(3, DELAYS[0], headed=False)
    ((_, reader, inbox),) = history.readers.values()
    first = min(inbox.values(), key=lambda message: message.id)
    assert reader.finish(first.id) == []
    del inbox[first.body], history.model.channels["one"].messages[first.body]
    history.seek_earliest("one", crashes=False)
    history.counts_are_right()
    history.teardown()
