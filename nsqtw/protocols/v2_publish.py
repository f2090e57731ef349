"""
A publish: its delay, and its reply. It is the waiter that gets the result of the commit.

Performance: called once per publish command or run of them.
"""

# mypyc: compiled

from __future__ import annotations

from nsqtw.core.publish_counts import PublishCounts
from nsqtw.errors import ClientError
from nsqtw.options.broker import Options
from nsqtw.protocols.client import publish_failed
from nsqtw.protocols.frames import OK
from nsqtw.protocols.parameters import decimal, duration_ns, unparsed
from nsqtw.protocols.replies import Replies, ReplySlot
from nsqtw.protocols.session import Session


class PublishingSession(Session):
    """A session as its publishes see it. `published` counts the messages."""

    def __init__(self, published: PublishCounts) -> None:
        super().__init__()
        self.published = published
        self.async_count = 0
        """Publishes that take longer than a turn: until they are done the client is not read from."""

    def error_frame(self, error: ClientError) -> bytes:
        """Return the frame that tells the client an error, and log it."""
        raise NotImplementedError


class Publish(ReplySlot):
    """
    The place of the replies to one command, or to a run of PUBs, of `session`: `reply_count` for `message_count`
    messages for `topic`. `commits_async`: it is answered after this turn.
    """

    __slots__ = ("_message_count", "_reply_count", "_session", "_topic", "_verb", "commits_async")

    def __init__(
        self,
        session: PublishingSession,
        replies: Replies,
        verb: bytes,
        topic: str,
        message_count: int,
        reply_count: int,
    ) -> None:
        super().__init__(replies)
        self.commits_async = False
        self._session = session
        self._verb = verb
        self._topic = topic
        self._message_count = message_count
        self._reply_count = reply_count

    def on_commit(self, error: Exception | None) -> None:
        """Reply with the result of the commit."""
        if self.commits_async:
            self._session.async_count -= 1
        if error is None:
            self._session.published.add(self._topic, self._message_count)
            self.set(OK * self._reply_count, count=self._reply_count)
        else:
            failure = publish_failed(self._verb.decode(), error)
            self.set(self._session.error_frame(failure), is_last=True)


def delay_ms_of(parameter: bytes, options: Options) -> int:
    """The delay of a DPUB. ClientError."""
    number = decimal(parameter)
    if number is None:
        raise unparsed("DPUB could not parse timeout", parameter)
    longest_ns = round(options.longest_delay * 1e9)
    if not 0 <= duration_ns(number) <= longest_ns:
        text = f"DPUB timeout {number} out of range 0-{longest_ns // 10**6}"
        raise ClientError("E_INVALID", text)
    return duration_ns(number) // 10**6
