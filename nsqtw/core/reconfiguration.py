"""
Changes of options, applied to existing topics and channels.

Theory of operation. A topic or channel that is created has the new options at once. The others follow one after the
other, each topic before its channels, in the order of their creation: the first of them within `begin`, the rest in the
next turns, so that ten thousand channels do not make a long turn. Until then each has the options of before. When the
options change again meanwhile, all follow again from the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from nsqtw.core.channel import Channel
from nsqtw.core.context import Context
from nsqtw.core.timers import Timer
from nsqtw.core.topic import Topic
from nsqtw.errors import BackendError

_AT_ONCE: Final = 100
"""Topics and channels that follow in one turn: each takes up to 40 us."""
_NEXT_TURN: Final = 0.001


class Reconfiguration(Timer):
    """What is left to be done in `topics` after a change of the options."""

    def __init__(self, context: Context, topics: Mapping[str, Topic]) -> None:
        super().__init__()
        self._context = context
        self._topics = topics
        self._left: deque[Topic | Channel] = deque()

    def begin(self, now: float) -> None:
        """The options have new values."""
        self._left.clear()
        for topic in self._topics.values():
            self._left.append(topic)
            self._left.extend(topic.channels.values())
        if self._go_on(now):
            self._context.timers.schedule(now + _NEXT_TURN, self)

    def on_timer(self, now: float) -> float | None:
        """Timer API"""
        return now + _NEXT_TURN if self._go_on(now) else None

    def _go_on(self, now: float) -> bool:
        """Have the next ones follow. Returns whether there are more."""
        for _ in range(min(_AT_ONCE, len(self._left))):
            one = self._left.popleft()
            if one.exiting:
                continue
            if isinstance(one, Channel):
                one.policies.follow()
            else:
                self._topic_follows(one, now)
        return bool(self._left)

    def _topic_follows(self, topic: Topic, now: float) -> None:
        try:
            topic.follow_options(now)
        except BackendError as error:
            text = "TOPIC({topic}): stays in durability class memory - {error}"
            self._context.log("error", text, topic=topic.name, error=error)
