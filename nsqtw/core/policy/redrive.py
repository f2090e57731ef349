"""
Redrive: the dead letters of a channel are put back to it, and to no other channel.

Theory of operation. A redrive is the consumer of the channel of the same name in the dead-letter topic, and takes these
steps, a batch at a time:

    read        the channel delivers letters; those of other channels, and messages that are no letters, are withheld
    saved       a checkpoint has the letters as messages in flight
    stored      the topic has committed them as messages for the one channel
    finished    the letters, in the same turn

Withheld messages have a pending row (`Channel.withhold`) and are delivered to nobody. When the redrive ends, they are
the next ones that the channel delivers, in the order of the log and with the attempts that they had. A start does the
same, because no saved row says that they were withheld. A batch that a bound of the channel refuses is stored in parts,
as that of dead letters is.

A crash has the same effects as on the way of a dead letter (`core.policy.dead_letters`): `core.policy.moves` finds what
was stored, and finishes the letters. A redrive itself ends with the process, and can be begun again.

A redrive of one letter reads until it has found it, and withholds what was before it. `Finishing` does the same with
any message of a channel, and finishes it there.

It ends when all letters are done that were ready when it began: those with a sequence below the end that their topic
had then. A message that fails again becomes a letter beyond this end, and is withheld when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from nsqtw.core.channel import Channel
from nsqtw.core.client import Client, ClientState
from nsqtw.core.consumer import Consumer
from nsqtw.core.policy.letter import is_letter_of, redriven_headers
from nsqtw.core.segment import BODY_AT, ID_AT, SIZE_BYTES, sequence_of
from nsqtw.core.timers import Timer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError, Exiting, Overflow
from nsqtw.message_headers import NO_HEADERS

RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
DRY_RUN = "dry run"
STATES = (RUNNING, DONE, STOPPED, FAILED, DRY_RUN)
BATCH = 500
"""Letters that are put back together, at most."""
MAX_WITHHELD = 100_000
"""Messages that are withheld at most: each is in memory, and is given back in one turn with the others."""
RETRY_SECONDS = 1.0
_LOOK_SECONDS = 0.05
"""Time after which a channel that delivered nothing is looked at."""
_SEARCH_SECONDS: Final = 10.0
"""Time in which one message must be found."""
_MSG_TIMEOUT = 10.0 * 365 * 86_400
"""A batch may wait long for room in its channel."""
_NOT_REACHED: Final = (
    "the message was not reached in 10 seconds: its channel is paused, is slowed down by a max_rate, or cannot be read"
)
_TOO_MANY_OTHERS: Final = (
    f"{MAX_WITHHELD:,} messages of others are before the next dead letter of this channel: redrive or finish those, and"
    " give the channel a dead_letter_topic of its own"
)


class _Step(Enum):
    IDLE = auto()
    READING = auto()
    SAVING = auto()
    SAVED = auto()
    NOT_SAVED = auto()
    SAVING_AGAIN = auto()
    STORING = auto()
    FLUSHING = auto()
    FAILED = auto()


class _Letter(NamedTuple):
    id: bytes
    body: bytes
    headers: bytes


class Redrive(Timer):
    """
    A redrive to `channel` of `topic`, from the channel `letters` of `letter_topic`. At most `rate` messages a second
    and `limit` messages are put back; 0 for any number. With `only`, the id of a letter, it is only that one, and
    `on_end` is called when that is done or has failed.
    """

    def __init__(
        self,
        topic: Topic,
        channel: Channel,
        letter_topic: Topic,
        letters: Channel,
        rate: int,
        limit: int,
        now: float,
        only: bytes = b"",
        on_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.state = RUNNING
        self.error = ""
        """Why the last step failed; empty when it did not."""
        self.total = letters.depth
        self.redriven = 0
        self.others = 0
        """Messages that stay: letters of other channels, and messages that are no letters."""
        self._topic = topic
        self._channel = channel
        self._letter_topic = letter_topic
        self._letters = letters
        self._rate = rate
        self._limit = limit
        self._only = only
        self._on_end = on_end
        self._began = self._now = now
        self._end_sequence = letter_topic.released
        self._started_at = topic.context.timestamp_ns(now) // 10**9
        self._step = _Step.IDLE
        self._is_stopping = False
        self._read: list[_Letter] = []
        self._batch: list[_Letter] = []
        self._part_size = BATCH
        """Letters of the batch that are stored together."""
        client = Client(
            "127.0.0.1:0", self._started_at, "redrive", "nsqd", "nsqd/redrive", state=ClientState.SUBSCRIBED
        )
        timers = topic.context.timers
        self._consumer = Consumer(client, timers, self._on_frames, self._on_disconnect, _MSG_TIMEOUT)
        self._consumer.deliver_with_headers = self._on_letters
        letters.subscribe(self._consumer)
        if not only:
            channel.redrive_left = self.left
        timers.schedule(now, self)

    def progress(self) -> dict[str, Any]:
        """Return the progress, as the API shows it."""
        if self._only:
            return _progress(self.state, 1, self.redriven, 0, 0, self._started_at, self.error)
        return _progress(self.state, self.total, self.redriven, self.others, self._rate, self._started_at, self.error)

    def left(self) -> int:
        """Return how many letters it still has to look at."""
        return self.total - self.redriven - self.others if self.state == RUNNING else 0

    def stop(self) -> None:
        """End it before it is done, after the batch that is being stored."""
        self._is_stopping = True
        self._soon()

    def on_timer(self, now: float) -> float | None:
        """Timer API: take the next step."""
        self._now = now
        if self.state != RUNNING or self._step is _Step.STORING:
            return None
        if self._is_stopping:
            self._end(STOPPED)
        elif self._channel.exiting:
            self._end(FAILED, "the channel is deleted")
        elif self._only and self._step in (_Step.IDLE, _Step.READING) and now - self._began > _SEARCH_SECONDS:
            self._end(FAILED, _NOT_REACHED)
        elif self._step in (_Step.FAILED, _Step.NOT_SAVED):
            if self._only:
                self._end(FAILED, self.error)
                return None
            self._step = _Step.SAVED if self._step is _Step.FAILED else _Step.SAVING_AGAIN
            return now + RETRY_SECONDS
        elif self._step is _Step.SAVING_AGAIN:
            self._take()
        elif self._step is _Step.SAVED:
            self._store()
        elif self._step is _Step.FLUSHING:
            return self._flush(now)
        elif self._step is _Step.READING:
            return self._sort(now)
        elif self._step is _Step.IDLE:
            return self._ask(now)
        return None

    # -- the steps

    def _ask(self, now: float) -> float | None:
        """Let the channel deliver a batch. Returns when to look at what it delivered."""
        if len(self._letters.withheld or ()) >= MAX_WITHHELD:
            self._end(FAILED, _TOO_MANY_OTHERS)
            return None
        count = min(BATCH, self.total - self.redriven - self.others)
        if self._only and self.redriven:
            count = 0
        if self._limit:
            count = min(count, self._limit - self.redriven)
        if count <= 0:
            self._end(DONE)
            return None
        if self._rate:
            due = self.redriven - (now - self._began) * self._rate
            if due > 0:
                return now + due / self._rate
            count = min(count, max(1, int(-due)))
        self._step = _Step.READING
        self._letters.set_ready(self._consumer, count)
        return now + _LOOK_SECONDS

    def _sort(self, now: float) -> float | None:
        """Take what the channel delivered: the batch is what is to be put back."""
        if not self._read:
            if not self._letters.position.available:
                self._end(DONE)
                return None
            self.error = "the channel of the dead letters delivers nothing: it is paused, or cannot be read"
            return now + RETRY_SECONDS
        self.error = ""
        self._letters.set_ready(self._consumer, 0)
        read, self._read = self._read, []
        later = [letter.id for letter in read if sequence_of(letter.id) >= self._end_sequence]
        there = read if not later else [letter for letter in read if sequence_of(letter.id) < self._end_sequence]
        self._batch = list(filter(self._is_wanted, there))
        others = [letter.id for letter in there if not self._is_wanted(letter)]
        self.others += len(others)
        if later or others:
            self._letters.withhold(self._consumer, later + others)
        if self._batch:
            self._take()
            return None
        cursor = self._letters.cursor
        if not others and cursor is not None and cursor.next >= self._end_sequence:
            self.total = self.redriven + self.others
            self._end(DONE)
            return None
        self._step = _Step.IDLE
        return self._ask(now)

    def _is_wanted(self, letter: _Letter) -> bool:
        """Return whether a letter is to be put back."""
        is_own = is_letter_of(letter.headers, self._topic.name, self._channel.name)
        return is_own and self._only in (b"", letter.id)

    def _take(self) -> None:
        """The batch is what is to be put back."""
        self._step = _Step.SAVING
        self._topic.save(self._saved)

    def _saved(self, error: Exception | None) -> None:
        """Waiter API: the letters are saved as in flight, or that failed."""
        if self.state != RUNNING:
            return
        if error is not None:
            self.error = str(error)
            self._step = _Step.NOT_SAVED
        else:
            self._step = _Step.SAVED
        self._soon()

    @property
    def _part(self) -> list[_Letter]:
        """The letters of the batch that are stored next."""
        return self._batch[: self._part_size]

    def _store(self) -> None:
        """Put a part of the batch back."""
        self._step = _Step.STORING
        name, part = self._letter_topic.name, self._part
        headers = [redriven_headers(letter.headers, name, letter.id) for letter in part]
        waiter = self._topic.move_waiter(self._letter_topic, self._stored)
        self._topic.put([letter.body for letter in part], 0, waiter, headers, self._channel.name)

    def _stored(self, error: Exception | None) -> None:
        """Waiter API: the messages are stored, or that failed."""
        if isinstance(error, Exiting):
            self._end(STOPPED, str(error))
            return
        if isinstance(error, Overflow) and len(self._part) > 1:
            self._part_size = len(self._part) // 2
            self._step = _Step.SAVED
        elif error is not None:
            self.error = str(error)
            self._step = _Step.FAILED
        elif self._topic.is_write_behind:
            self._step = _Step.FLUSHING
        else:
            self._finish()
        self._soon()

    def _flush(self, now: float) -> float | None:
        """
        Store what class memory has answered and not stored: until then the letters are kept. A crash between the two
        repeats the batch.
        """
        try:
            self._topic.flush()
        except BackendError as error:
            self.error = str(error)
            return now + RETRY_SECONDS
        self._finish()
        return now

    def _finish(self) -> None:
        """The part is stored."""
        part = self._part
        self.error = ""
        self._letters.finish(self._consumer, [letter.id for letter in part], self._now)
        self.redriven += len(part)
        self._batch = self._batch[len(part) :]
        self._part_size = min(BATCH, 2 * self._part_size)
        self._step = _Step.SAVED if self._batch else _Step.IDLE

    def _end(self, state: str, error: str = "") -> None:
        """End the redrive. Letters that were read and not put back are ready again."""
        self.state = state
        self.error = error or self.error
        self._letters.withhold(self._consumer, [message_id for message_id, _ in self._consumer.in_flight.items()])
        self._letters.give_back()
        self._letters.leave(self._consumer)
        self._topic.context.timers.cancel(self)
        self._read, self._batch = [], []
        if self._on_end is not None:
            self._on_end()

    # -- the consumer

    def _on_frames(self, frames: bytes) -> None:
        """Messages none of which has headers."""
        self._on_letters(frames, ())

    def _on_letters(self, frames: bytes, headers: Sequence[bytes]) -> None:
        offset, number = 0, 0
        while offset < len(frames):
            end = offset + SIZE_BYTES + int.from_bytes(frames[offset : offset + SIZE_BYTES], "big")
            frame = frames[offset:end]
            of_letter = headers[number] if headers else NO_HEADERS
            self._read.append(_Letter(frame[ID_AT:BODY_AT], frame[BODY_AT:], of_letter))
            offset, number = end, number + 1
        self._soon()

    def _on_disconnect(self) -> None:
        if self.state == RUNNING:
            self._end(FAILED, "the channel of the dead letters is deleted")

    def _soon(self) -> None:
        self._topic.context.timers.schedule(0.0, self)


class Finishing(Redrive):
    """Finishes one ready message of a channel, which has no other consumer. `redriven` is 1 when that is done."""

    def __init__(self, topic: Topic, channel: Channel, only: bytes, now: float, on_end: Callable[[], None]) -> None:
        super().__init__(topic, channel, topic, channel, 0, 0, now, only, on_end)

    def _is_wanted(self, letter: _Letter) -> bool:
        return letter.id == self._only

    def _take(self) -> None:
        self._finish()
        self._soon()


def preview(total: int, others: int, rate: int) -> dict[str, Any]:
    """Return the progress of a redrive that has not begun, of so many messages."""
    return _progress(DRY_RUN, total, 0, others, rate, 0, "")


def _progress(
    state: str, total: int, redriven: int, others: int, rate: int, started: int, error: str
) -> dict[str, Any]:
    return {
        "state": state,
        "total": total,
        "redriven": redriven,
        "others": others,
        "rate": rate,
        "started": started,
        "error": error,
    }


class Redrives:
    """The last redrive of each channel."""

    def __init__(self) -> None:
        self._of: dict[Channel, Redrive] = {}

    def get(self, channel: Channel) -> Redrive | None:
        """Return the last redrive of a channel; None if there was none."""
        return self._of.get(channel)

    def add(self, channel: Channel, redrive: Redrive) -> None:
        """A redrive has begun."""
        self._of = {other: of for other, of in self._of.items() if not other.exiting}
        self._of[channel] = redrive
