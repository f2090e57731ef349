"""
Replies of a session, in order.

A reply is never written ahead of an older one. One that is not known yet leaves a `ReplySlot`, and what comes after it
waits behind it. Messages and heartbeats are not replies and pass.
"""

# mypyc: compiled

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nsqtw.upgrades import Upgrade

MAX_FILLED: Final = 1024
"""Places that were filled and stay until all are: to take one from the front of a list costs as much as it is long."""


class ReplySlot:
    """The slot of a reply that is not known yet, behind the other ones of `replies`: `set` it once."""

    __slots__ = ("_replies", "count", "frames", "is_last")

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.frames: bytes | Upgrade | None = None
        self.count = 1
        self.is_last = False
        replies.slots.append(self)

    def set(self, frames: bytes | Upgrade, *, count: int = 1, is_last: bool = False) -> None:
        """The reply, or `count` of them. Nothing is written after the one that `is_last`."""
        self.frames = frames
        self.count = count
        self.is_last = is_last
        self._replies.flush()


class Replies:
    """The output of one session. `changed` is called when there is something to write, `ended` after the last reply."""

    def __init__(self, changed: Callable[[], None], ended: Callable[[], None]) -> None:
        self._changed = changed
        self._ended = ended
        self._out: list[bytes | Upgrade] = []
        self._has_upgrade = False
        self.slots: list[ReplySlot] = []
        self._filled = 0
        """Slots that are written, counted from the first."""
        self.is_paused = False
        """Whether the client does not read."""
        self.are_awaited = False
        """Whether the replies are taken in this turn in any case, so that `changed` need not be called."""
        self.unread_count = 0
        """Replies written since the client stopped reading."""

    @property
    def are_pending(self) -> bool:
        """Whether replies are missing."""
        return bool(self.slots)

    def reserve(self) -> ReplySlot:
        """Keep a place for a reply."""
        return ReplySlot(self)

    def add(self, frames: bytes, *, is_last: bool = False) -> None:
        """Reply."""
        self.reserve().set(frames, is_last=is_last)

    def add_upgrade(self, upgrade: Upgrade) -> None:
        """Have the connection upgraded between what is written before and what is written after."""
        self._has_upgrade = True
        self.reserve().set(upgrade)

    def push(self, frames: bytes) -> None:
        """
        Write something that is not a reply. `changed` is called in any case: connections with deliveries are flushed
        first.
        """
        self._out.append(frames)
        self._changed()

    def flush(self) -> None:
        """Write what is known, up to the first place that is not filled."""
        slots, filled = self.slots, self._filled
        while filled < len(slots):
            slot = slots[filled]
            frames = slot.frames
            if frames is None:
                if filled >= MAX_FILLED:
                    del slots[:filled]
                    filled = 0
                break
            filled += 1
            self._out.append(frames)
            if self.is_paused:
                self.unread_count += slot.count
            if slot.is_last:
                slots.clear()
                self._ended()
        else:
            slots.clear()
            filled = 0
        self._filled = filled
        if not self.are_awaited:
            self._changed()

    def take(self) -> list[bytes | Upgrade]:
        """Return what is to be written now: everything, or up to the first upgrade."""
        self.are_awaited = False
        out, self._out = self._out, []
        if self._has_upgrade:
            for index, item in enumerate(out):
                if not isinstance(item, bytes):
                    self._out = out[index + 1 :]
                    self._has_upgrade = False
                    return out[: index + 1]
        return out

    def pause(self) -> None:
        """The client does not read."""
        self.is_paused = True

    def resume(self) -> None:
        """It does again."""
        self.is_paused = False
        self.unread_count = 0

    def close(self) -> None:
        """The session has ended: drop all replies, and report no later ones."""
        self._changed = self._ended = _do_nothing
        self.forget()

    def forget(self) -> None:
        """Nobody reads them any more."""
        self.slots.clear()
        self._filled = 0
        self._out.clear()


def _do_nothing() -> None:
    """The callback of closed replies."""
