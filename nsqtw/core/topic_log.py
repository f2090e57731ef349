"""
The part of a topic that cursors and readers use: its log, and the end of the part that may be read.

`released` is the sequence up to which channels read, and where a new channel starts. It stands still while the topic is
paused, waits for its channels or has none. Topic depth is what lies above it.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.context import Context
from nsqtw.core.dropped_ranges import DroppedRanges
from nsqtw.core.log import Log
from nsqtw.core.policy.letter import Letters
from nsqtw.errors import BackendError
from nsqtw.interfaces import Waiter
from nsqtw.names import is_ephemeral


class TopicLog:
    """The log of one topic. `Topic` extends it."""

    def __init__(self, context: Context, name: str, log: Log) -> None:
        self.context = context
        self.name = name
        self.log = log
        self.ephemeral = is_ephemeral(name)
        self.mem_queue_size: int = context.options.mem_queue_size
        self.paused = False
        self.is_awaiting_channels = False
        """A new topic that may lack channels yet; publishing goes on."""
        self.exiting = False
        self.released = self.restored_end = log.end
        self.released_total = 0
        self.put_total = 0
        self.message_count = 0
        """Accepted since the process started."""
        self.rejected_count = 0
        """Publishes that the bound of a channel refused, since the process started."""
        self.cancelled_count = 0
        """Deferred messages that were cancelled, since the process started."""
        self.released_in_memory = 0
        """How many of the newest released messages nsqd would have in memory."""
        self.dropped = DroppedRanges()
        self.message_ttl_ns = 0
        """The time to live of messages whose headers do not say another one; 0: no end."""

    @property
    def depth(self) -> int:
        """Messages that were released to no channel."""
        return self.put_total - self.released_total

    @property
    def backend_depth(self) -> int:
        """How many of them nsqd would have on disk."""
        return 0 if self.ephemeral else max(0, self.depth - min(self.message_count, self.mem_queue_size))

    @property
    def shown_depth(self) -> int:
        """The depth without the messages of a new topic that count in its channels already (`Topic.awaited_by`)."""
        return 0 if self.is_promised else self.depth

    @property
    def shown_backend_depth(self) -> int:
        """How many of the shown ones nsqd would have on disk."""
        return 0 if self.is_promised else self.backend_depth

    @property
    def is_promised(self) -> bool:
        """Whether a new topic with channels holds messages only until it is known which other channels get them."""
        return self.is_awaiting_channels and not self.paused and self.has_channels

    @property
    def is_paused_or_pending(self) -> bool:
        """Whether nothing is released, channels or not."""
        return self.paused or self.is_awaiting_channels

    @property
    def is_flowing(self) -> bool:
        """Whether published messages are released to channels."""
        return not self.paused and not self.is_awaiting_channels and self.has_channels

    @property
    def has_channels(self) -> bool:
        raise NotImplementedError

    @property
    def lowest_position(self) -> int:
        """The lowest `next` of the topic's cursors; `released` without any."""
        raise NotImplementedError

    def touch(self) -> None:
        """Something changed that the next checkpoint must contain."""
        raise NotImplementedError

    def save(self, waiter: Waiter) -> None:
        """Have a checkpoint saved that has everything up to now; then the waiter is called."""
        raise NotImplementedError

    def put_dead_letters(self, letters: Letters, waiter: Waiter, now: float) -> None:
        """Publish to the dead-letter topic, which is made when there is none. NsqtwError when that is not possible."""
        raise NotImplementedError

    def lost(self, sequence: int) -> None:
        """An unfinished message is not in the log any more."""
        text = "TOPIC({topic}): message {sequence} was not finished and is not stored any more"
        self.context.log("error", text, topic=self.name, sequence=sequence)

    def read_failed(self, error: BackendError) -> None:
        """The medium failed while a channel was served; reading is tried again."""
        text = "TOPIC({topic}): failed to read, will try again - {error}"
        self.context.log("error", text, topic=self.name, error=error)
